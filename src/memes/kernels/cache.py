"""A cache of compiled code.

Cached code is executed, so the cache uses only folders that no other user can write to.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path


def digest(*parts: str) -> str:
    """Return a short hash of all inputs on which compiled code depends."""
    return _short("\0".join(parts).encode())


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """Return the path of a cached file. If the file is missing or damaged, `build(path)` writes it.

    The name of the file ends with the digest of the file's content.
    """
    own = folder("native")
    if own is not None:
        with suppress(OSError):  # the folder may be read-only, or the disk may be full
            return _found(own, name) or _built(own, name, build)
    temporary = Path(_temporary_folder().name)
    return _found(temporary, name) or _built(temporary, name, build)


def folder(name: str) -> Path | None:
    """Make a folder in the user's cache and return it, or return None if there is no safe folder."""
    try:
        base = _base()
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _own(_own(base / "memes") / name)
    except (OSError, RuntimeError):  # for example, there is no home folder
        return None


def _base() -> Path:
    """Return the user's cache folder, `XDG_CACHE_HOME` or `~/.cache`. A relative path is ignored."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = given if given.is_absolute() else Path.home() / ".cache"
    mode = base.stat().st_mode if base.exists() else 0
    if not base.is_absolute() or (mode & stat.S_IWOTH and not mode & stat.S_ISVTX):
        raise PermissionError(f"'{base}' cannot be used as a cache: every user could change it")
    return base


def _own(path: Path) -> Path:
    """Make a folder that only the user can write to, or raise an `OSError` if this is impossible."""
    path.mkdir(mode=0o700, exist_ok=True)
    about = path.stat()
    mine = about.st_uid == _user()
    if mine and about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        path.chmod(0o700)
        mine = all(entry.lstat().st_uid == _user() for entry in path.iterdir())
    if not mine:
        raise PermissionError(f"'{path}' belongs to another user, or contains a file of another user")
    return path


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _found(place: Path, name: str) -> Path | None:
    """Return the cached file for a name, or None if there is no such file. Remove damaged files."""
    stem, suffix = os.path.splitext(name)
    for file in place.glob(f"{stem}-*{suffix}"):
        about = file.lstat()
        mine = stat.S_ISREG(about.st_mode) and about.st_uid == _user()
        if mine and file.stem == f"{stem}-{_short(file.read_bytes())}":
            return file
        file.unlink(missing_ok=True)
    return None


def _built(place: Path, name: str, build: Callable[[Path], None]) -> Path:
    stem, suffix = os.path.splitext(name)
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        built = Path(scratch) / name
        build(built)
        with built.open("rb+") as file:
            content = _short(file.read())
            os.fsync(file.fileno())
        entry = place / f"{stem}-{content}{suffix}"
        os.replace(built, entry)  # atomic, because another process may write the same file
    return entry


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="memes-")
