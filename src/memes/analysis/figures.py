"""Pictures of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from memes.analysis.heat import draw_grid, draw_picture, draw_walls
from memes.archive import Archive
from memes.cells import Cells, Grid
from memes.store.files import intact
from memes.store.folder import Run, load_run
from memes.task import Map

COLOURS = {"exploit": "#D55E00", "explore": "#0072B2", "variation": "#009E73"}
WALLS = "#C8B4AC"
PIXELS = 300  # along each side of a tessellation drawn as a picture


def draw_run(path: str | Path) -> list[Path]:
    """Draw `figures/archive.png` and `figures/curves.png` of a run folder; returns their paths.

    Where the task has a map, `figures/positions.png` as well.
    """
    run = load_run(path)
    with intact(run.folder / "config.json"):
        title = f"{Path(run.config['task']).name}, {run.config['algorithm']}, seed {run.config['seed']}"
        about = run.config.get("map")
        place = None if about is None else Map(**about)
        corrected = None if run.correction is None else run.correction.archive
    pictures = {"archive.png": archive_figure(run.archive, place, corrected)}
    with intact(run.folder / "metrics.csv"):
        pictures["curves.png"] = curves_figure(run)
    if place is not None:
        pictures["positions.png"] = positions_figure(run.archive, place)
    files = []
    for name, figure in pictures.items():
        file = Path(path) / "figures" / name
        file.parent.mkdir(exist_ok=True)
        figure.suptitle(title)
        figure.savefig(file, dpi=150)
        files.append(file)
    return files


def archive_figure(
    archive: Archive, place: Map | None = None, corrected: Archive | None = None
) -> Figure:
    """The fitness of every elite over the feature space, and the walls of the map, if there is one.

    A corrected archive is drawn beside the illusory one, in the same colours.
    """
    archives = {"": archive} if corrected is None else {"illusory: ": archive, "corrected: ": corrected}
    figure = Figure(figsize=(1.4 + 4.2 * len(archives), 4.8), layout="constrained")
    axes = figure.subplots(1, len(archives), sharey=True, squeeze=False)[0]
    fitness = np.concatenate([each.fitness[each.occupied] for each in archives.values()])
    colours = Normalize(*((fitness.min(), fitness.max()) if fitness.size else (0.0, 1.0)))
    for ax, (name, each) in zip(axes, archives.items(), strict=True):
        _draw_archive(ax, each, colours)
        if place is not None:
            draw_walls(ax, place, facecolor="none", edgecolor="black")
        ax.set_title(f"{name}{int(each.occupied.sum())} of {each.cells.count} cells", fontsize="medium")
    for ax in axes[1:]:
        ax.set_ylabel("")
    figure.colorbar(axes[0].images[0], ax=axes, label="fitness")
    return figure


def _draw_archive(axes: Axes, archive: Archive, colours: Normalize) -> None:
    cells, low, high = archive.cells, np.asarray(archive.cells.low), np.asarray(archive.cells.high)
    fitness = np.where(np.asarray(archive.occupied), np.asarray(archive.fitness), np.nan)
    if isinstance(cells, Grid):
        draw_grid(axes, fitness.reshape(cells.shape), low, high, norm=colours)
    else:
        draw_picture(axes, _rasterise_centroids(cells, fitness), low, high, norm=colours)


def positions_figure(archive: Archive, place: Map) -> Figure:
    """Where the elites end up on the map: features of their stored evaluations, coloured by fitness."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    occupied = np.asarray(archive.occupied)
    x, y = np.asarray(archive.feature)[occupied].T
    fitness = np.asarray(archive.fitness)[occupied]
    order = np.argsort(fitness)  # the fittest on top
    _draw_map(axes, place)
    shown = axes.scatter(x[order], y[order], c=fitness[order], s=8, cmap="viridis", zorder=3)
    axes.update_datalim(np.stack([archive.cells.low, archive.cells.high]))  # the same for every run
    figure.colorbar(shown, ax=axes, label="fitness")
    said = f"{x.size} elites"
    if place.goal is not None:
        said += f", {np.sum(x > place.goal)} of them beyond x = {place.goal:g}"
    axes.set_title(said, fontsize="medium")
    return figure


