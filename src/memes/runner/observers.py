"""Observers: everything that a run does in addition to computing generations.

An observer is a frozen dataclass with its settings and a method `watch`, which is called once per run.
`Progress` below is a short one; `examples/observer.py` is one that stops a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from memes.algorithm import Algorithm
from memes.archive import Changes
from memes.errors import at_least, require
from memes.runner.findings import FAULTS, Observations, findings, uses_keys
from memes.runner.progress import ProgressPoint, Reporter
from memes.store import archives, checkpoint
from memes.store import folder as folders
from memes.store.folder import Run
from memes.store.schema import Header, RunConfig
from memes.validation import check_fields

MOST_WRITING = 0.1  # maximum share of the time for checkpoints that were not explicitly requested


class Update(NamedTuple):
    """A run after a device call: everything so far, and the number of its new generations.

    `changes` are the cells that changed in the new generations, in the format of `Record`, [new, ...].
    """

    run: Run
    new: int
    changes: Changes

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """The new rows of `metrics.csv`, by column."""
        return {name: column[-self.new :] for name, column in self.run.metrics.items()}


class Callbacks(NamedTuple):
    """The functions through which an observer follows one run.

    Functions that return a run may change it; None leaves it unchanged.

    Attributes:
        on_start: `(run) -> run`, called before the first generation, or the first one after resuming.
        due: `(generation) -> bool`, returns True if a device call must end after that generation. The
            length of other device calls depends on time, so only these updates are the same in every
            run.
        on_update: `(update) -> run`, called after each device call.
        on_end: `(run) -> run`, called after the last generation, also if the run was stopped.
    """

    on_start: Callable[[Run], Run | None] = lambda run: None
    due: Callable[[int], bool] = lambda generation: False
    on_update: Callable[[Update], Run | None] = lambda update: None
    on_end: Callable[[Run], Run | None] = lambda run: None


@dataclass(frozen=True)
class RunContext:
    """One run, as passed to its observers.

    Attributes:
        algorithm: The algorithm, with its task.
        header: Content of `config.json` when the run starts.
        folder: Folder of the run; None if it is only in memory.
        report: Shows progress.
        say: Prints a line, which names the run if there are several.
        stop: `(reason)`: stops the run after this update.
        interrupted: Returns the name of the signal that requested to stop, or None.
        once: `(key, make) -> object`: makes an object once for all runs of a group.
        closing: Registers a function that is called when the run ends, also after an exception.
    """

    algorithm: Algorithm
    header: Header
    folder: Path | None
    report: Reporter
    say: Callable[[str], None]
    stop: Callable[[str], None]
    interrupted: Callable[[], str | None]
    once: Callable[[Hashable, Callable[[], Any]], Any]
    closing: Callable[[Callable[[], object]], object]

    @property
    def config(self) -> RunConfig:
        """The settings of the run."""
        return self.header.config


class Observer(Protocol):
    """Anything that can follow a run."""

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""
        ...


@dataclass(frozen=True)
class Log:
    """Write `metrics.csv`, `lanes.npz` and `archive.npz` of a run that has a folder."""

    prefix: ClassVar[str] = "log"

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run, which also print findings about its first generation."""
        folder, task = context.folder, context.algorithm.task

        def on_start(run: Run) -> None:
            if folder is not None:
                folders.save_metrics(folder, run.metrics)

        def on_update(update: Update) -> None:
            if update.run.generations == update.new:
                _tell(context, first_generation(context.algorithm, update))
            if folder is not None:
                folders.append_metrics(folder, update.rows)
            for fault, what in FAULTS.items():
                counts = update.run.metrics[f"faults_{fault.name.lower()}"]
                if counts[-1] and not counts[: -update.new].any():
                    sentence = f"{int(counts[-1])} evaluations so far are {what}"
                    context.say(f"{sentence}: they are left out and counted")

        def on_end(run: Run) -> None:
            if folder is not None:
                about = {"task": task.name, "min_fitness": task.min_fitness}
                folders.save_lanes(folder / "lanes.npz", run.lanes)
                archives.save_archive(folder / "archive.npz", run.archive, **about)

        return Callbacks(on_start=on_start, on_update=on_update, on_end=on_end)


def first_generation(algorithm: Algorithm, update: Update) -> Observations:
    """Extract from the first update of a run what its first generation shows about the task.

    Fitness and features are those of the elites. `update.changes` would be a biased sample: it has the
    first cells only, up to a number.
    """
    metrics, archive, task = update.run.metrics, update.run.archive, algorithm.task
    occupied = np.asarray(archive.occupied)
    return Observations(
        evaluations=algorithm.batch_size,
        faults=tuple(int(metrics[f"faults_{fault.name.lower()}"][0]) for fault in FAULTS),
        outside=int(metrics["outside_bounds"][0]),
        fitness=np.asarray(archive.fitness)[occupied],
        feature=np.asarray(archive.feature)[occupied],
        noisy=uses_keys(task) if task.jit else None,
    )


def _tell(context: RunContext, seen: Observations) -> None:
    """Print each finding for the first run of a group; raise a `UsageError` if one is fatal."""
    for finding in findings(context.algorithm.task, seen):
        require(not finding.fatal, finding.sentence)
        if finding.topic != "faults":  # faults are reported during the whole run
            context.once(("finding", finding.topic), partial(context.say, finding.sentence))


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Write checkpoints during a run, from which `memes resume` continues.

    Attributes:
        every: Generations between checkpoints; 0 writes none. None is a checkpoint after each device
            call, unless that would take more than a tenth of the time.
    """

    every: int | None = None
    prefix: ClassVar[str] = "checkpoint"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(0, checkpoint_every=self.every)

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""
        if context.folder is None or self.every == 0:
            return Callbacks()
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        context.closing(thread.shutdown)
        latest: Future[checkpoint.Logged] = Future()  # the last checkpoint that was started
        due_at = 0.0  # earliest time of the next checkpoint that was not explicitly requested

        def on_start(run: Run) -> None:
            latest.set_result(checkpoint.logged(run))

        def start(run: Run) -> None:
            nonlocal latest
            latest = thread.submit(save, run, latest.result())

        def save(run: Run, before: checkpoint.Logged) -> checkpoint.Logged:
            nonlocal due_at
            began = time.monotonic()
            after = checkpoint.save(run, before)
            due_at = began + (time.monotonic() - began) / MOST_WRITING
            return after

        def due(generation: int) -> bool:
            return bool(self.every and generation % self.every == 0)

        def on_update(update: Update) -> None:
            rested = latest.done() and time.monotonic() >= due_at
            if due(update.run.generations) or (self.every is None and rested):
                start(update.run)

        def on_end(run: Run) -> None:
            if latest.result().rows < run.generations:
                start(run)
            latest.result()

        return Callbacks(on_start=on_start, due=due, on_update=on_update, on_end=on_end)


@dataclass(frozen=True)
class Progress:
    """Show the progress of a run and its remaining time."""

    prefix: ClassVar[str] = "progress"

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""
        seed = context.config.seed
        return Callbacks(on_update=lambda update: context.report.update(seed, progress_of(update.run)))


def progress_of(run: Run) -> ProgressPoint:
    """Return the progress of a run after its last generation."""
    last = [run.metrics[name][-1] for name in ProgressPoint._fields if run.generations]
    return ProgressPoint(*last)
