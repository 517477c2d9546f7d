"""Figures of runs, for notebooks and papers: `memes.plot`.

    memes.plot.archive(run)             fitness over the features, next to the corrected archive
    memes.plot.curves(run)              scores, resets and additions over the evaluations
    memes.plot.positions(run)           final positions of elites on the map of their task
    memes.plot.uncertainty(run)         standard deviation of the fitness of each elite
    memes.plot.histogram({"a": run})    histogram of the fitness of the elites
    memes.plot.ecdf({"a": run})         cumulative distribution of the fitness of the elites
    memes.plot.space(run)               cells with three features, in three dimensions
    memes.plot.compare(["runs/arm-*"])  figures of the scores and the convergence of many runs, by name
    memes.plot.html(run)                HTML with facts and a picture, which notebooks show for a run

`run` is the result of `memes.run`, or the path of its folder. `compare` returns several figures, and
`html` returns text. The other functions return one matplotlib figure. Notebooks display figures, and
`figure.savefig("file.pdf")` writes a figure to a file.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from memes.analysis import comparisons, page
from memes.analysis.archive_axes import draw_bar, draw_cells, draw_walls, height_of
from memes.analysis.groups import MEASURES, group, without_short
from memes.analysis.page import numbers
from memes.analysis.render import fitness_of, scale_of
from memes.analysis.style import PER_CENT, Picture, colour, looks
from memes.archive import Archive
from memes.cells import centres
from memes.errors import at_least, require
from memes.metrics import deviations
from memes.presets import display_name
from memes.store.archives import load_archive
from memes.store.files import as_path
from memes.store.find import find, readable
from memes.store.folder import Run, load_run
from memes.store.sanitize import mathtext
from memes.store.schema import Provenance, RunConfig
from memes.store.summary import Summary, load_summary, summarise
from memes.task import Map
from memes.validation import checked

KINDS = {"exploit": "#D55E00", "explore": "#0072B2", "variation": "#009E73"}
WALLS = "#C8B4AC"


@checked
def archive(
    source: Run | Archive | str | Path,
    *,
    ax: Axes | None = None,
    corrected: Archive | None = None,
    map: Map | None = None,
) -> Figure:
    """Draw the fitness of all elites over the feature space.

    Args:
        source: A run, an archive, or the path of either.
        ax: Axes to draw into, without a title; by default, the axes of a new figure.
        corrected: Corrected archive, which is drawn next to the archive as found. By default, the
            corrected archive of the run, if there is one. With `ax`, only the archive as found is drawn.
        map: Map of the task; by default, the map of the run, if it has one.

    Returns:
        The new figure, or the figure of `ax`.
    """
    run = _run(source)
    require(
        ax is None or corrected is None,
        "ax can show only one archive; draw the corrected archive into other axes",
    )
    if ax is None and corrected is None and run.correction is not None:
        corrected = run.correction.archive
    archives = {"": run.archive}
    if corrected is not None:
        archives = {"illusory: ": run.archive, "corrected: ": corrected}
    cells, place = run.archive.cells, map or run.config.map
    names = run.config.names(run.archive.feature.shape[1])
    scale = scale_of(fitness_of(each) for each in archives.values())
    height = height_of(cells, place)
    figure, panels = _panels(height, len(archives)) if ax is None else (ax.get_figure(root=True), [ax])
    assert figure is not None
    for axes, (name, each) in zip(panels, archives.items(), strict=True):
        axes.set_box_aspect(height)
        draw_cells(axes, cells, fitness_of(each), names, scale, place=place)
        if ax is None:
            said = f"{name}{int(each.occupied.sum())} of {each.cells.count} cells"
            axes.set_title(said, fontsize="medium")
            axes.label_outer()
    if names[1:]:
        draw_bar(panels[0].figure, scale, ax=panels)
    if ax is None:
        figure.suptitle(_title(run))
    return figure


@checked
def curves(source: Run | str | Path) -> Figure:
    """Draw the metrics of a run over its evaluations: scores, additions and resets.

    Args:
        source: The run, or its folder.
    """
    run = _run(source)
    require(bool(run.metrics), f"source must be a run or its folder, got the archive '{source}'")
    figure = Picture(9, 5.4)
    panels = figure.subplots(2, 3, sharex=True)
    for axes, (column, words) in zip(panels[0], MEASURES.items(), strict=True):
        axes.plot(run.metrics["evaluations"], run.metrics[column], color="black")
        axes.set_ylabel(words)
    panels[0, 1].yaxis.set_major_formatter(PER_CENT)
    _draw_kinds(panels[1, 0], run, "share", "share of additions")
    panels[1, 0].set_ylim(0, 1.02)  # so that a share of 1 is visible
    if panels[1, 0].lines:
        panels[1, 0].legend(frameon=False, loc="lower right")  # for all panels of this row
    _draw_kinds(panels[1, 1], run, "lifespan", "mean lifespan of reset lanes")
    _draw_kinds(panels[1, 2], run, "parent_distance", "parent-offspring distance")
    for axes in panels[1]:
        axes.set_xlabel("evaluations")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    figure.suptitle(_title(run))
    return figure


@checked
def positions(source: Run | Archive | str | Path, *, map: Map | None = None) -> Figure:
    """Draw the final positions of elites on a map, coloured by fitness.

    The positions are the first two stored features of each elite.

    Args:
        source: A run, an archive, or the path of either.
        map: Map of the task; by default, the map of the run, if it has one.
    """
    run = _run(source)
    elites, place = run.archive, map or run.config.map or Map()
    require(elites.feature.shape[1] >= 2, "source must have at least two features, got one")
    figure = Picture(8, 4.6)
    axes = figure.subplots()
    occupied = np.asarray(elites.occupied)
    x, y = np.asarray(elites.feature)[occupied][:, :2].T
    fitness = np.asarray(elites.fitness)[occupied]
    order = np.argsort(fitness)  # the fittest elites are drawn on top
    scale = scale_of([fitness])
    _draw_map(axes, place, *run.config.names(elites.feature.shape[1])[:2])
    look: dict[str, Any] = {"vmin": scale.low, "vmax": scale.high, "cmap": scale.colour_map}
    axes.scatter(x[order], y[order], c=fitness[order], s=8, zorder=3, **look)
    axes.update_datalim(np.stack([elites.cells.low, elites.cells.high])[:, :2])  # same for all runs
    draw_bar(figure, scale, ax=axes)
    said = f"{x.size} elites"
    if place.goal is not None:
        said += f", {np.sum(x > place.goal)} of them beyond x = {place.goal:g}"
    axes.set_title(said, fontsize="medium")
    figure.suptitle(_title(run))
    return figure


@checked
def uncertainty(source: Run | str | Path) -> Figure:
    """Draw the standard deviation of the fitness of all elites over the feature space.

    Args:
        source: A corrected run, or its folder.
    """
    run = _run(source)
    require(
        run.correction is not None,
        "source must be a corrected run; 'memes reevaluate RUN' corrects it",
    )
    assert run.correction is not None
    std, cells = deviations(run.archive, run.correction).fitness, run.archive.cells
    names = run.config.names(run.archive.feature.shape[1])
    place, scale = run.config.map, scale_of([std])
    height = height_of(cells, place)
    figure, (axes,) = _panels(height, 1)
    axes.set_box_aspect(height)
    draw_cells(axes, cells, std, names, scale, place=place)
    label = f"standard deviation of the fitness, {run.correction.samples} evaluations"
    if names[1:]:
        draw_bar(figure, scale, ax=axes).set_label(label)
    else:
        axes.set_ylabel(label)
    figure.suptitle(_title(run))
    return figure


@checked
def histogram(sources: Mapping[str, Run | Archive | str | Path], *, bins: int = 30) -> Figure:
    """Draw histograms of the fitness of elites, with one outline per archive.

    Args:
        sources: For each label, a run, an archive, or the path of either.
        bins: Number of fitness intervals, which are the same for all archives.
    """
    at_least(1, bins=bins)
    figure, axes, values = _fitness_axes(sources)
    edges = np.histogram_bin_edges(np.concatenate([*values.values()]), bins)
    for label, look in looks([*values]).items():
        count = np.histogram(values[label], edges)[0]
        axes.stairs(count, edges, color=look.colour, linestyle=look.line, label=mathtext(label))
    axes.set_ylabel("number of elites")
    axes.legend(frameon=False)
    return figure


@checked
def ecdf(sources: Mapping[str, Run | Archive | str | Path]) -> Figure:
    """Draw the empirical cumulative distribution of the fitness of elites, with one curve per archive.

    Args:
        sources: For each label, a run, an archive, or the path of either.
    """
    figure, axes, values = _fitness_axes(sources)
    for label, look in looks([*values]).items():
        axes.ecdf(values[label], color=look.colour, linestyle=look.line, label=mathtext(label))
    axes.set(ylabel="share of elites", ylim=(0, 1.02))
    axes.legend(frameon=False)
    return figure


def _fitness_axes(
    sources: Mapping[str, Run | Archive | str | Path],
) -> tuple[Figure, Axes, dict[str, np.ndarray]]:
    """Return a figure, its axes with fitness on the x axis, and the fitness of each archive's elites."""
    require(len(sources) > 0, "sources must name at least one run or archive, got none")
    archives = {label: _run(source).archive for label, source in sources.items()}
    values = {label: np.asarray(a.fitness)[np.asarray(a.occupied)] for label, a in archives.items()}
    empty = next((label for label, fitness in values.items() if not fitness.size), None)
    require(empty is None, f"the archive of '{empty}' is empty; leave it out")
    figure = Picture(6, 4)
    axes = figure.subplots()
    axes.set_xlabel("fitness")
    return figure, axes, values


