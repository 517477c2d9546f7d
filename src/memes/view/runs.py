"""The runs that a page shows, including runs that have not begun yet."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from memes.errors import UsageError
from memes.store.find import find
from memes.store.folder import holds_run
from memes.view.follow import Follower

# The page searches for new runs every `SEARCH` seconds. Each poll spends at most `SHARE` seconds on
# reading the runs that are not shown.
SEARCH = 1.0
SHARE = 0.05


def found_in(word: str | Path) -> list[Path]:
    """List the run folders that match a path or pattern, or return [] if there are none yet."""
    try:
        return [path for path in find([word]) if holds_run(path)]
    except (UsageError, OSError):
        return []


class Runs:
    """The runs that a page shows. Runs that begin later are added.

    Args:
        words: Run folders, folders that contain runs, or patterns such as `runs/arm-*`. If a folder
            contains no run, a run is expected to begin there.
    """

    def __init__(self, words: Sequence[str | Path]) -> None:
        self._words = words
        self._all: dict[Path, Follower] = {}
        self._known: list[Follower] = []  # runs at the last poll
        self._next, self._searched = 0, -math.inf

    def __iter__(self) -> Iterator[Follower]:
        return iter(self._all.values())

    def poll(self, chosen: Follower | None = None, strict: bool = False) -> bool:
        """Read the folders, and return True if anything has changed.

        Args:
            chosen: The run that the page shows; by default, the first run. All its files are read.
            strict: Whether to raise an error if a file of the chosen run cannot be read.
        """
        if time.monotonic() - self._searched > SEARCH:
            self._search()
        every = [*self]
        chosen = chosen or every[0]
        before = [each.latest for each in every]
        chosen.poll(strict)
        # If there are many other runs, each call reads only a few of them in turn.
        end = time.monotonic() + SHARE
        for _ in every:
            if time.monotonic() > end:
                break
            self._next = (self._next + 1) % len(every)
            if every[self._next] is not chosen:
                every[self._next].poll(whole=False)
        known, self._known = self._known, every
        return known != every or any(a is not b.latest for a, b in zip(before, every, strict=True))

    def _search(self) -> None:
        """Look for runs that have begun since the last search."""
        for word in self._words:
            found = found_in(word)
            if not found:
                self._all.setdefault(Path(word), Follower(Path(word)))
                continue
            waiting = self._all.get(Path(word))
            if waiting is not None and Path(word) not in found and waiting.latest.header is None:
                del self._all[Path(word)]  # its subfolders contain the runs
            for folder in found:
                self._all.setdefault(folder, Follower(folder))
        self._searched = time.monotonic()

    def named(self) -> dict[str, Follower]:
        """Return the runs by unique names."""
        return {f"{i}: {each.name}": each for i, each in enumerate(self, 1)}
