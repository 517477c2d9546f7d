"""From words to a run: names of tasks and algorithms, their options, scales and TOML files.

An option is declared once, as a keyword-only parameter of the task's or the preset's function; the
command line, the TOML file and the help text are derived from that signature and its docstring.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import itertools
import re
import sys
import tomllib
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple

import jax
import tyro
from docstring_parser import parse as parse_docstring

from memes.algorithm import Algorithm
from memes.cells import Cells, cvt, grid
from memes.errors import UsageError, require
from memes.experiment.folder import SavedRun, load_config
from memes.hints import described, fits
from memes.presets import PRESETS
from memes.task import Task
from memes.tasks import TASKS

# What a scale changes, by option; options that a task or an algorithm does not have are ignored, and
# none of theirs is made larger than its default.
SCALES: dict[str, dict[str, Any]] = {
    "paper": {},
    "laptop": {
        "generations": 1500,
        "joints": 100,
        "lanes": 16,
        "samples": 128,
        "reevaluate_samples": 64,
        "batch": 2048,
        "resamples": 8,
        "num_critic_training_steps": 300,
        "gradient_steps": 30,
        "transitions_batch": 128,
        "critic_hidden": (64, 64),
        "replay_size": 200_000,
    },
}
# What it changes further on a task.
TASK_SCALES: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {"ant-trap": {"generations": 10_000}},
    "laptop": {
        "point-maze": {"generations": 500, "samples": 32, "batch": 512},
        "hexapod": {"generations": 400, "samples": 32, "batch": 512},
        "ant": {"generations": 200, "samples": 64, "batch": 1024},
        "ant-trap": {"generations": 150, "samples": 64, "batch": 1024},
    },
}


DESCRIPTION = """Run an algorithm on a task and save what it finds.

TASK is one of 'memes list', or your own as package.module:name or path/to/file.py:name, where name is \
a Task or a function that returns one; its keyword-only parameters become options too."""


def _option(metavar: str, default: str) -> Any:
    """How the help shows an option whose default is worked out later."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """Settings that every run has."""

    algorithm: Annotated[str, tyro.conf.arg(metavar="NAME")] = "memes"
    """An algorithm of `memes list`. Together with --help, shows its options."""
    scale: Literal["paper", "laptop"] = "paper"
    """Which defaults: those of the paper, for a GPU, or smaller ones for a laptop."""
    generations: int = 2000
    """For how many generations to run."""
    seed: int = 0
    """Seed of all randomness."""
    out: Annotated[Path | None, _option("PATH", "a new folder runs/TASK-ALGORITHM-SEED")] = None
    """Folder for the results."""
    resolution: Annotated[
        tuple[int, ...] | None, _option("INT [INT ...]", "the task's, or about 2500 cells in all")
    ] = None
    """Grid cells along each feature."""
    centroids: Annotated[int | None, _option("INT", "a grid")] = None
    """Use a centroidal Voronoi tessellation of so many cells instead of a grid."""
    checkpoint_every: Annotated[int | None, _option("INT", "after each call of the device")] = None
    """Generations between checkpoints, from which 'memes resume' goes on; 0 makes none."""
    chunk: Annotated[int | None, _option("INT", "all, or fewer if they do not fit into memory")] = None
    """How many rows to evaluate at a time."""
    reevaluate_every: Annotated[int | None, _option("INT", "only at the end")] = None
    """Generations between corrections of the archive, on an uncertain task; 0 makes none at all."""
    reevaluate_samples: int = 512
    """How often each elite is evaluated again for a correction."""
    statistic: Literal["median", "mean"] = "median"
    """What an elite's evaluations are summed up by."""
    generations_per_call: Annotated[int | None, _option("INT", "a fiftieth of the run, at most 100")] = (
        None
    )
    """Generations in one call of the device; progress shows and metrics are written once a call."""
    quiet: bool = False
    """Show no progress."""
    config: Annotated[Path | None, _option("FILE", "none")] = None
    """TOML file with any of these options, such as lanes = 64. Flags win over it."""