@checked
def space(source: Run | Archive | str | Path) -> Figure:
    """Draw the cells of an archive with three features in three dimensions, coloured by fitness.

    This is useful for tessellations, for which `archive` can only draw parallel axes.

    Args:
        source: A run, an archive, or the path of either.
    """
    run = _run(source)
    cells, occupied = run.archive.cells, np.asarray(run.archive.occupied)
    require(len(cells.low) == 3, f"source must have three features, got {len(cells.low)}; use archive")
    figure = Picture(6.4, 5.2)
    axes = figure.add_subplot(projection="3d")
    fitness = fitness_of(run.archive)
    scale = scale_of([fitness])
    look: dict[str, Any] = {"vmin": scale.low, "vmax": scale.high, "cmap": scale.colour_map}
    # White edges separate points that overlap.
    look |= {"s": 20, "edgecolors": "white", "linewidths": 0.3, "depthshade": False}
    axes.scatter(*centres(cells)[occupied].T, c=fitness[occupied], **look)
    low, high = np.asarray(cells.low), np.asarray(cells.high)
    for name, label, ends in zip("xyz", run.config.names(3), zip(low, high, strict=True), strict=True):
        axes.set(**{f"{name}label": fill(mathtext(label), 24, max_lines=2), f"{name}lim": ends})
    axes.set_title(f"{occupied.sum()} of {cells.count} cells", fontsize="medium")
    draw_bar(figure, scale, ax=axes, shrink=0.7, pad=0.12)
    figure.suptitle(_title(run))
    return figure


