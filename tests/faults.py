"""A disk that fails: at some operation of the one place that writes files, and ever after."""

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
    """As sudden as a signal: nothing in the library catches it."""


def killed():
    """Stop the process, or so it seems."""
    raise Killed


def full():
    """Say that the disk is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def really_killed():
    """Stop the process."""
    os.kill(os.getpid(), signal.SIGKILL)


class Stream:
    """A file of which half of what is written first arrives when the disk fails."""

    def __init__(self, file, operation):
        self._file, self._operation = file, operation

    def write(self, data):
        if self._operation is not None:
            self._operation("write", self._file.name, lambda: self._file.write(data[: len(data) // 2]))
        self._operation = None  # a file has many writes, and is not in its place before the last of them
        return self._file.write(data)

    def __getattr__(self, name):
        return getattr(self._file, name)


@contextmanager
def failing(at=None, fail=killed):
    """Count writes, fsyncs and renames, and let the one with number `at` fail, and all that follow.

    Yields the operations so far: what, and the name of the file if it is known.
    """
    done = []

    def operation(what, name, half=lambda: None):
        done.append((what, os.path.basename(str(name))))
        if at is not None and len(done) > at:
            if len(done) == at + 1:
                half()
            fail()

    def fsync(descriptor):  # which takes a while, and makes no difference here
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
