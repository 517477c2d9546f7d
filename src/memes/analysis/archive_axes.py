"""Functions that draw archives and maps into the axes of a figure.

The kind of drawing depends on the cells of the archive:

- An archive with one feature is drawn as a curve of fitness over the feature.
- An archive with two features, or a grid with up to six features, is drawn as an image with axes.
- All other archives are drawn in parallel axes, with one line per elite.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Polygon

from memes.analysis.render import ColourScale, TileLayout, is_nested, layout, render
from memes.cells import Cells, Grid, centres
from memes.store.sanitize import mathtext
from memes.task import Map

LINE = "#31688E"
LEVELS = ("", "in each block: ", "in each of those: ")


def image_of(cells: Cells, place: Map | None = None) -> TileLayout | None:
    """Return the layout of an image of the cells, or None if the cells are not shown as an image."""
    return layout(cells, place=place) if len(cells.low) == 2 or is_nested(cells) else None


def height_of(cells: Cells, place: Map | None = None) -> float:
    """Return the ratio of height to width of the axes for the cells."""
    at = image_of(cells, place)
    return at.aspect if at is not None else 0.6 if len(cells.low) == 1 else 0.7


def draw_cells(
    axes: Axes,
    cells: Cells,
    fitness: np.ndarray,
    names: Sequence[str],
    scale: ColourScale,
    *,
    place: Map | None = None,
    letters: int = 50,
    inner: bool = True,
) -> TileLayout | None:
    """Draw the fitness of cells over their features, and the walls of the map.

    Args:
        axes: Axes to draw into.
        cells: The cells.
        fitness: Fitness of each cell; NaN for empty cells.
        names: Names of the features.
        scale: Colour scale of the fitness.
        place: Map of the task, if it has one.
        letters: Maximum number of letters per line of an axis label.
        inner: Whether the axis labels of a grid of blocks also name the features inside the blocks.

    Returns:
        The layout of the image, or None if the cells are not shown as an image.
    """
    axes.grid(visible=False)
    at = image_of(cells, place)
    if at is not None:
        image = render(at, fitness, scale)
        extent = label_axes(axes, at, cells, names, letters, inner=inner)
        axes.imshow(image, extent=extent, aspect="auto")
        axes.set_frame_on(not at.blocks)
        room = letters / max(1, len({block.x for block in at.blocks}))  # letters that fit above a block
        if room >= 6:
            for block in at.blocks:
                whole = len(block.title) <= 1.45 * room
                title = block.title if whole else block.beginning
                x, y = block.x, block.top + 0.01
                axes.text(x, y, title, ha="center", va="bottom", fontsize="x-small")
    elif len(cells.low) == 1:
        _draw_heights(axes, cells, fitness, scale)
        axes.set_xlabel(fill(mathtext(names[0]), letters, max_lines=3))
    else:
        _draw_parallel(axes, cells, fitness, names, scale)
    return at


def label_axes(
    axes: Axes,
    at: TileLayout,
    cells: Cells,
    names: Sequence[str],
    letters: int = 50,
    *,
    inner: bool = True,
) -> tuple[float, float, float, float]:
    """Label the axes of an image with its features, and return the image's extent.

    The first line of a label names the feature that the ticks of the axis show. In a grid of blocks, the
    other lines name the features inside the blocks, unless `inner` is False. Blocks that are arranged in
    rows have no common axes, so the labels contain the range of each feature.
    """
    low, high = np.asarray(cells.low, float), np.asarray(cells.high, float)
    extent: list[float] = []
    for side, features in zip("xy", at.along, strict=True):
        first = 1 if at.blocks else 0
        lines = [
            f"{level}{names[i]}" + (f", {low[i]:.3g} to {high[i]:.3g}" if level else "")
            for level, i in zip(LEVELS[first:], features, strict=False)
        ]
        if not inner and not at.blocks:
            lines = lines[:1]
        if at.blocks and side == "x":
            lines.insert(0, f"blocks: {names[-1]}")
        width = letters if side == "x" else round(letters * np.clip(at.aspect, 0.75, 1))
        # The name and the range of a feature may fill three lines. The name of a single feature may
        # fill four lines.
        most = 3 if at.blocks else 2 if inner else 4
        label = "\n".join(fill(mathtext(line), width, max_lines=most) for line in lines)
        ends = (0.0, 1.0) if at.blocks or not features else (low[features[0]], high[features[0]])
        axes.set(**{f"{side}label": label, f"{side}lim": ends})
        if at.blocks or not features:
            axes.set(**{f"{side}ticks": []})
        elif not at.features:
            assert isinstance(cells, Grid)
            borders = _borders(cells.shape[features[0]], max(2, letters // 6))
            places = ends[0] + borders * (ends[1] - ends[0])
            axes.set(**{f"{side}ticks": places, f"{side}ticklabels": [f"{each:.2g}" for each in places]})
        extent += ends
    left, right, bottom, top = extent
    return left, right, bottom, top


def _borders(count: int, most: int) -> np.ndarray:
    """Divide [0, 1] into `count` equal blocks, and return about `most` borders, 0 and 1 included."""
    step = -(-count // most)
    unit = np.unique([*range(0, count, step), count])
    return np.asarray(np.delete(unit, -2) if len(unit) > 2 and count % step else unit) / count


def draw_bar(figure: Figure | SubFigure, scale: ColourScale, **options: Any) -> Colorbar:
    """Draw the colour bar of fitness."""
    return figure.colorbar(scale.mappable(), label="fitness", extend=scale.extend, **options)


def draw_walls(axes: Axes, place: Map, **look: Any) -> None:
    """Draw the walls of a map."""
    for wall in place.walls:
        axes.add_patch(Polygon(np.asarray(wall), **look))


def _draw_heights(axes: Axes, cells: Cells, fitness: np.ndarray, scale: ColourScale) -> None:
    """Draw fitness over one feature, with gaps at empty cells."""
    at = layout(cells)
    row = at.tile[0]
    borders = np.array([0, *(np.flatnonzero(np.diff(row)) + 1), row.size])
    best = at.fittest(fitness)[row[borders[:-1]]]
    values = np.where(best >= 0, fitness[best], np.nan)
    edges = float(cells.low[0]) + borders / row.size * float(cells.high[0] - cells.low[0])
    top = float(np.nanmax(values, initial=scale.low))
    room = 0.05 * (max(top, scale.high) - scale.low or 1.0)
    bottom, now = scale.low - room, axes.get_ylim() if axes.patches else (-np.inf, -np.inf)
    shown = np.maximum(values, bottom)
    axes.stairs(shown, edges, baseline=bottom, fill=True, color=LINE, alpha=0.2)
    axes.stairs(shown, edges, baseline=None, color=LINE, linewidth=1.2)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(bottom, max(top + room, now[1])), ylabel="fitness")


def _draw_parallel(
    axes: Axes, cells: Cells, fitness: np.ndarray, names: Sequence[str], scale: ColourScale
) -> None:
    """Draw parallel axes, one per feature, and one line per elite, with the fittest elites on top."""
    low, high = np.asarray(cells.low, float), np.asarray(cells.high, float)
    order = np.argsort(fitness)[: np.isfinite(fitness).sum()]
    places = (centres(cells)[order] - low) / (high - low)
    if isinstance(cells, Grid):  # without jitter, many lines would coincide
        jitter = np.random.default_rng(0).uniform(-0.4, 0.4, places.shape)
        places = places + jitter / np.array(cells.shape)
    k = low.size
    lines = np.stack(np.broadcast_arrays(np.arange(k), places), axis=-1)
    alpha = float(np.clip(600 / (len(lines) or 1), 0.15, 0.7))
    colours = scale.mappable().to_rgba(fitness[order])
    axes.add_collection(LineCollection(list(lines), colors=colours, linewidths=0.6, alpha=alpha))
    axes.vlines(range(k), 0, 1, color="black", linewidth=0.8)
    for i in range(k):
        for y, value, where in ((-0.02, low[i], "top"), (1.02, high[i], "bottom")):
            axes.text(i, y, f"{value:.3g}", ha="center", va=where, fontsize="x-small")
    axes.set(xlim=(-0.1, k - 0.9), ylim=(-0.1, 1.1), yticks=[])
    words = [fill(mathtext(name), 64 // k, max_lines=4) for name in names]
    axes.set_xticks(range(k), words, fontsize="x-small")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
