"""Run folders: plain files that a crash cannot damage, and functions to write and read them."""
