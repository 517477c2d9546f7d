"""Flags, keys of TOML files and help texts, derived from where an option is declared.

An option is a field of a preset or of an observer, or a keyword-only parameter of the function of a task
or of `memes.run`; its help is in the docstring there.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import tomllib
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro

from memes.errors import RENAMED, UsageError, require
from memes.parameters import REQUIRED, Parameter, help_of, parameters, writable

Options = dict[str, Parameter]
MOST_TOML, MOST_DOTS = 2**16, 1000  # bytes, and dots in a line


def options_of(of: Any, prefix: str = "", without: Collection[str] = ()) -> Options:
    """The options of a function or of a dataclass instance that can be written down, by name."""
    if inspect.isfunction(of):
        for parameter in inspect.signature(of).parameters.values():
            given = parameter.name in ("task", "cells", "algorithm")  # by the command itself
            require(
                given or parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not REQUIRED,
                f"task: '{of.__name__}' must take keyword-only parameters, got '{parameter.name}'",
            )
    return {
        f"{prefix}_{name}" if prefix else name: option._replace(hint=writable(option.hint))
        for name, option in parameters(of).items()
        if writable(option.hint) is not None and name not in without
    }


def scaled(options: Options, values: Mapping[str, Any]) -> Options:
    """The options with such defaults as a scale gives them, where these are smaller than their own."""

    def default(name: str, option: Parameter) -> Any:
        own, value = option.default, values.get(name, option.default)
        return min(own, value) if isinstance(own, (int, float)) and name in values else value

    return {name: option._replace(default=default(name, option)) for name, option in options.items()}


def read(
    groups: Mapping[str, Options], words: list[str], program: str, description: str
) -> dict[str, dict[str, Any]]:
    """Read flags: the values of the options of each group."""
    kinds = [_as_dataclass(options) for options in groups.values()]
    # A help, even if it is empty, spares tyro the search for one in the source code.
    titled: list[Any] = [Annotated[kind, tyro.conf.arg(help="")] for kind in kinds]
    command = dataclasses.make_dataclass("Command", list(zip(groups, titled, strict=True)))
    parsed = tyro.cli(
        command,
        prog=program,
        description=description,
        args=words,
        default=command(*(kind() for kind in kinds)),
        config=(tyro.conf.OmitArgPrefixes,),
    )
    return {name: dataclasses.asdict(getattr(parsed, name)) for name in groups}


def call(function: Callable[..., int | None], words: list[str], program: str) -> int:
    """Call the function of a command with what words say; returns the exit code.

    Its keyword-only parameters are options, and the others are known by their places.
    """
    signature, told = inspect.signature(function, eval_str=True), help_of(function)
    found = {
        name: Parameter(p.annotation, p.default, told.get(name))
        for name, p in signature.parameters.items()
    }
    check_flags(words, found)
    placed = [name for name, p in signature.parameters.items() if p.kind is not p.KEYWORD_ONLY]
    text = (inspect.getdoc(function) or "").partition("\n\nArgs:")[0]
    given: Any = tyro.cli(
        _as_dataclass(found, placed),
        prog=program,
        description="\n\n".join(" ".join(part.split()) for part in text.split("\n\n")),
        args=words,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return function(**{name: getattr(given, name) for name in found}) or 0


def _as_dataclass(options: Options, placed: Collection[str] = ()) -> type:
    """The options as tyro takes them; those that are placed have no flag."""
    fields: list[Any] = []
    for name, option in options.items():
        place = name.upper().rstrip("S") if name in placed else ""
        hint: Any = Annotated[option.hint, _shown(option, place)]
        default = tyro.MISSING if option.default is REQUIRED else option.default
        fields.append((name, Annotated[hint, tyro.conf.Positional] if place else hint, default))
    return dataclasses.make_dataclass("Options", fields, kw_only=True)


def _shown(option: Parameter, place: str) -> Any:
    """How the help shows an option: without a default that is nothing, which its text explains."""
    text = " ".join((option.help or "").split())
    told: dict[str, Any] = {"help": text.replace("None is ", "by default ")}
    if option.default is REQUIRED:
        told["help_behavior_hint"] = "(required)"
    elif option.default is None or option.default is False or option.default == ():
        told["help_behavior_hint"] = ""
    if option.default is None or place:
        told["metavar"] = _spelt(option, place)
    return tyro.conf.arg(**told)


def _spelt(option: Parameter, place: str) -> str:
    """How the value of an option is spelt, or what stands at a place."""
    hints = typing.get_args(option.hint) if option.default is None else (option.hint,)
    kind = next(hint for hint in hints if hint is not type(None))
    parts = typing.get_args(kind) if typing.get_origin(kind) is tuple else (kind,)
    word = place or parts[0].__name__.upper()
    if parts[-1] is not Ellipsis:
        return " ".join([word] * len(parts))
    return f"[{word} ...]" if option.default == () else f"{word} [{word} ...]"


def check_flags(
    words: list[str], options: Collection[str], whose: Callable[[str], str] = lambda name: ""
) -> None:
    """Raise a `UsageError` for a flag that has a new name, or that is an option of something else.

    `whose(name)` says of what, and nothing if there is no such option. That is left to tyro.
    """
    for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
        name = flag.removeprefix("--").replace("-", "_").removeprefix("no_")
        if name not in options:
            new = RENAMED.get(name, "")
            require(new not in options, f"{flag} is called --{new.replace('_', '-')} now")
            require(not whose(name), f"{flag} is {whose(name)}")


def value_of(option: str, arguments: list[str]) -> str | None:
    """The value of `--option value` or `--option=value`; the last one."""
    value = None
    for word, following in itertools.zip_longest(arguments, arguments[1:]):
        if word == f"--{option}":
            value = following
        elif word.startswith(f"--{option}="):
            value = word.partition("=")[2]
    return value


def read_toml(file: Path) -> dict[str, Any]:
    """The table in a TOML file."""
    try:
        with file.open("rb") as stream:
            text = stream.read(MOST_TOML + 1)
    except OSError as error:
        raise UsageError(f"config: cannot read '{file}': {error.strerror}") from None
    require(len(text) <= MOST_TOML, f"config: '{file}' has more than {MOST_TOML:,} bytes")
    # Names within names take a time that grows with the square of their number.
    shallow = all(line.count(b".") <= MOST_DOTS for line in text.splitlines())
    require(shallow, f"config: '{file}' is nested too deeply")
    try:
        return tomllib.loads(text.decode())
    except RecursionError:
        raise UsageError(f"config: '{file}' is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"config: '{file}' is not TOML: {error}") from None


def flag_words(key: str, value: Any) -> list[str]:
    """A TOML entry as words of the command line."""
    flag = key.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, list) else [value]
    return [f"--{flag}", *map(str, values)]
