"""Functions that open, read and write the files of run folders.

A folder may come from an untrusted source. Therefore these functions do not follow links and open only
regular files. They check the size of the content before they allocate memory. If the program crashes
while it replaces a file, the result is either the complete old file or the complete new file. Only one
process at a time can write to a folder.
"""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import secrets
import stat
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from memes.errors import LONGEST_NAME, UsageError, require
from memes.store.sanitize import printable
from memes.validation import described, fits, short

# Maximum size in bytes of a JSON file, of a table, and of a line of a table. A loaded JSON file needs up
# to thirty times its size in memory.
MOST_JSON = 2**24
MOST_TABLE = 2**30
MOST_LINE = 2**16
# Maximum memory for the numbers of a table, in bytes and as a multiple of the file size. The larger of
# the two limits applies.
MOST_NUMBERS, MOST_TIMES_TABLE = 2**24, 2
# Maximum memory for the arrays of an npz file, in bytes and as a multiple of the file size. The larger
# of the two limits applies.
MOST_ARRAYS = 2**31
MOST_TIMES = 32
LONGEST_PART, LONGEST_PATH = 255, 4095  # Maximum number of bytes of a file name, and of a path.

# Flags for opening files: do not follow links, and do not block on a pipe without a writer. Windows has
# neither flag.
SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")  # Names of the temporary files of `replace_file`.

# The lock file of a folder contains the id of the last process that acquired the lock.
LOCK, LONGEST_LOCK = re.compile(r"\d*\n?"), 32


def as_path(path: Any, name: str = "path") -> Path:
    """Convert an argument to a path, or raise a `UsageError` if it is not a valid path."""
    given = isinstance(path, (str, os.PathLike)) and isinstance(os.fspath(path), str)
    require(given, f"{name} must be str or Path, got {short(path)}")
    text = os.fspath(path)
    require(text != "", f"{name} must name a file or folder, got ''; '.' is the current folder")
    require("\0" not in text, f"{name} must not contain the character NUL, got {short(text)}")
    require(
        Path(text).parts[:1] != ("~",),
        f"{name} must not begin with '~', which memes does not expand; use os.path.expanduser",
    )
    try:
        size, *parts = (len(os.fsencode(each)) for each in (text, *Path(text).parts))
    except UnicodeEncodeError:
        raise UsageError(f"{name} must be a valid path, got {short(text)}") from None
    require(
        max(parts, default=0) <= LONGEST_PART and size <= LONGEST_PATH,
        f"{name} must have at most {LONGEST_PART} bytes per part and {LONGEST_PATH} bytes in total",
    )
    return Path(text)


def open_regular(path: Path, mode: str = "rb") -> IO[Any]:
    """Open a regular file, as `open` does, but raise a `UsageError` for a link, a pipe or a folder."""
    return open(path, mode, opener=_descriptor)


def _descriptor(path: str, flags: int) -> int:
    try:
        found = os.open(path, flags | SAFELY, 0o666)
    except OSError as error:
        require(error.errno != errno.ELOOP, f"'{path}' is a link, which memes does not follow")
        raise
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise UsageError(f"'{path}' is not a regular file")
    return found


def replace_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically. A crash leaves either the complete old file or the complete new file."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open_regular(temporary, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise
    # Sync the folder, so that the new name of the file survives a crash. Some systems cannot open
    # folders, and do not need this step.
    with suppress(OSError):
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append(path: Path, data: bytes, at: int) -> None:
    """Keep the first `at` bytes of a file, write data after them, and sync the file.

    If the file has hard links, it is replaced with a new file. The other links keep the old content.
    """
    with open_regular(path, "r+b" if path.exists() else "w+b") as file:
        if os.fstat(file.fileno()).st_nlink > 1:
            before = file.read(at)
            replace_file(path, lambda copy: copy.write(before + data))
            return
        file.seek(at)
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def save_text(path: Path, text: str) -> None:
    """Write text to a file atomically."""
    replace_file(path, lambda file: file.write(f"{text}\n".encode()))


def read_bytes(file: Path, most: int) -> bytes:
    """Read a file of at most `most` bytes."""
    with reading(file), open_regular(file) as stream:
        _check_size(file, stream, most)
        return bytes(stream.read(most))


def read_json(file: Path) -> dict[str, Any]:
    """Read the object in a JSON file, and escape control characters in the strings of the object."""
    with reading(file):
        content = json.loads(read_bytes(file, MOST_JSON))
        require(isinstance(content, dict), f"'{file}' must contain a JSON object")
        return {printable(name): _printable(value) for name, value in content.items()}


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(each) for each in value]
    if isinstance(value, dict):
        return {printable(name): _printable(each) for name, each in value.items()}
    return value


