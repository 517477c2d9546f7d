"""Declarations of options as keyword-only parameters of functions, or as fields of dataclasses.

Each option is declared only once.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from functools import cache, partial, reduce, wraps
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar

from memes.validation import check_keywords, check_types

T = TypeVar("T")
R = TypeVar("R")
REQUIRED = inspect.Parameter.empty  # marks a parameter without a default


class Parameter(NamedTuple):
    """A parameter with its type, its default (or `REQUIRED`) and its help text (or None)."""

    hint: Any
    default: Any
    help: str | None


def parameters(of: Any) -> dict[str, Parameter]:
    """Map names to the fields of a dataclass instance, or to the keyword-only parameters of a function.

    The help text is the description under `Attributes:` or `Args:` in the docstring. If a field is a
    group of options, such as `search: Search`, the result contains the fields of the group instead.
    """
    told = help_of(of)
    if not dataclasses.is_dataclass(of):
        return {
            name: Parameter(
                type(p.default) if p.annotation is p.empty else p.annotation, p.default, told.get(name)
            )
            for name, p in inspect.signature(of, eval_str=True).parameters.items()
            if p.kind is p.KEYWORD_ONLY
        }
    found: dict[str, Parameter] = {}
    for name, hint, value in _fields(of):
        one = {name: Parameter(hint, value, told.get(name))}
        found |= parameters(value) if dataclasses.is_dataclass(hint) else one
    return found


def changed(options: T, changes: Mapping[str, Any]) -> T:
    """Replace fields of a dataclass instance, including the fields of its groups of options."""
    new = {}
    for name, hint, value in _fields(options):
        if dataclasses.is_dataclass(hint):
            new[name] = changed(value, changes)
        elif name in changes:
            new[name] = changes[name]
    return dataclasses.replace(options, **new)  # type: ignore[type-var]


def _fields(options: Any) -> list[tuple[str, Any, Any]]:
    """Return the name, the type and the value of each field."""
    hints = typing.get_type_hints(type(options))
    return [(f.name, hints[f.name], getattr(options, f.name)) for f in dataclasses.fields(options)]


@cache
def help_of(of: Any) -> dict[str, str]:
    """Return the description of each parameter in the docstring of a function or a dataclass."""
    from docstring_parser import parse

    plain = of.func if isinstance(of, partial) else of
    return {
        p.arg_name: " ".join((p.description or "").split()) for p in parse(plain.__doc__ or "").params
    }


def flat(function: Callable[..., R]) -> Callable[..., R]:
    """Replace each group of options in the signature of a function by one keyword per option.

    For example, if a parameter is `setup: Setup = Setup(uncertain=True)`, the resulting function accepts
    `uncertain=` and the other fields of `Setup`. The given instance of `Setup` defines the defaults of
    these fields. The fields appear in the signature and in the docstring of the resulting function.
    Wrong keywords and types raise a `UsageError`.
    """
    hints, told = typing.get_type_hints(function), dict(help_of(function))
    groups: dict[str, Any] = {}
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if dataclasses.is_dataclass(parameter.default):
            groups[name] = parameter.default
            told.pop(name, None)
            for field, (hint, default, text) in parameters(parameter.default).items():
                shown.append(inspect.Parameter(field, parameter.kind, default=default, annotation=hint))
                told[field] = text or ""
        else:
            shown.append(parameter.replace(annotation=hints[name]))
    signature = inspect.Signature(shown, return_annotation=hints["return"])

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> R:
        check_keywords(function.__name__, signature, keywords)
        given = signature.bind(*arguments, **keywords).arguments
        check_types(given, {p.name: p.annotation for p in shown})
        own = {name: given[name] for name in given if name in hints}
        return function(**own, **{name: changed(group, given) for name, group in groups.items()})

    call.__signature__ = signature  # type: ignore[attr-defined]
    before = re.split(r"\n\s*Args:\n", inspect.getdoc(function) or "")[0]
    lines = [f"    {name}: {told[name]}" for name in signature.parameters if name in told]
    call.__doc__ = "\n".join([before, "", "Args:", *lines])
    return call


def writable(hint: Any) -> Any:
    """Return a type without the parts that cannot be written in a shell command or a TOML file.

    For example, `str | Strategy` becomes `str`, because objects cannot be written. If no part can be
    written, return None.
    """
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        kept = [part for part in map(writable, parts) if part is not None]
        return reduce(or_, kept) if set(kept) - {NoneType} else None
    if kind is tuple:
        return hint if writable(parts[0]) is not None else None
    return hint if kind is Literal or hint in (int, float, str, bool, Path, NoneType) else None


def recorded(options: Any) -> dict[str, Any]:
    """Return all options of a dataclass, including its groups, in a form that files can store."""
    return {name: recordable(option.default) for name, option in parameters(options).items()}


def recordable(value: Any) -> Any:
    """Return a value in a form that files can store.

    Each object is replaced by a string that contains its name and its fields.
    """
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
