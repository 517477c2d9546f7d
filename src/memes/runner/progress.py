"""What a run shows while it runs: a bar on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from types import TracebackType

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


class Reporter:
    """Reports the state of a run to a console; `show=False` makes it silent."""

    def __init__(self, generations: int = 0, *, show: bool, console: Console | None = None) -> None:
        self._generations = generations
        self._show = show
        self._console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._last_line = -math.inf
        self._start = time.perf_counter()
        self._before = (0, 0)

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

    def say(self, sentence: str) -> None:
        """Print one line."""
        if self._show:
            # Nothing in it is a command to the console: it may quote what a simulator raised.
            self._console.print(sentence, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def begin(self, generation: int = 0, evaluations: int = 0) -> None:
        """The first generation starts now, after those of a run that is resumed."""
        self._start = time.perf_counter()
        self._before = (generation, evaluations)
        if self._show and self._console.is_terminal:
            self._task = self._bars().add_task(
                "generation", total=self._generations, completed=generation, figures=""
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
                self.say(f"{what} {done}/{total}  ETA {left:.0f} s")

        if self._show and self._console.is_terminal:
            bars = self._bars()
            task = bars.add_task(what, total=total, figures="")
            yield lambda done: bars.update(task, completed=done)
            bars.remove_task(task)
        else:
            yield line

    def leave_out(self, seconds: float) -> None:
        """So much of the time so far says nothing of the generations' pace."""
        self._start += seconds

    def update(self, generation: int, qd_score: float, coverage: float, evaluations: int) -> None:
        """Show where the run stands after `generation` generations."""
        if not self._show:
            return
        now = time.perf_counter()
        elapsed = max(now - self._start, 1e-9)
        before, evaluated = self._before
        figures = (
            f"QD-score {qd_score:,.1f}  coverage {coverage:.1%}  "
            f"{_short((evaluations - evaluated) / elapsed)} evaluations/s"
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=generation, figures=figures)
        elif generation == self._generations or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            left = elapsed / (generation - before) * (self._generations - generation)
            self.say(f"generation {generation}/{self._generations}  {figures}  ETA {left:.0f} s")


class Member:
    """One of several runs that go side by side: what it says is passed on, where it stands is kept."""

    def __init__(self, report: Reporter, name: str) -> None:
        self._report = report
        self._name = name
        self.stands: tuple[int, float, float, int] = (0, 0.0, 0.0, 0)

    def say(self, sentence: str) -> None:
        """Print one line that begins with the run's name."""
        self._report.say(f"{self._name}: {sentence}")

    def leave_out(self, seconds: float) -> None:
        """Nothing: the time is not this run's alone."""

    def update(self, generation: int, qd_score: float, coverage: float, evaluations: int) -> None:
        """Keep where the run stands."""
        self.stands = (generation, qd_score, coverage, evaluations)


def update_together(report: Reporter, members: Sequence[Member]) -> None:
    """Show where runs stand that go side by side: means of their scores, all of their evaluations."""
    generation, qd_score, coverage, evaluations = zip(*(m.stands for m in members), strict=True)
    report.update(generation[0], fmean(qd_score), fmean(coverage), sum(evaluations))


def _short(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
