"""Flags, keys of TOML files and help texts, derived from the declarations of options.

An option is a field of a preset or observer, or a keyword-only parameter of a function such as
`memes.run`. The help text of the option is in the docstring of the class or function.
"""

from __future__ import annotations

import inspect
import math
import re
import shutil
import textwrap
import tomllib
import typing
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, NoReturn

from memes.errors import MOST_LISTED, RENAMED, UsageError, known, nearest, require
from memes.options.examples import EXAMPLES
from memes.parameters import REQUIRED, Parameter, help_of, parameters, writable
from memes.store.files import as_path

Options = dict[str, Parameter]
MOST_TOML, MOST_DOTS = 2**16, 1000  # maximum number of bytes in a TOML file, and of dots in a line
SHORT = {"g": "generations", "s": "seed", "o": "out", "h": "help"}
# Wrong names of options, and the options that users probably mean. Only options of the current command
# are suggested.
MEANT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("epochs", "gens", "iters", "itrs", "num_generations"), ("generations",)),
    **dict.fromkeys(("budget", "evals", "num_evaluations", "max_evaluations"), ("evaluations",)),
    **dict.fromkeys(("cells", "bins", "dims", "grid", "grid_shape"), ("resolution",)),
    **dict.fromkeys(("niches", "num_centroids", "cvt"), ("centroids",)),
    **dict.fromkeys(("population", "population_size", "popsize", "batch_size"), ("batch", "samples")),
    **dict.fromkeys(("emitters", "num_emitters"), ("lanes",)),
    **dict.fromkeys(("output", "output_dir", "outdir", "folder", "dir"), ("out",)),
    **dict.fromkeys(("std", "stddev", "sigma0", "sigma_init"), ("sigma",)),
    **dict.fromkeys(("jobs", "n_jobs", "cores", "threads", "num_workers"), ("workers",)),
    **dict.fromkeys(("name", "title"), ("label",)),
    "algo": ("algorithm",),
    "fps": ("rate",),
    "format": ("to",),
    "force": ("overwrite",),
    "starts": ("draws",),
    "random_seed": ("seed",),
}
# Minimum and maximum width of a help text, and width of the column of flags.
NARROWEST, WIDEST, FLAGS = 40, 100, 30


class Flag(NamedTuple):
    """A flag in a command line.

    Attributes:
        word: The flag as written, such as `-g`, `--lanes` or `--no-view`.
        name: Name of the option.
        values: Values of the flag, which are the following words or the text after `=`.
    """

    word: str
    name: str
    values: tuple[str, ...]


class CommandLine(NamedTuple):
    """A command line, split into flags and positional words."""

    placed: list[str]
    flags: list[Flag]

    def value(self, name: str) -> str | None:
        """Return the last value of an option, or None if the option is not given."""
        values = [flag.values[0] for flag in self.flags if flag.name == name and flag.values]
        return values[-1] if values else None

    def has(self, name: str) -> bool:
        """Return True if a flag is given, with or without a value."""
        return any(flag.name == name for flag in self.flags)


def split(words: Sequence[str], options: Mapping[str, Parameter]) -> CommandLine:
    """Split a command line into flags with their values, and positional words.

    If a flag is not among the options, the word after it is treated as its value.
    """
    rest, found = deque(words), CommandLine([], [])
    while rest:
        word = rest.popleft()
        if word == "--":
            found.placed.extend(rest)
            break
        if not _is_flag(word):
            found.placed.append(word)
            continue
        attached = re.fullmatch(r"(-[gs])(\d.*)", word)
        flag, equals, value = (attached[1], "=", attached[2]) if attached else word.partition("=")
        name = _name_of(flag, options)
        values = [value] if equals else []
        if not equals:
            hint = options[name].hint if name in options else None if flag.startswith("--no-") else str
            most = _most_values(hint)
            while rest and len(values) < most and not _is_flag(rest[0]) and _may_follow(rest[0], hint):
                values.append(rest.popleft())
        found.flags.append(Flag(flag, name, tuple(values)))
    return found