def paths_figure(paths: Mapping[str, Sequence[np.ndarray]], place: Map | None = None) -> Figure:
    """Paths over the ground seen from above, with a colour for each label.

    Args:
        paths: For each label, such as a cell, the paths [T, 2] of its episodes.
        place: What stands where.
    """
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    _draw_map(axes, Map() if place is None else place)
    for i, (label, episodes) in enumerate(paths.items()):
        colour = f"C{i}"
        for path in episodes:
            axes.plot(*path.T, color=colour, linewidth=0.8, alpha=0.6)
        ends = np.array([path[-1] for path in episodes])
        axes.scatter(ends[:, 0], ends[:, 1], color=colour, s=10, zorder=3, label=label)
    axes.legend(frameon=False, fontsize="small", loc="upper left")
    return figure


def _draw_map(axes: Axes, place: Map) -> None:
    draw_walls(axes, place, color=WALLS, linewidth=2)  # a wall may have no width of its own
    axes.plot(*place.start, marker="P", markersize=9, color="black", markeredgecolor="white", zorder=4)
    if place.goal is not None:
        axes.axvline(place.goal, color="grey", linestyle="--", linewidth=1)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")


def curves_figure(run: Run) -> Figure:
    """How the run went: scores, resets and additions over the evaluations spent."""
    metrics = run.metrics
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True)
    x = metrics["evaluations"]
    for ax, (column, label) in zip(
        axes.flat,
        (("qd_score", "QD-score"), ("coverage", "coverage"), ("max_fitness", "max fitness")),
        strict=False,
    ):
        ax.plot(x, metrics[column], color="black")
        ax.set_ylabel(label)
    axes[0, 1].yaxis.set_major_formatter("{x:.0%}")
    _by_kind(axes[1, 0], metrics, "share", "share of additions")
    axes[1, 0].set_ylim(0, 1)
    if axes[1, 0].lines:
        axes[1, 0].legend(frameon=False, loc="lower right")  # the colours are the same in all three
    _by_kind(axes[1, 1], metrics, "lifespan", "mean lifespan of reset lanes")
    _by_kind(axes[1, 2], metrics, "parent_distance", "parent-offspring distance")
    for ax in axes[1]:
        ax.set_xlabel("evaluations")
    return figure


def _by_kind(ax: Axes, metrics: dict[str, np.ndarray], prefix: str, label: str) -> None:
    for kind, colour in COLOURS.items():
        values = metrics.get(f"{prefix}_{kind}")
        if values is not None and np.nan_to_num(values).any():
            ax.plot(metrics["evaluations"], values, color=colour, label=kind, linewidth=1)
    ax.set_ylabel(label)
    if not ax.lines:
        ax.text(0.5, 0.5, "none yet", transform=ax.transAxes, ha="center", va="center", color="grey")


def _rasterise_centroids(cells: Cells, fitness: np.ndarray) -> np.ndarray:
    """The first two features as pixels, each with the cell of its place; the others at mid-range."""
    low, high = np.asarray(cells.low), np.asarray(cells.high)
    centre: Any = (np.arange(PIXELS) + 0.5) / PIXELS
    places = np.full((PIXELS, PIXELS, low.size), 0.5)
    places[..., 0] = centre[:, None]
    if low.size > 1:
        places[..., 1] = centre[None, :]
    feature = (low + places * (high - low)).reshape(-1, low.size).astype(np.float32)
    cell = np.asarray(cells.index(jnp.asarray(feature)))
    picture: np.ndarray = fitness[cell].reshape(PIXELS, PIXELS)
    return picture
