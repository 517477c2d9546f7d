"""Simulate a disk that fails at a given operation of `memes.store.files` and at all later operations."""

import errno
import os
import signal
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from memes import api  # noqa: F401  # imports all modules that write files
from memes.store import files


class Killed(BaseException):
    """An exception that simulates a kill. The library never catches this exception."""


def killed():
    """Simulate that the process is killed."""
    raise Killed


def full():
    """Raise the error of a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def really_killed():
    """Kill the process."""
    os.kill(os.getpid(), signal.SIGKILL)


class Stream:
    """A file on the simulated disk. If its first write fails, only half of the data is stored."""

    def __init__(self, file, operation):
        self._file, self._operation = file, operation

    def write(self, data):
        if self._operation is not None:
            self._operation("write", self._file.name, lambda: self._file.write(data[: len(data) // 2]))
        # Only the first write of a file counts as an operation. Later writes need no test, because files
        # are renamed after their last write.
        self._operation = None
        return self._file.write(data)

    def __getattr__(self, name):
        return getattr(self._file, name)


@contextmanager
def failing(at=None, fail=killed):
    """Count writes, fsyncs and renames. Operation number `at` and all later operations fail.

    Yields the list of operations so far. Each entry has the operation and the file name, if known.
    """
    done = []

    def operation(what, name, half=lambda: None):
        done.append((what, os.path.basename(str(name))))
        if at is not None and len(done) > at:
            if len(done) == at + 1:
                half()
            fail()

    # This function counts fsyncs without executing them. They are slow and do not affect these tests.
    def fsync(descriptor):
        operation("fsync", "")

    def replace(source, target):
        operation("rename", target)
        os.replace(source, target)

    def replace_file(path, write):
        original["replace_file"](path, lambda file: write(Stream(file, operation)))

    def append(path, data, at):
        half = len(data) // 2
        operation("write", path, lambda: original["append"](path, data[:half], at))
        original["append"](path, data, at)

    original = {name: getattr(files, name) for name in ("replace_file", "append")}
    system = SimpleNamespace(**vars(os) | {"fsync": fsync, "replace": replace})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "os", system)
        for module in [module for name, module in sys.modules.items() if name.startswith("memes.")]:
            for function in (replace_file, append):
                if getattr(module, function.__name__, None) is original[function.__name__]:
                    patch.setattr(module, function.__name__, function)
        yield done
