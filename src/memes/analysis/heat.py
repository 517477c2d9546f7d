"""Archives and maps on the axes of a figure.

One feature: fitness over it. Two: a plane in the colours of fitness. More of a grid: a grid of grids
(`nested`). Very many, or those of a tessellation: parallel axes, with a line for each elite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Polygon

from memes.analysis.nested import draw_nested, is_nested, nest
from memes.archive import Archive
from memes.cells import Cells, Grid, centres
from memes.store.sanitize import mathtext
from memes.task import Map

PIXELS = 300  # along each side of a tessellation
FENCE = 3.0  # values further outside of the quartiles, in distances of these, are outliers
LINE = "#31688E"


class Colours(NamedTuple):
    """The fitness at both ends of a scale of colours, and at which there is fitness beyond."""

    low: float = 0.0
    high: float = 1.0
    extend: str = "neither"


def fitness_of(archive: Archive) -> np.ndarray:
    """Read the fitness of each cell, NaN where it is empty: [cells]."""
    return np.where(np.asarray(archive.occupied), np.asarray(archive.fitness, float), np.nan)


def map_of(recorded: Mapping[str, Any]) -> Map | None:
    """Read the map of a task, if one is recorded."""
    about = recorded.get("map")
    return Map(**about) if about else None


def colours_of(fitness: Iterable[np.ndarray]) -> Colours:
    """Choose colours for all of the arrays, of which a few outliers do not take up the most."""
    values = np.concatenate([each[np.isfinite(each)] for each in fitness])
    if not values.size:
        return Colours()
    first, third = np.quantile(values, (0.25, 0.75))
    reach = FENCE * (third - first) if third > first else np.inf
    inside = values[(values >= first - reach) & (values <= third + reach)]
    low, high = float(inside.min()), float(inside.max())
    below, above = bool(values.min() < low), bool(values.max() > high)
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    return Colours(low, high, extend)


def height_of(cells: Cells, place: Map | None = None) -> float:
    """Choose the height of a picture of cells for a width of 1."""
    low, high = np.asarray(cells.low, float), np.asarray(cells.high, float)
    if low.size == 1:
        return 0.6
    if low.size == 2:
        width, height = high - low
        return float(np.clip(height / width, 0.25, 2)) if place is not None else 1.0
    if is_nested(cells):
        return float(np.clip(np.prod(cells.shape[1::2]) / np.prod(cells.shape[0::2]), 0.15, 1.5))
    return 0.7


def draw_cells(
    axes: Axes,
    cells: Cells,
    fitness: np.ndarray,
    names: Sequence[str],
    colours: Colours,
    *,
    place: Map | None = None,
    wrap: int = 40,
) -> ScalarMappable | None:
    """Draw the fitness of cells, NaN where empty, over the named features; walls, if there is a map.

    Names are wrapped after so many letters. Returns what a scale of colours is made for; None for one
    feature, where fitness is a height.
    """
    low, high = np.asarray(cells.low, float), np.asarray(cells.high, float)
    words = [fill(mathtext(name), wrap, max_lines=3) for name in names]
    axes.grid(visible=False)
    look: dict[str, Any] = {"vmin": colours.low, "vmax": colours.high}
    if is_nested(cells):
        return draw_nested(axes, cells, fitness, words, ticks=max(2, wrap // 6), **look)
    if low.size > 2:
        return _draw_parallel(axes, cells, fitness, words, colours)
    axes.set_xlabel(words[0])
    if low.size == 1:
        values = fitness if isinstance(cells, Grid) else _rasterise(cells, fitness)
        _draw_heights(axes, values, np.linspace(low[0], high[0], values.size + 1), colours)
        return None
    extent = (low[0], high[0], low[1], high[1])
    image = axes.imshow(picture_of(cells, fitness), origin="lower", extent=extent, aspect="auto", **look)
    axes.set_ylabel(words[1])
    if place is not None:
        draw_walls(axes, place, facecolor="none", edgecolor="black")
    return image


def picture_of(cells: Cells, values: np.ndarray) -> np.ndarray:
    """Lay out a value for each cell as a picture [rows, columns]; the lowest row first."""
    laid = values.reshape(cells.shape) if isinstance(cells, Grid) else _rasterise(cells, values)
    return nest(laid).T


def draw_bar(
    figure: Figure | SubFigure, image: ScalarMappable, colours: Colours, **options: Any
) -> Colorbar:
    """Draw the scale of colours of a picture of cells."""
    return figure.colorbar(image, label="fitness", extend=colours.extend, **options)


def draw_walls(axes: Axes, place: Map, **look: Any) -> None:
    """Draw the walls of a map."""
    for wall in place.walls:
        axes.add_patch(Polygon(np.asarray(wall), **look))


def _draw_heights(axes: Axes, values: np.ndarray, edges: np.ndarray, colours: Colours) -> None:
    """Draw fitness over one feature, with gaps where cells are empty."""
    top = float(np.nanmax(values, initial=colours.low))
    room = 0.05 * (max(top, colours.high) - colours.low or 1.0)
    bottom, now = colours.low - room, axes.get_ylim() if axes.patches else (np.inf, -np.inf)
    shown = np.maximum(values, bottom)
    axes.stairs(shown, edges, baseline=bottom, fill=True, color=LINE, alpha=0.2)
    axes.stairs(shown, edges, baseline=None, color=LINE, linewidth=1.2)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(bottom, max(top + room, now[1])), ylabel="fitness")


def _draw_parallel(
    axes: Axes, cells: Cells, fitness: np.ndarray, names: Sequence[str], colours: Colours
) -> ScalarMappable:
    """Draw a line for each elite through an axis for each feature; the fittest on top."""
    low, high = np.asarray(cells.low, float), np.asarray(cells.high, float)
    order = np.argsort(fitness)[: np.isfinite(fitness).sum()]
    places = (centres(cells)[order] - low) / (high - low)
    if isinstance(cells, Grid):  # or many lines would be one
        jitter = np.random.default_rng(0).uniform(-0.4, 0.4, places.shape)
        places = places + jitter / np.array(cells.shape)
    k, scale = low.size, ScalarMappable(Normalize(colours.low, colours.high))
    ways = np.stack(np.broadcast_arrays(np.arange(k), places), axis=-1)
    alpha = float(np.clip(600 / (len(ways) or 1), 0.15, 0.7))
    axes.add_collection(
        LineCollection(list(ways), colors=scale.to_rgba(fitness[order]), linewidths=0.6, alpha=alpha)
    )
    axes.vlines(range(k), 0, 1, color="black", linewidth=0.8)
    for i in range(k):
        for y, value, where in ((-0.02, low[i], "top"), (1.02, high[i], "bottom")):
            axes.text(i, y, f"{value:.3g}", ha="center", va=where, fontsize="x-small")
    axes.set(xlim=(-0.1, k - 0.9), ylim=(-0.1, 1.1), yticks=[])
    axes.set_xticks(range(k), [fill(name, 64 // k, max_lines=4) for name in names], fontsize="x-small")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return scale


def _rasterise(cells: Cells, fitness: np.ndarray) -> np.ndarray:
    """Look up the fitness at PIXELS places along each of one or two features."""
    low, high = np.asarray(cells.low), np.asarray(cells.high)
    along = [(np.arange(PIXELS) + 0.5) / PIXELS] * low.size
    places = np.stack(np.meshgrid(*along, indexing="ij"), axis=-1)
    feature = (low + places * (high - low)).reshape(-1, low.size).astype(np.float32)
    cell = np.asarray(cells.index(jnp.asarray(feature)))
    return np.asarray(fitness[cell].reshape(places.shape[:-1]))
