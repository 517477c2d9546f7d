"""Observers: all that a run does besides advancing.

An observer is a frozen dataclass with its settings and a method `watch`, which is asked once for each
run. `Progress` below is a short one; `examples/observer.py` is one that stops a run.
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
from memes.findings import FAULTS, Observations, findings, uses_keys
from memes.runner.progress import ProgressPoint, Reporter
from memes.store import archives, checkpoint
from memes.store import folder as folders
from memes.store.folder import Run
from memes.store.schema import Header, RunConfig
from memes.validation import check_fields

MOST_WRITING = 0.1  # share of the time in which checkpoints that nobody asked for are written


class Update(NamedTuple):
    """A run after a call of the device: all of it so far, and how many of its generations are new.

    `changes` are the cells that changed in these, as a `Record` has them, [new, ...].
    """

    run: Run
    new: int
    changes: Changes

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """The rows of `metrics.csv` that are new, by column."""
        return {name: column[-self.new :] for name, column in self.run.metrics.items()}


class Callbacks(NamedTuple):
    """The functions through which an observer follows one run.

    Those that return a run may change it; None leaves it as it is.

    Attributes:
        on_start: `(run) -> run`, before the first generation, or the first one of a resumed run.
        due: `(generation) -> bool`: must a call of the device end after so many generations? Calls are
            sized by time: only there does every run of a seed have a update.
        see: `(update) -> run`, after each call of the device.
        on_end: `(run) -> run`, after the last generation, also if the run was stopped.
    """

    on_start: Callable[[Run], Run | None] = lambda run: None
    due: Callable[[int], bool] = lambda generation: False
    on_update: Callable[[Update], Run | None] = lambda update: None
    on_end: Callable[[Run], Run | None] = lambda run: None


@dataclass(frozen=True)
class RunContext:
    """One run, as its observers find it.

    Attributes:
        algorithm: As it is run here; it knows its task.
        header: What `config.json` holds when the run starts.
        folder: Where the run is saved; None if it is only in memory.
        report: Where progress is shown.
        say: Prints a line, which names the run where there are several.
        stop: `(reason)`: ends the run after the moment that is being seen.
        interrupted: The name of the signal that wants whatever goes on to end soon, or None.
        once: `(key, make) -> object`: what observers of runs side by side have in common, made once.
        closing: Takes a function to be called when the run is over, however it ends.
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
        """What is asked of the run."""
        return self.header.config


class Observer(Protocol):
    """Whatever can watch a run."""

    def watch(self, context: RunContext) -> Callbacks:
        """Begin to follow a run."""
        ...


@dataclass(frozen=True)
class Log:
    """Writes `metrics.csv`, `lanes.npz` and `archive.npz` of a run that has a folder."""

    prefix: ClassVar[str] = "log"

    def watch(self, context: RunContext) -> Callbacks:
        """Follow a run, and print what its first generation shows about the task."""
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
                    context.say(f"{sentence}: such rows are left out and counted")

        def on_end(run: Run) -> None:
            if folder is not None:
                about = {"task": task.name, "min_fitness": task.min_fitness}
                folders.save_lanes(folder / "lanes.npz", run.lanes)
                archives.save_archive(folder / "archive.npz", run.archive, **about)

        return Callbacks(on_start=on_start, on_update=on_update, on_end=on_end)


def first_generation(algorithm: Algorithm, update: Update) -> Observations:
    """What the first generation of a run, in its first update, shows about the task.

    Of fitness and features it has those that entered the archive.
    """
    metrics, changes, task = update.run.metrics, update.changes, algorithm.task
    entered = np.asarray(changes.cell)[0] < algorithm.cells.count
    return Observations(
        evaluations=algorithm.batch_size,
        faults=tuple(int(metrics[f"faults_{fault.name.lower()}"][0]) for fault in FAULTS),
        outside=int(metrics["outside_bounds"][0]),
        fitness=np.asarray(changes.fitness)[0][entered],
        feature=np.asarray(changes.feature)[0][entered],
        noisy=uses_keys(task) if task.jit else None,
    )


def _tell(context: RunContext, seen: Observations) -> None:
    """Print findings, each for the first run that has it; raise a `UsageError` if one is fatal."""
    for finding in findings(context.algorithm.task, seen):
        require(not finding.fatal, finding.sentence)
        if finding.topic != "faults":  # which are counted during the whole run
            context.once(("finding", finding.topic), partial(context.say, finding.sentence))


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Writes checkpoints, from which `memes resume` goes on, while the run goes on.

    Attributes:
        every: Generations between checkpoints, 0 for none; None is one after each call of the device,
            unless writing them would take more than a tenth of the time.
    """

    every: int | None = None
    prefix: ClassVar[str] = "checkpoint"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(0, checkpoint_every=self.every)

    def watch(self, context: RunContext) -> Callbacks:
        """Follow a run."""
        if context.folder is None or self.every == 0:
            return Callbacks()
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        context.closing(thread.shutdown)
        latest: Future[checkpoint.Logged] = Future()  # the last that was begun
        due_at = 0.0  # when the next may be begun that nobody asked for

        def on_start(run: Run) -> None:
            latest.set_result(checkpoint.logged(run))

        def start(run: Run) -> None:
            nonlocal latest
            latest = thread.submit(save, run, latest.result())  # raises what went wrong

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
    """Shows where a run stands, and when it will be over."""

    prefix: ClassVar[str] = "progress"

    def watch(self, context: RunContext) -> Callbacks:
        """Follow a run."""
        seed = context.config.seed
        return Callbacks(on_update=lambda update: context.report.update(seed, standing(update.run)))


def standing(run: Run) -> ProgressPoint:
    """Where a run stands after its last generation."""
    last = [run.metrics[name][-1] for name in ProgressPoint._fields if run.generations]
    return ProgressPoint(*last)
