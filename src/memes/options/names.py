"""Lookup of tasks and algorithms by name, including custom ones."""

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
from memes.errors import RunError, UsageError, in_a_line, known, nearest, place_of, require
from memes.presets import PRESETS
from memes.task import Task
from memes.tasks import FAMILIES, TASKS

T = TypeVar("T")


def task_factory(name: str) -> Callable[..., Task]:
    """Return the function that makes the task with this name.

    The name can be a task of the library, an environment from another package, such as `gymnasium:NAME`,
    or a custom task as `module:name` or `file.py:name`.
    """
    if ":" not in name:
        _offer("task", name, Task)
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
    """Return True if the name refers to a custom task."""
    return ":" in name and name.partition(":")[0] not in FAMILIES


def algorithm_factory(name: Any) -> Callable[..., Algorithm]:
    """Return the function `(task, cells, **options)` of a preset or of a custom algorithm."""
    if not isinstance(name, str) or ":" not in name:
        _offer("algorithm", name, Algorithm)
        return PRESETS[_known("algorithm", name, PRESETS)].build
    wanted = "a function of a task and its cells that returns an Algorithm"
    return _function("algorithm", name, _imported("algorithm", name), wanted)


def made(kind: type[T], name: str, make: Callable[..., T], /, *parts: Any, **options: Any) -> T:
    """Return the result of a function, or raise a `UsageError` if it does not have the right type."""
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
    """Replace exceptions and `sys.exit` in custom code with an error message that states the location.

    Errors of the library keep their traceback.
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
    """Return the cells that are specified by the options `resolution` and `centroids`."""
    require(
        centroids is None or resolution is None,
        "resolution and centroids exclude each other: use resolution for a grid, or centroids for a CVT",
    )
    if centroids is None:
        return grid(task, None if resolution is None else tuple(resolution))
    # The cells are the same for all seeds, so that runs can be compared.
    return cvt(jax.random.key(0), task, centroids)


def _known(what: str, name: Any, choices: Collection[str]) -> str:
    return known(what, name, choices, ", or a custom one as module:name or file.py:name")


def _offer(what: str, name: Any, kind: type) -> None:
    """If the name is only a file name, raise a `UsageError` that lists suitable objects in the file."""
    if not isinstance(name, str) or not name.endswith(".py"):
        return
    with own_code(f"{what} '{name}'"):
        module = _file(what, name)
    found = [f"{name}:{of}" for of, value in vars(module).items() if _makes(kind, value, module)]
    offered = f"such as {', '.join(found)}" if found else f"but the file contains no {kind.__name__}"
    raise UsageError(f"{what}: '{name}' is a file: add the name of an object in the file, {offered}")


def _makes(kind: type, value: Any, module: ModuleType) -> bool:
    """Return True for values of type `kind`, and for functions that probably return such a value."""
    if isinstance(value, kind):
        return True
    if not inspect.isfunction(value) or value.__module__ != module.__name__:
        return False
    signature = inspect.signature(value)
    returned, places = signature.return_annotation, signature.parameters.values()
    if returned is not signature.empty:
        return str(returned).rpartition(".")[2].strip("'>") == kind.__name__
    count = sum(p.kind is not p.KEYWORD_ONLY for p in places)
    return count == (2 if kind is Algorithm else 0)  # an algorithm needs a task and its cells


def _function(what: str, name: str, found: Any, wanted: str) -> Callable[..., Any]:
    try:
        inspect.signature(found)
    except (TypeError, ValueError):  # `found` is not callable, or has no signature
        raise UsageError(f"{what} '{name}' must be {wanted}, got {type(found).__name__}") from None
    return found  # type: ignore[no-any-return]


def _imported(what: str, name: str) -> Any:
    """Import the object named by `module:name` or `file.py:name`."""
    where, _, attribute = name.rpartition(":")
    require(bool(where and attribute), f"{what} '{name}' must be module:name or file.py:name")
    with own_code(f"{what} '{name}'"):
        module = _file(what, where) if where.endswith(".py") else _module(what, where)
    if not hasattr(module, attribute):
        near = nearest(attribute, [each for each in vars(module) if not each.startswith("_")])
        meant = f": did you mean '{where}:{near}'?" if near else ""
        raise UsageError(f"{what} '{name}': '{where}' has nothing called '{attribute}'{meant}")
    return getattr(module, attribute)


_files: dict[str, str] = {}  # the absolute path of each imported file, by the name that was given


def _file(what: str, where: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_free_name(Path(where)), where)
    if spec is None or spec.loader is None or not Path(where).is_file():
        raise UsageError(f"{what}: there is no file '{where}'")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # needed by dataclasses, which look up their module by name
    _files[where] = str(Path(where).absolute())  # absolute, because the module may call `os.chdir`
    sys.path.insert(0, str(Path(where).absolute().parent))  # `python file.py` adds the same path
    spec.loader.exec_module(module)
    return module


def _free_name(file: Path) -> str:
    """Return the stem of a file as a module name, with a leading `_` if the name is already taken."""
    name = file.stem.replace(".", "_")
    try:
        other = importlib.util.find_spec(name)
    except ValueError:  # raised for a module without a specification
        return f"_{name}"
    same = other is None or Path(other.origin or "").resolve() == file.resolve()
    return name if same else f"_{name}"


def code_of(name: str) -> str | None:
    """Return the digest of the file with a custom task or algorithm, or None if there is no file."""
    where = name.rpartition(":")[0]
    own = where.endswith(".py")
    file = _files.get(where, where) if own else getattr(sys.modules.get(where), "__file__", None)
    return file and hashlib.blake2b(Path(file).read_bytes(), digest_size=16).hexdigest()


def _module(what: str, where: str) -> ModuleType:
    named = all(part.isidentifier() for part in where.split("."))
    require(named, f"{what}: '{where}' is neither a module nor a file that ends in .py")
    sys.path.insert(0, "")  # find modules in the current folder, as `python -m` does
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not where.startswith(error.name):
            raise
        raise UsageError(f"{what}: there is no module '{where}' here or installed") from None
    finally:
        sys.path.remove("")
