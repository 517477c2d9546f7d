"""Run `memes` as `python -m memes`."""

from memes.commands.main import script

if __name__ == "__main__":  # skipped when MPI workers import this module
    script()