def _is_flag(word: str) -> bool:
    if len(word) < 2 or not word.startswith("-"):
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def _name_of(flag: str, options: Collection[str]) -> str:
    if not flag.startswith("--"):
        return SHORT.get(flag[1:], flag[1:])
    name = flag.removeprefix("--").replace("-", "_")
    return name if name in options else name.removeprefix("no_")


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the types that a type hint allows, except None."""
    union = typing.get_origin(hint) in (typing.Union, UnionType)
    return tuple(part for part in typing.get_args(hint) if part is not NoneType) if union else (hint,)


def _most_values(hint: Any) -> float:
    """Return the maximum number of values of a flag. For a bool, this is 0."""

    def most(kind: Any) -> float:
        parts = typing.get_args(kind)
        if typing.get_origin(kind) is tuple:
            return math.inf if parts[-1] is Ellipsis else len(parts)
        return 0 if kind in (bool, None) else 1

    return max(map(most, _kinds(hint)))


def _may_follow(word: str, hint: Any) -> bool:
    """Return True if a flag accepts a word as a further value.

    If the flag accepts only numbers, the word must be a number.
    """
    kinds = [kind for kind in _kinds(hint) if typing.get_origin(kind) is tuple]
    numbers = bool(kinds) and all(typing.get_args(kind)[0] in (int, float) for kind in kinds)
    if not numbers:
        return True
    try:
        float(word)
    except ValueError:
        return False
    return True


def _spelt(hint: Any) -> str:
    """Return the placeholder, such as INT or {a,b}, for the values of an option in a help text."""

    def spelt(kind: Any) -> str:
        parts = typing.get_args(kind)
        if typing.get_origin(kind) is Literal:
            return f"{{{','.join(map(str, parts))}}}"
        if typing.get_origin(kind) is tuple:
            words = [spelt(part) for part in parts if part is not Ellipsis]
            return f"{words[0]} [{words[0]} ...]" if parts[-1] is Ellipsis else " ".join(words)
        return str(kind.__name__).upper()

    return " or ".join(dict.fromkeys(spelt(kind) for kind in _kinds(hint)))


def _value(flag: Flag, hint: Any) -> Any:
    """Return the value of a flag, converted to its type. Raise a `UsageError` for invalid values."""
    if _most_values(hint) == 0:
        require(not flag.values, f"{flag.word} takes no value, got '{' '.join(flag.values)}'")
        return not flag.word.startswith("--no-")
    given = f"'{' '.join(flag.values)}'" if flag.values else "nothing"
    for kind in _kinds(hint):
        if typing.get_origin(kind) is Literal and len(_kinds(hint)) == len(flag.values) == 1:
            known(f"value of {flag.word}", flag.values[0], [str(x) for x in typing.get_args(kind)])
        if kind is Path and len(flag.values) == 1:
            return as_path(flag.values[0], flag.word.lstrip("-"))
        try:
            return _converted(kind, flag.values)
        except (ValueError, OverflowError):
            pass
    raise UsageError(f"{flag.word} must be {_spelt(hint)}, got {given}")


def _converted(kind: Any, words: Sequence[str]) -> Any:
    """Convert words to a value of a type, or raise a `ValueError` if this is impossible."""
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        parts = parts[:1] * len(words) if parts[-1] is Ellipsis else parts
        if not words or len(words) != len(parts):
            raise ValueError
        return tuple(_converted(part, [word]) for part, word in zip(parts, words, strict=True))
    if len(words) != 1:
        raise ValueError
    word = words[0]
    if typing.get_origin(kind) is Literal:
        return parts[[str(part) for part in parts].index(word)]
    if kind is bool:
        return ("false", "true").index(word.lower()) == 1
    if kind is int and float(word).is_integer():  # numbers such as 1e6 are allowed
        return int(word) if word.lstrip("+-").isdecimal() else int(float(word))
    return kind(word)


def options_of(of: Any, prefix: str = "", without: Collection[str] = ()) -> Options:
    """Return a dictionary of the options of a function or of a dataclass instance.

    Options whose values cannot be written as text are ignored.
    """
    if inspect.isfunction(of):
        for parameter in inspect.signature(of).parameters.values():
            given = parameter.name in ("task", "cells", "algorithm")  # set by the command
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
    """Replace the defaults of options with the values of a scale, and then with the entries of a file.

    A number in the scale replaces a default only if the number is smaller than the default.
    """
    found = {}
    for name, option in options.items():
        value = option.default
        if name in scale:
            value = min(value, scale[name]) if isinstance(value, (int, float)) else scale[name]
        found[name] = option._replace(default=file.get(name, value))
    return found


def read(
    words: Sequence[str], groups: Mapping[str, Options]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Parse a command line. Return the values of the options in each group, and the positional words."""
    options = {name: option for group in groups.values() for name, option in group.items()}
    line = split(words, options)
    given = {flag.name: _value(flag, options[flag.name].hint) for flag in line.flags}
    for name, option in options.items():
        missing = option.default is REQUIRED and name not in given
        require(not missing, f"{_flag(name)} is missing: give it as {_flag(name)} {_spelt(option.hint)}")
    values = {
        title: {name: given.get(name, option.default) for name, option in group.items()}
        for title, group in groups.items()
    }
    return values, line.placed


