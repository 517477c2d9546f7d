"""Figures of many runs: final scores, losses, convergence, parent-offspring distances and archives.

Every label looks the same in all figures of a comparison; a row of panels is a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill, shorten
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullFormatter
from scipy import stats

from memes.analysis.groups import LOSSES, MEASURES, Groups, Labels, all_labels, is_share, main_view
from memes.analysis.heat import colour_scale, draw_cells
from memes.analysis.statistics import interval
from memes.analysis.style import PER_CENT, Look, Picture, looks, styled
from memes.cells import Grid
from memes.store.summary import Summary
from memes.task import Map

WIDTH = 7.2  # inches: a page of two columns
BINS = 30
KINDS = ("exploit", "variation", "explore")
AXES = {"generation": "generations", "evaluations": "evaluations"}

Looks = Mapping[str, Look]


def draw(groups: Groups) -> dict[str, Figure]:
    """Draw every figure that there is something to show in, by name."""
    found = looks(all_labels(groups))
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
            name = "".join(c if c.isalnum() else "-" for c in Path(task).name)
            figures[f"archives-{name}"] = archives_figure(task, labels)
    return {name: figure for name, figure in figures.items() if figure is not None}


def scores_figure(groups: Groups, looks: Looks, measures: Mapping[str, str] = MEASURES) -> Figure:
    """Draw each seed as a dot, with the median and its interval, at the end as `main_view` has it."""
    heights = [0.55 + 0.19 * len(labels) for labels in groups.values()]
    figure, rows = _panels(groups, len(measures), heights, sharey="row")
    for row, task, labels in rows:
        view = main_view(labels)
        row[0].set_title(f"{task}, {view.words}", loc="left")
        row[0].set_yticks(range(len(labels)), [_shortened(label, 32) for label in labels])
        row[0].set_ylim(len(labels) - 0.5, -0.5)  # the first on top
        for axes, (measure, words) in zip(row, measures.items(), strict=True):
            for y, (label, runs) in enumerate(labels.items()):
                _draw_seeds(axes, y, [view.value(run, measure) for run in runs], looks[label])
            axes.set_xlabel(words)
            axes.xaxis.set_major_locator(MaxNLocator(4))
            if is_share(measure):
                axes.xaxis.set_major_formatter(PER_CENT)
            axes.grid(visible=False, axis="y")
    return figure


def losses_figure(groups: Groups, looks: Looks) -> Figure | None:
    """Draw the share of each measure that correction takes away, where all runs are corrected."""
    corrected = {
        task: labels for task, labels in groups.items() if main_view(labels).name == "corrected"
    }
    if not corrected:
        return None
    figure = scores_figure(corrected, looks, LOSSES)
    for axes in figure.axes:  # a share is read as a distance from nothing
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    return figure


def convergence_figure(groups: Groups, looks: Looks, by: str) -> Figure:
    """Draw median and quartiles over the seeds of each measure, by "generation" or "evaluations".

    They are of the archive as it was found, which the title says where it is not all.
    """

    def title(task: str, runs: Sequence[Summary]) -> str:
        return f"{task}, as found, not corrected" if any(run.corrections for run in runs) else task

    return _convergence(groups, looks, by, title, lambda run: run.curves)


def corrected_figure(groups: Groups, looks: Looks) -> Figure | None:
    """Draw the same of the corrected archive, of labels whose runs were corrected on the way too."""
    on_the_way = {
        task: {
            label: runs
            for label, runs in labels.items()
            if all(len(_corrections(run)["generation"]) > 1 for run in runs)
        }
        for task, labels in groups.items()
    }
    drawn = {task: labels for task, labels in on_the_way.items() if labels}

    def title(task: str, runs: Sequence[Summary]) -> str:
        samples = np.unique(np.concatenate([run.corrections["samples"] for run in runs]))
        times = " or ".join(f"{n:g}" for n in samples)
        return f"{task}, corrected by {times} evaluations of each elite"

    return _convergence(drawn, looks, "generation", title, _corrections) if drawn else None


def _corrections(run: Summary) -> dict[str, np.ndarray]:
    """List the corrections of a run, with the last one of several after the same generation."""
    generation = run.corrections.get("generation", np.zeros(0))
    _, last = np.unique(generation[::-1], return_index=True)
    columns = {"generation": generation} | run.corrections
    return {name: column[::-1][last] for name, column in columns.items()}


def _convergence(
    groups: Groups,
    looks: Looks,
    by: str,
    title: Callable[[str, Sequence[Summary]], str],
    columns: Callable[[Summary], Mapping[str, np.ndarray]],
) -> Figure:
    """Draw the measures in the columns of each run, as far as all runs of a label go."""
    figure, rows = _panels(groups, len(MEASURES), [1.9] * len(groups))
    for row, task, labels in rows:
        everything = [run for runs in labels.values() for run in runs]
        row[0].set_title(title(task, everything), loc="left")
        ends = [float(columns(run)[by][-1]) for run in everything]
        for axes, (measure, words) in zip(row, MEASURES.items(), strict=True):
            axes.set_xscale("log" if max(ends) > 20 * min(ends) else "linear")
            for label, runs in labels.items():
                known = [columns(run) for run in runs]
                x = np.unique(np.concatenate([each[by] for each in known]))
                x = x[x <= min(each[by][-1] for each in known)]
                values = [np.interp(x, each[by], each[measure], left=np.nan) for each in known]
                _draw_band(axes, x, np.array(values), looks[label])
            axes.set_xlabel(AXES[by])
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.set_ylabel(words)
            if is_share(measure):
                axes.yaxis.set_major_formatter(PER_CENT)
    _legend(figure, groups, looks)
    return figure


def steps_figure(groups: Groups, looks: Looks) -> Figure | None:
    """Draw how far offspring are from their parents, in cell widths, by kind of offspring."""
    having = {
        task: {label: runs for label, runs in labels.items() if any(run.steps for run in runs)}
        for task, labels in groups.items()
    }
    found = {
        kind for labels in having.values() for runs in labels.values() for r in runs for kind in r.steps
    }
    kinds = [kind for kind in KINDS if kind in found]
    if not kinds:
        return None
    figure, rows = _panels(having, len(kinds), [1.9] * len(having), sharey="row")
    for row, task, labels in rows:
        row[0].set_title(task, loc="left")
        row[0].set_ylabel("distance / cell width")
        row[0].set_yscale("log")
        row[0].yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        row[0].yaxis.set_major_formatter("{x:g}")
        row[0].yaxis.set_minor_formatter(NullFormatter())
        for axes, kind in zip(row, kinds, strict=True):
            axes.axhline(1, color="black", linewidth=0.8, linestyle=(0, (1, 1)))
            axes.set_title(kind)
            axes.set_xlabel("generations")
            for label, runs in labels.items():
                of_kind = [run for run in runs if kind in run.steps]
                if of_kind:
                    _draw_band(axes, *_binned(of_kind, f"step_{kind}"), looks[label])
    _legend(figure, having, looks)
    return figure


def _binned(runs: Sequence[Summary], column: str) -> tuple[np.ndarray, np.ndarray]:
    """Take medians of a curve over stretches of equal length: their ends [b], and values [runs, b]."""
    last = max(float(run.curves["generation"][-1]) for run in runs)
    values = []
    for run in runs:
        known = np.isfinite(run.curves[column])
        middle = run.curves["generation"][known] - 0.5  # of the time that a generation takes
        found = stats.binned_statistic(middle, run.curves[column][known], "median", BINS, (0, last))
        values.append(found.statistic)
    return np.linspace(0, last, BINS + 1)[1:], np.array(values)


def archives_figure(task: str, labels: Labels) -> Figure | None:
    """Draw the archives of the runs with the median QD-score, as found and corrected, in one scale."""
    view = main_view(labels)
    middle = {
        label: _middle(runs, [view.value(run, "qd_score") for run in runs])
        for label, runs in labels.items()
    }
    chosen = {label: run for label, run in middle.items() if run.heat is not None}
    if not chosen:
        return None
    kinds = 2 if any(run.corrected_heat is not None for run in chosen.values()) else 1
    most = 4 if len(chosen) <= 8 else 6
    columns = min(len(chosen), most)
    lines = math.ceil(len(chosen) / columns)
    side = (WIDTH - 1) / most
    figure = Picture(1 + columns * side, 0.5 + lines * (0.25 + kinds * side))
    panels = figure.subplots(kinds * lines, columns, squeeze=False, sharex=True, sharey=True)
    heats = [heat for run in chosen.values() for heat in (run.heat, run.corrected_heat)]
    scale = colour_scale([heat for heat in heats if heat is not None])
    for axes in panels.flat:
        axes.axis("off")
    for i, (label, run) in enumerate(chosen.items()):
        for kind, heat in enumerate((run.heat, run.corrected_heat)[:kinds]):
            axes = panels[i // columns * kinds + kind, i % columns]
            if heat is None:
                axes.text(0.5, 0.5, "not corrected", transform=axes.transAxes, ha="center", color="grey")
                continue
            axes.axis("on")
            axes.grid(visible=False)
            axes.set_box_aspect(1)
            cells = Grid(jnp.asarray(run.low), jnp.asarray(run.high), heat.shape)
            about = run.about.get("map")
            image = draw_cells(axes, cells, heat, Map(**about) if about else None, **scale)
            words = "corrected" if kind else f"{fill(label, 76 // most, max_lines=2)}\nseed {run.seed}"
            axes.set_title(f"{words}, {np.isfinite(heat).mean():.0%}")
            lowest = kind == kinds - 1 and i + columns >= len(chosen)
            axes.tick_params(labelbottom=lowest)
            if not lowest:
                axes.set_xlabel("")
            if i % columns:
                axes.set_ylabel("")
    figure.colorbar(
        image, ax=panels, label="fitness", extend="min", shrink=0.9, aspect=min(20 * kinds * lines, 50)
    )
    figure.suptitle(f"{task}: the runs with the median QD-score")
    return figure


def _middle(runs: Sequence[Summary], scores: Sequence[float]) -> Summary:
    """Choose the run whose score is the median, or the lower one of the two in the middle."""
    return runs[int(np.argsort(scores)[(len(runs) - 1) // 2])]


def _panels(
    groups: Groups, columns: int, heights: list[float], **options: Any
) -> tuple[Figure, list[tuple[np.ndarray, str, Labels]]]:
    """Make a figure with a row of panels for each task."""
    figure = Picture(WIDTH, sum(heights))
    panels = figure.subplots(len(groups), columns, squeeze=False, height_ratios=heights, **options)
    return figure, [(row, *each) for row, each in zip(panels, groups.items(), strict=True)]


def _draw_seeds(axes: Axes, y: int, values: Sequence[float], look: Look) -> None:
    """Draw the seeds' values as open dots, side by side, over the interval of the median; the median."""
    found = interval(values)
    if not math.isfinite(found.value):
        return
    axes.plot(
        [found.low, found.high], [y, y], color=look.colour, linewidth=6, alpha=0.3, solid_capstyle="butt"
    )
    spread = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else np.zeros(1)
    axes.plot(values, y + spread, look.marker, color=look.colour, mfc="none", ms=3.2, mew=0.7)
    axes.plot([found.value], [y], "|", color=look.colour, ms=11, mew=2)


def _draw_band(axes: Axes, x: np.ndarray, values: np.ndarray, look: Look) -> None:
    """Draw the median over the runs of values [runs, points], between the quartiles."""
    known = np.isfinite(values).any(axis=0)
    if not known.any():
        return
    low, middle, high = np.nanquantile(values[:, known], (0.25, 0.5, 0.75), axis=0)
    axes.fill_between(x[known], low, high, color=look.colour, alpha=0.2, linewidth=0)
    axes.add_line(_line(look, x[known], middle, markevery=0.15))
    axes.autoscale_view()


def _line(look: Look, x: Any = (), y: Any = (), **more: Any) -> Line2D:
    return Line2D(
        x, y, color=look.colour, linestyle=look.line, marker=look.marker, markersize=3.5, **more
    )


def _legend(figure: Figure, groups: Groups, looks: Looks) -> None:
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


def _shortened(label: str, width: int) -> str:
    return shorten(label, width, placeholder=" ...")
