"""Selection of an elite by cell, by feature, by fitness or at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memes.archive import Archive
from memes.cells import Cells, Grid, centres
from memes.errors import UsageError, require


def choose(
    archive: Archive,
    *,
    cell: Sequence[int] | None = None,
    feature: Sequence[float] | None = None,
    best: bool = False,
    random: bool = False,
) -> int:
    """Return the cell of the elite that an argument selects, or of the fittest elite by default."""
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
    """Return the index of an occupied cell, given its index or its grid coordinates."""
    cells, index = archive.cells, _index(archive.cells, tuple(cell))
    if index in elites(archive):
        return index
    near = near_feature(archive, centres(cells)[index])
    raise UsageError(
        f"cell {name(cells, index)} is empty; the nearest occupied cell is {name(cells, near)}"
    )


def near_feature(archive: Archive, feature: Sequence[float] | np.ndarray) -> int:
    """Return the cell of the elite with the nearest feature. Features are first scaled to [0, 1]."""
    elites(archive)
    return int(archive.nearest(feature).cell)


def fittest(archive: Archive) -> int:
    """Return the cell of the elite with the greatest stored fitness."""
    elites(archive)
    return int(archive.best().cell)


def elites(archive: Archive) -> np.ndarray:
    """Return the occupied cells, int[n], or raise a `UsageError` if all cells are empty."""
    occupied = np.flatnonzero(np.asarray(archive.occupied))
    require(occupied.size > 0, "the archive of this run is empty: there is no elite to replay")
    return occupied


def origins(archive: Archive, corrected: Archive) -> np.ndarray:
    """Return the original cell of the elite in each cell of a corrected archive, int[c].

    The result is -1 for empty cells. It is also -1 for elites that were replaced in the uncorrected
    archive after the correction.
    """

    def identities(of: Archive) -> dict[tuple[int, int, bytes], int]:
        generation, lane, genotypes = map(np.asarray, (of.generation, of.lane, of.genotypes))
        return {
            (int(generation[cell]), int(lane[cell]), genotypes[cell].tobytes()): int(cell)
            for cell in np.flatnonzero(np.asarray(of.occupied))
        }

    stored, found = identities(archive), np.full(corrected.cells.count, -1)
    for identity, cell in identities(corrected).items():
        found[cell] = stored.get(identity, -1)
    return found


def name(cells: Cells, index: int) -> str:
    """Format a cell by its index and its grid coordinates, such as '162 (3 12)'."""
    if isinstance(cells, Grid) and len(cells.shape) > 1:
        return f"{index} ({_listed(np.unravel_index(index, cells.shape))})"
    return str(index)


def _index(cells: Cells, cell: tuple[int, ...]) -> int:
    if len(cell) == 1:
        require(0 <= cell[0] < cells.count, f"cell must lie in 0 ... {cells.count - 1}, got {cell[0]}")
        return cell[0]
    shape = cells.shape if isinstance(cells, Grid) else ()
    choices = f"an index, or {len(shape)} coordinates on the grid" if shape else "an index"
    require(len(cell) == len(shape), f"cell must be {choices}, got '{_listed(cell)}'")
    require(
        all(0 <= i < n for i, n in zip(cell, shape, strict=True)),
        f"cell must lie in {' x '.join(f'0 ... {n - 1}' for n in shape)}, got '{_listed(cell)}'",
    )
    return int(np.ravel_multi_index(cell, shape))


def _listed(values: Sequence[object] | np.ndarray) -> str:
    return " ".join(map(str, values))
