"""The command `memes reproduce`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from memes.errors import RunError, known, require
from memes.reproduce import results
from memes.reproduce.experiments import EXPERIMENTS, TASKS, VARIANTS
from memes.reproduce.plan import Item, existing, plan
from memes.reproduce.sweep import sweep
from memes.store.find import load_all
from memes.store.summary import Summary

ALL = "all"
# Options of algorithms that say how large a generation is.
SIZES = ("lanes", "samples", "batch", "resamples")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Run the experiments of the paper, and see which of its claims hold.

    What is done already is not done again: a sweep that was stopped or killed goes on when the same
    command is given again. It ends with tables and figures of each experiment, and a verdict on each
    claim.
    """

    experiments: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[EXPERIMENT ...]", help_behavior_hint="(required, but for --list)"),
    ] = ()
    """Names of experiments, or 'all'; --list shows them."""
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TASK [TASK ...]")] = TASKS
    """On which of the paper's tasks."""
    labels: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="LABEL [LABEL ...]", help_behavior_hint="(default: all)")
    ] = ()
    """Only these of what the experiments run, to share a sweep among machines."""
    scale: Literal["paper", "laptop"] = "paper"
    """The paper's settings, for a GPU, or far smaller ones for a laptop."""
    seeds: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: as the paper, 10 or 5)")
    ] = None
    """How many seeds."""
    first_seed: int = 0
    """The first of them."""
    generations: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: as the scale says)")
    ] = None
    """For how many generations to run."""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("reproduction")
    """Folder for the results; each scale has a folder in it."""
    summaries: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="PATH [PATH ...]", help_behavior_hint="(default: none)")
    ] = ()
    """Summaries of runs that were done elsewhere: files, folders of them, or run folders."""
    together: Annotated[
        int | None,
        tyro.conf.arg(
            metavar="INT",
            help_behavior_hint="(default: as many as fit into memory, or 1 with a simulator)",
        ),
    ] = None
    """How many seeds to run as one batch."""
    keep_archives: bool = False
    """Keep the run folders; otherwise only a summary of each run is kept."""
    report_only: bool = False
    """Run nothing: make tables, figures and verdicts of the summaries that there are."""
    list: bool = False
    """Show the experiments and what they would run, and end."""
    quiet: bool = False
    """Show no progress."""


def reproduce(arguments: Sequence[str]) -> None:
    """Run the experiments of the paper."""
    settings = tyro.cli(Settings, prog="memes reproduce", args=arguments)
    names, tasks = _experiments(settings), _tasks(settings)
    for name in ("seeds", "generations", "together"):
        value = getattr(settings, name)
        require(value is None or value >= 1, f"{name} must be at least 1, got {value}")
    require(settings.first_seed >= 0, f"first_seed must be at least 0, got {settings.first_seed}")
    for label in settings.labels:
        known("label", label, VARIANTS)
    items = plan(
        names,
        tasks,
        settings.scale,
        labels=settings.labels,
        seeds=settings.seeds,
        first_seed=settings.first_seed,
        generations=settings.generations,
    )
    console = Console(highlight=False)
    out = settings.out / settings.scale
    if settings.list:
        _show_plan(names, items, existing(items, _done(settings, out)), console)
        return
    require(bool(items), f"tasks: there is nothing to run of {', '.join(names)} on {', '.join(tasks)}")
    if not settings.report_only:
        _sweep(items, settings, out)
    found = existing(items, _done(settings, out))
    require(bool(found), f"summaries: there are none of these experiments in '{out}' or elsewhere")
    judged = results.write(names, tasks, found, out)
    results.show(judged, console)
    wanted = sum(len(item.seeds) for item in items)
    console.print(
        f"{len(found)} of {wanted} runs; see {out}/claims.md and the folders beside it", soft_wrap=True
    )


def _sweep(items: Sequence[Item], settings: Settings, out: Path) -> None:
    from jax import default_backend

    errors = Console(stderr=True, highlight=False)
    if settings.scale == "paper" and default_backend() == "cpu":
        errors.print("no GPU found: '--scale laptop' is the quicker choice on a CPU")

    def say(sentence: str) -> None:
        if not settings.quiet:
            errors.print(sentence, markup=False, soft_wrap=True)

    try:
        sweep(
            items,
            _done(settings, out),
            out,
            together=settings.together,
            keep_archives=settings.keep_archives,
            progress=not settings.quiet,
            say=say,
        )
    except KeyboardInterrupt:
        say("stopped: the same command goes on")
        raise
    except OSError as error:
        raise RunError(
            f"cannot write to '{error.filename or out}': {error.strerror}; once that is possible, the "
            "same command goes on"
        ) from error


def _done(settings: Settings, out: Path) -> list[Summary]:
    """What is done: here, and elsewhere."""
    here = out / "summaries"
    own = [here] if any(here.rglob("*.json")) else []
    return load_all([*own, *settings.summaries], argument="summaries")


def _experiments(settings: Settings) -> list[str]:
    names = settings.experiments or ((ALL,) if settings.list else ())
    require(
        bool(names),
        f"EXPERIMENT is missing: name some of {', '.join(EXPERIMENTS)}, or '{ALL}'; --list shows them",
    )
    for name in names:
        known("experiment", name, [*EXPERIMENTS, ALL])
    return [name for name in EXPERIMENTS if ALL in names or name in names]


def _tasks(settings: Settings) -> list[str]:
    for task in settings.tasks:
        known("task", task, TASKS)
    return [task for task in TASKS if task in settings.tasks]


def _show_plan(
    names: Sequence[str], items: Sequence[Item], done: Sequence[Summary], console: Console
) -> None:
    for name in names:
        console.print(f"{name:12}{EXPERIMENTS[name].title}", soft_wrap=True)
    heads = ("task", "label", "generations", "seeds", "done", "a generation", "for")
    console.print("\n{:10}{:18}{:>11}{:>7}{:>6}  {:26}{}".format(*heads), soft_wrap=True)
    for item in items:
        options = item.parsed.algorithm_options
        size = ", ".join(f"{name} {options[name]}" for name in SIZES if name in options)
        finished = sum((run.task, run.label) == (item.task, item.label) for run in done)
        wanted_by = [
            name
            for name in names
            if item.label in EXPERIMENTS[name].labels and item.task in EXPERIMENTS[name].tasks
        ]
        console.print(
            f"{item.task:10}{item.label:18}{item.generations:11,}{len(item.seeds):7}{finished:6}  "
            f"{size:26}{', '.join(wanted_by)}",
            soft_wrap=True,
        )
