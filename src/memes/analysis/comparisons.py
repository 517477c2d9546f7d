"""Pictures of many runs: final scores, losses, convergence, parent-offspring distances and archives.

Every label looks the same in all figures of a comparison; a row of panels is a task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill, shorten
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from memes.analysis.groups import LOSSES, MEASURES, Groups, between, common, is_share, main_view
from memes.analysis.heat import draw_grid, draw_walls
from memes.analysis.statistics import interval
from memes.analysis.style import Look
from memes.store.summary import Summary
from memes.task import Map

WIDTH = 7.2  # inches: a page of two columns
CURVE_POINTS = 200
BINS = 30
KINDS = ("exploit", "variation", "explore")
PER_CENT = FuncFormatter(lambda share, _: f"{100 * share:.3g}%")
AXES = {"generation": "generations", "evaluations": "evaluations"}


def scores_figure(
    groups: Groups, looks: Mapping[str, Look], measures: Mapping[str, str] = MEASURES
) -> Figure:
    """Each seed as a dot, with the median and its interval, at the end as `main_view` has it."""
    heights = [0.55 + 0.19 * len(labels) for labels in groups.values()]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    panels = figure.subplots(
        len(groups), len(measures), squeeze=False, sharey="row", height_ratios=heights
    )
    for row, (task, labels) in zip(panels, groups.items(), strict=True):
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


def losses_figure(groups: Groups, looks: Mapping[str, Look]) -> Figure | None:
    """The share of each measure that correction takes away, on tasks whose runs are all corrected."""
    corrected = {
        task: labels for task, labels in groups.items() if main_view(labels).name == "corrected"
    }
    if not corrected:
        return None
    figure = scores_figure(corrected, looks, LOSSES)
    for axes in figure.axes:  # a share is read as a distance from nothing
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    return figure


def _shortened(label: str, width: int) -> str:
    return shorten(label, width, placeholder=" ...")


def _draw_seeds(axes: Axes, y: int, values: Sequence[float], look: Look) -> None:
    """The seeds' values as open dots, side by side, over the interval of the median, and the median."""
    found = interval(values)
    if not math.isfinite(found.value):
        return
    axes.plot(
        [found.low, found.high], [y, y], color=look.colour, linewidth=6, alpha=0.3, solid_capstyle="butt"
    )
    spread = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else [0]
    axes.plot(
        values, y + np.asarray(spread), look.marker, color=look.colour, mfc="none", ms=3.2, mew=0.7
    )
    axes.plot([found.value], [y], "|", color=look.colour, ms=11, mew=2)


def convergence_figure(groups: Groups, looks: Mapping[str, Look], by: str) -> Figure:
    """Median and quartiles over the seeds of each measure, by "generation" or "evaluations".

    Of the archive as it was found, which the title says where it is not all.
    """
    figure, panels = _panels(groups, len(MEASURES))
    for row, (task, labels) in zip(panels, groups.items(), strict=True):
        corrected = any(run.corrections for runs in labels.values() for run in runs)
        row[0].set_title(f"{task}, as found, not corrected" if corrected else task, loc="left")
        lasts = [float(run.curves[by][-1]) for runs in labels.values() for run in runs]
        logarithmic = max(lasts) > 20 * min(lasts)
        for axes, measure in zip(row, MEASURES, strict=True):
            axes.set_xscale("log" if logarithmic else "linear")
            for label, runs in labels.items():
                x = _places(runs, by, logarithmic)
                values = np.array([between(run, measure, by, x) for run in runs])
                _draw_band(axes, x, values, looks[label])
            _name_axes(axes, measure, by)
    _legend(figure, looks)
    return figure


def corrected_figure(groups: Groups, looks: Mapping[str, Look]) -> Figure | None:
    """The same of the corrected archive by "generation", of runs that were corrected on the way too."""
    several = {
        task: {label: runs for label, runs in labels.items() if all(map(_corrected_on_the_way, runs))}
        for task, labels in groups.items()
    }
    several = {task: labels for task, labels in several.items() if labels}
    if not several:
        return None
    figure, panels = _panels(several, len(MEASURES))
    for row, (task, labels) in zip(panels, several.items(), strict=True):
        samples = np.unique(
            [n for r in labels.values() for run in r for n in run.corrections["samples"]]
        )
        times = " or ".join(f"{n:g}" for n in samples)
        row[0].set_title(f"{task}, corrected by {times} evaluations of each elite", loc="left")
        for axes, measure in zip(row, MEASURES, strict=True):
            for label, runs in labels.items():
                x = np.unique(np.concatenate([run.corrections["generation"] for run in runs]))
                values = np.array([_corrected_at(run, measure, x) for run in runs])
                _draw_band(axes, x, values, looks[label])
            _name_axes(axes, measure, "generation")
    _legend(figure, {label: looks[label] for labels in several.values() for label in labels})
    return figure


def _corrected_on_the_way(run: Summary) -> bool:
    return np.unique(run.corrections.get("generation", ())).size > 1


def _corrected_at(run: Summary, measure: str, generation: np.ndarray) -> np.ndarray:
    """A corrected measure at generations [p], between those known; the last counts of two at one."""
    known, last = np.unique(run.corrections["generation"][::-1], return_index=True)
    values = run.corrections[measure][::-1][last]
    found: np.ndarray = np.interp(generation, known, values, left=np.nan, right=np.nan)
    return found


def _name_axes(axes: Axes, measure: str, by: str) -> None:
    axes.set_xlabel(AXES[by])
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_ylabel(MEASURES[measure])
    if is_share(measure):
        axes.yaxis.set_major_formatter(PER_CENT)


