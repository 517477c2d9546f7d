"""Whether arguments are what the type hints of a function say, in a sentence that names them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar

from memes.errors import require

P = ParamSpec("P")
R = TypeVar("R")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value can be given to a parameter of a type."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        return any(fits(value, part) for part in parts)
    if kind is tuple:  # of any length; files have lists
        return isinstance(value, (tuple, list)) and all(fits(x, parts[0]) for x in value)
    if kind is Literal:
        return value in parts
    if hint in (int, float):
        number: Any = {int: Integral, float: Real}[hint]
        # An array of no dimensions is a number as well.
        value = value.item() if getattr(value, "ndim", None) == 0 else value
        return isinstance(value, number) and not isinstance(value, bool)
    if hint is Path:
        return isinstance(value, (str, Path))
    return hint is Any or isinstance(value, kind or hint)


def described(hint: Any) -> str:
    """A type, in words."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        return " or ".join(map(described, parts))
    if kind is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if hint is type(None):
        return "None"
    return str(hint) if kind is tuple else str(getattr(hint, "__name__", hint))


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with a `UsageError` for an argument that is not what its hint says."""
    signature = inspect.signature(function)

    @wraps(function)
    def check_and_call(*arguments: P.args, **keywords: P.kwargs) -> R:
        hints = typing.get_type_hints(function)
        for name, value in signature.bind(*arguments, **keywords).arguments.items():
            require(
                fits(value, hints[name]),
                f"{name} must be {described(hints[name])}, got {_short(value)}",
            )
        return function(*arguments, **keywords)

    return check_and_call


def _short(value: Any) -> str:
    """The value, or its type where it does not fit into a sentence."""
    text = repr(value)
    return text if len(text) < 60 and "\n" not in text else type(value).__name__