def call(
    function: Callable[..., int | None],
    words: list[str],
    program: str,
    whose: Callable[[str], str] = lambda name: "",
) -> int:
    """Call the function of a command with the values from the command line, and return the exit code.

    Keyword-only parameters of the function are options. The other parameters are positional.

    Args:
        function: The function.
        words: Words of the command line after the command.
        program: The command, such as `memes plot`.
        whose: Function for error messages about unknown flags, as in `check_flags`.
    """
    options = parameters(function)
    signature = inspect.signature(function, eval_str=True)
    placed = {name: p for name, p in signature.parameters.items() if name not in options}
    places = [_word_of(name, p.annotation) for name, p in placed.items()]
    usage = " ".join([program, *places, "[OPTIONS]"])
    if split(words, options).has("help"):
        told = help_of(function)
        rows = dict(zip(places, (told.get(name, "") for name in placed), strict=True))
        text = (inspect.getdoc(function) or "").partition("\n\nArgs:")[0]
        show_help(program, usage, text, {"options": options}, rows)
    check_flags(words, options, whose)
    values, found = read(words, {"options": options})
    return function(*_by_place(placed, found, usage), **values["options"]) or 0


def _by_place(placed: Mapping[str, inspect.Parameter], words: list[str], usage: str) -> list[Any]:
    """Return the values of positional arguments. A value is one word or all remaining words."""
    arguments: list[Any] = []
    for name, parameter in placed.items():
        several = typing.get_origin(parameter.annotation) is tuple
        taken, words = (words, []) if several else (words[:1], words[1:])
        missing = not taken and parameter.default is REQUIRED
        require(not missing, f"{name.upper().rstrip('S')} is missing: {usage}")
        if several:
            arguments.append(tuple(taken))
        else:
            word = Flag(name.upper(), name, tuple(taken))
            arguments.append(_value(word, parameter.annotation) if taken else parameter.default)
    check_no_more(words)
    return arguments


def check_no_more(words: Sequence[str]) -> None:
    """Raise a `UsageError` if there are superfluous positional words."""
    require(not words, f"unexpected {' '.join(map(repr, words[:1]))}: options begin with --")


def _word_of(name: str, hint: Any) -> str:
    """Return the placeholder, such as RUN or RUN..., of a positional argument in a help text."""
    several = "..." if typing.get_origin(hint) is tuple else ""
    return name.upper().rstrip("S") + several


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def show_help(
    program: str,
    usage: str,
    text: str,
    groups: Mapping[str, Options],
    placed: Mapping[str, str] | None = None,
) -> NoReturn:
    """Print the help of a command and exit.

    Args:
        program: The command, such as `memes run`, which selects the examples.
        usage: The command with its arguments.
        text: Description of the command, in paragraphs.
        groups: Maps the title of each group to its options.
        placed: Maps each positional argument to its help text.
    """
    width = min(max(shutil.get_terminal_size().columns - 1, NARROWEST), WIDEST)
    parts = [f"usage: {usage}"]
    parts += [textwrap.fill(" ".join(part.split()), width) for part in text.split("\n\n")]
    if placed:
        parts.append("\n".join(_row(f"  {word}", told, width) for word, told in placed.items()))
    for title, options in groups.items():
        if options:
            rows = [_row(_left(name, option), _told(option), width) for name, option in options.items()]
            parts.append("\n".join([f"{title}:", *rows]))
    if program in EXAMPLES:
        parts.append("\n".join(["examples:", *(f"  {line}" for line in EXAMPLES[program])]))
    print("\n\n".join(parts))
    raise SystemExit(0)


