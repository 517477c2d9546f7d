"""Running algorithms: the loop, the run folder, the progress bar and the settings."""
