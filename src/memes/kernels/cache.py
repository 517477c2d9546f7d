"""Compiled code that outlives the process, in folders that are the user's alone: it will be executed."""

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
    """A short name for everything that compiled code depends on."""
    return _short("\0".join(parts).encode())


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """The file of that name in the cache; `build(path)` writes it where it is missing or damaged.

    Its name there ends in the digest of what it holds.
    """
    own = folder("native")
    if own is not None:
        with suppress(OSError):  # a folder that can only be read, or a full disk
            return _found(own, name) or _built(own, name, build)
    temporary = Path(_temporary_folder().name)
    return _found(temporary, name) or _built(temporary, name, build)


def folder(name: str) -> Path | None:
    """Make a folder in the user's cache; None where that cannot be, or would not be theirs alone."""
    try:
        base = _base()
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _own(_own(base / "memes") / name)
    except (OSError, RuntimeError):  # or there is no home
        return None


def _base() -> Path:
    """The user's cache, by the XDG specification: variables that hold no absolute path are ignored."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = given if given.is_absolute() else Path.home() / ".cache"
    mode = base.stat().st_mode if base.exists() else 0
    if not base.is_absolute() or (mode & stat.S_IWOTH and not mode & stat.S_ISVTX):
        raise PermissionError(f"'{base}' is no place for a cache: everybody could change it")
    return base


def _own(path: Path) -> Path:
    """Make a folder that nobody else can write; raises an `OSError` if somebody else has."""
    path.mkdir(mode=0o700, exist_ok=True)
    about = path.stat()
    mine = about.st_uid == _user()
    if mine and about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        path.chmod(0o700)
        mine = all(entry.lstat().st_uid == _user() for entry in path.iterdir())
    if not mine:
        raise PermissionError(f"'{path}' is, or holds, somebody else's")
    return path


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _found(place: Path, name: str) -> Path | None:
    """The entry of that name, if it is whole; what is not is removed."""
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
        os.replace(built, entry)  # whole or not at all, also with two runs at once
    return entry


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="memes-")
