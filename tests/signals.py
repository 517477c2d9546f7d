"""Processes that hear Ctrl-C, also where those that start them do not."""

import sys

HEARING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def hearing(*words):
    """Return the command for `python words`; a shell lets what it starts in the background ignore it."""
    return [sys.executable, "-c", HEARING, sys.executable, *map(str, words)]
