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
from types import MappingProxyType, NoneType
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


def replaced(options: Options, scale: Mapping[str, Any], file: Mapping[str, Any]) -> Options:
    """The options with the defaults of a scale, where these are smaller, and then those of a file."""
    found = {}
    for name, option in options.items():
        value = option.default
        if name in scale:
            value = min(value, scale[name]) if isinstance(value, (int, float)) else scale[name]
        found[name] = option._replace(default=file.get(name, value))
    return found


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
    options, placed = parameters(function), {}
    for name, p in inspect.signature(function, eval_str=True).parameters.items():
        if name not in options:
            placed[name] = Parameter(p.annotation, p.default, help_of(function).get(name))
    check_flags(words, options)
    text = (inspect.getdoc(function) or "").partition("\n\nArgs:")[0]
    given: Any = tyro.cli(
        _as_dataclass(options, placed),
        prog=program,
        description="\n\n".join(" ".join(part.split()) for part in text.split("\n\n")),
        args=words,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return function(**vars(given)) or 0


def _as_dataclass(options: Options, placed: Mapping[str, Parameter] = MappingProxyType({})) -> type:
    """The options as tyro takes them, after those without a flag, which are placed."""
    fields: list[Any] = []
    for name, option in {**placed, **options}.items():
        word = name.upper().rstrip("S") if name in placed else ""
        hint: Any = Annotated[option.hint, _shown(option, word)]
        default = tyro.MISSING if option.default is REQUIRED else option.default
        fields.append((name, Annotated[hint, tyro.conf.Positional] if word else hint, default))
    return dataclasses.make_dataclass("Options", fields, kw_only=True)


def _shown(option: Parameter, word: str) -> Any:
    """How the help shows an option: without None, and without a default that is nothing.

    So `int | None` is INT, and `tuple[int, ...]` INT [INT ...]. A word stands for a value at a place.
    """
    told: dict[str, Any] = {"help": (option.help or "").replace("None is ", "by default ")}
    if option.default is REQUIRED:
        told["help_behavior_hint"] = "(required)"
    elif option.default is None or option.default is False or option.default == ():
        told["help_behavior_hint"] = ""
    optional = NoneType in typing.get_args(option.hint)
    if word or optional:
        kinds = typing.get_args(option.hint) if optional else (option.hint,)
        kind = next(kind for kind in kinds if kind is not NoneType)
        parts = typing.get_args(kind) or (kind,)
        word = word or parts[0].__name__.upper()
        several = f"[{word} ...]" if option.default == () else f"{word} [{word} ...]"
        told["metavar"] = several if parts[-1] is Ellipsis else " ".join([word] * len(parts))
    return tyro.conf.arg(**told)


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
