"""Memory that tests give back."""

import ctypes
import gc
import os
from pathlib import Path

import jax

SHARED = []  # dictionaries of what tests share, which may be made again
MOST = 1.25 * 2**30  # bytes, after which a worker is restarted


def free():
    """Let go of all compiled programs, which take gigabytes, and return their memory to the system."""
    for found in SHARED:
        found.clear()
    jax.clear_caches()
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)  # only glibc has it


def resident():
    """The bytes of memory that this process has; 0 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