def steps_figure(groups: Groups, looks: Mapping[str, Look]) -> Figure | None:
    """How far offspring are from their parents, in cell widths, by kind of offspring."""
    everything = [run for labels in groups.values() for runs in labels.values() for run in runs]
    kinds = [kind for kind in KINDS if any(kind in run.steps for run in everything)]
    if not kinds:
        return None
    figure, panels = _panels(groups, len(kinds), sharey="row")
    for row, (task, labels) in zip(panels, groups.items(), strict=True):
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
                having = [run for run in runs if kind in run.steps]
                if having:
                    _draw_band(axes, *_binned(having, f"step_{kind}"), looks[label])
    _legend(figure, {run.label: looks[run.label] for run in everything if run.steps})
    return figure


def _binned(runs: Sequence[Summary], column: str) -> tuple[np.ndarray, np.ndarray]:
    """Medians of a curve over stretches of equal length: their ends [b], and values [runs, b]."""
    last = max(float(run.curves["generation"][-1]) for run in runs)
    ends = np.linspace(0, last, BINS + 1)[1:]
    values = np.full((len(runs), BINS), np.nan)
    for row, run in zip(values, runs, strict=True):
        of_bin = np.searchsorted(ends, run.curves["generation"])
        for b in range(BINS):
            inside = run.curves[column][(of_bin == b) & np.isfinite(run.curves[column])]
            row[b] = np.median(inside) if inside.size else np.nan
    return ends, values


def archives_figure(task: str, labels: Mapping[str, Sequence[Summary]]) -> Figure | None:
    """The archives of the runs with the median QD-score, as found and corrected, in one colour scale."""
    view = main_view(labels)
    chosen = {
        label: run
        for label, runs in labels.items()
        if (run := _middle(runs, [view.value(run, "qd_score") for run in runs])).heat is not None
    }
    if not chosen:
        return None
    kinds = 2 if any(run.corrected_heat is not None for run in chosen.values()) else 1
    most = 4 if len(chosen) <= 8 else 6
    columns = min(len(chosen), most)
    lines = math.ceil(len(chosen) / columns)
    side = (WIDTH - 1) / most
    size = (1 + columns * side, 0.5 + lines * (0.25 + kinds * side))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(kinds * lines, columns, squeeze=False, sharex=True, sharey=True)
    scale = _colour_scale([h for run in chosen.values() for h in (run.heat, run.corrected_heat)])
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
            image = draw_grid(axes, heat, np.array(run.low), np.array(run.high), **scale)
            words = "corrected" if kind else f"{fill(label, 76 // most, max_lines=2)}\nseed {run.seed}"
            words += f", {np.isfinite(heat).mean():.0%}"
            axes.set_title(words)
            axes.label_outer()
            if run.about.get("map"):
                draw_walls(axes, Map(**run.about["map"]), facecolor="none", edgecolor="black")
    figure.colorbar(
        image, ax=panels, label="fitness", extend="min", shrink=0.9, aspect=min(20 * kinds * lines, 50)
    )
    figure.suptitle(f"{task}: the runs with the median QD-score")
    return figure


def _middle(runs: Sequence[Summary], scores: Sequence[float]) -> Summary:
    """The run whose score is the median, or the lower one of the two in the middle."""
    return runs[int(np.argsort(scores)[(len(runs) - 1) // 2])]


def _colour_scale(heats: Sequence[np.ndarray | None]) -> dict[str, float]:
    """From the 1st percentile, as a few hopeless elites would take up the scale, to the maximum."""
    values = np.concatenate([heat[np.isfinite(heat)] for heat in heats if heat is not None])
    if not values.size:
        return {}
    return {"vmin": float(np.percentile(values, 1)), "vmax": float(values.max())}


def _panels(groups: Groups, columns: int, **options: Any) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH, 0.35 + 1.75 * len(groups)), layout="constrained")
    return figure, figure.subplots(len(groups), columns, squeeze=False, **options)


def _places(runs: Sequence[Summary], by: str, logarithmic: bool) -> np.ndarray:
    """Where a group's curves are drawn: as far as all of its runs go."""
    first, last = min(float(run.curves[by][0]) for run in runs), common(runs, by)
    space = np.geomspace if logarithmic else np.linspace
    places: np.ndarray = space(first, last, CURVE_POINTS)
    places[-1] = last  # rounding must not leave the end out
    return places


def _draw_band(axes: Axes, x: np.ndarray, values: np.ndarray, look: Look) -> None:
    """The median over the runs of values [runs, points], between the quartiles."""
    known = np.isfinite(values).any(axis=0)
    if not known.any():
        return
    low, middle, high = np.nanquantile(values[:, known], (0.25, 0.5, 0.75), axis=0)
    axes.fill_between(x[known], low, high, color=look.colour, alpha=0.2, linewidth=0)
    axes.plot(
        x[known],
        middle,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markersize=3.5,
        markevery=0.15,
    )


def _legend(figure: Figure, looks: Mapping[str, Look]) -> None:
    handles = [
        Line2D([], [], color=look.colour, linestyle=look.line, marker=look.marker, markersize=3.5)
        for look in looks.values()
    ]
    columns = max(1, int(WIDTH * 14 / (min(60, max(map(len, looks))) + 8)))
    figure.legend(
        handles,
        [_shortened(label, 60) for label in looks],
        loc="outside lower center",
        ncols=min(columns, len(looks)),
        frameon=False,
        handlelength=3,
    )