@dataclasses.dataclass(frozen=True)
class ResumeSettings:
    """Go on with a run that was interrupted or killed, as if it had never stopped."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run's folder."""
    generations: Annotated[int | None, _option("INT", "as many as were asked of the run")] = None
    """For how many generations in all."""
    task: Annotated[str | None, _option("NAME", "the run's, if it is one of the library's")] = None
    """The task as module:name or file.py:name, if it is your own."""
    quiet: bool = False
    """Show no progress."""


class Parsed(NamedTuple):
    """A parsed command: the task's name, the settings, and the options of task and algorithm."""

    task: str
    make_task: Callable[..., Task]
    settings: RunSettings
    task_options: dict[str, Any]
    algorithm_options: dict[str, Any]


def parse(arguments: list[str], program: str, changes: Mapping[str, Any] | None = None) -> Parsed:
    """Parse `TASK [OPTIONS]`; which options there are depends on the task and on the algorithm.

    Args:
        arguments: The words.
        program: What comes before them.
        changes: What to change further at the scale that they name.
    """
    if not arguments or arguments[0].startswith("-"):
        require(
            bool({"-h", "--help"} & set(arguments)),
            f"TASK is missing: it comes first in '{program} TASK [OPTIONS]'; 'memes list' shows tasks",
        )
        arguments = ["arm", *arguments]  # help alone shows the options of a task that everyone has
    task, *words = arguments
    file = _value_of("config", words)
    table = {} if file is None else _read_toml(Path(file))
    algorithm = _value_of("algorithm", words) or table.get("algorithm", "memes")
    scale = _value_of("scale", words) or table.get("scale", "paper")
    preset = PRESETS[known("algorithm", algorithm, PRESETS)].build
    make_task = _task_factory(task)
    groups = {
        "run": RunSettings,
        "task": _options_of(make_task, f"Options of the task '{task}'."),
        "algorithm": _options_of(preset, f"Options of the algorithm '{algorithm}'."),
    }
    hints = _unique_hints(groups)
    for key, value in table.items():
        name = known(f"key of '{file}'", key.replace("-", "_"), [n for n in hints if n != "config"])
        require(
            fits(value, hints[name]) and value != [],
            f"{name} in '{file}' must be {described(hints[name])}, got {value!r}",
        )
    # What a preset is named for is not changed by a scale.
    bound = preset.keywords if isinstance(preset, partial) else {}
    scaled = SCALES[known("scale", scale, SCALES)] | TASK_SCALES[scale].get(task, {})
    at_scale = {k: v for k, v in {**scaled, **(changes or {})}.items() if k not in bound}
    command = dataclasses.make_dataclass("Command", list(groups.items()))
    parsed = tyro.cli(
        command,
        prog=f"{program} TASK",
        description=DESCRIPTION,
        # The last of equal options wins: flags over the file.
        args=[word for key in table for word in flag_words(key, table[key])] + words,
        default=command(*(_defaults(group, at_scale) for group in groups.values())),
        config=(tyro.conf.OmitArgPrefixes,),
    )
    return Parsed(
        task,
        make_task,
        parsed.run,
        dataclasses.asdict(parsed.task),
        dataclasses.asdict(parsed.algorithm),
    )


def recorded(parsed: Parsed) -> dict[str, Any]:
    """What `config.json` says of a command."""
    options = parsed.task_options | parsed.algorithm_options
    return {**dataclasses.asdict(parsed.settings), "task": parsed.task, "options": options}


def build(parsed: Parsed) -> Algorithm:
    """Build the algorithm, on its task, that a command describes."""
    settings, options = parsed.settings, dict(parsed.algorithm_options)
    task = parsed.make_task(**parsed.task_options)
    require(
        isinstance(task, Task),
        f"task '{parsed.task}' must be a function that returns a Task, got {type(task).__name__}",
    )
    preset = PRESETS[settings.algorithm].build
    if "generations" in inspect.signature(preset).parameters:
        options["generations"] = settings.generations
    # Under its own name: some presets are others with an option bound.
    return preset(task, _cells(task, settings), **options)._replace(name=settings.algorithm)


