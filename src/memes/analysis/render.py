"""Images of archives, for figures, the browser page and videos.

`layout` assigns the cells to pixels. `render` colours each pixel by the value of its cell.

An image has one or two features as its axes. A grid with more features is shown as a grid of grids. The
first two features are the axes of the innermost grids. The next two features are the axes along which
these grids are arranged, and so on. If the number of features is odd, the image has one block per
interval of the last feature. The blocks are arranged in rows, starting at the top left.

A tile is a part of the image with one colour. Cells share a tile if they differ only in features that
are not axes of the image. A tile shows its fittest cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeGuard

import jax.numpy as jnp
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from PIL import Image, ImageDraw
from scipy.spatial import cKDTree

from memes.archive import Archive
from memes.cells import CVT, Cells, Grid, centres
from memes.task import Map

SIDE = 900  # approximate number of pixels of the longer side
MOST_TILES = 400  # maximum number of tiles per side
BETWEEN = -1  # value of pixels between blocks, which have no tile
TITLE = 0.05  # height of the space for titles above blocks, as a fraction of the side
OUTLIER = 3.0  # distance of outliers from the quartiles, in units of the interquartile range
FAR = 10.0  # maximum absolute coordinate of a wall, in image sizes
CHOSEN = ((255, 80, 50), (70, 170, 255))  # outlines of the first and the second chosen tile
# Unit steps on the image: x to the right, y up.
STEPS = {"left": (-1, 0), "right": (1, 0), "down": (0, -1), "up": (0, 1)}


class Palette(NamedTuple):
    """Colours of empty cells, gaps between blocks, walls, and recent changes."""

    empty: tuple[int, int, int]
    between: tuple[int, int, int]
    wall: tuple[int, int, int]
    recent: tuple[int, int, int] = (255, 255, 255)


PRINT = Palette((232, 232, 232), (255, 255, 255), (0, 0, 0))
SCREEN = Palette((44, 48, 58), (20, 20, 20), (255, 255, 255))


class ColourScale(NamedTuple):
    """A colour map for values from `low` to `high`.

    `extend` names the ends of the range at which values are clipped: "neither", "min", "max" or "both".
    """

    low: float = 0.0
    high: float = 1.0
    extend: str = "neither"
    colour_map: str = "viridis"

    def mappable(self) -> ScalarMappable:
        """Return the object that matplotlib needs to draw a colour bar."""
        return ScalarMappable(Normalize(self.low, self.high), self.colour_map)


def scale_of(values: Iterable[np.ndarray], colour_map: str = "viridis") -> ColourScale:
    """Choose a colour scale for the finite values of several arrays. Outliers are clipped."""
    finite = np.concatenate([each[np.isfinite(each)] for each in values])
    if not finite.size:
        return ColourScale(colour_map=colour_map)
    first, third = np.quantile(finite, (0.25, 0.75))
    reach = OUTLIER * (third - first) if third > first else np.inf
    inside = finite[(finite >= first - reach) & (finite <= third + reach)]
    low, high = float(inside.min()), float(inside.max())
    below, above = bool(finite.min() < low), bool(finite.max() > high)
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    return ColourScale(low, high, extend, colour_map)


def fitness_of(archive: Archive) -> np.ndarray:
    """Return the fitness [c] of the elite in each cell; NaN for empty cells."""
    return np.where(np.asarray(archive.occupied), np.asarray(archive.fitness, float), np.nan)


class Block(NamedTuple):
    """A block of an image, which shows one interval of the last feature.

    Attributes:
        x: Horizontal centre, as a fraction of the width of the image.
        top: Upper edge, as a fraction of the height, measured from the bottom.
        low: Start of the interval.
        high: End of the interval.
    """

    x: float
    top: float
    low: float
    high: float

    @property
    def title(self) -> str:
        """The interval, as text."""
        return f"{self.low:.2g} \N{EN DASH} {self.high:.2g}"

    @property
    def beginning(self) -> str:
        """The start of the interval, as a short text that fits above a narrow block."""
        return f"{self.low:.2g} ..."


@dataclass(frozen=True, eq=False)
class TileLayout:
    """The assignment of c cells to the pixels of an image.

    Attributes:
        tile: Tile of each pixel, int[H, W], with the top row first; `BETWEEN` for pixels without a tile.
        of_cell: Tile of each cell, int[c].
        features: Features that are the axes of the image. Empty for a grid of grids.
        along: Features along the x axis, and features along the y axis. The outermost feature of each
            axis is first.
        blocks: Blocks for the intervals of the last feature. Empty unless a grid of grids has an odd
            number of features.
        walls: Walls of the map of a task. The corners of each wall are fractions of the width and
            height, measured from the lower left.
    """

    tile: np.ndarray
    of_cell: np.ndarray
    features: tuple[int, ...]
    along: tuple[tuple[int, ...], tuple[int, ...]]
    blocks: tuple[Block, ...] = ()
    walls: tuple[np.ndarray, ...] = ()

    @property
    def aspect(self) -> float:
        """The ratio of height to width of the image."""
        height, width = self.tile.shape
        return float(height / width)

    @cached_property
    def centre(self) -> np.ndarray:
        """The centres [t, 2] of the tiles, as fractions of the width and height, from the lower left."""
        height, width = self.tile.shape
        y, x = np.nonzero(self.tile != BETWEEN)
        tile = self.tile[y, x]
        number = np.maximum(np.bincount(tile, minlength=int(self.of_cell.max()) + 1), 1)
        sums = [np.bincount(tile, each, len(number)) for each in ((x + 0.5) / width, (y + 0.5) / height)]
        return np.column_stack([sums[0] / number, 1 - sums[1] / number])

    def at(self, x: float, y: float) -> int:
        """Return the tile at a point, or `BETWEEN` if there is none.

        `x` and `y` are fractions of the width and height, measured from the lower left.
        """
        if not (0 <= x <= 1 and 0 <= y <= 1):
            return BETWEEN
        height, width = self.tile.shape
        return int(self.tile[min(int((1 - y) * height), height - 1), min(int(x * width), width - 1)])

    def fittest(self, fitness: np.ndarray) -> np.ndarray:
        """Return the fittest cell of each tile, int[t]; -1 if all cells of the tile are empty.

        The fitness of an empty cell is NaN or infinite.
        """
        best = np.full(len(self.centre), -1)
        order = np.argsort(fitness, kind="stable")
        order = order[np.isfinite(fitness[order])]
        best[self.of_cell[order]] = order
        return best

    def step(self, tile: int, step: tuple[int, int], occupied: np.ndarray) -> int:
        """Return the nearest occupied tile in a direction from `tile`, or `tile` if there is none.

        Tiles straight ahead are preferred.
        """
        apart = self.centre - self.centre[tile]
        ahead = apart @ np.array(step)
        aside = np.abs(apart @ np.array(step[::-1]))
        candidates = np.flatnonzero(occupied & (ahead > 1e-6) & (aside <= ahead + 1e-6))
        if not candidates.size:
            return tile
        return int(candidates[np.argmin(ahead[candidates] + 2 * aside[candidates])])

    def outline(self, tile: int) -> np.ndarray:
        """Return a mask of the pixels around a tile, bool[H, W].

        If the tile touches an edge of the image, the mask also contains the pixels of the tile at this
        edge.
        """
        inside, width = self.tile == tile, max(1, max(self.tile.shape) // 200)
        spread = np.zeros_like(np.pad(inside, width))
        height, along = inside.shape
        for dy in range(2 * width + 1):
            for dx in range(2 * width + 1):
                spread[dy : dy + height, dx : dx + along] |= inside
        border = np.ones_like(inside)
        border[width:-width, width:-width] = False
        return np.asarray(spread[width:-width, width:-width] & ~(inside & ~border))


def is_nested(cells: Cells) -> TypeGuard[Grid]:
    """Return True if the cells are a grid of three to six features, and fit into a grid of grids."""
    shape = cells.shape if isinstance(cells, Grid) else ()
    return 3 <= len(shape) <= 6 and max(math.prod(shape[0::2]), math.prod(shape[1::2])) <= MOST_TILES


def layout(
    cells: Cells, features: tuple[int, ...] = (), *, place: Map | None = None, side: int = SIDE
) -> TileLayout:
    """Assign the cells to the pixels of an image of one or two features, or of a grid of grids.

    Args:
        cells: The cells.
        features: Features that are the axes of the image; by default, all features.
        place: Map of the task. If the axes are the first two features, the image has the proportions and
            the walls of the map.
        side: Approximate number of pixels along the longer side.
    """
    k = len(cells.low)
    if not features and is_nested(cells):
        return _nested(cells, side)
    features = features or (*range(k),)
    mapped = place is not None and features == (0, 1)
    low, high = (np.asarray(bound, float)[[*features]] for bound in (cells.low, cells.high))
    aspect = 0.25 if len(features) == 1 else 1.0
    if mapped:
        aspect = float(np.clip((high - low)[1] / (high - low)[0], 0.25, 2))
    size = (round(side / max(aspect, 1)), round(side * min(aspect, 1)))
    tile, of_cell = _plane(cells, features, size)
    along = (features[:1], features[1:])
    if place is None or not mapped:
        return TileLayout(tile, of_cell, features, along)
    unit = (np.clip((np.asarray(wall) - low) / (high - low), -FAR, FAR) for wall in place.walls)
    return TileLayout(tile, of_cell, features, along, walls=tuple(unit))


def _plane(
    cells: Cells, features: tuple[int, ...], size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tile of each pixel and the tile of each cell, for an image of one or two features.

    `size` is the width and the height of the image in pixels.
    """
    k, low, high = len(cells.low), np.asarray(cells.low), np.asarray(cells.high)
    if not isinstance(cells, Grid) and len(features) == k:
        x, y = ((np.arange(n) + 0.5) / n for n in size)
        unit = np.stack(np.meshgrid(x, y[::-1] if k == 2 else [0.5]), axis=-1)[..., list(features)]
        feature = (low + unit * (high - low)).reshape(-1, k)
        if isinstance(cells, CVT):  # same result as `index`, but faster
            points = (np.asarray(cells.centroids, float) - low) / (high - low)
            tile = cKDTree(points).query((feature - low) / (high - low))[1]
        else:
            tile = np.asarray(cells.index(jnp.asarray(feature, jnp.float32)))
        tile = tile.reshape(unit.shape[:2])
        return np.broadcast_to(tile, (size[1], size[0])), np.arange(cells.count)
    wanted = cells.shape if isinstance(cells, Grid) else [max(2, round(math.sqrt(cells.count)))] * k
    shape = [min(wanted[i], MOST_TILES) for i in features]
    unit = ((centres(cells) - low) / (high - low))[:, list(features)]
    place = np.clip((unit * shape).astype(int), 0, np.array(shape) - 1)
    along = [_pixels([n], pixels, 0) for n, pixels in zip([*shape, 1], size, strict=False)]
    tile = along[0] if len(shape) == 1 else along[0] * shape[1] + along[1][::-1, None]
    return np.broadcast_to(tile, (len(along[1]), len(along[0]))), np.ravel_multi_index(
        tuple(place.T), tuple(shape)
    )


