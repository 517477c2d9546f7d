"""Parameters that a function or a dataclass declares once, and that flags and records derive from."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from functools import partial, reduce, wraps
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar

from memes.validation import check_keywords, check_types

R = TypeVar("R")
REQUIRED = inspect.Parameter.empty  # the default of a parameter that has none


class Parameter(NamedTuple):
    """A parameter: its type, its default (`REQUIRED` if it has none) and its help text, if any."""

    hint: Any
    default: Any
    help: str | None


def parameters(of: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the keyword-only parameters of a function, or the fields of a dataclass, by name.

    The help is what the docstring says under `Args:` or `Attributes:`. A `flat` function has the fields
    of its dataclasses, with their help; a `partial` has the defaults that it binds.
    """
    is_class, told = dataclasses.is_dataclass(of), help_of(of)
    return {
        name: Parameter(
            type(p.default) if p.annotation is p.empty else p.annotation,
            p.default,
            told.get(name),
        )
        for name, p in inspect.signature(of, eval_str=True).parameters.items()
        if is_class or p.kind is p.KEYWORD_ONLY
    }


def help_of(of: Callable[..., Any]) -> dict[str, str]:
    """Return what the docstring of a function or a dataclass says of each parameter."""
    from docstring_parser import parse

    plain = inspect.unwrap(of.func if isinstance(of, partial) else of)
    told = {p.arg_name: p.description or "" for p in parse(plain.__doc__ or "").params}
    if not inspect.isclass(plain):
        for name, hint in typing.get_type_hints(plain).items():
            if dataclasses.is_dataclass(hint) and name != "return":
                told |= help_of(typing.cast(Callable[..., Any], hint))
    return told


def writable(hint: Any) -> Any:
    """Return the part of a type whose values a shell or a TOML file can spell; None if there is none.

    So `str | Strategy` becomes `str`; an object or None cannot be spelt at all.
    """
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        kept = [part for part in map(writable, parts) if part is not None]
        return reduce(or_, kept) if set(kept) - {NoneType} else None
    if kind is tuple:
        return hint if writable(parts[0]) is not None else None
    return hint if kind is Literal or hint in (int, float, str, bool, Path, NoneType) else None


def flat(function: Callable[..., R]) -> Callable[..., R]:
    """Let a function take the fields of its dataclass parameters as keywords of its own.

    With `search: Search = Search(samples=10)`, where `Search` has `samples` and `sigma`, the result
    takes `samples=` and `sigma=`. Its signature shows both, with the defaults of that very `Search`.
    Wrong keywords and types raise a `UsageError`.
    """
    hints = typing.get_type_hints(function)
    shown: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and dataclasses.is_dataclass(hints[name]):
            groups[name] = parameter.default
            kinds = typing.get_type_hints(hints[name])
            shown += [
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=getattr(parameter.default, field.name),
                    annotation=kinds[field.name],
                )
                for field in dataclasses.fields(hints[name])
            ]
        else:
            shown.append(parameter.replace(annotation=hints[name]))
    signature = inspect.Signature(shown, return_annotation=hints["return"])

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> R:
        check_keywords(function.__name__, signature, keywords)
        given = signature.bind(*arguments, **keywords).arguments
        check_types(given, {p.name: p.annotation for p in shown})
        for name, default in groups.items():
            fields = [field.name for field in dataclasses.fields(default)]
            changed = {field: given.pop(field) for field in fields if field in given}
            given[name] = dataclasses.replace(default, **changed)
        return function(**given)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def recordable(value: Any) -> Any:
    """Return a value as a file can hold it: a part becomes its name and its fields."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)(map(recordable, value))
    name = str(getattr(value, "__qualname__", type(value).__name__))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return name
    fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    shown = (f"{key}={v!r}" if isinstance(v, str) else f"{key}={recordable(v)}" for key, v in fields)
    return f"{name}({', '.join(shown)})"
