"""A folder of compiled code that outlives the process."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path


def digest(*parts: str) -> str:
    """A short name for everything that compiled code depends on."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """The file of that name in the cache; `build(path)` writes it where it is missing."""
    folder = _folder_for(name)
    file = folder / name
    if not file.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / name
            build(built)
            os.replace(built, file)  # whole or not at all, also with two runs at once
    return file


def _folder_for(name: str) -> Path:
    """The cache, if it holds a file of that name or can; else a folder that goes with this process."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "memes" / "native"
    if (folder / name).exists():
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(_temporary_folder().name)


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="memes-")
