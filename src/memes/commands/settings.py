"""From words to a run: names of tasks and algorithms, their options, scales and TOML files."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from memes.algorithm import Algorithm
from memes.cells import Cells
from memes.commands.options import (
    cells_of,
    defaults,
    flag_words,
    options_of,
    read_toml,
    task_factory,
    unique_hints,
    value_of,
)
from memes.errors import known, require
from memes.hints import described, fits
from memes.presets import PRESETS
from memes.task import Task

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
    file = value_of("config", words)
    table = {} if file is None else read_toml(Path(file))
    algorithm = value_of("algorithm", words) or table.get("algorithm", "memes")
    scale = value_of("scale", words) or table.get("scale", "paper")
    preset = PRESETS[known("algorithm", algorithm, PRESETS)].build
    make_task = task_factory(task)
    groups = {
        "run": RunSettings,
        "task": options_of(make_task, f"Options of the task '{task}'."),
        "algorithm": options_of(preset, f"Options of the algorithm '{algorithm}'."),
    }
    hints = unique_hints(groups)
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
        default=command(*(defaults(group, at_scale) for group in groups.values())),
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
    # Under its own name: some presets are others with an option bound.
    return preset(task, _cells(task, settings), **options)._replace(name=settings.algorithm)


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
    return cells_of(task, settings.resolution, settings.centroids)
