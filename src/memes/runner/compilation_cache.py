"""The folder of compiled programs, which later runs can reuse."""

from __future__ import annotations

import os
from pathlib import Path

from memes.kernels.cache import folder


def compiled_programs() -> Path | None:
    """Make and return the folder for programs compiled by JAX, or return None if it is not writable."""
    programs = folder("xla")
    return programs if programs is not None and os.access(programs, os.W_OK) else None
