"""Start processes that handle Ctrl-C even if their parent process ignores it."""

import sys

RESTORE_SIGINT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def interruptible(*words):
    """Return a command that runs Python with the arguments `words` and handles SIGINT.

    Without this function, processes that shells start in the background would ignore SIGINT.
    """
    return [sys.executable, "-c", RESTORE_SIGINT, sys.executable, *map(str, words)]
