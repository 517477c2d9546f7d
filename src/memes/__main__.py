"""Run `memes` as `python -m memes`."""

from memes.commands.main import script

script()
