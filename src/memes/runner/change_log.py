"""The observer that records the changes of the archive.

In each generation, the device records the `MOST_CHANGES` changed cells with the lowest numbers. If more
cells change, the observer finds the remaining changes in the archive after certain generations, called
marks. Each of the first eight generations is a mark. Later, there are four marks per doubling of the
number of generations, until marks are `LONGEST` generations apart. The marks are fixed. Therefore,
neither interruptions nor the division of a run into device calls affect the recorded changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memes.archive import Changes
from memes.errors import UsageError, at_least
from memes.runner.device import MOST_CHANGES
from memes.runner.observers import Callbacks, RunContext, Update
from memes.store import changes as store
from memes.store.folder import Run
from memes.validation import check_fields

LONGEST = 256  # generations between two marks


def mark_before(generations: int) -> int:
    """Return the last mark that is not later than `generations`."""
    return generations - generations % min(LONGEST, 1 << max(0, generations.bit_length() - 3))


def marks(before: int, now: int) -> Iterator[int]:
    """Yield the marks in (before, now] in ascending order."""
    found = []
    while now > before and (now := mark_before(now)) > before:
        found.append(now)
        now -= 1
    yield from reversed(found)


@dataclass(frozen=True, kw_only=True)
class ChangeLog:
    """Write `changes.bin`, which records the changes of each cell.

    Each change has a generation, a cell, a lane, a fitness and a feature. Up to 128 changes are recorded
    in every generation. If more cells change, the last change of each of the remaining cells is recorded
    at certain generations: 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, ..., and every 256 generations
    from 1024 on.

    Attributes:
        rows: Maximum number of recorded changes. A value below twice the number of cells is raised to
            twice the number of cells. If there are more changes, only the last change of each cell in
            every 2, 4, 8, ... generations is kept. 0 disables the log.
    """

    rows: int = 2**20
    prefix: ClassVar[str] = "changes"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(0, changes_rows=self.rows)

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""
        folder, cells = context.folder, context.algorithm.cells
        if folder is None or self.rows == 0:
            return Callbacks()
        most = max(self.rows, 2 * cells.count)
        # `last` contains the generation of the last change of each cell. `written` is the length of the
        # file in changes, and `size` is its length in bytes. `thinning` describes the last thinning.
        last = np.full(cells.count, -1)
        written = size = 0
        thinning: store.Thinning | None = None
        # `wide` is True if more cells can change in a generation than the device records. `pending` is
        # True if there may be unrecorded changes since the last mark.
        wide = True
        pending = False

        def rewrite(rows: Changes) -> None:
            nonlocal written, size
            written, size = len(rows.cell), store.save_changes(folder, rows, thinning)

        def known() -> Changes:
            try:
                return store.load_changes(folder)
            except UsageError:  # the file was changed by another program
                return store.no_changes(len(cells.low))

        def complete(rows: Changes, run: Run) -> Changes:
            nonlocal pending
            pending = False
            last[rows.cell] = rows.generation
            rest = store.unrecorded(run.archive, last)
            last[rest.cell] = rest.generation
            return store.joined(rows, rest) if len(rest.cell) else rows

        def on_start(run: Run) -> None:
            nonlocal thinning, pending
            k, done = len(cells.low), run.generations
            try:
                found, thinning = store.read_changes(folder)
            except UsageError:
                found = None
            if found is None or found.feature.shape[1] != k:
                thinning = None  # the archive still contains the last change of each cell
                rewrite(complete(store.no_changes(k), run))
                return
            if thinning is not None and thinning.generations > run.config.generations:
                thinning = None
            rows = store.up_to_generation(store.within(found, cells.count), done)
            # A run that stops between two marks records some changes too early. Remove these changes
            # here.
            rows = store.first_per_generation(rows, MOST_CHANGES, since=mark_before(done))
            last[rows.cell] = rows.generation
            pending = True
            rewrite(rows)

        def due(generation: int) -> bool:
            return wide and mark_before(generation) == generation

        def on_update(update: Update) -> None:
            nonlocal wide, pending, written, size
            cell, done = update.changes.cell, update.run.generations
            wide = cell.shape[-1] >= MOST_CHANGES
            pending |= bool((cell[:, MOST_CHANGES - 1 :] < cells.count).any())
            new = store.within(update.changes, cells.count)
            last[new.cell] = new.generation
            for mark in marks(done - update.new, done):
                append(store.up_to_generation(new, mark))
                new = store.select(new, new.generation >= mark)
                if pending and mark == done:
                    rewrite(complete(known(), update.run))
                thin(mark)
            append(new)

        def append(rows: Changes) -> None:
            nonlocal written, size
            if len(rows.cell):
                written, size = written + len(rows.cell), store.append_changes(folder, rows, size)

        def thin(mark: int) -> None:
            """Thin out the file if it is too long.

            If a resumed run reaches the generation of the last recorded thinning again, it repeats this
            thinning.
            """
            nonlocal thinning
            planned = thinning if thinning is not None and thinning.generations >= mark else None
            if planned is None and written > most:
                thinning = store.Thinning(mark, store.width_for(known(), most // 2))
            elif planned is None or planned.generations > mark:
                return
            assert thinning is not None
            rewrite(store.thinned(known(), thinning.width))

        def on_end(run: Run) -> None:
            if pending:
                rewrite(complete(known(), run))

        return Callbacks(on_start=on_start, due=due, on_update=on_update, on_end=on_end)
