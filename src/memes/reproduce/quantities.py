"""Quantities that are compared: numbers of single runs, by the label of the runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from memes.analysis.groups import MEASURES
from memes.store.summary import Summary

# The runs of a task, by label.
Runs = Mapping[str, Sequence[Summary]]


class Of(NamedTuple):
    """A quantity of the runs of a label.

    Attributes:
        label: Of the runs.
        words: Its name.
        value: `(run)`, NaN where there is none.
        shared: Whether seeds that ran together have but one value between them.
    """

    label: str
    words: str
    value: Callable[[Summary], float]
    shared: bool = False

    def values(self, runs: Runs) -> np.ndarray:
        """The finite values, one for each seed, or for each batch of seeds where it is shared."""
        own = runs.get(self.label, ())
        if self.shared:
            own = [run for i, run in enumerate(own) if i % (run.about.get("seeds_together") or 1) == 0]
        found = np.array([self.value(run) for run in own], float)
        finite: np.ndarray = found[np.isfinite(found)]
        return finite


def _score(name: str, words: str, label: str) -> Of:
    """A measure at the end, of the corrected archive where the task is uncertain."""

    def value(run: Summary) -> float:
        if run.about.get("uncertain"):
            return _at_end(run).get(name, math.nan)
        return float(run.curves[name][-1])

    return Of(label, words, value)


qd, coverage, best = (partial(_score, name, words) for name, words in MEASURES.items())


def kept(label: str) -> Of:
    """The share of the QD-score that correction leaves: 1 less the archive loss."""
    return Of(label, "QD-score kept", lambda run: 1 - _at_end(run).get("qd_score_loss", math.nan))


def _at_end(run: Summary) -> dict[str, float]:
    """The row of the finished run's correction; nothing where only earlier archives were corrected."""
    last = run.corrected or {}
    return last if last.get("generation") == run.generations else {}


def step(label: str, kind: str) -> Of:
    """How far offspring of a kind are from their parents, in cell widths."""
    return Of(label, f"step of {kind}, in cells", lambda run: run.steps.get(kind, math.nan))


def lifespan(label: str, kind: str) -> Of:
    """The age at which lanes of a kind were reset, by the statistic of the paper's table."""

    def value(run: Summary) -> float:
        return run.lifespans.get(kind, {}).get("all", {}).get("paper_mean", math.nan)

    return Of(label, f"lifespan of {kind} lanes, as the paper computes it", value)


def seconds(label: str) -> Of:
    """The seconds that a generation takes."""
    words = "seconds a generation"
    return Of(label, words, lambda run: run.about.get("seconds_per_generation") or math.nan, shared=True)


def cells_beyond(label: str, x: float) -> Of:
    """Elites of the corrected archive in cells that lie wholly beyond an x."""

    def value(run: Summary) -> float:
        if run.corrected_heat is None:
            return math.nan
        edges = np.linspace(run.low[0], run.high[0], run.corrected_heat.shape[0] + 1)[:-1]
        return float(np.isfinite(run.corrected_heat[edges >= x]).sum())

    return Of(label, f"elites beyond x = {x:g}", value)
