"""Limit the memory of a test process."""

import ctypes
import gc
import os
from pathlib import Path

import jax

SHARED = []  # Tests share the objects in these dictionaries. Cleared objects are created again.
LIMIT = 1.25 * 2**30  # A test worker frees its programs if it uses more than `LIMIT` bytes.


def free():
    """Discard all compiled programs, which may use gigabytes, and return their memory to the system."""
    for found in SHARED:
        found.clear()
    jax.clear_caches()
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)  # only glibc has `malloc_trim`


def resident():
    """Return the resident memory of this process in bytes, or 0 if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