def task_of(run: SavedRun, name: str | None = None) -> Task:
    """The task of a saved run, rebuilt from its name and options, for whatever runs simulators here.

    Reading a run folder executes no code that the folder names: a task of the user's own has to be
    named again.

    Args:
        run: The run.
        name: The task as in `memes run`, where it is not one of the library's, or where the run does
            not say which it was.
    """
    # The run's backend may need a device that is not here.
    task = _rebuild_task(run.path, run.config, name, backend="auto")
    size, k = run.archive.genotypes.shape[1], run.archive.feature.shape[1]
    require(
        (task.dim, task.feature_dim) == (size, k),
        f"the run in '{run.path}' has genotypes of {size} entries and {k} features, but task "
        f"'{name or task.name}' has {task.dim} and {task.feature_dim}",
    )
    return task


def algorithm_of(path: Path, name: str | None = None, generations: int | None = None) -> Algorithm:
    """The algorithm of a run that the command line made, rebuilt from its `config.json`.

    Args:
        path: The run's folder.
        name: The task, as in `task_of`.
        generations: For how many it must have room; None is as many as were asked of the run.
    """
    config = load_config(path)
    task = _rebuild_task(path, config, name)
    algorithm = known(f"algorithm of the run in '{path}'", config.get("algorithm"), PRESETS)
    preset = PRESETS[algorithm].build
    hints = typing.get_type_hints(_options_of(preset, ""))
    options = _recorded_options(path, config, hints)
    missing = [option for option in hints if option not in options]
    require(not missing, f"the run in '{path}' does not say which {' and '.join(missing)} it has")
    if "generations" in inspect.signature(preset).parameters:
        options["generations"] = config["generations"] if generations is None else generations
    centroids = config.get("centroids")
    resolution = config.get("cells") if centroids is None else None
    _check_recorded(path, "centroids", centroids, int | None)
    _check_recorded(path, "cells", resolution, tuple[int, ...] | None)
    with _recorded_in(path):
        return preset(task, _cells_of(task, resolution, centroids), **options)._replace(name=algorithm)


@contextmanager
def _recorded_in(path: Path) -> Iterator[None]:
    """Let a `UsageError` say that what is wrong is what a run recorded."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"the run in '{path}' cannot be rebuilt: {error}") from error


def _recorded_options(path: Path, config: dict[str, Any], hints: dict[str, Any]) -> dict[str, Any]:
    """Those of the recorded options that the hints name, as their types."""
    recorded = config.get("options") or {}
    require(isinstance(recorded, dict), f"options of the run in '{path}' must be a table")
    options = {option: recorded[option] for option in hints if option in recorded}
    for option, value in options.items():
        _check_recorded(path, option, value, hints[option])
    return {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}


def _check_recorded(path: Path, name: str, value: Any, hint: Any) -> None:
    """Raise a `UsageError` unless what a run's `config.json` says can be what the option was."""
    sane = not isinstance(value, int) or abs(value) < 2**31
    require(
        fits(value, hint) and sane,
        f"{name} of the run in '{path}' must be {described(hint)}, got {value!r}",
    )


