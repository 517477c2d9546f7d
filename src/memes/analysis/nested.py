"""Three to six features of a grid, as a grid of grids.

The last two features say which block of the picture, the two before them which block of that block, and
the first two which cell. Of an odd number the last feature is alone: its blocks lie in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeGuard

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from memes.cells import Cells, Grid

EMPTY = "#E8E8E8"  # cells without an elite
MOST_SIDE = 400  # cells along a side of a picture


def is_nested(cells: Cells) -> TypeGuard[Grid]:
    """Is it a grid of three features or more that fits into a grid of grids?"""
    shape = cells.shape if isinstance(cells, Grid) else ()
    return 3 <= len(shape) <= 6 and max(prod(shape[0::2]), prod(shape[1::2])) <= MOST_SIDE


def nest(values: np.ndarray) -> np.ndarray:
    """Lay out an array of any number of dimensions as two: even ones along x, odd ones along y."""
    if values.ndim % 2:
        values = values[..., None]
    shape, k = values.shape, values.ndim
    # The last pair of features is the outermost.
    order = [*range(k - 2, -1, -2), *range(k - 1, 0, -2)]
    return values.transpose(order).reshape(int(np.prod(shape[0::2])), int(np.prod(shape[1::2])))


def draw_nested(
    axes: Axes, cells: Grid, fitness: np.ndarray, names: Sequence[str], *, ticks: int, **look: Any
) -> AxesImage:
    """Draw the fitness of cells; the axes have the names and some ticks of the outermost features."""
    picture = nest(fitness.reshape(cells.shape)).T
    image = axes.imshow(picture, origin="lower", extent=(0, 1, 0, 1), aspect="auto", **look)
    axes.set_facecolor(EMPTY)  # or the white rules would not show
    outermost = len(cells.shape) - 2 + len(cells.shape) % 2
    for side, rule in enumerate((axes.axvline, axes.axhline)):
        blocks = 1
        for depth, i in enumerate(range(outermost + side, 1, -2)):
            blocks *= cells.shape[i] if i < len(cells.shape) else 1
            for place in np.arange(1, blocks) / blocks:
                rule(place, color="white", linewidth=0.25 * ticks / (1 + 2 * depth))
    _label(axes, cells, names, outermost, ticks)
    return image


def draw_keys(panels: Sequence[Axes], cells: Cells, names: Sequence[str]) -> None:
    """Draw what the inside of a block means, on the axes of `keys_of` many panels."""
    assert is_nested(cells)
    first = len(cells.shape) - 4 + len(cells.shape) % 2
    for panel, i, words in zip(
        panels, range(first, -1, -2), ("each block:", "its blocks:"), strict=False
    ):
        across, along = cells.shape[i : i + 2]
        panel.imshow(np.zeros((along, across)), extent=(0, 1, 0, 1), cmap="Greys", vmax=8, vmin=-1)
        for side, count in ((panel.axvline, across), (panel.axhline, along)):
            for place in np.arange(1, count) / count:
                side(place, color="white", linewidth=0.8)
        panel.set_box_aspect(float(np.clip(along / across, 0.5, 2)))
        panel.set(aspect="auto", anchor="NW")
        panel.grid(visible=False)
        panel.set_title(words, fontsize="small", loc="left")
        panel.tick_params(labelsize="x-small")
        _label(panel, cells, names, i, 1, fontsize="x-small")


def keys_of(cells: Cells) -> int:
    """Count the levels below the outermost one, if cells are drawn as a grid of grids."""
    return (len(cells.shape) - 1) // 2 if is_nested(cells) else 0


def _label(axes: Axes, cells: Grid, names: Sequence[str], first: int, most: int, **text: Any) -> None:
    """Name two features along the axes, which go from 0 to 1, with ticks at some borders of cells."""
    for name, ticks, i in (
        (axes.set_xlabel, axes.set_xticks, first),
        (axes.set_ylabel, axes.set_yticks, first + 1),
    ):
        if i >= len(cells.shape):
            ticks([])
            continue
        count = cells.shape[i]
        step = -(-count // most)
        unit = np.unique([*range(0, count, step), count]) / count
        if len(unit) > 2 and count % step and unit[-1] - unit[-2] < step / count:
            unit = np.delete(unit, -2)
        low, high = float(cells.low[i]), float(cells.high[i])
        ticks(unit, [f"{low + u * (high - low):.2g}" for u in unit])
        name(names[i], **text)
