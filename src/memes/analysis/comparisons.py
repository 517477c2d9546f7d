"""Figures of many runs: final scores, losses, convergence, parent-offspring distances and archives.

A label has the same colour, line and marker in all figures. Each row of panels shows one task.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from textwrap import shorten
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter

from memes.analysis.archive_figures import archives_figure
from memes.analysis.groups import (
    LOSSES,
    MEASURES,
    PLACES,
    Groups,
    all_labels,
    are_alike,
    evaluations_of,
    is_share,
    main_view,
    runs_of,
)
from memes.analysis.statistics import interval
from memes.analysis.style import PER_CENT, WIDTH, Look, Picture, looks, styled
from memes.presets import display_name
from memes.store.sanitize import mathtext
from memes.store.summary import Summary

KINDS = ("exploit", "variation", "explore")

Looks = Mapping[str, Look]


def _shortened(label: str, width: int) -> str:
    return mathtext(shorten(label, width, placeholder=" ..."))


def display_names(groups: Groups) -> dict[str, str]:
    """Return the display name of the algorithm for each label.

    If several labels would have the same display name, the labels themselves are used.
    """
    first = {label: runs[0] for labels in groups.values() for label, runs in labels.items()}
    names = {label: display_name(label, run.options) for label, run in first.items()}
    counts = Counter(names.values())
    return {label: name if counts[name] == 1 else label for label, name in names.items()}


def _few(amount: float) -> str:
    """Format a number with three digits and a unit prefix, such as 32.8M."""
    return str(EngFormatter(sep="")(float(f"{amount:.3g}")))


def draw(groups: Groups) -> dict[str, Figure]:
    """Draw all figures for which the runs have data, and return the figures by name."""
    names = display_names(groups)
    found = {names[label]: look for label, look in looks(all_labels(groups)).items()}
    groups = {
        task: {names[label]: runs for label, runs in labels.items()} for task, labels in groups.items()
    }
    with styled():
        figures = {
            "scores": scores_figure(groups, found),
            "losses": losses_figure(groups, found),
            "convergence-generations": convergence_figure(groups, found, "generation"),
            "convergence-evaluations": convergence_figure(groups, found, "evaluations"),
            "convergence-corrected": corrected_figure(groups, found),
            "steps": steps_figure(groups, found),
        }
        for task, labels in groups.items():
            name = "".join(c if c.isalnum() else "-" for c in task[:100])
            figures[f"archives-{name}"] = archives_figure(task, labels)
    return {name: figure for name, figure in figures.items() if figure is not None}


def scores_figure(groups: Groups, looks: Looks, measures: Mapping[str, str] = MEASURES) -> Figure:
    """Draw the scores of all seeds, with the median and its interval, in one row of panels per task."""
    heights = [0.55 + 0.19 * len(labels) for labels in groups.values()]
    figure = Picture(WIDTH, sum(heights))
    panels = figure.subplots(
        len(groups), len(measures), squeeze=False, height_ratios=heights, sharey="row"
    )
    for row, (task, labels) in zip(panels, groups.items(), strict=True):
        view = main_view(labels)
        spent = evaluations_of(labels, view)
        alike = are_alike(spent.values())
        shown = "" if alike else "; evaluations in brackets"
        row[0].set_title(mathtext(f"{task}, {view.words}{shown}"), loc="left")
        names = [
            _shortened(label, 32) if alike else f"{_shortened(label, 26)} ({_few(spent[label])})"
            for label in labels
        ]
        row[0].set_yticks(range(len(labels)), names)
        row[0].set_ylim(len(labels) - 0.5, -0.5)  # the first label on top
        for axes, (measure, words) in zip(row, measures.items(), strict=True):
            for y, (label, runs) in enumerate(labels.items()):
                _draw_seeds(axes, y, [view.value(run, measure) for run in runs], looks[label])
            axes.set_xlabel(words)
            axes.xaxis.set_major_locator(MaxNLocator(4))
            if is_share(measure):
                axes.xaxis.set_major_formatter(PER_CENT)
            axes.grid(visible=False, axis="y")
    return figure


def _draw_seeds(axes: Axes, y: int, values: Sequence[float], look: Look) -> None:
    """Draw the values of seeds as open markers, their median as a tick, and its interval as a bar."""
    found = interval(values)
    if not math.isfinite(found.value):
        return
    wide: dict[str, Any] = {"linewidth": 6, "alpha": 0.3, "solid_capstyle": "butt"}
    axes.plot([found.low, found.high], [y, y], color=look.colour, **wide)
    spread = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else np.zeros(1)
    axes.plot(values, y + spread, look.marker, color=look.colour, mfc="none", ms=3.2, mew=0.7)
    axes.plot([found.value], [y], "|", color=look.colour, ms=11, mew=2)


def losses_figure(groups: Groups, looks: Looks) -> Figure | None:
    """Draw the archive losses of the three scores, for labels whose runs are all corrected."""
    corrected = _labels_of(groups, lambda runs: all(run.corrections for run in runs))
    if not corrected:
        return None
    figure = scores_figure(corrected, looks, LOSSES)
    for axes in figure.axes:
        axes.axvline(0, color="black", linewidth=0.6)  # a line at a loss of 0
    return figure


def convergence_figure(groups: Groups, looks: Looks, by: str) -> Figure:
    """Draw the scores of the illusory archive over generations or evaluations."""

    def title(task: str, runs: Sequence[Summary]) -> str:
        return f"{task}, as found, not corrected" if any(run.corrections for run in runs) else task

    return _curves(groups, looks, by, MEASURES, title)


def corrected_figure(groups: Groups, looks: Looks) -> Figure | None:
    """Draw the scores of the corrected archive, for runs that were also corrected before the end."""
    corrected = {
        task: {
            label: [run._replace(curves=_corrections(run)) for run in runs if _on_the_way(run)]
            for label, runs in labels.items()
        }
        for task, labels in groups.items()
    }
    drawn = _labels_of(corrected, bool)

    def title(task: str, runs: Sequence[Summary]) -> str:
        samples = np.unique(np.concatenate([run.corrections.get("samples", []) for run in runs]))
        times = " or ".join(f"{n:g}" for n in samples)
        return f"{task}, corrected by {times} evaluations of each elite"

    return _curves(drawn, looks, "generation", MEASURES, title) if drawn else None


def _on_the_way(run: Summary) -> bool:
    """Return True if a run was corrected before its end."""
    return len(np.unique(run.corrections.get("generation", []))) > 1


def _corrections(run: Summary) -> dict[str, np.ndarray]:
    """Return the corrections of a run, with only the last correction of each generation."""
    _, last = np.unique(run.corrections["generation"][::-1], return_index=True)
    return {name: column[::-1][last] for name, column in run.corrections.items()}


def steps_figure(groups: Groups, looks: Looks) -> Figure | None:
    """Draw the distance between offspring and parents, in cell widths, by kind of offspring."""
    drawn = _labels_of(groups, lambda runs: any(set(KINDS) & set(run.steps) for run in runs))
    if not drawn:
        return None
    found = {kind for labels in drawn.values() for run in runs_of(labels) for kind in run.steps}
    panels = {f"step_{kind}": f"{kind} step (cells)" for kind in KINDS if kind in found}
    figure = _curves(drawn, looks, "generation", panels, lambda task, runs: task, sharey="row")
    for axes in figure.axes:
        axes.axhline(1, color="black", linewidth=0.8, linestyle=(0, (1, 1)))
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    return figure


def _labels_of(groups: Groups, condition: Callable[[Sequence[Summary]], bool]) -> Groups:
    """Keep only the labels whose runs fulfil a condition, and only the tasks that have such labels."""
    kept = {
        task: {label: runs for label, runs in labels.items() if condition(runs)}
        for task, labels in groups.items()
    }
    return {task: labels for task, labels in kept.items() if labels}


def _curves(
    groups: Groups,
    looks: Looks,
    by: str,
    panels: Mapping[str, str],
    title: Callable[[str, Sequence[Summary]], str],
    **options: Any,
) -> Figure:
    """Draw curves of the median and the quartiles over seeds, up to the end of the shortest run.

    Args:
        groups: The runs.
        looks: Colour, line and marker for each label.
        by: Column on the x axis.
        panels: Columns on the y axes, one per panel, with their axis labels.
        title: Function that returns the title of a task from its name and its runs.
        options: Options of `Figure.subplots`.
    """
    figure = Picture(WIDTH, 1.9 * len(groups))
    rows = figure.subplots(len(groups), len(panels), squeeze=False, **options)
    for row, (task, labels) in zip(rows, groups.items(), strict=True):
        row[0].set_title(mathtext(title(task, runs_of(labels))), loc="left")
        ends = [float(run.curves[by][-1]) for run in runs_of(labels)]
        for axes, (column, words) in zip(row, panels.items(), strict=True):
            axes.set_xscale("log" if max(ends) > 20 * min(ends) else "linear")
            for label, runs in labels.items():
                _draw_band(axes, runs, by, column, looks[label])
            axes.set(xlabel=PLACES[by], ylabel=words)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            if is_share(column):
                axes.yaxis.set_major_formatter(PER_CENT)
    shown = [label for label in looks if any(label in labels for labels in groups.values())]
    width = min(60, max(map(len, shown)))
    figure.legend(
        [_line(looks[label]) for label in shown],
        [_shortened(label, 60) for label in shown],
        loc="outside lower center",
        ncols=min(max(1, int(WIDTH * 14 / (width + 8))), len(shown)),
        frameon=False,
        handlelength=3,
    )
    return figure


def _draw_band(axes: Axes, runs: Sequence[Summary], by: str, column: str, look: Look) -> None:
    """Interpolate a column of each run linearly, and draw the median and the quartiles."""
    curves = []
    for run in runs:
        known = np.isfinite(run.curves.get(column, np.full(len(run.curves[by]), np.nan)))
        if known.any():
            curves.append((run.curves[by][known], run.curves[column][known]))
    if not curves:
        return
    places = np.unique(np.concatenate([x for x, _ in curves]))
    places = places[places <= min(x[-1] for x, _ in curves)]
    values = [np.interp(places, x, y, left=np.nan) for x, y in curves]
    low, middle, high = np.nanquantile(values, (0.25, 0.5, 0.75), axis=0)
    axes.fill_between(places, low, high, color=look.colour, alpha=0.2, linewidth=0)
    axes.add_line(_line(look, places, middle, markevery=0.15))
    axes.autoscale_view()


def _line(look: Look, x: Any = (), y: Any = (), **more: Any) -> Line2D:
    return Line2D(
        x, y, color=look.colour, linestyle=look.line, marker=look.marker, markersize=3.5, **more
    )
