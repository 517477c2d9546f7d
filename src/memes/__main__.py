"""Run `memes` as `python -m memes`."""

from memes.commands.main import script

if __name__ == "__main__":  # and not where MPI's workers look for what the command defines
    script()
