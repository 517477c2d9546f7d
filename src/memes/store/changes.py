"""`changes.bin`: a row for each change of a cell of the archive, without the genotype.

The first line is a table of JSON; then come rows of equal size, in the order of generations and, within
one, of cells. A crash can leave a part of a row at the end, which does not count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memes.archive import LIMIT, Archive, Changes
from memes.store.archives import FORMAT_VERSION, check_version
from memes.store.files import MOST_TABLE, append, as_path, intact, read_bytes, replace_file

NAME = "changes.bin"
MOST_FEATURES = 1000


class Thinning(NamedTuple):
    """After how many generations changes were thinned out, and to spans of how many generations."""

    generations: int
    width: int


def load_changes(folder: str | Path) -> Changes:
    """Read the changes of a run's archive, also while it goes on."""
    return read_changes(folder)[0]


def read_changes(folder: str | Path) -> tuple[Changes, Thinning | None]:
    """Read the changes of a run's archive, and when they were last thinned out, if they were."""
    file = as_path(folder, "folder") / NAME
    with intact(file):
        head, _, data = read_bytes(file, MOST_TABLE).partition(b"\n")
        about = json.loads(head[:1000])
        check_version(int(about["format_version"]), file)
        k = int(about["features"])
        if not 1 <= k <= MOST_FEATURES:
            raise ValueError(f"it has {k} features")
        kind = _kind(k)
        rows = np.frombuffer(data, kind, count=len(data) // kind.itemsize)
        found = Changes(*(rows[name].copy() for name in Changes._fields))
        sane = np.abs(np.column_stack([found.fitness, found.feature])) < LIMIT
        ordered = (np.diff(found.generation, prepend=0) >= 0).all() and (found.cell >= 0).all()
        if not (sane.all() and ordered):
            raise ValueError("its rows are not changes in the order of generations")
        spans = about.get("thinned")
        thinning = None if spans is None else Thinning(*map(int, spans))
        if thinning is not None and not all(0 < number < 2**31 for number in thinning):
            raise ValueError(f"it was thinned out to {spans}")
        return found, thinning


def save_changes(folder: Path, rows: Changes, thinning: Thinning | None = None) -> int:
    """Write the file anew with these rows; returns its size in bytes."""
    about = {"format_version": FORMAT_VERSION, "features": rows.feature.shape[1]}
    more = {} if thinning is None else {"thinned": [*thinning]}
    data = json.dumps(about | more).encode() + b"\n" + _bytes(rows)
    replace_file(folder / NAME, lambda file: file.write(data))
    return len(data)


def append_changes(folder: Path, rows: Changes, at: int) -> int:
    """Write rows in place of what follows the first `at` bytes of the file; returns its size."""
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


def nothing(k: int) -> Changes:
    """No changes, of an archive of k features."""
    blank = np.zeros(0, np.int32)
    return Changes(blank, blank, blank, np.zeros(0, np.float32), np.zeros((0, k), np.float32))


def within(rows: Changes, cells: int) -> Changes:
    """Select the rows, [n] or [G, R], that are of one of so many cells: [m]."""
    return select(rows, np.asarray(rows.cell) < cells)


def unrecorded(archive: Archive, last: np.ndarray) -> Changes:
    """List the elites of an archive that are newer than the `last[c]` known change of their cell."""
    cell = np.flatnonzero(np.asarray(archive.generation) > last)
    columns = {
        name: np.asarray(getattr(archive, name))[cell] for name in Changes._fields if name != "cell"
    }
    return Changes(cell=cell, **columns)


def joined(*parts: Changes) -> Changes:
    """Put changes together, in their order."""
    every = Changes(*map(np.concatenate, zip(*parts, strict=True)))
    return select(every, np.lexsort((every.cell, every.generation)))


def select(rows: Changes, which: Any) -> Changes:
    """Take some of the rows: by index, by mask or by slice."""
    return Changes(*(np.asarray(column)[which] for column in rows))


def until(rows: Changes, generations: int) -> Changes:
    """Take the changes of the first so many generations."""
    return select(rows, slice(np.searchsorted(rows.generation, generations)))


def standing(rows: Changes, generations: int) -> Changes:
    """Take the last change of each cell in the first so many generations: the archive after them."""
    return thinned(until(rows, generations), width=generations + 1)


def first_of_each(rows: Changes, most: int, since: int) -> Changes:
    """Leave at most so many rows, the first ones, of each generation from `since` on."""
    start = np.searchsorted(rows.generation, rows.generation)
    return select(rows, (rows.generation < since) | (np.arange(len(start)) - start < most))


def thinned(rows: Changes, width: int) -> Changes:
    """Keep the last change of each cell in each span of so many generations."""
    span = rows.generation.astype(np.int64) // width
    key = rows.cell * (span.max(initial=0) + 1) + span
    kept = len(key) - 1 - np.unique(key[::-1], return_index=True)[1]
    return select(rows, np.sort(kept))


def width_for(rows: Changes, most: int) -> int:
    """Find the least power of two for which at most so many rows are left when they are thinned out.

    It is that for which each cell keeps only one row, if there are still more.
    """
    width = 1
    while len(rows.cell) > most and width <= rows.generation[-1]:
        width *= 2
        rows = thinned(rows, width)
    return width
