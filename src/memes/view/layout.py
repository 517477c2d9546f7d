"""The archive as a picture: which tile shows which cells, and which pixel which tile.

A tile stands for one cell, or for all that differ only in features that are not shown; then it shows the
fittest of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from memes.analysis.nested import is_nested, nest
from memes.cells import CVT, Cells, Grid, centres

ALL = "all, as a grid of grids"
SIDE = 600  # pixels along a side, about
MOST_TILES = 300  # along a side
BETWEEN = -1  # in place of a tile: the lines between grids of a grid
# Unit steps on the picture: x to the right, y up.
STEPS = {"left": (-1, 0), "right": (1, 0), "down": (0, -1), "up": (0, 1)}


class Layout(NamedTuple):
    """A way to show c cells as tiles.

    Attributes:
        tile: The tile of each pixel, int[H, W], from the top; `BETWEEN` where there is none.
        of_cell: The tile that each cell belongs to, int[c].
        features: The features that span the picture, one or two; none, if it is a grid of grids.
        centre: The middle of each tile as parts of the width and height, from below, [t, 2].
    """

    tile: np.ndarray
    of_cell: np.ndarray
    features: tuple[int, ...]
    centre: np.ndarray


def spans(cells: Cells, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Name the ways to show cells: by the features that span the picture, or none for all at once."""
    k, plain = len(names), [re.sub(r" \([^()]*\)$", "", name) for name in names]  # without units
    words = plain if len({*plain}) == k else names
    if k == 1:
        return {words[0]: (0,)}
    nested: dict[str, tuple[int, ...]] = {ALL: ()} if is_nested(cells) else {}
    return nested | {f"{words[i]} by {words[j]}": (i, j) for i, j in combinations(range(k), 2)}


def of(cells: Cells, features: tuple[int, ...]) -> Layout:
    """Lay out cells over one or two of their features, or those of a grid over all, if none is given."""
    return nested(cells) if not features and is_nested(cells) else plane(cells, features)


def plane(cells: Cells, features: tuple[int, ...]) -> Layout:
    """Lay out cells over one or two of their features."""
    centroids = centres(cells)[:, list(features)]
    low, high = (np.asarray(bound, float)[list(features)] for bound in (cells.low, cells.high))
    unit = (centroids - low) / (high - low)
    if isinstance(cells, CVT) and len(features) == len(cells.low):
        return _voronoi(unit, features)
    if isinstance(cells, Grid):
        along = [cells.shape[i] for i in features]
    else:
        along = [max(2, round(math.sqrt(cells.count)))] * len(features)
    along = [min(n, MOST_TILES) for n in along]
    place = np.clip((unit * along).astype(int), 0, np.array(along) - 1)
    if len(features) == 1:
        place, along = np.column_stack([place, np.zeros_like(place)]), [*along, 1]
    numbers = np.arange(along[0] * along[1]).reshape(along)
    return _of(numbers, numbers[place[:, 0], place[:, 1]], features)


def nested(cells: Grid) -> Layout:
    """Lay out a grid of three or more features as a grid of grids."""
    numbers = nest(np.arange(cells.count).reshape(cells.shape))
    inner = cells.shape[:2]
    layout = _of(numbers, np.arange(cells.count), ())
    tile = layout.tile.copy()
    for axis, n in enumerate(inner):
        wide = tile.shape[1 - axis] // numbers.shape[axis] * n
        lines = np.arange(wide, tile.shape[1 - axis], wide)
        lines = np.concatenate([lines - 1, lines]) if wide > 8 else lines
        index = (slice(None), lines) if axis == 0 else (tile.shape[0] - 1 - lines, slice(None))
        tile[index] = BETWEEN
    return layout._replace(tile=tile)


def _of(numbers: np.ndarray, of_cell: np.ndarray, features: tuple[int, ...]) -> Layout:
    """Draw tiles by their numbers [x, y], each as many pixels wide and high as fit."""
    wide, high = (max(1, SIDE // n) for n in numbers.shape)
    high = min(high, SIDE // 4)
    tile = np.flipud(np.repeat(np.repeat(numbers, wide, axis=0), high, axis=1).T)
    unit = [(np.arange(n) + 0.5) / n for n in numbers.shape]
    centre = np.zeros((numbers.size, 2))
    centre[numbers.ravel()] = np.stack(np.meshgrid(*unit, indexing="ij"), axis=-1).reshape(-1, 2)
    return Layout(np.ascontiguousarray(tile), of_cell, features, centre)


def _voronoi(unit: np.ndarray, features: tuple[int, ...]) -> Layout:
    """Draw the region of each point [c, 1] or [c, 2] of the unit square."""
    ends = np.full((len(unit), 1), 0.5)
    points = np.concatenate([unit, ends], axis=1)[:, :2]
    middle = (np.arange(SIDE) + 0.5) / SIDE
    pixels = np.stack(np.meshgrid(middle, middle[::-1] if unit.shape[1] == 2 else [0.5]), axis=-1)
    tile = cKDTree(points).query(pixels.reshape(-1, 2))[1].reshape(pixels.shape[:2])
    if unit.shape[1] == 1:
        tile = np.repeat(tile, SIDE // 4, axis=0)
    return Layout(tile, np.arange(len(unit)), features, points)


def shown(layout: Layout, fitness: np.ndarray) -> np.ndarray:
    """Find the fittest cell of each tile, int[t]; -1 where all are empty (-inf)."""
    best = np.full(len(layout.centre), -1)
    order = np.argsort(fitness, kind="stable")
    order = order[np.isfinite(fitness[order])]
    best[layout.of_cell[order]] = order
    return best


def tile_at(layout: Layout, x: float, y: float) -> int:
    """Find the tile at parts of the width and height, from below; `BETWEEN` if there is none."""
    height, width = layout.tile.shape
    if not (0 <= x <= 1 and 0 <= y <= 1):
        return BETWEEN
    row, column = min(int((1 - y) * height), height - 1), min(int(x * width), width - 1)
    return int(layout.tile[row, column])


def next_tile(layout: Layout, tile: int, step: tuple[int, int], occupied: np.ndarray) -> int:
    """Find the nearest occupied tile in a direction, ahead rather than aside; the same if none is."""
    apart = layout.centre - layout.centre[tile]
    ahead = apart @ np.array(step)
    aside = np.abs(apart @ np.array(step[::-1]))
    candidates = np.flatnonzero(occupied & (ahead > 1e-6) & (aside <= ahead + 1e-6))
    if not candidates.size:
        return tile
    return int(candidates[np.argmin(ahead[candidates] + 2 * aside[candidates])])


def outline(layout: Layout, tile: int, width: int = 3) -> np.ndarray:
    """Find the pixels around a tile, bool[H, W]; on it, where the picture ends beside it."""
    inside = layout.tile == tile
    spread = np.zeros_like(np.pad(inside, width))
    height, along = inside.shape
    for dy in range(2 * width + 1):
        for dx in range(2 * width + 1):
            spread[dy : dy + height, dx : dx + along] |= inside
    border = np.ones_like(inside)
    border[width:-width, width:-width] = False
    return np.asarray(spread[width:-width, width:-width] & ~(inside & ~border))
