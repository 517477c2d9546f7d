"""`memes check`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from memes.analysis import task_report
from memes.errors import require
from memes.options.flags import check_flags, options_of, read
from memes.options.names import cells_of, made, own_code, task_factory
from memes.options.workers import WorkerOptions, elsewhere
from memes.parameters import changed
from memes.task import Task

DESCRIPTION = """Evaluate some random genotypes of a task twice, and report what to know before a run: \
time, memory, features outside of the bounds, noise, faults, whether min_fitness fits, and which \
algorithm suits the time that there is, with the command to paste.

TASK is as in 'memes run'. The exit code is 1 if a run of the task cannot mean anything.

examples:
  memes check arm --joints 20
  memes check task.py:task --minutes 10
  memes check gymnasium:LunarLander-v3 --workers 8"""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of the check.

    Attributes:
        genotypes: How many random genotypes to evaluate, each of them twice.
        minutes: Time that the suggested run may take, re-evaluation included.
        evaluations: Evaluations that the search of the suggested run may take, in place of minutes.
        seed: Seed of the genotypes and of their evaluations.
        resolution: Grid cells along each feature; by default as the task has it, or about 2500 in all.
        centroids: Use a centroidal Voronoi tessellation of so many cells instead of a grid.
    """

    genotypes: int = 32
    minutes: float = 30.0
    evaluations: int | None = None
    seed: int = 0
    resolution: tuple[int, ...] | None = None
    centroids: int | None = None


def check(arguments: list[str]) -> int:
    """Check a task; returns the exit code."""
    name = arguments[0] if arguments and not arguments[0].startswith("-") else None
    words = arguments[1:] if name else arguments
    require(
        name is not None or bool({"-h", "--help"} & set(words)),
        "TASK is missing: it comes first in 'memes check TASK [OPTIONS]'; 'memes list' shows tasks",
    )
    make = None if name is None else task_factory(name)
    groups = {
        "check": options_of(CheckOptions()),
        "workers": options_of(WorkerOptions()),
        "task": {} if make is None else options_of(make),
    }
    check_flags(words, set(itertools.chain.from_iterable(groups.values())))
    found = read(groups, words, "memes check TASK", DESCRIPTION)
    assert make is not None  # help alone has ended the command
    assert name is not None
    options, given = changed(CheckOptions(), found["check"]), found["task"]
    with changed(WorkerOptions(), found["workers"]).executor() as executor:
        task = elsewhere(made(Task, name, make, **given), name, given, executor)
        cells = cells_of(task, options.resolution, options.centroids)
        with own_code(f"task '{name}'"):
            report = task_report.check(
                task,
                cells=cells,
                genotypes=options.genotypes,
                minutes=options.minutes,
                evaluations=options.evaluations,
                seed=options.seed,
            )
    defaults = groups["task"] | groups["workers"] | groups["check"]
    chosen = {name: value for group in found.values() for name, value in group.items()}
    own = [
        word
        for option, value in chosen.items()
        if option not in ("genotypes", "minutes", "evaluations", "seed")
        and value != defaults[option].default
        for word in _words(option, value)
    ]
    print(replace(report, command=report.advice.on_command_line(" ".join([name, *own]))))
    return 1 if report.fatal else 0


def _words(option: str, value: Any) -> list[str]:
    """An option with its value as words of the command line."""
    flag = option.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", *map(str, value if isinstance(value, tuple) else [value])]