@checked
def paths(ways: Mapping[str, Sequence[np.ndarray]], *, map: Map | None = None) -> Figure:
    """Draw paths on the ground, seen from above, with one colour per label.

    Args:
        ways: For each label (for example, the name of a cell), the paths [T, 2] of its episodes.
        map: Map of the task.
    """
    figure = Picture(8, 4.6)
    axes = figure.subplots()
    _draw_map(axes, map or Map(), "x (m)", "y (m)")
    for i, (label, episodes) in enumerate(ways.items()):
        for path in episodes:
            axes.plot(*path.T, color=colour(i), linewidth=0.8, alpha=0.6)
        ends = np.array([path[-1] for path in episodes])
        axes.scatter(ends[:, 0], ends[:, 1], color=colour(i), s=10, zorder=3, label=mathtext(label))
    axes.legend(frameon=False, fontsize="small", loc="upper left")
    return figure


@checked
def compare(
    runs: Run | Summary | str | Path | Iterable[Run | Summary | str | Path],
) -> dict[str, Figure]:
    """Draw the figures of `memes compare`, and return them by name, such as "scores".

    The function leaves out runs without an archive, and runs that are much shorter than other runs with
    the same label. It prints a warning about each omitted run.

    Args:
        runs: Runs, their summaries, or paths and patterns as for `memes compare`. A single run, summary
            or path is also allowed.
    """
    runs = [runs] if isinstance(runs, (Run, Summary, str, Path)) else runs
    found: dict[str, Summary] = {}
    unfinished: list[str] = []
    for i, run in enumerate(runs, 1):
        if isinstance(run, Run):
            found[str(run.folder or f"run {i}")] = summarise(run)
        elif isinstance(run, Summary):
            found[f"run {i}"] = run
        else:
            places, notes = readable(find([run], "runs"), "runs")
            unfinished += notes
            found |= {str(path): load_summary(path) for path in places}
    kept, left_out = without_short(found)
    for note in [*unfinished, *left_out]:
        warnings.warn(note, stacklevel=2)
    return comparisons.draw(group(list(kept.values()), list(kept)))


