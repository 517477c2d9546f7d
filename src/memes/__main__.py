"""Run `memes` as `python -m memes`."""

from memes.commands.main import script

if __name__ == "__main__":  # not when MPI's workers import it
    script()
