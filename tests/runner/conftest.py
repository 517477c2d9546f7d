import csv
from contextlib import contextmanager

import pytest


class Killed(BaseException):
    """An exception that simulates a kill. The library never catches this exception."""


@pytest.fixture
def killed_at(monkeypatch):
    """Return a context that simulates a kill before or after the n-th call of a function."""

    @contextmanager
    def context(call, module, name, after=False, dying=lambda *arguments: None):
        original, calls = getattr(module, name), [0]

        def function(*arguments, **options):
            calls[0] += 1
            if calls[0] >= call and not after:
                dying(*arguments)
                raise Killed
            found = original(*arguments, **options)
            if calls[0] >= call:
                raise Killed
            return found

        with monkeypatch.context() as patched:
            patched.setattr(module, name, function)
            with pytest.raises(Killed):
                yield

    return context


@pytest.fixture(scope="session")
def assert_equal_runs():
    """Return a function that checks that two folders contain bitwise equal runs, apart from times."""

    def check(one, other):
        for name in ("archive.npz", "lanes.npz", "changes.bin", "corrected.npz", "corrected.csv"):
            there = [(folder / name).exists() for folder in (one, other)]
            assert there[0] == there[1], name
            if there[0]:
                assert (one / name).read_bytes() == (other / name).read_bytes(), name
        rows = [
            list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
            for folder in (one, other)
        ]
        for a, b in zip(*rows, strict=True):
            assert {**a, "seconds": 0} == {**b, "seconds": 0}

    return check