@checked
def html(source: Run | Archive | str | Path) -> str:
    """Return the HTML that notebooks show for a run or an archive: a table next to a picture.

    Args:
        source: A run, an archive, or the path of either.
    """
    run = _run(source)
    stream = BytesIO()
    archive(source).savefig(stream, format="png", dpi=65)
    return page.html(_words(run) or "archive", numbers(run), stream.getvalue())


def _run(source: Run | Archive | str | Path) -> Run:
    """Load a run. If an archive is given, return a run that contains only this archive."""
    if isinstance(source, Run):
        return source
    if not isinstance(source, Archive) and as_path(source, "source").is_dir():
        return load_run(source)
    elites = source if isinstance(source, Archive) else load_archive(source)
    config = RunConfig(task="", algorithm="", seed=0)  # placeholder, because there is no run
    return Run(None, config, Provenance(), None, {}, {}, elites, {}, None)


def _panels(height: float, n: int) -> tuple[Figure, list[Axes]]:
    """Make a figure with n archive panels side by side, or in one column if the panels are wide."""
    rows, columns, width = (n, 1, 7.0) if height < 0.5 else (1, n, 4.2)
    figure = Picture(columns * (width + 0.3) + 1.6, rows * (width * height + 0.6) + 0.7)
    return figure, [*figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()]


def _words(run: Run) -> str:
    config = run.config
    algorithm = display_name(config.algorithm_label, config.options)
    return f"{config.task_label}, {algorithm}, seed {config.seed}" if config.task else ""


def _title(run: Run) -> str:
    return mathtext(_words(run))


def _draw_map(axes: Axes, place: Map, *names: str) -> None:
    draw_walls(axes, place, color=WALLS, linewidth=2)  # outlines also show walls of width 0
    axes.plot(*place.start, marker="P", markersize=9, color="black", markeredgecolor="white", zorder=4)
    if place.goal is not None:
        axes.axvline(place.goal, color="grey", linestyle="--", linewidth=1)
    axes.set_aspect("equal", adjustable="datalim")
    x, y = (fill(mathtext(name), 60, max_lines=2) for name in names)
    axes.set(xlabel=x, ylabel=y)


def _draw_kinds(axes: Axes, run: Run, prefix: str, words: str) -> None:
    """Draw the metric `{prefix}_{kind}` for each kind of offspring. Omit metrics that are always 0."""
    for kind, look in KINDS.items():
        values = run.metrics.get(f"{prefix}_{kind}")
        if values is not None and np.nan_to_num(values).any():
            axes.plot(run.metrics["evaluations"], values, color=look, label=kind, linewidth=1)
    axes.set_ylabel(words)
    if not axes.lines:
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", va="center", color="grey")
