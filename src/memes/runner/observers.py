"""Observers, which do everything in a run except compute the generations.

An observer is a frozen dataclass with settings and a method `watch`, which is called once per run. The
class `Progress` below is a short example. `examples/observer.py` shows an observer that stops a run.
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

MOST_WRITING = 0.1  # maximum share of the run time for checkpoints that were not explicitly requested


class Update(NamedTuple):
    """The state of a run after a device call.

    Attributes:
        run: The run with all generations so far.
        new: Number of new generations.
        changes: The cells that changed in the new generations, as arrays [new, ...] in the format of
            `Record`.
    """

    run: Run
    new: int
    changes: Changes

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """The columns of `metrics.csv` by name, with the rows of the new generations."""
        return {name: column[-self.new :] for name, column in self.run.metrics.items()}


class Callbacks(NamedTuple):
    """The functions through which an observer follows one run.

    `on_start`, `on_update` and `on_end` may return a modified run, or None to leave the run unchanged.

    Attributes:
        on_start: `(run) -> run`, called before the first generation and whenever the run is resumed.
        due: `(generation) -> bool`, which returns True if a device call must end after this generation.
            A device call may also end after other generations, depending on the speed of the machine.
        on_update: `(update) -> run`, called after each device call.
        on_end: `(run) -> run`, called after the last generation, even if the run was stopped.
    """

    on_start: Callable[[Run], Run | None] = lambda run: None
    due: Callable[[int], bool] = lambda generation: False
    on_update: Callable[[Update], Run | None] = lambda update: None
    on_end: Callable[[Run], Run | None] = lambda run: None


@dataclass(frozen=True)
class RunContext:
    """Information about a run and functions that its observers can call.

    Attributes:
        algorithm: The algorithm, with its task.
        header: Content of `config.json` at the start of the run.
        folder: Folder of the run, or None if the run is only in memory.
        report: Reporter that shows progress.
        say: Function that prints a line. If there are several runs, the line begins with the seed.
        stop: Function `(reason)` that stops the run after the current update.
        interrupted: Function that returns the name of the signal that was sent to stop the run, or None.
        once: Function `(key, make) -> object` that calls `make` once for all runs, and returns the same
            object in each run.
        closing: Function `(close)` that registers `close`. When the run ends, `close` is called, even
            after an exception.
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
    """An object that can follow runs."""

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""
        ...


@dataclass(frozen=True)
class Log:
    """Write `metrics.csv`, `lanes.npz` and `archive.npz` of a run that has a folder."""

    prefix: ClassVar[str] = "log"

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks. After the first update, they also print the problems that were found."""
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
    """Return the values that `findings` checks for problems, after the first update of a run.

    These values include the fitness and the features of the elites. `update.changes` would be a
    biased sample, because it contains only the changed cells with the lowest numbers.
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
    """Print each finding once for all runs, or raise a `UsageError` if a finding is fatal."""
    for finding in findings(context.algorithm.task, seen):
        require(not finding.fatal, finding.sentence)
        if finding.topic != "faults":  # faults are reported during the whole run
            context.once(("finding", finding.topic), partial(context.say, finding.sentence))


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Write checkpoints during a run, from which `memes resume` can continue.

    Attributes:
        every: Generations between checkpoints. 0 disables checkpoints. If None, a checkpoint is written
            after each device call. Some of these checkpoints are skipped if writing takes more than a
            tenth of the time.
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
        # `latest` is the last checkpoint that was started. Checkpoints that were not explicitly
        # requested start at the time `due_at` or later.
        latest: Future[checkpoint.Logged] = Future()
        due_at = 0.0

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
    """Return the progress of a run after its latest generation."""
    last = [run.metrics[name][-1] for name in ProgressPoint._fields if run.generations]
    return ProgressPoint(*last)
