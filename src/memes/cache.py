"""The folder for what is compiled and can be used again."""

from __future__ import annotations

import os
from pathlib import Path


def compiled_programs() -> Path | None:
    """Make the folder for programs that JAX compiled; None where it cannot be made."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "memes" / "xla"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written: nothing is kept
        return None
    return folder
