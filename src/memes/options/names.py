"""Tasks and algorithms by their names, the library's own and those of users."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import jax

from memes.algorithm import Algorithm
from memes.cells import Cells, cvt, grid
from memes.errors import RunError, UsageError, in_a_line, known, place_of, require
from memes.presets import PRESETS
from memes.task import Task
from memes.tasks import FAMILIES, TASKS

T = TypeVar("T")


def task_factory(name: str) -> Callable[..., Task]:
    """The function that makes a task of the library, of a family such as `gymnasium:NAME`, or a user's.

    A user's is `module:name` or `file.py:name`.
    """
    if ":" not in name:
        return TASKS[_known("task", name, TASKS)]
    family, _, environment = name.partition(":")
    if family in FAMILIES:
        require(
            bool(environment),
            f"task '{name}' must name an environment or a file, as in gymnasium:CartPole-v1",
        )
        return partial(FAMILIES[family], environment)
    found = _imported("task", name)
    if isinstance(found, Task):
        return lambda: found
    return _function("task", name, found, "a Task or a function that returns one")


def is_own(name: str) -> bool:
    """Is a task the user's own code, rather than one of the library?"""
    return ":" in name and name.partition(":")[0] not in FAMILIES


def algorithm_factory(name: Any) -> Callable[..., Algorithm]:
    """The function `(task, cells, **options)` of a preset, or a user's, named as a task is."""
    if not isinstance(name, str) or ":" not in name:
        return PRESETS[_known("algorithm", name, PRESETS)].build
    wanted = "a function of a task and its cells that returns an Algorithm"
    return _function("algorithm", name, _imported("algorithm", name), wanted)


def made(kind: type[T], name: str, make: Callable[..., T], /, *parts: Any, **options: Any) -> T:
    """Return what the function of that name makes; raises a `UsageError` if it is not of the kind."""
    what = kind.__name__
    on = f" on task '{parts[0].name}'" if parts else ""
    with own_code(f"{what.lower()} '{name}'{on}"):
        found = make(*parts, **options)
    article = "an" if kind is Algorithm else "a"
    require(
        isinstance(found, kind),
        f"{what.lower()} '{name}' must be a function that returns {article} {what}, "
        f"got {type(found).__name__}",
    )
    return found


@contextmanager
def own_code(what: str) -> Iterator[None]:
    """Turn what a user's code raises, or its `sys.exit`, into a sentence that says where it is.

    Faults of the library keep their traceback.
    """
    try:
        yield
    except (UsageError, RunError):
        raise
    except (Exception, SystemExit) as error:
        place = place_of(error)
        if not place and not isinstance(error, (SyntaxError, SystemExit)):
            raise
        where = f" ({place})" if place else ""
        raise RunError(f"{what} raised {in_a_line(error)}{where}") from error


def cells_of(task: Task, resolution: Sequence[int] | None, centroids: int | None) -> Cells:
    """The cells that the options `resolution` and `centroids` describe."""
    require(
        centroids is None or resolution is None,
        "resolution and centroids exclude each other: one is of a grid, the other of a tessellation",
    )
    if centroids is None:
        return grid(task, None if resolution is None else tuple(resolution))
    # The same cells for every seed, so that runs can be compared.
    return cvt(jax.random.key(0), task, centroids)


def _known(what: str, name: Any, choices: Collection[str]) -> str:
    return known(what, name, choices, ", or your own as module:name or file.py:name")


def _function(what: str, name: str, found: Any, wanted: str) -> Callable[..., Any]:
    try:
        inspect.signature(found)
    except (TypeError, ValueError):  # nothing to call, or it does not say with what
        raise UsageError(f"{what} '{name}' must be {wanted}, got {type(found).__name__}") from None
    return found  # type: ignore[no-any-return]


def _imported(what: str, name: str) -> Any:
    """Import what a user calls `module:name` or `file.py:name`."""
    where, _, attribute = name.rpartition(":")
    require(bool(where and attribute), f"{what} '{name}' must be module:name or file.py:name")
    with own_code(f"{what} '{name}'"):
        module = _file(what, where) if where.endswith(".py") else _module(what, where)
    require(hasattr(module, attribute), f"{what} '{name}': '{where}' has nothing called '{attribute}'")
    return getattr(module, attribute)


_files: dict[str, str] = {}  # the absolute paths of the files that were imported


def _file(what: str, where: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_free_name(Path(where)), where)
    if spec is None or spec.loader is None or not Path(where).is_file():
        raise UsageError(f"{what}: there is no file '{where}'")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    _files[where] = str(Path(where).absolute())  # its code may go elsewhere
    sys.path.insert(0, str(Path(where).absolute().parent))  # as `python file.py` does
    spec.loader.exec_module(module)
    return module


def _free_name(file: Path) -> str:
    """The name of a file as a module: its own, unless something else that can be imported has it."""
    name = file.stem.replace(".", "_")
    try:
        other = importlib.util.find_spec(name)
    except ValueError:  # a module that does not say where it is from
        return f"_{name}"
    same = other is None or Path(other.origin or "").resolve() == file.resolve()
    return name if same else f"_{name}"


def code_of(name: str) -> str | None:
    """Digest the file of a user's task or algorithm that was imported; None for those of the library."""
    where = name.rpartition(":")[0]
    own = where.endswith(".py")
    file = _files.get(where, where) if own else getattr(sys.modules.get(where), "__file__", None)
    return file and hashlib.blake2b(Path(file).read_bytes(), digest_size=16).hexdigest()


def _module(what: str, where: str) -> ModuleType:
    named = all(part.isidentifier() for part in where.split("."))
    require(named, f"{what}: '{where}' is neither a module nor a file that ends in .py")
    sys.path.insert(0, "")  # as `python -m` does: modules of the current folder
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not where.startswith(error.name):
            raise
        raise UsageError(f"{what}: there is no module '{where}' here or installed") from None
    finally:
        sys.path.remove("")
