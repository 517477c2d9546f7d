"""Exceptions with an error message for the user, and the checks that raise them."""

from __future__ import annotations

import difflib
import json
import re
import sys
import traceback
from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from numbers import Integral
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

PACKAGE = "memes-qd"
# Path prefixes of library code. All other code is the user's code.
LIBRARIES = ("<", str(Path(__file__).parent), sys.prefix, sys.base_prefix)
PLACE = "_memes_place"  # attribute of exceptions from workers


class UsageError(ValueError):
    """An exception for an invalid argument. The message is one line that names the argument."""


class RunError(RuntimeError):
    """An exception for a run that cannot continue although its arguments are valid.

    The message is one line.
    """


def require(condition: bool, sentence: str) -> None:
    """Raise `UsageError(sentence)` unless `condition` is true."""
    if not condition:
        raise UsageError(sentence)


LONGEST_NAME = 500  # Maximum number of characters in a name.
# The largest accepted integer. Larger sizes would exceed the memory of any machine.
MOST = 10**8
# The smallest and the largest positive float32 number with full precision.
SMALLEST_FLOAT, LARGEST_FLOAT = 2.0**-126, 2.0**128 - 2.0**104


def at_least(least: float, **named: float | None) -> None:
    """Raise a `UsageError` that names the first argument that is below `least`, too large, or NaN.

    Arguments that are None are ignored. Integers must not exceed `MOST`, and other numbers must not
    exceed the largest float32.
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


# Options that were renamed after version 0.2: old names and current names.
RENAMED = {"short": "include_short", "together": "seeds_per_batch", "about": "metadata"}


# Names used in the literature and in figures, and the corresponding names in this package.
SYNONYMS = {
    "map-elites": "me",
    "mapelites": "me",
    "me-16384": "me",
    "map-elites-sampling": "me-sampling",
    "cma-map-elites": "cma-me",
    "pga-map-elites": "pga-me",
    "pgame": "pga-me",
    "cmame": "cma-me",
    "cmamae": "cma-mae",
    "dominated-novelty-search": "dns",
    "openai-es": "es",
    "antmaze": "ant-trap",
}
MOST_LISTED = 30  # Maximum number of choices in a message.
ALIKE, ALIKE_IF_SHORT = 0.7, 0.6  # Minimum similarity of long names, and of names of up to 3 characters.


def known(what: str, name: Any, choices: Collection[str], hint: str = "") -> str:
    """Return the name if it is a valid choice.

    Otherwise, raise a `UsageError`. Its message contains the new name if the choice was renamed. If not,
    the message suggests a similar choice, or lists choices.
    """
    if isinstance(name, str) and name in choices:
        return name
    new = RENAMED.get(str(name))
    require(new not in choices, f"unknown {what} '{name}': it is called '{new}' now")
    near = nearest(str(name), choices)
    suggestion = f"did you mean '{near}'" if near else f"choose from {_listed(choices)}"
    raise UsageError(f"unknown {what} '{name}': {suggestion}{hint}{'?' if near else ''}")


def _listed(choices: Collection[str]) -> str:
    shown = list(choices) if len(choices) <= MOST_LISTED else list(choices)[: MOST_LISTED // 2]
    return ", ".join(shown) + f" and {len(choices) - len(shown)} others" * (len(shown) < len(choices))


def nearest(name: str, choices: Collection[str]) -> str | None:
    """Return the choice that a name probably means, or None if no choice is similar.

    The name may be a synonym or a misspelling. Differences in letter case and separators are ignored.
    """
    plain = {re.sub(r"[\s_]+", "-", each.strip().lower()): each for each in choices}
    word = re.sub(r"[\s_]+", "-", name.strip().lower())
    for candidate in (word, SYNONYMS.get(word)):
        if candidate in plain:
            return plain[candidate]
    cutoff = ALIKE if len(name) > 3 else ALIKE_IF_SHORT
    return next((plain[each] for each in difflib.get_close_matches(word, plain, 1, cutoff)), None)


def package(module: str, extra: str, what: str) -> Any:
    """Import an optional module.

    If the import fails, raise a `UsageError` with an installation command. `what` names the feature that
    needs the module.
    """
    try:
        return import_module(module)
    except ImportError as error:
        sentence = f"{what} needs the extra {extra}: {install(extra)} ({in_a_line(error)})"
        raise UsageError(sentence) from error


def install(extra: str) -> str:
    """Return the command that installs an extra of the package into this installation."""
    return install_command(extra, _direct_url())


def install_command(extra: str, direct_url: Mapping[str, Any] | None) -> str:
    """Return the command that installs an extra of the package.

    `direct_url` contains the `direct_url.json` of the installation. If it is None, the package was
    installed from an index.
    """
    url = str((direct_url or {}).get("url", ""))
    folder = Path(unquote(urlsplit(url).path))
    if not url.startswith("file:") or not folder.exists():
        return f"pip install '{PACKAGE}[{extra}]'"
    if folder.is_file():  # a wheel
        return f"pip install '{folder}[{extra}]'"
    editable = "-e " * bool((direct_url or {}).get("dir_info", {}).get("editable"))
    place = "." if folder == Path.cwd() else folder
    return f"pip install {editable}'{place}[{extra}]'"


def _direct_url() -> Any:
    """Return the source that the installer recorded, or None for an installation from an index."""
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file() and Path(__file__).parents[1].name == "src":
        return {"url": checkout.as_uri(), "dir_info": {"editable": True}}
    try:
        text = distribution(PACKAGE).read_text("direct_url.json")
        return json.loads(text) if text else None
    except (PackageNotFoundError, OSError, ValueError):
        return None


def show_mujoco_warnings() -> None:
    """Print each of MuJoCo's warnings once, instead of writing it to a file in the current folder.

    If MuJoCo already has a warning handler, this function does nothing. A handler must not raise an
    exception, because an exception would end the process.
    """
    import mujoco

    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_show_once)


@cache
def _show_once(message: str) -> None:
    print(f"MuJoCo warning: {message}", file=sys.stderr)


def place_of(error: BaseException) -> str:
    """Return the file and line of the user's code that raised an exception.

    The exception may come from a worker. If the traceback contains no user code, return an empty string.
    """
    if hasattr(error, PLACE):  # from a worker, without a traceback
        return str(getattr(error, PLACE))
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""


def in_a_line(error: BaseException) -> str:
    """Return the most informative line of an exception's message.

    This is the last line if the message quotes a traceback, and the first line otherwise.
    """
    lines = f"{type(error).__name__}: {error}".strip().splitlines()
    return lines[-1] if "Traceback (most recent call last)" in str(error) else lines[0]
