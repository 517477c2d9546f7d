"""Archives and maps on the axes of a figure.

Two features span a plane. More of a grid are drawn as a grid of grids: the first two features span the
inner grids, the next two say which grid, and so on. Of a tessellation the first two features are drawn,
with the others at mid-range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import Polygon

from memes.archive import Archive
from memes.cells import Cells, Grid
from memes.escapes import mathtext
from memes.task import Map

EMPTY = "#E8E8E8"  # cells of inner grids without an elite
PIXELS = 300  # along each side of a tessellation


def fitness_of(archive: Archive) -> np.ndarray:
    """Read the fitness of each cell, NaN where it is empty: [cells]."""
    return np.where(np.asarray(archive.occupied), np.asarray(archive.fitness, float), np.nan)


def map_of(recorded: Mapping[str, Any]) -> Map | None:
    """Read the map of a task, if one is recorded."""
    about = recorded.get("map")
    return Map(**about) if about else None


def colour_scale(fitness: Sequence[np.ndarray]) -> dict[str, float]:
    """Choose colours for all of the arrays: from their 1st percentile to the maximum."""
    values = np.concatenate([each[np.isfinite(each)] for each in fitness])
    if not values.size:
        return {"vmin": 0.0, "vmax": 1.0}
    # A few hopeless elites would take up the scale.
    return {"vmin": float(np.percentile(values, 1)), "vmax": float(values.max())}


def draw_cells(
    axes: Axes,
    cells: Cells,
    fitness: np.ndarray,
    names: Sequence[str],
    place: Map | None = None,
    **look: Any,
) -> AxesImage:
    """Draw the fitness of cells, NaN where empty, over the named features; walls, if there is a map."""
    low, high = np.asarray(cells.low, float), np.asarray(cells.high, float)
    values = fitness.reshape(cells.shape) if isinstance(cells, Grid) else _rasterise(cells, fitness)
    k = values.ndim
    across = (low[0], high[0]) if k <= 2 else (0.0, 1.0)
    along = (low[1], high[1]) if k == 2 else (0.0, 1.0)
    extent, picture = (*across, *along), nest(values).T
    image = axes.imshow(picture, origin="lower", extent=extent, aspect="auto", **look)
    x, y = (" in ".join(mathtext(name) for name in names[first:k:2]) for first in (0, 1))
    axes.set(xlabel=x, ylabel=y)
    if k > 2:
        for outside, rule in ((values.shape[2::2], axes.axvline), (values.shape[3::2], axes.axhline)):
            outer = int(np.prod(outside))
            for i in range(1, outer):
                rule(i / outer, color="white", linewidth=0.8)
        axes.set_facecolor(EMPTY)  # or the white rules would not show
        axes.set(xticks=[], yticks=[])
    if place is not None:
        draw_walls(axes, place, facecolor="none", edgecolor="black")
    return image


def draw_walls(axes: Axes, place: Map, **look: Any) -> None:
    """Draw the walls of a map."""
    for wall in place.walls:
        axes.add_patch(Polygon(np.asarray(wall), **look))


def nest(values: np.ndarray) -> np.ndarray:
    """Lay out an array of any number of dimensions as two: even ones along x, odd ones along y."""
    if values.ndim % 2:
        values = values[..., None]
    shape, k = values.shape, values.ndim
    # The last pair of features is the outermost.
    order = [*range(k - 2, -1, -2), *range(k - 1, 0, -2)]
    return values.transpose(order).reshape(int(np.prod(shape[0::2])), int(np.prod(shape[1::2])))


def _rasterise(cells: Cells, fitness: np.ndarray) -> np.ndarray:
    """Look up the fitness at PIXELS places along each of the first two features."""
    low, high = np.asarray(cells.low), np.asarray(cells.high)
    shown = min(2, low.size)
    places = np.full((*[PIXELS] * shown, low.size), 0.5)
    centres = [(np.arange(PIXELS) + 0.5) / PIXELS] * shown
    places[..., :shown] = np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1)
    feature = (low + places * (high - low)).reshape(-1, low.size).astype(np.float32)
    cell = np.asarray(cells.index(jnp.asarray(feature)))
    return np.asarray(fitness[cell].reshape(places.shape[:-1]))
