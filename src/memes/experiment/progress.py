"""What a run shows while it runs: a bar on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

import time
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


class Reporter:
    """Reports the state of a run to a console; `show=False` makes it silent."""

    def __init__(self, generations: int, *, show: bool, console: Console | None = None) -> None:
        self._generations = generations
        self._show = show
        self._console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._last_line = 0.0
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
        self._start = self._last_line = time.perf_counter()
        self._before = (generation, evaluations)
        if self._show and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("generation"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.fields[figures]}"),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._task = self._bar.add_task(
                "run", total=self._generations, completed=generation, figures=""
            )
            self._bar.start()

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
        elif generation == self._generations or now - self._last_line >= 2.0:
            self._last_line = now
            left = elapsed / (generation - before) * (self._generations - generation)
            self.say(f"generation {generation}/{self._generations}  {figures}  ETA {left:.0f} s")


def _short(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
