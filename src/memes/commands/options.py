"""Options of tasks and algorithms, and their names.

An option is declared once, as a keyword-only parameter of the task's or the preset's function; the
command line, the TOML file and the help text are derived from that signature and its docstring.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import itertools
import sys
import tomllib
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import jax
import tyro

from memes.cells import Cells, cvt, grid
from memes.errors import UsageError, known, require
from memes.parameters import REQUIRED, parameters, writable
from memes.task import Task
from memes.tasks import TASKS


def cells_of(task: Task, resolution: Sequence[int] | None, centroids: int | None) -> Cells:
    """The cells that the options `resolution` and `centroids` describe."""
    if centroids is None:
        return grid(task, None if resolution is None else tuple(resolution))
    # The same cells for every seed, so that runs can be compared.
    return cvt(jax.random.key(0), task, centroids)


def task_factory(name: str) -> Callable[..., Task]:
    """The function that makes a task of the library, or a user's `module:name` or `file.py:name`."""
    if ":" not in name:
        return TASKS[known("task", name, TASKS, ", or your own as module:name or file.py:name")]
    where, _, attribute = name.rpartition(":")
    require(bool(where and attribute), f"task '{name}' must be module:name or file.py:name")
    module = _import(where)
    require(hasattr(module, attribute), f"task '{name}': '{where}' has nothing called '{attribute}'")
    found = getattr(module, attribute)
    if isinstance(found, Task):
        return lambda: found
    require(
        callable(found),
        f"task '{name}' must be a Task or a function that returns one, got {type(found).__name__}",
    )
    return found  # type: ignore[no-any-return]


def _import(where: str) -> ModuleType:
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        if spec is None or spec.loader is None or not Path(where).is_file():
            raise UsageError(f"task: there is no file '{where}'")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        sys.path.insert(0, str(Path(where).parent))  # as `python file.py` does
        spec.loader.exec_module(module)
        return module
    require(
        all(part.isidentifier() for part in where.split(".")),
        f"task: '{where}' is neither a module nor a file that ends in .py",
    )
    sys.path.insert(0, "")  # as `python -m` does: modules of the current folder
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not where.startswith(error.name):
            raise
        raise UsageError(f"task: there is no module '{where}' here or installed") from None
    finally:
        sys.path.remove("")


def options_of(function: Callable[..., Any], title: str) -> type:
    """A dataclass of the keyword-only parameters of a function, with their help from its docstring."""
    for parameter in inspect.signature(function).parameters.values():
        given = parameter.name in ("task", "cells")  # by the command itself
        require(
            given
            or parameter.kind is parameter.KEYWORD_ONLY
            or parameter.default is not parameter.empty,
            f"task: '{getattr(function, '__name__', title)}' must take keyword-only parameters, "
            f"got '{parameter.name}'",
        )
    fields: list[Any] = [
        (
            name,
            Annotated[writable(p.hint), tyro.conf.arg(help=p.help)],
            dataclasses.MISSING if p.default is REQUIRED else p.default,
        )
        for name, p in parameters(function).items()
        if writable(p.hint) is not None
    ]
    return dataclasses.make_dataclass("Options", fields, namespace={"__doc__": title})


def defaults(options: type, values: dict[str, Any]) -> Any:
    """An instance with those of the values that it has fields for, where smaller than the default.

    What has no default is required.
    """
    fields = dataclasses.fields(options)
    required = {f.name: tyro.MISSING for f in fields if f.default is dataclasses.MISSING}
    scaled = {
        f.name: values[f.name] if f.name == "generations" else _at_most(f.default, values[f.name])
        for f in fields
        if f.name in values
    }
    return options(**required | scaled)


def _at_most(default: Any, value: Any) -> Any:
    return min(default, value) if isinstance(default, (int, float)) else value


def unique_hints(groups: dict[str, type]) -> dict[str, Any]:
    """The type of every option; a name may occur only once."""
    hints: dict[str, Any] = {}
    for group in groups.values():
        for name, hint in typing.get_type_hints(group).items():
            require(
                name not in hints,
                f"task: its option '{name}' has the name of another option of the run; rename it",
            )
            hints[name] = hint
    return hints


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
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"config: cannot read '{file}': {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"config: '{file}' is not TOML: {error}") from None


def flag_words(key: str, value: Any) -> list[str]:
    """A TOML entry as words of the command line."""
    flag = key.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, list) else [value]
    return [f"--{flag}", *map(str, values)]