def check_entries(file: Path | str, entries: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Check that the entries of a file match the given type hints.

    Raises:
        UsageError: If an entry does not match its type hint, or if a string is too long. The error
            message names the first invalid entry.
    """
    for name, hint in hints.items():
        value = entries.get(name)
        short_enough = not isinstance(value, str) or len(value) <= LONGEST_NAME
        require(fits(value, hint), f"{name} in '{file}' must be {described(hint)}, got {short(value)}")
        require(short_enough, f"{name} in '{file}' must have at most {LONGEST_NAME} characters")


def read_table(file: Path, needed: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Read a CSV file into one array per column, with NaN for empty fields."""
    with reading(file), open_regular(file) as stream:
        _check_size(file, stream, MOST_TABLE)
        lines = sum(1 for _ in _lines(stream))
        stream.seek(0)
        rows = csv.reader(line.decode() for line in _lines(stream))
        header = next(rows, None)
        if not header:
            raise ValueError("it has no header")
        size, count = os.fstat(stream.fileno()).st_size, (lines - 1) * len(header)
        if 8 * count > max(MOST_NUMBERS, MOST_TIMES_TABLE * size):
            raise ValueError(f"{count:,} numbers are too many for a file of {size:,} bytes")

        def numbers() -> Iterator[float]:
            for row in rows:
                if len(row) != len(header):
                    raise ValueError(f"line {rows.line_num} has {len(row)} fields, not {len(header)}")
                yield from (float(field) if field else np.nan for field in row)

        columns = np.fromiter(numbers(), float, count=count).reshape(-1, len(header)).T
        return _having(needed, dict(zip(header, columns, strict=True)))


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, or raise a `ValueError` if a line is too long."""
    while line := stream.readline(MOST_LINE + 1):
        if len(line) > MOST_LINE:
            raise ValueError(f"a line has more than {MOST_LINE:,} bytes")
        yield line


def read_arrays(
    file: Path, needed: Collection[str] = (), only: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Read the arrays of an npz file without unpickling.

    Args:
        file: The file.
        needed: Names of arrays that the file must contain.
        only: Names of the arrays to read. If None, all arrays are read.
    """
    with reading(file), open_regular(file) as stream:
        with zipfile.ZipFile(stream) as parts:  # zipfile never reads more bytes than `file_size`
            check_memory(file, sum(part.file_size for part in parts.infolist()))
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as data:
            return _having(needed, {name: data[name] for name in data if only is None or name in only})


def check_memory(file: Path, needed: int) -> None:
    """Raise a `UsageError` if reading a file would need too much memory, relative to the file size."""
    most = max(MOST_ARRAYS, MOST_TIMES * file.stat().st_size)
    require(
        needed <= most,
        f"'{file}' would need {needed:,} bytes of memory; the limit for its size is {most:,} bytes",
    )


def _check_size(file: Path, stream: IO[Any], most: int) -> None:
    size = os.fstat(stream.fileno()).st_size
    require(size <= most, f"'{file}' has {size:,} bytes; at most {most:,} are read")


def _having(needed: Collection[str], found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    missing = [name for name in needed if name not in found]
    if missing:
        raise ValueError(f"it has no {', '.join(missing)}")
    return found


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Convert any exception in the context to a `UsageError` that names the file.

    Reading a damaged zip file or array can raise almost any exception.
    """
    try:
        yield
    except UsageError:
        raise
    except FileNotFoundError:
        raise UsageError(f"there is no file '{file}'") from None
    except Exception as error:
        system = isinstance(error, OSError) and error.strerror
        if system:
            raise UsageError(f"cannot read '{file}': {system}") from error
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(f"'{file}' is damaged or has the wrong format: {reason}") from error


# A lock is released when all processes have closed the lock file. Forked processes may run longer than
# the writing process, so they close the file immediately.
_held: set[IO[str]] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [file.close() for file in _held])


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Acquire the lock of a folder, and release it at the end of the context.

    The operating system also releases the lock if the process is killed.

    Raises:
        UsageError: If another process has locked the folder, or if `.lock` is not a lock file.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    with open(folder / ".lock", "a+", errors="replace", opener=_descriptor) as file:
        check_lock(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(
                f"out: another process ({file.read(20).strip() or 'unknown'}) is writing to '{folder}'"
            ) from None
        except OSError:
            pass  # some network file systems do not support locks
        if os.fstat(file.fileno()).st_nlink == 1:  # do not change a file with several hard links
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        _held.add(file)
        try:
            yield
        finally:
            _held.discard(file)


def check_lock(file: IO[str]) -> None:
    """Raise a `UsageError` if an open file is not a lock file."""
    file.seek(0)
    found = file.read(LONGEST_LOCK)
    require(
        LOCK.fullmatch(found) is not None,
        f"'{file.name}' is not a lock file of memes; move it to another folder",
    )


def intended(name: str) -> str:
    """Return the final name of a temporary file of `replace_file`, or any other name unchanged."""
    temporary = TEMPORARY.fullmatch(name)
    return temporary[1] if temporary else name


def remove_files(folder: Path, names: re.Pattern[str], *, unfinished: bool = False) -> None:
    """Remove the files in a folder whose names match a pattern.

    Unfinished files of `replace_file` have temporary names. Their final names must match the pattern.
    Files in subfolders are kept. If the folder is a link, nothing is removed.

    Args:
        folder: The folder. If it does not exist, nothing is removed.
        names: Pattern that must match the whole file name.
        unfinished: Whether to remove only unfinished files.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    for file in folder.iterdir():
        name = intended(file.name)
        directory = file.is_dir() and not file.is_symlink()
        if names.fullmatch(name) and not directory and not (unfinished and name == file.name):
            file.unlink(missing_ok=True)
