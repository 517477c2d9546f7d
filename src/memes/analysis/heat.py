"""Archives as pictures: the fitness of each cell over the feature space.

Two features span a plane. More are drawn as a grid of grids: the first two features span the inner
grids, the next two say which grid, and so on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import Polygon

from memes.task import Map

EMPTY = "#E8E8E8"  # cells without an elite


def draw_grid(
    axes: Axes, fitness: np.ndarray, low: np.ndarray, high: np.ndarray, **look: Any
) -> AxesImage:
    """Draw the fitness [*shape] of a grid's cells, NaN where empty, between the corners [k]."""
    image = draw_picture(axes, nest(fitness), low, high, **look)
    _rule_inner_grids(axes, fitness.shape)
    return image


def draw_picture(
    axes: Axes, picture: np.ndarray, low: np.ndarray, high: np.ndarray, **look: Any
) -> AxesImage:
    """Draw a picture [x, y] of the features between the corners [k], with their names."""
    k = len(low)
    across = (float(low[0]), float(high[0])) if k <= 2 else (0.0, 1.0)
    along = (float(low[1]), float(high[1])) if k == 2 else (0.0, 1.0)
    axes.set_xlabel(" in ".join(f"feature {i + 1}" for i in range(0, k, 2)))
    axes.set_ylabel(" in ".join(f"feature {i + 1}" for i in range(1, k, 2)))
    return axes.imshow(
        picture.T,
        origin="lower",
        extent=(*across, *along),
        aspect="auto",
        interpolation="nearest",
        **{"cmap": "viridis", **look},
    )


def draw_walls(axes: Axes, place: Map, **look: Any) -> None:
    """Draw the walls of a map."""
    for wall in place.walls:
        axes.add_patch(Polygon(np.asarray(wall), **look))


def nest(values: np.ndarray) -> np.ndarray:
    """An array of any number of dimensions as two: even ones along x, odd ones along y."""
    if values.ndim % 2:
        values = values[..., None]
    shape, k = values.shape, values.ndim
    # The last pair of features is the outermost.
    order = [*range(k - 2, -1, -2), *range(k - 1, 0, -2)]
    x, y = int(np.prod(shape[0::2])), int(np.prod(shape[1::2]))
    return values.transpose(order).reshape(x, y)


def _rule_inner_grids(axes: Axes, cells: tuple[int, ...]) -> None:
    shape = (*cells, 1) if len(cells) % 2 else cells
    if len(shape) <= 2:
        return
    for along, draw in ((shape[0::2], axes.axvline), (shape[1::2], axes.axhline)):
        outer = int(np.prod(along[1:]))
        for i in range(1, outer):
            draw(i / outer, color="white", linewidth=0.8)
    axes.set_facecolor(EMPTY)  # or the white rules would not show
    axes.set_xticks([])
    axes.set_yticks([])
