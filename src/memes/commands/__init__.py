"""The commands of `memes`, one file each."""
