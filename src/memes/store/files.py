"""Files that a crash leaves whole, old or new, in folders with one writer at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np

from memes.errors import UsageError


def replace_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file as a whole: whenever the machine stops, there is the old one or the new one."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    # Systems without file descriptors of folders make a renaming last by themselves.
    with suppress(OSError):
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append(path: Path, data: bytes, at: int) -> None:
    """Write data in place of what follows the first `at` bytes of a file, and sync it."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.seek(at)
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def save_text(path: Path, text: str) -> None:
    """Write lines of text as a whole file."""
    replace_file(path, lambda file: file.write(f"{text}\n".encode()))


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file. Nothing in it is unpickled."""
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
        return dict(data)


@contextmanager
def intact(file: Path) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into a `UsageError` that names it.

    Readers of broken zip files and arrays raise nearly any exception there is.
    """
    try:
        yield
    except UsageError:
        raise
    except FileNotFoundError:
        raise UsageError(f"there is no file '{file}'") from None
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"'{file}' is damaged or not what its name says: {reason}") from error


# A lock lasts until the last process has closed its file; forked children, who may outlive the process
# that writes, must not keep it.
_held: set[IO[str]] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [file.close() for file in _held])


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; raises a `UsageError` if another process does.

    The lock belongs to the process, not to the file: it ends with it, however it ends.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    with (folder / ".lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(
                f"out: another process ({file.read().strip() or 'unknown'}) is writing to '{folder}'"
            ) from None
        except OSError:
            pass  # some network file systems know no locks
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        _held.add(file)
        try:
            yield
        finally:
            _held.discard(file)
