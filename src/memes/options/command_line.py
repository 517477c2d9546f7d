"""Parsing of commands that start runs: the task, algorithm, options, scale and TOML file."""

from __future__ import annotations

import itertools
import typing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from memes.algorithm import UNNAMED, Algorithm
from memes.api import USUAL, restored, run
from memes.errors import at_least, known, require
from memes.executors.remote_evaluation import BLOCK
from memes.options.flags import (
    Options,
    check_flags,
    check_no_more,
    options_of,
    read,
    read_toml,
    replaced,
    show_help,
    split,
)
from memes.options.names import algorithm_factory, cells_of, code_of, made, task_factory
from memes.options.workers import WorkerOptions, on_workers
from memes.parameters import Parameter, changed
from memes.presets import PRESETS
from memes.runner.loggers import Logger, check_logger
from memes.runner.multihost import HostOptions
from memes.runner.observers import Observer
from memes.store.files import as_path
from memes.task import Task
from memes.tasks import TASKS
from memes.validation import described, fits

# Default values of options, for each scale. Options that the task or algorithm does not have are
# ignored. A scale never sets an option to a larger value than the option's usual default.
SCALES: dict[str, dict[str, Any]] = {
    "paper": {"generations": 2000},
    "laptop": {
        "generations": 1500,
        "joints": 100,
        "lanes": 16,
        "samples": 128,
        "candidate_samples": 8,
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
# Further default values of options, for each scale and task.
TASK_SCALES: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {"ant-trap": {"generations": 10_000}},
    "laptop": {
        "point-maze": {"generations": 500, "samples": 32, "batch": 512},
        "hexapod": {"generations": 400, "samples": 32, "batch": 512},
        "ant": {"generations": 200, "samples": 64, "batch": 1024},
        "ant-trap": {"generations": 150, "samples": 64, "batch": 1024},
    },
}

# Further default values of options, for each scale and algorithm.
ALGORITHM_SCALES: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {},
    "laptop": {"memes-hybrid": {"lanes": 8}},
}