def _left(name: str, option: Parameter) -> str:
    """Return the left column of an option in a help text, such as -g, --generations INT."""
    letter = next((f"-{letter}, " for letter, of in SHORT.items() if of == name), "")
    if _most_values(option.hint) == 0:
        off = "" if option.default is False else f", --no-{name.replace('_', '-')}"
        return f"  {letter}{_flag(name)}{off}"
    return f"  {letter}{_flag(name)} {_spelt(option.hint)}"


def _told(option: Parameter) -> str:
    """Return the help text of an option, with the default value if there is one."""
    text = (option.help or "").replace("If None, ", "By default, ").replace("`", "'")
    if option.default is REQUIRED:
        return f"{text} (required)".strip()
    if option.default is None or option.default is False or option.default in ((), ""):
        return text
    default = "yes" if option.default is True else option.default
    values = default if isinstance(default, tuple) else [default]
    return f"{text} (default: {' '.join(map(str, values))})".strip()


def _row(left: str, text: str, width: int) -> str:
    """Format an entry of a help text, with the description next to the left column or below it."""
    column = min(FLAGS, width // 3)
    lines = textwrap.wrap(text, width - column) or [""]
    if len(left) + 2 > column:
        lines = ["", *lines]
    first, *others = lines
    return "\n".join([f"{left:{column}}{first}".rstrip(), *(" " * column + line for line in others)])


def check_flags(
    words: Sequence[str], options: Mapping[str, Parameter], whose: Callable[[str], str] = lambda name: ""
) -> None:
    """Raise a `UsageError` if a flag is not among the options.

    `whose(name)` returns a phrase for the error message. The phrase lists the tasks or algorithms that
    have the option, and is empty if there are none.
    """
    for flag in split(words, options).flags:
        if flag.name not in options:
            new = RENAMED.get(flag.name, "")
            require(new not in options, f"{flag.word} is called {_flag(new)} now")
            require(not whose(flag.name), f"{flag.word} {whose(flag.name)}")
            raise UsageError(f"unknown option '{flag.word}': {_hint(flag, options)}")


def _hint(flag: Flag, options: Mapping[str, Parameter]) -> str:
    """Return a hint about an unknown flag: the option that the user probably meant, or all options."""
    name = flag.name.lower().replace("-", "_")
    meant = [option for option in MEANT.get(name, ()) if option in options]
    begun = [option for option in options if len(name) > 2 and option.startswith(name)]
    near = (meant or begun)[0] if meant or len(begun) == 1 else nearest(name, [*options, "help"])
    if near is not None:
        off = flag.word.startswith("--no-") and near in options and _most_values(options[near].hint) == 0
        return f"did you mean '{_flag(f'no-{near}' if off else near)}'?"
    every = [*map(_flag, options), "--help"]
    return "--help lists the options" if len(every) > MOST_LISTED else f"choose from {', '.join(every)}"


def value_of(option: str, words: Sequence[str]) -> str | None:
    """Return the last value of an option in a command line. The option need not be declared."""
    return split(words, {}).value(option)


def read_toml(file: Path) -> dict[str, Any]:
    """Read a TOML file as a table."""
    try:
        with file.open("rb") as stream:
            text = stream.read(MOST_TOML + 1)
    except OSError as error:
        raise UsageError(f"config: cannot read '{file}': {error.strerror}") from None
    require(len(text) <= MOST_TOML, f"config: '{file}' has more than {MOST_TOML:,} bytes")
    # The parsing time of a dotted name is quadratic in the number of dots.
    shallow = all(line.count(b".") <= MOST_DOTS for line in text.splitlines())
    require(shallow, f"config: '{file}' is nested too deeply")
    try:
        return tomllib.loads(text.decode())
    except RecursionError:
        raise UsageError(f"config: '{file}' is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"config: '{file}' is not TOML: {error}") from None
