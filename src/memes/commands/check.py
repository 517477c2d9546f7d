"""The command `memes check`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from memes.analysis import task_report
from memes.errors import require
from memes.options.command_line import task_of
from memes.options.flags import check_flags, check_no_more, options_of, read, show_help, split
from memes.options.names import cells_of, made, own_code, task_factory
from memes.options.workers import WorkerOptions, on_workers
from memes.parameters import changed
from memes.task import Task

DESCRIPTION = """Evaluate some random genotypes of a task twice, and report time, memory, features \
outside the bounds, noise, faults, and whether min_fitness fits. The report suggests an algorithm for \
the available time, with a command to paste.

TASK is named as in 'memes run'. The exit code is 1 if a run of the task would be meaningless."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of `memes check`.

    Attributes:
        genotypes: Number of random genotypes, each of which is evaluated twice.
        minutes: Time budget of the suggested run, including re-evaluation, in minutes.
        evaluations: Evaluation budget of the suggested search, as an alternative to a time budget.
        seed: Seed of the genotypes and of their evaluations.
        resolution: Number of grid cells along each feature. By default, the resolution of the task is
            used. If the task has no resolution, the grid has about 2500 cells.
        centroids: Use a centroidal Voronoi tessellation with this number of cells instead of a grid.
    """

    genotypes: int = 32
    minutes: float = 30.0
    evaluations: int | None = None
    seed: int = 0
    resolution: tuple[int, ...] | None = None
    centroids: int | None = None


def check(arguments: list[str]) -> int:
    """Check a task, print the report, and return the exit code."""
    program = "memes check"
    own = {"options": options_of(CheckOptions()), "workers": options_of(WorkerOptions())}
    name = task_of(arguments, own["options"] | own["workers"])
    wants_help = split(arguments, {}).has("help")
    require(
        name is not None or wants_help,
        f"TASK is missing: {program} TASK [OPTIONS]; 'memes list' shows tasks",
    )
    make = None if name is None else task_factory(name)
    groups = own | {"task": {} if make is None else options_of(make)}
    if wants_help:
        shown = own | {f"options of task {name}": groups["task"]}
        show_help(program, f"{program} TASK [OPTIONS]", DESCRIPTION, shown)
    assert name is not None
    assert make is not None  # with --help, `show_help` has already ended the command
    check_flags(arguments, groups["options"] | groups["workers"] | groups["task"])
    found, placed = read(arguments, groups)
    check_no_more(placed[1:])
    options, given = changed(CheckOptions(), found["options"]), found["task"]
    with changed(WorkerOptions(), found["workers"]).executor() as executor:
        task = on_workers(made(Task, name, make, **given), name, given, executor)
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
    defaults = groups["task"] | groups["workers"] | groups["options"]
    chosen = {name: value for group in found.values() for name, value in group.items()}
    words = [
        word
        for option, value in chosen.items()
        if option not in ("genotypes", "minutes", "evaluations", "seed")
        and value != defaults[option].default
        for word in _words(option, value)
    ]
    print(replace(report, command=report.advice.on_command_line(" ".join([name, *words]))))
    return 1 if report.fatal else 0


def _words(option: str, value: Any) -> list[str]:
    """Return the command-line arguments that set an option to a value."""
    flag = option.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", *map(str, value if isinstance(value, tuple) else [value])]
