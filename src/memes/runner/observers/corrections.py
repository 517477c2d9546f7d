"""Corrections of a run's archive: when, with which randomness, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.archive import Archive
from memes.correction import (
    STATISTICS,
    Correction,
    Reevaluator,
    compare,
    correct,
    estimates,
    reevaluator,
)
from memes.errors import require
from memes.runner import memory
from memes.runner.progress import Reporter
from memes.runner.simulators import surviving
from memes.store import folder as folders
from memes.task import Task

# Rows at a time, where the run has no chunk: enough to keep a device busy, and a sign of life from it
# every few seconds.
ROWS = {"cpu": 4096}
ROWS_ELSEWHERE = 16_384
# What the seed's key is folded with; 0 and 1 could give the two keys that a run splits off it.
STREAM = 2


def check_statistic(statistic: str) -> None:
    """Raise a `UsageError` unless elites can be summed up like that."""
    require(statistic in STATISTICS, f"statistic must be {' or '.join(STATISTICS)}, got '{statistic}'")


def wanted(task: Task, config: dict[str, Any]) -> bool:
    """Whether the archive of such a run is corrected at all."""
    return task.uncertain and config.get("reevaluate_every") != 0


def corrected_at(path: Path, generation: int) -> bool:
    """Whether a run's folder holds the correction of its archive after so many generations."""
    made = folders.load_corrected(path).get("generation", np.zeros(0))
    return generation in made and (path / "corrected.npz").exists()


class Corrections:
    """Re-evaluates the elites of a run; `columns` are those of its corrected.csv.

    A task that is `resampled` is sampled singly for that. Randomness follows from the run's seed and the
    generation: a correction can be repeated, and takes nothing from the run itself.
    """

    def __init__(self, path: Path | None, task: Task, config: dict[str, Any], report: Reporter) -> None:
        single = task.single or task
        self._path = path
        self._every = config.get("reevaluate_every") if wanted(task, config) else 0
        self._samples = config.get("reevaluate_samples", 512)
        self._statistic = config.get("statistic", "median")
        self._rows = config.get("chunk") or ROWS.get(jax.default_backend(), ROWS_ELSEWHERE)
        self._task = single if single.jit else surviving(single, report.say, self._rows)
        self._key = jax.random.fold_in(jax.random.key(config["seed"]), STREAM)
        self._report = report
        self._again: Reevaluator | None = None
        self.columns = {} if path is None else folders.load_corrected(path)

    def restart(self, done: int) -> None:
        """Forget what a run that nobody stopped would not have before its next call of the device.

        The correction after just so many generations is made again, as it may be another one.
        """
        made = self.columns.get("generation", np.zeros(0))
        self._keep((made % self._every == 0) & (made < done) if self._every else made < 0)
        if self._path is not None:
            folders.save_corrected(self._path, self.columns)
            (self._path / "corrected.npz").unlink(missing_ok=True)

    def _keep(self, rows: np.ndarray) -> None:
        self.columns = {name: column[rows] for name, column in self.columns.items()}

    def due(self, generation: int) -> bool:
        """Whether a correction is to be made in the middle of the run, after so many generations."""
        if not self._every or generation == 0 or generation % self._every:
            return False
        return generation not in self.columns.get("generation", ())

    def make(self, archive: Archive, generation: int, stopped: Callable[[], bool]) -> None:
        """Make a correction in the middle of the run, unless it is stopped."""
        correction = self._correct(archive, generation, stopped)
        if correction is not None:
            self._record(archive, correction, generation)

    def finish(
        self, archive: Archive, generation: int, stopped: Callable[[], bool]
    ) -> Correction | None:
        """Make the correction at the end; None if there is to be none, or if it is stopped."""
        if self._every == 0:
            return None
        self._report.say(f"evaluating every elite again, {self._samples} times; Ctrl-C skips that")
        correction = self._correct(archive, generation, stopped)
        if correction is None:
            self._report.say(f"not re-evaluated; 'memes reevaluate {self._path or 'RUN'}' does it later")
            return None
        if self._path is not None:
            folders.save_correction(
                self._path,
                correction,
                statistic=self._statistic,
                task=self._task.name,
                min_fitness=self._task.min_fitness,
            )
        self._record(archive, correction, generation)  # after the archive: a row says it is there
        return correction

    def _correct(
        self, archive: Archive, generation: int, stopped: Callable[[], bool]
    ) -> Correction | None:
        key = jax.random.fold_in(self._key, generation)
        if self._again is None and not stopped():
            self._again = self._fitting(key, archive)
        if self._again is None or stopped():
            return None
        parts, done, total = [], 0, int(archive.occupied.sum())
        with self._report.counting("elites re-evaluated", total) as show:
            for part in estimates(self._again, key, archive, self._task):
                parts.append(part)
                done += len(part.fitness_variance)
                show(done)
                if stopped():
                    return None
        return correct(archive, self._samples, parts)

    def _fitting(self, key: Array, archive: Archive) -> Reevaluator:
        """What re-evaluates as many rows at a time as fit into memory."""
        rows, say = self._rows, self._report.say
        while True:
            again = reevaluator(
                self._task,
                self._samples,
                statistic=STATISTICS[self._statistic],
                rows=rows,
                most=archive.cells.count,
            )
            if not self._task.jit:
                return again
            cell = jnp.zeros(again.elites, jnp.int32)
            compiled = again.estimate.lower(key, archive.genotypes, cell).compile()
            fewer = memory.fewer(rows, [compiled], f"evaluating {again.elites} elites at a time", say)
            if fewer is None:
                return again._replace(estimate=compiled)
            rows = fewer
            say(f"that is too much: evaluating {rows} rows at a time")

    def _record(self, archive: Archive, correction: Correction, generation: int) -> None:
        """Add the row of a correction; in place of that of the same generation, if there is one."""
        before = max(self.columns.get("reevaluations", ()), default=0)
        self._keep(self.columns.get("generation", np.zeros(0)) < generation)
        spent = len(correction.elite_cell) * self._samples * self._task.cost
        row = {
            "generation": generation,
            "samples": self._samples,
            "by_mean": float(self._statistic == "mean"),
            "reevaluations": spent + before,
            **compare(archive, correction, self._task.min_fitness),
        }
        rows = len(self.columns.get("generation", ()))
        self.columns = {
            name: np.append(self.columns.get(name, np.full(rows, np.nan)), value)
            for name, value in row.items()
        }
        if self._path is not None:
            folders.save_corrected(self._path, self.columns)