DESCRIPTION = """Run an algorithm on a task and save the results.

TASK is a task from 'memes list', or a custom task as package.module:name or path/to/file.py:name. A \
custom task is a Task, or a function that returns a Task. Keyword-only parameters of the function \
become options. Environments of other packages are named gymnasium:NAME, brax:NAME and playground:NAME.

Options may be given before or after TASK. If a task and an algorithm are given, --help also lists \
their options: memes run arm --algorithm me --help."""
# The groups of options in the help text. Each title is followed by options that every run has.
GROUPS: dict[str, tuple[str, ...]] = {
    "common options": (
        *("algorithm", "scale", "generations", "evaluations", "seed", "seeds", "out", "label", "view"),
        *("quiet", "config"),
    ),
    "output": (
        *("overwrite", "track", "figures_draw", "checkpoint_every", "changes_rows", "call_seconds"),
    ),
    "archive": ("resolution", "centroids"),
    "re-evaluation": (
        *("reevaluate_samples", "reevaluate_every", "reevaluate_every_samples"),
        *("reevaluate_statistic", "reevaluate_limit"),
    ),
    "parallel": (
        *(
            "workers",
            "worker_rows",
            "simulator_timeout",
            "chunk",
            "seeds_per_batch",
            "devices",
            "shards",
        ),
        *("coordinator", "processes", "process"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Options of a command that starts runs.

    Attributes:
        algorithm: An algorithm from `memes list`, or a custom algorithm as module:name or file.py:name.
            A custom algorithm is a function of a task and its cells. With this option, --help also lists
            the options of the algorithm.
        scale: Default values of the options: either the paper's values, for a GPU, or smaller values,
            for a laptop.
        out: Folder for the results. With several seeds, each seed has a subfolder. By default, a new
            folder under runs/ is used.
        seeds: Number of seeds to run, starting with --seed. Each seed has a separate folder.
        label: Label of the algorithm in folders, tables and figures. The default is the name of the
            algorithm.
        resolution: Number of grid cells along each feature. By default, the resolution of the task is
            used. If the task has no resolution, the grid has about 2500 cells.
        centroids: Use a centroidal Voronoi tessellation with this number of cells instead of a grid.
        track: Tools that receive the metrics during the run: tensorboard, wandb, or a module with the
            same functions as wandb. The event files of tensorboard are written to the folder of the run.
        worker_rows: Number of genotypes that a worker receives at a time.
        quiet: Do not show progress.
        view: Show the run in the browser, like 'memes view'. The page remains after the run until
            Ctrl-C.
        config: TOML file that contains any of these options, such as lanes = 64, and the task. Options
            below a heading such as [me] apply only to that algorithm. Flags override the file.
    """

    algorithm: str = "memes"
    scale: Literal["paper", "laptop"] = "paper"
    out: Path | None = None
    seeds: int | None = None
    label: str | None = None
    resolution: tuple[int, ...] | None = None
    centroids: int | None = None
    track: tuple[str, ...] = ()
    worker_rows: int = BLOCK
    quiet: bool = False
    view: bool = False
    config: Path | None = None

    def __post_init__(self) -> None:
        at_least(1, seeds=self.seeds, worker_rows=self.worker_rows)
        for name in self.track:
            check_logger(name)


# Options of a run that are not parameters of `memes.run`.
SHARED: tuple[Any, ...] = (Choice(), WorkerOptions(), HostOptions())


class Parsed(NamedTuple):
    """A parsed command.

    Attributes:
        task: Name of the task.
        make_task: Function that makes the task.
        make_algorithm: Function that makes the algorithm.
        choice: Options of every command that starts runs.
        worker_options: Options for workers that evaluate a Python simulator.
        host_options: Options of runs on several processes.
        running: Arguments of `memes.run`.
        observing: Settings of observers.
        task_options: Options of the task.
        algorithm_options: Options of the algorithm.
    """

    task: str
    make_task: Callable[..., Task]
    make_algorithm: Callable[..., Algorithm]
    choice: Choice
    worker_options: WorkerOptions
    host_options: HostOptions
    running: dict[str, Any]
    observing: dict[str, Any]
    task_options: dict[str, Any]
    algorithm_options: dict[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """The options of the task and the algorithm."""
        return self.task_options | self.algorithm_options

    def recorded(self) -> dict[str, Any]:
        """Return the entries of `config.json` that describe the command."""
        code = {name: code_of(name) for name in (self.task, self.choice.algorithm) if ":" in name}
        given = vars(self.choice) | vars(self.worker_options) | vars(self.host_options)
        return {**given, "task": self.task, "options": self.options, "code": code}

    def observers(self) -> list[Observer]:
        """Return the observers of the run."""
        usual = [restored(kind, self.observing) for kind in USUAL]
        return [*usual, *map(Logger, self.choice.track)]

    def build(self, executor: Executor | None = None) -> Algorithm:
        """Build the algorithm and its task. If there is an executor, the executor evaluates the task."""
        task = made(Task, self.task, self.make_task, **self.task_options)
        task = on_workers(task, self.task, self.task_options, executor, self.choice.worker_rows)
        cells = cells_of(task, self.choice.resolution, self.choice.centroids)
        name, options = self.choice.algorithm, self.algorithm_options
        found = made(Algorithm, name, self.make_algorithm, task, cells, **options)
        if name in PRESETS:
            own = name  # `found.name` is wrong if the preset calls another preset
        else:
            own = name.rpartition(":")[2] if found.name == UNNAMED else found.name
        return replace(found, name=own, options=found.options or options)


def run_options() -> dict[str, Options]:
    """Return the options that every run has, in the groups "run" and "observer"."""
    shared = {name: option for group in SHARED for name, option in options_of(group).items()}
    return {
        "run": shared | options_of(run, without=("progress", "out")),
        "observer": {k: v for kind in USUAL for k, v in options_of(kind(), kind.prefix).items()},
    }


def help_groups(options: Options) -> dict[str, Options]:
    """Return options grouped by the titles of `GROUPS`."""
    return {title: {name: options[name] for name in names} for title, names in GROUPS.items()}


def parse(words: list[str], program: str, changes: Mapping[str, Any] | None = None) -> Parsed:
    """Parse TASK and options, in any order.

    The allowed options include the options of the task and of the algorithm.

    Args:
        words: Words of the command line after the command.
        program: The command, such as `memes run`.
        changes: Default values of options, which override the values of the scale.
    """
    own = run_options()
    shared = _all(own)
    line = split(words, shared)
    file, wants_help = line.value("config"), line.has("help")
    table = {} if file is None else read_toml(Path(file))
    algorithm = line.value("algorithm") or table.get("algorithm", "memes")
    for option in ("algorithm", "out", "label"):
        require(line.value(option) != "", f"{option} must not be empty; leave --{option} out instead")
    build = algorithm_factory(algorithm)
    options_of_algorithm = options_of(build)
    task = task_of(words, shared | options_of_algorithm) or table.get("task")
    require(
        task is not None or wants_help,
        f"TASK is missing: {program} TASK [OPTIONS]; 'memes list' shows tasks",
    )
    make = task_factory(str(task)) if task is not None else None
    groups = {
        **own,
        "task": {} if make is None else options_of(make),
        "algorithm": options_of_algorithm,
    }
    options = _all(groups)
    if not wants_help:
        check_flags(words, options, partial(_whose, task, algorithm))
    scale = line.value("scale") or table.get("scale", "paper")
    entries = _entries(table, file, algorithm, options)
    values = SCALES[known("scale", scale, SCALES)] | TASK_SCALES[scale].get(str(task), {})
    values |= ALGORITHM_SCALES[scale].get(str(algorithm), {}) | dict(changes or {})
    groups = {title: replaced(group, values, entries) for title, group in groups.items()}
    if wants_help:
        shown = help_groups(groups["run"] | groups["observer"])
        shown |= {f"options of task {task}": groups["task"]}
        shown |= {f"options of algorithm {algorithm}": groups["algorithm"]}
        show_help(program, f"{program} TASK [OPTIONS]", DESCRIPTION, shown)
    assert make is not None
    found, placed = read(words, groups)
    check_no_more(placed[1:])
    choice, worker_options, host_options = (changed(group, found["run"]) for group in SHARED)
    for name in itertools.chain.from_iterable(map(options_of, SHARED)):
        del found["run"][name]
    return Parsed(
        task=str(task),
        make_task=make,
        make_algorithm=build,
        choice=choice,
        worker_options=worker_options,
        host_options=host_options,
        running=found["run"],
        observing=found["observer"],
        task_options=found["task"],
        algorithm_options=found["algorithm"],
    )


def task_of(words: Sequence[str], options: Mapping[str, Parameter]) -> str | None:
    """Return the first word that is neither a flag nor the value of an option, or None if there is none.

    At this point, the options of the task are unknown, so a word after an unknown option may be its
    value. Such a word is returned only if there is no other positional word.
    """
    line = split(words, options)
    after = (value for flag in line.flags if flag.name not in options for value in flag.values)
    return next(iter(line.placed), None) or next(after, None)


def _all(groups: Mapping[str, Options]) -> Options:
    """Return the options of all groups, or raise a `UsageError` if two options have the same name."""
    found = [pair for group in groups.values() for pair in group.items()]
    (name, times), *_ = Counter(name for name, _ in found).most_common(1)
    unique = times == 1
    require(unique, f"task: option '{name}' has the same name as another option of the run; rename it")
    return dict(found)


def _entries(
    table: dict[str, Any], file: str | None, algorithm: Any, options: Options
) -> dict[str, Any]:
    """Check the content of a TOML file, and return the entries that apply to this algorithm."""
    sections = {k: v for k, v in table.items() if isinstance(v, dict)}
    for name in sections:
        known(f"section of '{file}'", name, PRESETS) if ":" not in name else name
    found: dict[str, Any] = {}
    general = {k: v for k, v in table.items() if k not in sections and k != "task"}
    for key, value in (*general.items(), *sections.get(str(algorithm), {}).items()):
        name = key.replace("-", "_")
        whose = "" if name in options else _whose(None, algorithm, name)
        require(not whose, f"key '{key}' of '{file}' {whose}; move it below the algorithm's heading")
        known(f"key of '{file}'", name, [n for n in options if n != "config"])
        hint = options[name].hint
        require(
            fits(value, hint) and value != [],
            f"{name} in '{file}' must be {described(hint)}, got {value!r}",
        )
        # TOML has lists instead of tuples and strings instead of paths, and floats may be written as
        # integers.
        kinds = (hint, *typing.get_args(hint))
        if isinstance(value, list):
            value = tuple(value)
        elif Path in kinds:
            value = as_path(value, f"{name} in '{file}'")
        elif float in kinds:
            value = float(value)
        found[name] = value
    return found


def _whose(task: Any, algorithm: Any, name: str) -> str:
    """Return a phrase that lists the algorithms or tasks with the given option, or an empty string."""
    owners = [preset.name for preset in PRESETS.values() if name in options_of(preset.build)]
    if owners:
        return f"is an option of {', '.join(owners)}, not of {algorithm}"
    owners = [each for each, make in TASKS.items() if task is not None and name in options_of(make)]
    return f"is an option of task {', '.join(owners)}, not of {task}" if owners else ""
