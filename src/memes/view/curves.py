"""The curves of the page: a chart of columns of `metrics.csv` for several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

POINTS = 400
AXIS = {"stroke": "#b8bcc8", "grid": {"stroke": "#2c303a", "width": 1}, "ticks": {"stroke": "#2c303a"}}
FIRST = ("qd_score", "coverage", "max_fitness")  # columns that are shown by default
ACROSS = ("generation", "evaluations", "seconds")


def columns(runs: Sequence[Mapping[str, np.ndarray]]) -> list[str]:
    """List the metrics that at least one run has, or `FIRST` if there are no metrics."""
    return list(dict.fromkeys(name for metrics in runs for name in metrics)) or [*FIRST]


def table(runs: Sequence[Mapping[str, np.ndarray]], column: str, across: str) -> tuple[np.ndarray, ...]:
    """Return a common x axis [n], and for each run the values [n] of a column at these points.

    Values are NaN before the start and after the end of a run.
    """
    known = [
        (metrics[across], metrics[column])
        if column in metrics and across in metrics
        else (np.zeros(0), np.zeros(0))
        for metrics in runs
    ]
    every = np.unique(np.concatenate([x[np.isfinite(x)] for x, _ in known] or [np.zeros(0)]))
    if every.size < 2:
        every = np.array([0.0, 1.0])
    places = np.linspace(every[0], every[-1], POINTS) if every.size > POINTS else every
    lines = []
    for x, y in known:
        sound = np.isfinite(x) & np.isfinite(y)
        nothing = np.full(places.shape, np.nan)
        line = np.interp(places, x[sound], y[sound], np.nan, np.nan) if sound.any() else nothing
        lines.append(line)
    return (places, *lines)


def series(names: Sequence[str], across: str) -> tuple[Any, ...]:
    """Describe the lines of a chart in the format of viser."""
    lines = ({"label": name, "stroke": colour(i), "width": 2} for i, name in enumerate(names))
    return ({"label": across}, *lines)


def colour(i: int) -> str:
    """Return the colour of line `i`. The hues of successive lines differ by the golden angle."""
    return f"hsl({(200 + 137.508 * i) % 360:.0f}, 85%, {65 - 10 * (i // 12 % 3)}%)"
