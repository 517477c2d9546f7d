"""Quantities that checks compare. A quantity has one value per run or per repetition of a timing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from memes.analysis.groups import MEASURES
from memes.reproduce.experiments import NONE
from memes.store.summary import Summary

# Lowest possible fitness of tasks whose fitness is at most 0. Summaries of version 0.2 do not record
# `min_fitness`.
MIN_FITNESS = {"hexapod": -math.pi}
FIRST_SHARE = 0.025  # `area` integrates from this share of the evaluations to the end


class Evidence(NamedTuple):
    """The available data on a task.

    Attributes:
        runs: The summaries of runs, by label.
        seconds: The seconds per generation of algorithms that took turns on one device, by label. Each
            repetition has one value.
    """

    runs: Mapping[str, Sequence[Summary]] = NONE
    seconds: Mapping[str, Sequence[float]] = NONE


class Quantity(NamedTuple):
    """A quantity of all runs with a certain label.

    Attributes:
        label: Label of the runs.
        words: Name of the quantity.
        value: `(run) -> number`, which returns NaN if a run does not have the quantity. None for seconds
            per generation, which are not taken from runs.
        by_mean: `(run) -> number`, which returns the quantity for an archive that is corrected with
            means instead of medians. None if the quantity does not depend on the statistic of the
            correction.
    """

    label: str
    words: str
    value: Callable[[Summary], float] | None
    by_mean: Callable[[Summary], float] | None = None

    def values(self, evidence: Evidence) -> np.ndarray:
        """Return the finite values, one per seed or per repetition of a timing."""
        if self.value is None:
            return _finite(evidence.seconds.get(self.label, ()))
        return _finite([self.value(run) for run in evidence.runs.get(self.label, ())])

    def means(self, evidence: Evidence) -> np.ndarray:
        """Return the finite values for archives that are corrected with means instead of medians."""
        if self.by_mean is None:
            return np.zeros(0)
        return _finite([self.by_mean(run) for run in evidence.runs.get(self.label, ())])


def _finite(values: Sequence[float]) -> np.ndarray:
    found = np.array(values, float)
    finite: np.ndarray = found[np.isfinite(found)]
    return finite


def _score(name: str, words: str, label: str) -> Quantity:
    """Return a final score. For uncertain tasks, it is the score of the corrected archive."""

    def value(run: Summary) -> float:
        if run.about.uncertain:
            return _at_end(run).get(name, math.nan)
        return float(run.curves[name][-1])

    def by_mean(run: Summary) -> float:
        return _at_end(run).get(f"{name}_by_mean", math.nan)

    return Quantity(label, words, value, by_mean)


qd, coverage, best = (partial(_score, name, words) for name, words in MEASURES.items())


def area(label: str) -> Quantity:
    """Return the mean corrected QD-score over the logarithm of the number of evaluations.

    This is the area under the curve of corrected scores, divided by the width of the curve. The curve
    starts at 2.5% of the evaluations. The result is NaN if the first correction comes after 2.5% of the
    evaluations.
    """

    def mean_height(name: str, run: Summary) -> float:
        if not _at_end(run) or name not in run.corrections:
            return math.nan
        share = run.corrections["evaluations"] / run.corrections["evaluations"][-1]
        if share[0] > FIRST_SHARE * (1 + 1e-9):
            return math.nan
        x = np.union1d([FIRST_SHARE, 1.0], share[(share > FIRST_SHARE) & (share < 1)])
        y = np.interp(np.log(x), np.log(share), run.corrections[name])
        return float(np.trapezoid(y, np.log(x)) / -math.log(FIRST_SHARE))

    words = "mean QD-score over the log of evaluations"
    value, by_mean = (partial(mean_height, name) for name in ("qd_score", "qd_score_by_mean"))
    return Quantity(label, words, value, by_mean)


def best_above_least(label: str) -> Quantity:
    """Return the max fitness minus the lowest possible fitness, for tasks with a max fitness near 0."""
    of = best(label).value
    assert of is not None

    def value(run: Summary) -> float:
        least = run.about.min_fitness
        return float(of(run) - (MIN_FITNESS.get(run.task, 0.0) if least is None else least))

    return Quantity(label, "max fitness above the lowest possible fitness", value)


def kept(label: str) -> Quantity:
    """Return the share of the QD-score that remains after correction: 1 minus the archive loss."""

    def left(name: str, run: Summary) -> float:
        return 1 - _at_end(run).get(name, math.nan)

    by_mean = partial(left, "qd_score_loss_by_mean")
    return Quantity(label, "QD-score kept", partial(left, "qd_score_loss"), by_mean)


def _at_end(run: Summary) -> dict[str, float]:
    """Return the scores from the correction at the end of the run, or {} if there was none."""
    last = run.corrected or {}
    return last if last.get("generation") == run.generations else {}


def step(label: str, kind: str) -> Quantity:
    """Return the distance between offspring of one kind and their parents, in cell widths."""
    return Quantity(label, f"step of {kind}, in cell widths", lambda run: run.steps.get(kind, math.nan))


def lifespan(label: str, kind: str) -> Quantity:
    """Return the lifespan of explore lanes or of exploit lanes, computed as in the paper's table."""

    def value(run: Summary) -> float:
        return run.lifespans.get(kind, {}).get("all", {}).get("paper_mean", math.nan)

    return Quantity(label, f"lifespan of {kind} lanes, as the paper computes it", value)


def productive(label: str) -> Quantity:
    """Return the longest time from the start of a lane to its last archive addition, in generations."""

    def value(run: Summary) -> float:
        lives = [float(np.max(lives)) for lives in run.longest_lives.values() if lives.size]
        waits = float(run.options.get("stale_budget", math.nan)) + 1  # generations before the reset
        return max(lives, default=math.nan) - waits

    return Quantity(label, "longest productive life of a lane, in generations", value)


def seconds(label: str) -> Quantity:
    """Return the seconds per generation of an algorithm that took turns with others on one device."""
    return Quantity(label, "seconds per generation, in turns", None)


def cells_beyond(label: str, x: float, earning: float = -math.inf) -> Quantity:
    """Return the number of corrected elites with a first feature above x and a fitness above `earning`.

    Only cells that lie entirely beyond x are counted.
    """

    def value(run: Summary) -> float:
        if run.corrected_heat is None:
            return math.nan
        edges = np.linspace(run.low[0], run.high[0], run.corrected_heat.shape[0] + 1)[:-1]
        return float(
            (run.corrected_heat[edges >= x] > earning).sum()
        )  # empty cells are NaN, so they are not counted

    more = f" with a fitness above {earning:g}" if math.isfinite(earning) else ""
    return Quantity(label, f"elites beyond x = {x:g}{more}", value)
