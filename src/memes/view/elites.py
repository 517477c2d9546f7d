"""Which elite of an archive is meant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memes.archive import Archive
from memes.cells import CVT, Cells, Grid
from memes.errors import UsageError, require


def choose(
    archive: Archive,
    *,
    cell: Sequence[int] | None = None,
    feature: Sequence[float] | None = None,
    best: bool = False,
    random: bool = False,
) -> int:
    """The cell of the elite that is asked for in one of four ways; the fittest if in none."""
    given = [cell is not None, feature is not None, best, random]
    require(sum(given) <= 1, "cell, feature, best and random exclude each other: choose one")
    if cell is not None:
        return at_cell(archive, cell)
    if feature is not None:
        return near_feature(archive, feature)
    if random:
        return int(np.random.default_rng().choice(elites(archive)))
    return fittest(archive)


def at_cell(archive: Archive, cell: Sequence[int]) -> int:
    """The index of an occupied cell that is given by its index, or by its coordinates on the grid."""
    index = _index(archive.cells, tuple(cell))
    occupied = elites(archive)
    if index not in occupied:
        near = _nearest(archive.cells, occupied, _centres(archive.cells, np.array([index]))[0])
        raise UsageError(
            f"cell {name(archive.cells, index)} is empty; the nearest that is not is "
            f"{name(archive.cells, near)}"
        )
    return index


def near_feature(archive: Archive, feature: Sequence[float]) -> int:
    """The occupied cell whose elite's feature is nearest, in units of the feature bounds."""
    low, high = _bounds(archive.cells)
    require(
        len(feature) == low.size,
        f"feature must have {low.size} entries, one for each feature of the task, got {len(feature)}",
    )
    require(bool(np.isfinite(feature).all()), f"feature must be finite, got {_listed(feature)}")
    occupied = elites(archive)
    unit = (np.asarray(archive.feature)[occupied] - low) / (high - low)
    wanted = (np.asarray(feature) - low) / (high - low)
    return int(occupied[np.argmin(np.sum((unit - wanted) ** 2, axis=1))])


def fittest(archive: Archive) -> int:
    """The cell of the greatest stored fitness."""
    elites(archive)
    return int(np.argmax(np.asarray(archive.fitness)))


def elites(archive: Archive) -> np.ndarray:
    """The occupied cells, int[n], of which there must be one."""
    occupied = np.flatnonzero(np.asarray(archive.occupied))
    require(occupied.size > 0, "the archive of this run is empty: there is no elite to replay")
    return occupied


def name(cells: Cells, index: int) -> str:
    """A cell as it is written, such as '162 (3 12)': its index, and its coordinates on a grid."""
    if isinstance(cells, Grid) and len(cells.shape) > 1:
        return f"{index} ({_listed(np.unravel_index(index, cells.shape))})"
    return str(index)


def _index(cells: Cells, cell: tuple[int, ...]) -> int:
    if len(cell) == 1:
        (index,) = cell
        require(0 <= index < cells.count, f"cell must lie in 0 ... {cells.count - 1}, got {index}")
        return index
    shape = cells.shape if isinstance(cells, Grid) else ()
    choices = f"an index, or {len(shape)} coordinates on the grid" if shape else "an index"
    require(len(cell) == len(shape), f"cell must be {choices}, got '{_listed(cell)}'")
    require(
        all(0 <= i < n for i, n in zip(cell, shape, strict=True)),
        f"cell must lie in {' x '.join(f'0 ... {n - 1}' for n in shape)}, got '{_listed(cell)}'",
    )
    return int(np.ravel_multi_index(cell, shape))


def _nearest(cells: Cells, candidates: np.ndarray, place: np.ndarray) -> int:
    distance = np.sum((_centres(cells, candidates) - place) ** 2, axis=1)
    return int(candidates[np.argmin(distance)])


def _centres(cells: Cells, index: np.ndarray) -> np.ndarray:
    """Centres of cells index[n] in units of the feature bounds, [n, k]."""
    if isinstance(cells, Grid):
        position = np.stack(np.unravel_index(index, cells.shape), axis=1)
        return np.asarray((position + 0.5) / np.array(cells.shape))
    assert isinstance(cells, CVT)
    low, high = _bounds(cells)
    return np.asarray((np.asarray(cells.centroids)[index] - low) / (high - low))


def _bounds(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(cells.low), np.asarray(cells.high)


def _listed(values: Sequence[object]) -> str:
    return " ".join(map(str, values))
