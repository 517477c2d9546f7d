"""The commands of `memes`, with one module per command."""
