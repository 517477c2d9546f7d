"""Functions that read and write run folders, whose plain files survive crashes."""
