"""The file `changes.bin`, which records changes of the archive's cells, without genotypes.

The first line is a JSON object. It is followed by rows of equal size, which are sorted by generation and
then by cell. A crash can leave an incomplete row at the end of the file. This row is ignored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memes.archive import LIMIT, Archive, Changes
from memes.store.archives import FORMAT_VERSION, check_version
from memes.store.files import MOST_TABLE, append, as_path, read_bytes, reading, replace_file

NAME = "changes.bin"
MOST_FEATURES = 1000


class Thinning(NamedTuple):
    """A thinning, which removed all but the last change of each cell in each span of generations.

    Attributes:
        generations: Number of completed generations at the time of the thinning.
        width: Length of a span in generations.
    """

    generations: int
    width: int


def load_changes(folder: str | Path) -> Changes:
    """Read the changes of a run's archive, even while the run is in progress."""
    return read_changes(folder)[0]


def read_changes(folder: str | Path) -> tuple[Changes, Thinning | None]:
    """Read the changes of a run's archive, and the last thinning of the file (or None)."""
    file = as_path(folder, "folder") / NAME
    with reading(file):
        head, _, data = read_bytes(file, MOST_TABLE).partition(b"\n")
        about = json.loads(head[:1000])
        check_version(int(about["format_version"]), file)
        k = int(about["features"])
        if not 1 <= k <= MOST_FEATURES:
            raise ValueError(f"it has {k} features")
        kind = _kind(k)
        rows = np.frombuffer(data, kind, count=len(data) // kind.itemsize)
        found = Changes(*(rows[name].copy() for name in Changes._fields))
        fitness = np.where(found.fitness == -np.inf, 0, found.fitness)  # -inf: the cell became empty
        sane = np.abs(np.column_stack([fitness, found.feature])) < LIMIT
        ordered = (np.diff(found.generation, prepend=0) >= 0).all() and (found.cell >= 0).all()
        if not (sane.all() and ordered):
            raise ValueError("its rows are invalid or not sorted by generation")
        spans = about.get("thinned")
        thinning = None if spans is None else Thinning(*map(int, spans))
        if thinning is not None and not all(0 < number < 2**31 for number in thinning):
            raise ValueError(f"its thinning is invalid: {spans}")
        return found, thinning


def save_changes(folder: Path, rows: Changes, thinning: Thinning | None = None) -> int:
    """Write a new file with the given rows, and return its size in bytes."""
    about = {"format_version": FORMAT_VERSION, "features": rows.feature.shape[1]}
    more = {} if thinning is None else {"thinned": [*thinning]}
    data = json.dumps(about | more).encode() + b"\n" + _bytes(rows)
    replace_file(folder / NAME, lambda file: file.write(data))
    return len(data)


def append_changes(folder: Path, rows: Changes, at: int) -> int:
    """Keep the first `at` bytes of the file, write rows after them, and return the new file size."""
    data = _bytes(rows)
    append(folder / NAME, data, at)
    return at + len(data)


def _kind(k: int) -> np.dtype[Any]:
    return np.dtype(
        [*((name, "<i4") for name in Changes._fields[:3]), ("fitness", "<f4"), ("feature", "<f4", (k,))]
    )


def _bytes(rows: Changes) -> bytes:
    table = np.zeros(len(rows.cell), _kind(rows.feature.shape[1]))
    for name, column in rows._asdict().items():
        table[name] = column
    return table.tobytes()


# -------------------------------------------------------------------------------------- pure functions


def no_changes(k: int) -> Changes:
    """Return an empty table of changes for an archive with k features."""
    blank = np.zeros(0, np.int32)
    return Changes(blank, blank, blank, np.zeros(0, np.float32), np.zeros((0, k), np.float32))


def within(rows: Changes, cells: int) -> Changes:
    """Select the rows whose cell number is less than `cells`.

    The given columns may have shape [n] or [G, R]. The columns of the result have shape [m], where m is
    the number of selected rows.
    """
    return select(rows, np.asarray(rows.cell) < cells)


def unrecorded(archive: Archive, last: np.ndarray) -> Changes:
    """Return the changes that are in an archive, but not yet in the file.

    A change is missing if the elite of a cell is newer than the last recorded change of the cell.
    `last[c]` is the generation of the last recorded change of cell c.
    """
    cell = np.flatnonzero(np.asarray(archive.generation) > last)
    columns = {
        name: np.asarray(getattr(archive, name))[cell] for name in Changes._fields if name != "cell"
    }
    return Changes(cell=cell, **columns)


def joined(*parts: Changes) -> Changes:
    """Join changes, sorted by generation and cell."""
    every = Changes(*map(np.concatenate, zip(*parts, strict=True)))
    return select(every, np.lexsort((every.cell, every.generation)))


def select(rows: Changes, which: Any) -> Changes:
    """Select rows by index, by mask or by slice."""
    return Changes(*(np.asarray(column)[which] for column in rows))


def up_to_generation(rows: Changes, generations: int) -> Changes:
    """Select the changes of the first `generations` generations."""
    return select(rows, slice(np.searchsorted(rows.generation, generations)))


def last_per_cell(rows: Changes, generations: int) -> Changes:
    """Select the last change of each occupied cell in the first `generations` generations."""
    last = thinned(up_to_generation(rows, generations), width=generations + 1)
    return select(last, last.fitness > -np.inf)


def first_per_generation(rows: Changes, most: int, since: int) -> Changes:
    """From generation `since` on, keep only the first `most` rows of each generation."""
    start = np.searchsorted(rows.generation, rows.generation)
    return select(rows, (rows.generation < since) | (np.arange(len(start)) - start < most))


def thinned(rows: Changes, width: int) -> Changes:
    """Keep the last change of each cell in each span of `width` generations."""
    span = rows.generation.astype(np.int64) // width
    key = rows.cell * (span.max(initial=0) + 1) + span
    kept = len(key) - 1 - np.unique(key[::-1], return_index=True)[1]
    return select(rows, np.sort(kept))


def width_for(rows: Changes, most: int) -> int:
    """Return the smallest width, a power of two, for which `thinned` keeps at most `most` rows.

    If no width is sufficient, return a width for which only one row per cell is kept.
    """
    width = 1
    while len(rows.cell) > most and width <= rows.generation[-1]:
        width *= 2
        rows = thinned(rows, width)
    return width
