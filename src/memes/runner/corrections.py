"""The observer that corrects the archive during or after a run, and saves the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import numpy as np
from jax import Array

from memes.archive import Archive
from memes.errors import at_least, positive
from memes.estimates import STATISTICS, Reevaluator, correct, estimates, reevaluator
from memes.executors.remote_evaluation import RemoteEvaluator
from memes.metrics import compare
from memes.runner import memory
from memes.runner.observers import Callbacks, RunContext, Update
from memes.runner.progress import Reporter, duration
from memes.runner.simulators import surviving
from memes.store import archives
from memes.store import folder as folders
from memes.store.folder import Run
from memes.task import Task
from memes.validation import check_fields

# Batch size for corrections of runs whose evaluations are not divided into chunks. It is large enough to
# keep a device busy, and small enough to show progress every few seconds.
ROWS = {"cpu": 4096}
ROWS_ELSEWHERE = 16_384
ROWS_IN_PROCESS = 512  # This is the batch size for tasks that this process evaluates on the host.
# `STREAM` is folded into the key of the seed. Folding in 0 or 1 could produce one of the two keys
# that the run itself uses.
STREAM = 2


@dataclass(frozen=True, kw_only=True)
class Corrections:
    """Re-evaluate the elites of an uncertain task, and compute the corrected archive.

    For a task that was made with `resampled`, a re-evaluation is one evaluation of the original task.
    The random keys depend only on the seed of the run and on the generation. Therefore a correction is
    reproducible and does not affect the search.

    Attributes:
        every: Generations between corrections. 0 disables corrections. If None, the archive is corrected
            once, at the end.
        samples: Number of re-evaluations of each elite at the end of the run.
        every_samples: Number of re-evaluations of each elite in corrections before the end. If None,
            `samples` is used.
        statistic: Statistic that summarises the evaluations of an elite.
        limit: Maximum number of re-evaluations per correction, as a multiple of the number of
            evaluations in the search. If `samples` would exceed this limit, each elite is re-evaluated
            fewer times, but at least once. For corrections before the end, only the evaluations since
            the previous correction are counted. If None, the limit is 1 for tasks with jit=False, and
            there is no limit for compiled tasks.
    """

    every: int | None = None
    samples: int = 512
    every_samples: int | None = None
    statistic: Literal["median", "mean"] = "median"
    limit: float | None = None
    prefix: ClassVar[str] = "reevaluate"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(0, reevaluate_every=self.every)
        at_least(1, reevaluate_samples=self.samples, reevaluate_every_samples=self.every_samples)
        if self.limit is not None:
            positive(reevaluate_limit=self.limit)

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""
        task, length = context.algorithm.task, context.config.generations
        if not task.uncertain or self.every == 0:
            return Callbacks()
        by = partial(
            corrected,
            task=task,
            statistic=self.statistic,
            report=context.report,
            stopped=context.interrupted,
            once=context.once,
        )

        def due(generation: int) -> bool:
            return bool(self.every and 0 < generation < length and generation % self.every == 0)

        def on_the_way(run: Run) -> Run:
            before = run.corrected.get("generation", np.zeros(0))
            since = run.metrics["evaluations"][int(before[-1]) - 1] if len(before) else 0
            samples = self.within(run, task, self.every_samples or self.samples, since)
            run = by(run, samples=samples)._replace(correction=None)
            if run.folder is not None:
                folders.save_corrected(run.folder, run.corrected)
            return run

        def on_start(run: Run) -> Run:
            # Keep only the corrections that an uninterrupted run would have made. If there is a
            # correction of the current generation, it is repeated, because it may have been a final
            # correction.
            at = run.corrected.get("generation", np.zeros(0))
            kept = (at % self.every == 0) & (at < run.generations) if self.every else at < 0
            run = run._replace(corrected={name: rows[kept] for name, rows in run.corrected.items()})
            if run.folder is not None:
                folders.save_corrected(run.folder, run.corrected)
                (run.folder / "corrected.npz").unlink(missing_ok=True)
            return on_the_way(run) if due(run.generations) else run

        def on_update(update: Update) -> Run | None:
            return on_the_way(update.run) if due(update.run.generations) else None

        def on_end(run: Run) -> Run:
            samples = self.within(run, task, self.samples)
            context.say(f"{_announced(run, task, samples, self.samples)}; Ctrl-C skips this")
            run = by(run, samples=samples)
            if run.correction is None:
                context.say(
                    "the elites were not re-evaluated; "
                    f"'memes reevaluate {run.folder or 'RUN'}' does this later"
                )
                assert run.outcome is not None
                stopped = run.outcome.stopped or context.interrupted()
                run = run._replace(outcome=replace(run.outcome, stopped=stopped))
            save_correction(run, task, self.statistic)
            return run

        return Callbacks(on_start, due, on_update, on_end)

    def within(self, run: Run, task: Task, samples: int, since: float = 0) -> int:
        """Return the number of re-evaluations per elite: `samples`, or fewer if the limit requires this.

        Args:
            run: The run.
            task: The task of the run.
            samples: Requested number of re-evaluations per elite.
            since: Number of evaluations in the search up to the previous correction.
        """
        single = task.single or task
        if self.limit is None and single.jit:
            return samples
        budget = (1.0 if self.limit is None else self.limit) * (_searched(run) - since)
        return max(1, min(samples, int(budget / (_elites(run) * single.cost or 1))))


def _elites(run: Run) -> int:
    return int(np.asarray(run.archive.occupied).sum())


def _searched(run: Run) -> float:
    """Return the number of evaluations in the search so far, without re-evaluations."""
    return float(run.metrics["evaluations"][-1])


def _announced(run: Run, task: Task, samples: int, wanted: int) -> str:
    """Return a message with the number of re-evaluations and the estimated time of a correction."""
    single, searched = task.single or task, _searched(run)
    each = _elites(run) * single.cost
    seconds = float(run.metrics["seconds"][-1]) / searched * each * samples
    often = "once" if samples == 1 else f"{samples} times"
    sentence = (
        f"re-evaluating every elite {often}: {each * samples:,} evaluations, "
        f"about {duration(seconds)} at the pace of the search"
    )
    if samples == wanted:
        return sentence
    return (
        f"{sentence} ({wanted} times would need {each * wanted:,} evaluations, but the search had "
        f"{searched:,.0f}; --reevaluate-limit {math.ceil(each * wanted / searched)} allows them)"
    )


def save_correction(run: Run, task: Task, statistic: str) -> None:
    """Write the last correction of a run and the table of all its corrections into its folder.

    Nothing is written if the run has no correction or no folder.
    """
    if run.folder is not None and run.correction is not None:
        about = {"statistic": statistic, "task": task.name, "min_fitness": task.min_fitness}
        archives.save_correction(run.folder, run.correction, **about)
        folders.save_corrected(run.folder, run.corrected)  # last, because rows refer to the archive


def corrected(
    run: Run,
    task: Task,
    *,
    samples: int,
    statistic: str,
    report: Reporter,
    stopped: Callable[[], object],
    once: Callable[[Hashable, Callable[[], Any]], Any] = lambda key, make: make(),
) -> Run:
    """Correct the archive of a run, and add a row to its table of corrections.

    Args:
        run: The run, which need not have ended.
        task: The task of the run.
        samples: Number of re-evaluations per elite.
        statistic: Statistic that summarises the evaluations of an elite.
        report: Reporter that shows the progress.
        stopped: Function that is called between batches. If it returns a true value, the correction
            stops.
        once: `(key, make) -> object`, as in `RunContext`.

    Returns:
        The run with its correction, or without a correction if `stopped` returned a true value.
    """
    run, single = run._replace(correction=None), task.single or task
    rows = run.config.chunk or ROWS.get(jax.default_backend(), ROWS_ELSEWHERE)
    here = single if single.jit else surviving(single, report.say, rows)
    if not (single.jit or isinstance(single.evaluate, RemoteEvaluator)):
        rows = min(rows, ROWS_IN_PROCESS)
    key = jax.random.fold_in(jax.random.key(run.config.seed), STREAM)
    key = jax.random.fold_in(key, run.generations)
    if stopped():
        return run
    most = run.archive.cells.count
    build = partial(reevaluator, here, samples, statistic=STATISTICS[statistic], most=most)
    again = once(("reevaluator", samples), lambda: _fitting(build, here, rows, key, run.archive, report))
    parts, total = [], _elites(run)
    with report.counting("elites re-evaluated", total) as show:
        for part in estimates(again, key, run.archive, here):
            parts.append(part)
            show(sum(len(each.fitness_variance) for each in parts))
            if stopped():
                return run
    correction = correct(run.archive, samples, parts)
    spent = len(correction.elite_cell) * samples * single.cost
    row = {
        "generation": run.generations,
        "samples": samples,
        "by_mean": float(statistic == "mean"),
        "reevaluations": spent + max(run.corrected.get("reevaluations", ()), default=0),
        **compare(run.archive, correction, single.min_fitness),
    }
    # The new row replaces any existing row of the same generation.
    earlier = run.corrected.get("generation", np.zeros(0)) < run.generations
    unknown = np.full(int(earlier.sum()), np.nan)
    before = {name: rows[earlier] for name, rows in run.corrected.items()}
    columns = {name: np.append(before.get(name, unknown), value) for name, value in row.items()}
    return run._replace(correction=correction, corrected=columns)


def _fitting(
    build: Callable[..., Reevaluator],
    task: Task,
    rows: int,
    key: Array,
    archive: Archive,
    report: Reporter,
) -> Reevaluator:
    """Compile the re-evaluation for batches of at most `rows` evaluations that fit into memory."""
    again = build(rows=rows)
    if not task.jit:
        return again
    cell = np.zeros(again.elites, np.int32)
    compiled = again.estimate.lower(key, archive.genotypes, cell).compile()
    what = f"evaluating {again.elites} elites at a time"
    fewer = memory.fewer(rows, compiled, what, report.say)
    if fewer is None:
        return again._replace(estimate=compiled)
    report.say(f"too little memory: re-evaluating in batches of {fewer} evaluations")
    return _fitting(build, task, fewer, key, archive, report)
