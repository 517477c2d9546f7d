"""Functions that read and write run folders, which contain the results of runs in plain files."""
