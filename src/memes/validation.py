"""Checks of arguments against the type hints of a function."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar

from memes.errors import UsageError, known, require

P = ParamSpec("P")
R = TypeVar("R")


def fits(value: Any, hint: Any) -> bool:
    """Return True if the type of a value matches a type hint."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        return any(fits(value, part) for part in parts)
    if kind is tuple:  # lists are also accepted, because files store tuples as lists
        return isinstance(value, (tuple, list)) and all(fits(x, parts[0]) for x in value)
    if kind is dict:
        return isinstance(value, dict) and all(fits(each, parts[1]) for each in value.values())
    if kind is Literal:
        return value in parts
    if hint in (int, float):
        number: Any = {int: Integral, float: Real}[hint]
        value = number_of(value)
        return isinstance(value, number) and not isinstance(value, bool)
    if hint is Path:
        return isinstance(value, (str, Path))
    return hint is Any or isinstance(value, kind or hint)


def number_of(value: Any) -> Any:
    """Convert an array without dimensions to a number, and return other values unchanged."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def described(hint: Any) -> str:
    """Return a description of a type in words."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        return " or ".join(map(described, parts))
    if kind is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if hint is type(None):
        return "None"
    if kind is Callable:
        return "a function"
    return str(hint) if kind is tuple else str(getattr(hint, "__name__", hint))


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that unknown keywords and arguments of the wrong type raise a `UsageError`."""
    signature = inspect.signature(function)

    @wraps(function)
    def check_and_call(*arguments: P.args, **keywords: P.kwargs) -> R:
        check_keywords(function.__name__, signature, keywords)
        given = signature.bind(*arguments, **keywords).arguments
        check_types(given, typing.get_type_hints(function))
        return function(*arguments, **keywords)

    return check_and_call


def check_keywords(name: str, signature: inspect.Signature, keywords: Iterable[str]) -> None:
    """Raise a `UsageError` that suggests a similar name if a function does not accept a keyword."""
    if all(p.kind is not p.VAR_KEYWORD for p in signature.parameters.values()):
        for keyword in keywords:
            known(f"argument of {name}", keyword, signature.parameters)


def check_types(values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Raise a `UsageError` that names the first value whose type does not match its hint."""
    for name, value in values.items():
        hint = hints[name]
        require(fits(value, hint), f"{name} must be {described(hint)}, got {short(value)}")


def short(value: Any) -> str:
    """Return a value as text, or its type if the text is too long for a message."""
    text = repr(value)
    return text if len(text) < 60 and "\n" not in text else type(value).__name__


def check_arguments(name: str, function: Callable[..., Any], *arguments: str) -> None:
    """Raise a `UsageError` unless a function accepts these positional arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        taken, wanted = inspect.signature(function), ", ".join(arguments)
        raise UsageError(f"{name} must take the arguments ({wanted}), got {taken}") from None
    except ValueError:  # a function without a signature
        return


def check_fields(instance: Any) -> None:
    """Raise a `UsageError` that names the first field of a dataclass whose type does not match its hint.

    Dataclasses of hyper-parameters call this function in `__post_init__`.
    """
    check_types(vars(instance), typing.get_type_hints(type(instance)))
