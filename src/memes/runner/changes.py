"""The observer that writes down every change of the archive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from memes.archive import Changes
from memes.errors import UsageError, at_least
from memes.hints import check_fields
from memes.runner.device import MOST_CHANGES
from memes.runner.observers import Moment, Stage, Watch
from memes.store import changes as store
from memes.store.folder import Run


@dataclass(frozen=True, kw_only=True)
class Chronicle:
    """Writes `changes.bin`: when each cell changed, by which lane, with what fitness and feature.

    Where more than 128 cells change in a generation, those that change again in the same call of the
    device may be left out.

    Attributes:
        rows: How many changes to keep at most, or twice as many as there are cells if that is more; 0
            writes none. Beyond, a cell keeps only its last change in every 2, 4, 8, ... generations.
    """

    rows: int = 2**20
    prefix: ClassVar[str] = "changes"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(0, changes_rows=self.rows)

    def watch(self, stage: Stage) -> Watch:
        """Follow a run."""
        folder, cells = stage.folder, stage.algorithm.cells
        if folder is None or self.rows == 0:
            return Watch()
        most = max(self.rows, 2 * cells.count)
        last = np.full(cells.count, -1)  # the generation of the last change of each cell
        written = size = 0  # rows, and bytes, of the file

        def rewrite(rows: Changes) -> None:
            nonlocal written, size
            written, size = len(rows.cell), store.save_changes(folder, rows)

        def complete(rows: Changes, run: Run) -> Changes:
            last[rows.cell] = rows.generation
            rest = store.unrecorded(run.archive, last)
            last[rest.cell] = rest.generation
            return store.joined(rows, rest)

        def begin(run: Run) -> None:
            k = len(cells.low)
            try:
                found = store.load_changes(folder)
            except UsageError:
                found = store.nothing(k)
            if found.feature.shape[1] != k:
                found = store.nothing(k)
            # Without a file that can be used, the archive still has all that stands.
            before = store.until(store.within(found, cells.count), run.generations)
            rewrite(complete(before, run))

        def see(moment: Moment) -> None:
            nonlocal written, size
            new = store.within(moment.changes, cells.count)
            last[new.cell] = new.generation
            if (moment.changes.cell[:, MOST_CHANGES - 1 :] < cells.count).any():
                new = complete(new, moment.run)
            written, size = written + len(new.cell), store.append_changes(folder, new, size)
            if written > most:
                rewrite(store.thinned(store.load_changes(folder), most // 2))

        return Watch(begin=begin, see=see)