def _rebuild_task(path: Path, config: dict[str, Any], name: str | None, **replaced: Any) -> Task:
    recorded = str(config.get("task"))
    if name is None:
        require(
            ":" not in recorded,
            f"the run in '{path}' is of a task of its own, '{recorded}': if you trust that code, "
            f"name it with --task {recorded}",
        )
        require(
            recorded in TASKS,
            f"the run in '{path}' is of a task '{recorded}' that was made in Python: name the task "
            "with --task module:name or --task file.py:name",
        )
    make = _task_factory(name or recorded)
    hints = typing.get_type_hints(_options_of(make, ""))
    values = _recorded_options(path, config, hints)
    missing = [option for option in hints if option not in values]
    # A run made in Python records the algorithm's options alone; the task's may have been anything.
    require(
        name is not None or not missing,
        f"the run in '{path}' does not say which {' and '.join(missing)} its task '{recorded}' had: "
        "name a task that has them with --task module:name or --task file.py:name",
    )
    values |= {option: value for option, value in replaced.items() if option in values}
    with _recorded_in(path):
        task = make(**values)
    require(
        isinstance(task, Task),
        f"task '{name or recorded}' must be a function that returns a Task, got {type(task).__name__}",
    )
    return task


def output_folder(parsed: Parsed) -> Path:
    """The folder that was asked for, or else the first free one under runs/."""
    settings = parsed.settings
    if settings.out is not None:
        return settings.out
    task = re.sub(r"\W+", "-", Path(parsed.task).name)
    base = Path("runs") / f"{task}-{settings.algorithm}-{settings.seed}"
    numbered = (base.with_name(f"{base.name}-{i}") for i in itertools.count(2))
    return next(path for path in itertools.chain([base], numbered) if not path.exists())


def _cells(task: Task, settings: RunSettings) -> Cells:
    require(
        settings.centroids is None or settings.resolution is None,
        "resolution and centroids exclude each other: one is of a grid, the other of a tessellation",
    )
    return _cells_of(task, settings.resolution, settings.centroids)


def _cells_of(task: Task, resolution: Sequence[int] | None, centroids: int | None) -> Cells:
    if centroids is None:
        return grid(task, None if resolution is None else tuple(resolution))
    # The same cells for every seed, so that runs can be compared.
    return cvt(jax.random.key(0), task, centroids)


def _task_factory(name: str) -> Callable[..., Task]:
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


def _options_of(function: Callable[..., Any], title: str) -> type:
    """A dataclass of the keyword-only parameters of a function, with their help from its docstring."""
    plain = inspect.unwrap(function.func if isinstance(function, partial) else function)
    hints = typing.get_type_hints(plain)
    help_of = {p.arg_name: p.description for p in parse_docstring(plain.__doc__ or "").params}
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        given = parameter.name in ("task", "cells", "generations")  # by the command itself
        require(
            given
            or parameter.kind is parameter.KEYWORD_ONLY
            or parameter.default is not parameter.empty,
            f"task: '{plain.__name__}' must take keyword-only parameters, got '{parameter.name}'",
        )
    fields: list[Any] = [
        (
            name,
            Annotated[hints.get(name, type(parameter.default)), tyro.conf.arg(help=help_of.get(name))],
            dataclasses.MISSING if parameter.default is parameter.empty else parameter.default,
        )
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "generations"
    ]
    return dataclasses.make_dataclass("Options", fields, namespace={"__doc__": title})


def _defaults(options: type, values: dict[str, Any]) -> Any:
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


def _unique_hints(groups: dict[str, type]) -> dict[str, Any]:
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


def known(what: str, name: Any, choices: Collection[str], hint: str = "") -> str:
    """The name, if it is among the choices; else a `UsageError` that suggests the nearest."""
    if isinstance(name, str) and name in choices:
        return name
    near = difflib.get_close_matches(str(name), choices, n=1)
    suggestion = f"did you mean '{near[0]}'" if near else f"choose from {', '.join(choices)}"
    raise UsageError(f"unknown {what} '{name}': {suggestion}{hint}{'?' if near else ''}")


def _value_of(option: str, arguments: list[str]) -> str | None:
    """The value of `--option value` or `--option=value`; the last one."""
    value = None
    for word, following in itertools.zip_longest(arguments, arguments[1:]):
        if word == f"--{option}":
            value = following
        elif word.startswith(f"--{option}="):
            value = word.partition("=")[2]
    return value


def _read_toml(file: Path) -> dict[str, Any]:
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
