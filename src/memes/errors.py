"""Exceptions with a sentence for the user, and the checks that raise them."""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Collection
from functools import cache
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any

# Where code is that is not the user's.
LIBRARIES = ("<", str(Path(__file__).parent), sys.prefix, sys.base_prefix)
PLACE = "_memes_place"  # of exceptions that travel


class UsageError(ValueError):
    """A wrong argument. The message is one sentence that names it."""


class RunError(RuntimeError):
    """A run that cannot go on, through no fault of its arguments. The message is one sentence."""


def require(condition: bool, sentence: str) -> None:
    """Raise `UsageError(sentence)` unless `condition` holds."""
    if not condition:
        raise UsageError(sentence)


LONGEST_NAME = 500  # characters
# More of anything than a machine could hold, or finish.
MOST = 10**8
# The range of float32; smaller numbers lose digits.
SMALLEST_FLOAT, LARGEST_FLOAT = 2.0**-126, 2.0**128 - 2.0**104


def at_least(least: float, **named: float | None) -> None:
    """Raise a `UsageError` that names the first argument, not None, that is below `least`, or NaN.

    Or too large: an integer for every machine, another number for float32.
    """
    for name, value in named.items():
        if value is None:
            continue
        most = MOST if isinstance(value, Integral) else LARGEST_FLOAT
        require(value >= least, f"{name} must be at least {least}, got {value}")
        require(value <= most, f"{name} must be at most {most}, got {value}")


def positive(**named: float) -> None:
    """Raise a `UsageError` that names the first argument that is not positive and finite."""
    for name, value in named.items():
        fits = SMALLEST_FLOAT <= value <= LARGEST_FLOAT
        require(fits, f"{name} must be positive and finite in float32, got {value}")


def in_unit_interval(**named: float) -> None:
    """Raise a `UsageError` that names the first argument that does not lie in [0, 1]."""
    for name, value in named.items():
        require(0 <= value <= 1, f"{name} must lie in [0, 1], got {value}")


# Options that had another name in version 0.2, with the name of today.
RENAMED = {"together": "seeds_per_batch", "about": "metadata"}


def known(what: str, name: Any, choices: Collection[str], hint: str = "") -> str:
    """Return the name if it is among the choices; else raise a `UsageError` with the new or nearest."""
    if isinstance(name, str) and name in choices:
        return name
    new = RENAMED.get(str(name))
    require(new not in choices, f"unknown {what} '{name}': it is called '{new}' now")
    near = difflib.get_close_matches(str(name), choices, n=1)
    suggestion = f"did you mean '{near[0]}'" if near else f"choose from {', '.join(choices)}"
    raise UsageError(f"unknown {what} '{name}': {suggestion}{hint}{'?' if near else ''}")


def package(module: str, extra: str, what: str) -> Any:
    """Import a module that not everybody has; a `UsageError` says what needs it and what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        sentence = f"{what} needs the extra {extra}: {install(extra)} ({in_a_line(error)})"
        raise UsageError(sentence) from error


def install(extra: str) -> str:
    """Return the command that brings an extra of this library."""
    return f"pip install 'memes-qd[{extra}]'"


def show_mujoco_warnings() -> None:
    """Print MuJoCo's warnings, each once; it would write them to a file in the current folder.

    A handler that is set already stays. This one must not raise: an exception would end the process.
    """
    import mujoco

    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_show_once)


@cache
def _show_once(message: str) -> None:
    print(f"MuJoCo warns: {message}", file=sys.stderr)


def place_of(error: BaseException) -> str:
    """The file and the line of a user's code that raised, here or in a worker; empty if it was none."""
    if hasattr(error, PLACE):  # it comes from a worker, without its traceback
        return str(getattr(error, PLACE))
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""


def in_a_line(error: BaseException) -> str:
    """Return the message of an exception: its first line, or what raised a traceback that it quotes."""
    lines = f"{type(error).__name__}: {error}".strip().splitlines()
    return lines[-1] if "Traceback (most recent call last)" in str(error) else lines[0]