def _nested(cells: Grid, side: int) -> TileLayout:
    """Lay out a grid of three to six features as a grid of grids."""
    shape, k = cells.shape, len(cells.shape)
    across, up = (tuple(range(i, k - k % 2, 2))[::-1] for i in (0, 1))
    counts = [[shape[i] for i in each[::-1]] for each in (across, up)]
    aspect = float(np.clip(math.prod(counts[1]) / math.prod(counts[0]), 0.5, 2))
    blocks = shape[-1] if k % 2 else 1
    columns = min(_columns(blocks), blocks)
    width = round(side / columns / max(aspect, 1))
    x = _pixels(counts[0], width, side // 300)
    y = _pixels(counts[1], round(width * aspect), side // 300)[::-1]
    inside = _numbers(shape[: k - k % 2], across, up)
    block = np.where((x >= 0) & (y >= 0)[:, None], inside[x, y[:, None]], BETWEEN)
    one = TileLayout(block, np.arange(cells.count), (), (across, up))
    return one if k % 2 == 0 else _in_rows(one, cells, columns, side)


def _in_rows(block: TileLayout, cells: Grid, columns: int, side: int) -> TileLayout:
    """Arrange copies of a block in rows, one per interval of the last feature, with space for titles."""
    n, (height, width) = cells.shape[-1], block.tile.shape
    rows, beside, above = -(-n // columns), side // 60, round(side * TITLE)
    size = rows * (height + above), columns * (width + beside) - beside
    tile, places = np.full(size, BETWEEN), []
    low, high = float(cells.low[-1]), float(cells.high[-1])
    for i in range(n):
        top, left = i // columns * (height + above) + above, i % columns * (width + beside)
        numbers = np.where(block.tile >= 0, block.tile * n + i, BETWEEN)
        tile[top : top + height, left : left + width] = numbers
        ends = (low + (i + j) / n * (high - low) for j in (0, 1))
        places.append(Block((left + width / 2) / size[1], 1 - top / size[0], *ends))
    return replace(block, tile=tile, blocks=tuple(places))


def _columns(blocks: int) -> int:
    """Choose how many blocks each row has, so that the image is nearly square with few empty places."""
    about = math.ceil(math.sqrt(blocks))
    return min((about, about + 1), key=lambda columns: -blocks % columns)


def _numbers(shape: Sequence[int], across: Sequence[int], up: Sequence[int]) -> np.ndarray:
    """Return the index of the cell at each position [x, y] of a grid of grids."""
    numbers = np.arange(math.prod(shape)).reshape(shape).transpose([*across, *up])
    return numbers.reshape(math.prod(shape[i] for i in across), -1)


def _pixels(counts: Sequence[int], size: int, gap: int) -> np.ndarray:
    """For each pixel along one side, return the position of its cell, int[n]; `BETWEEN` in gaps.

    Args:
        counts: Number of parts of a block along this side, for each level from the innermost to the
            outermost. The parts of an innermost block are cells.
        size: Approximate number of pixels along this side.
        gap: Number of pixels between the innermost blocks. Gaps between outer blocks are wider.
    """
    index, cells = np.arange(counts[0]).repeat(max(1, size // math.prod(counts))), counts[0]
    for level, count in enumerate(counts[1:]):
        space = np.full((3 * level + 1) * gap, BETWEEN)
        blocks = [np.where(index == BETWEEN, BETWEEN, index + i * cells) for i in range(count)]
        index = np.concatenate([blocks[0], *(part for block in blocks[1:] for part in (space, block))])
        cells *= count
    return index


def nearest(at: TileLayout, cells: Cells, tile: int, occupied: np.ndarray) -> int:
    """Return the cell among `occupied` whose centre is nearest to the mean centre of a tile's cells.

    Distances are measured along the features that the image shows, in units of the feature bounds.
    """
    low, high = np.asarray(cells.low, float), np.asarray(cells.high, float)
    unit = (centres(cells) - low) / (high - low)
    if at.features:
        unit = unit[:, list(at.features)]
    of_tile = unit[at.of_cell == tile]
    middle = of_tile.mean(axis=0) if len(of_tile) else at.centre[tile, : unit.shape[1]]
    return int(occupied[np.argmin(np.sum(np.square(unit[occupied] - middle), axis=1))])


def render(
    at: TileLayout,
    values: np.ndarray,
    scale: ColourScale,
    *,
    fitness: np.ndarray | None = None,
    recent: np.ndarray | None = None,
    chosen: Sequence[int | None] = (),
    palette: Palette = PRINT,
) -> np.ndarray:
    """Return an image uint8[H, W, 3] whose colours show the values of the cells.

    Args:
        at: Layout of the cells.
        values: Value of each cell, [c]; NaN for empty cells.
        scale: Colour scale of the values.
        fitness: Fitness of each cell, [c]; by default, `values`. Each tile shows its fittest cell.
        recent: Weight of the colour of recent changes in each cell, from 0 to 1, [c].
        chosen: Up to two cells to outline. Entries that are None are skipped.
        palette: Colours of empty cells, gaps, walls and recent changes.
    """
    best = at.fittest(values if fitness is None else fitness)
    shown = np.where(best >= 0, values[best], np.nan)
    colours = scale.mappable().to_rgba(shown)[:, :3] * 255
    if recent is not None:
        share = np.where(best >= 0, recent[best], 0)[:, None]
        colours = (1 - share) * colours + share * np.array(palette.recent)
    colours = np.where(np.isnan(shown)[:, None], palette.empty, colours)
    # Pixels between blocks have the value -1 (`BETWEEN`), which selects the last colour.
    table = np.concatenate([colours, [palette.between]]).round().astype(np.uint8)
    image = table[at.tile]
    for cell, colour in zip(chosen, CHOSEN, strict=False):
        if cell is not None:
            image[at.outline(int(at.of_cell[cell]))] = colour
    if not at.walls:
        return np.asarray(image)
    drawn, size = Image.fromarray(image), np.array(image.shape[1::-1])
    for wall in at.walls:
        corners = [*map(tuple, np.column_stack([wall[:, 0], 1 - wall[:, 1]]) * size)]
        ImageDraw.Draw(drawn).line([*corners, corners[0]], palette.wall, max(1, size.max() // 200))
    return np.asarray(drawn)
