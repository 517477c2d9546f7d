"""The progress of runs: a bar on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean
from types import TracebackType
from typing import NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

SECONDS_BETWEEN_LINES = 2.0


class Standing(NamedTuple):
    """Where a run stands."""

    generation: int
    qd_score: float
    coverage: float
    evaluations: int


class Reporter:
    """Reports where runs that go side by side stand; `show=False` makes it silent."""

    def __init__(self, *, show: bool, console: Console | None = None) -> None:
        self._show = show
        self._console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._last_line = -math.inf
        self._begin = time.perf_counter()
        self._generations = 0
        self._first: dict[int, Standing] = {}
        self._now: dict[int, Standing] = {}
        self._ended: set[int] = set()

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, sentence: str, end: str = "\n") -> None:
        """Print one line."""
        if self._show:
            # Nothing in it is a command to the console: it may quote what a simulator raised.
            self._console.print(
                sentence, highlight=False, markup=False, emoji=False, soft_wrap=True, end=end
            )

    def begin(self, generations: int, standings: dict[int, Standing]) -> None:
        """Start to show runs of so many generations, by seed, from where each stands."""
        self._begin = time.perf_counter()
        self._generations, self._first, self._now = generations, standings, {}
        if self._show and self._console.is_terminal:
            if self._bar is not None:
                self._bar.remove_task(self._task)
            done = min(standing.generation for standing in standings.values())
            self._task = self._bars().add_task(
                "generation", total=generations, completed=done, figures=""
            )

    def _bars(self) -> Progress:
        """Where bars are drawn, one below the other."""
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.fields[figures]}"),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._bar.start()
        return self._bar

    @contextmanager
    def counting(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show how many of `total` are done, as the yielded function is told: a bar of its own."""
        start = last = time.perf_counter()

        def line(done: int) -> None:
            nonlocal last
            now = time.perf_counter()
            if done == total or now - last >= SECONDS_BETWEEN_LINES:
                last = now
                left = (now - start) / max(done, 1) * (total - done)
                self.say(f"{what} {done}/{total}  ETA {duration(left)}")

        if self._show and self._console.is_terminal:
            bars = self._bars()
            task = bars.add_task(what, total=total, figures="")
            yield lambda done: bars.update(task, completed=done)
            bars.remove_task(task)
        else:
            yield line

    def end(self, seed: int) -> None:
        """Wait no longer for the run of a seed: it was stopped."""
        self._ended.add(seed)

    def leave_out(self, seconds: float) -> None:
        """Do not count so much of the time so far: it says nothing of the generations' pace."""
        self._begin += seconds

    def update(self, seed: int, standing: Standing) -> None:
        """Take in where the run of a seed stands; show it once all of them have come as far."""
        self._now[seed] = standing
        now, elapsed = time.perf_counter(), max(time.perf_counter() - self._begin, 1e-9)
        behind = any(
            self._now.get(other, first).generation < standing.generation
            for other, first in self._first.items()
            if other not in self._ended
        )
        if not self._show or behind:
            return
        stands, done = list(self._now.values()), standing.generation
        evaluations = sum(each.evaluations - self._first[s].evaluations for s, each in self._now.items())
        figures = (
            f"QD-score {fmean(each.qd_score for each in stands):,.1f}  "
            f"coverage {fmean(each.coverage for each in stands):.1%}  "
            f"{_short(evaluations / elapsed)} evaluations/s"
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=done, figures=figures)
        elif done == self._generations or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            left = elapsed / (done - self._first[seed].generation) * (self._generations - done)
            line = f"generation {done}/{self._generations}  {figures}  ETA {duration(left)}"
            # In a notebook one line is enough, which the next one writes over.
            last = done == self._generations or not self._console.is_jupyter
            self.say(line, end="\n" if last else "\r")


def duration(seconds: float) -> str:
    """A time in words: '0.4 s', '42 s', '3 min 20 s' or '1 h 05 min'."""
    if not seconds >= 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    hours, left = divmod(minutes, 60)
    return f"{minutes} min {rest:02} s" if hours == 0 else f"{hours} h {left:02} min"


def _short(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
