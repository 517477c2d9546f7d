"""Display of progress: as a bar in terminals and notebooks, and as lines of text elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from html import escape
from importlib import import_module
from math import fsum, inf
from statistics import fmean
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memes.executors.remote_evaluation import RemoteEvaluator
from memes.store.sanitize import printable
from memes.task import Task

SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_UPDATES = 2.0, 0.2


class Terminal(Console):
    """A console that raises an exception, instead of ending the program, if its output is closed."""

    def on_broken_pipe(self) -> None:
        """Raise a `BrokenPipeError`."""
        raise BrokenPipeError


class ProgressPoint(NamedTuple):
    """The progress of a run, given by the latest values of some metrics."""

    generation: int = 0
    qd_score: float = 0.0
    coverage: float = 0.0
    evaluations: int = 0
    seconds: float = 0.0


class Reporter:
    """Display of the progress of several runs at once. If `show` is False, nothing is displayed."""

    def __init__(self, *, show: bool, console: Console | None = None) -> None:
        self._console = console or Terminal(stderr=True)
        self._console.quiet = not show
        self._bars = Progress(
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not (show and self._console.is_terminal),
        )
        self._shown = ExitStack()  # closes the progress bar of the generations
        self._show: Callable[..., None] = lambda *shown: None
        self._last_line = -inf
        self._generations = 0
        self._first: dict[int, ProgressPoint] = {}
        self._now: dict[int, ProgressPoint] = {}
        self._ended: set[int] = set()
        self._workers: RemoteEvaluator | None = None

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._bars.live.is_started:
            self._bars.stop()

    def say(self, sentence: str) -> None:
        """Print one line."""
        # The text may quote an exception of a simulator, so the console must not interpret it.
        plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "soft_wrap": True}
        try:
            self._console.print(printable(sentence), **plain)
        except OSError:  # the run continues without output
            self._console.quiet = True

    def begin(self, generations: int, points: dict[int, ProgressPoint]) -> None:
        """Start the display for runs of `generations` generations, given the progress of each seed."""
        self._generations, self._first, self._now = generations, points, dict(points)
        done = min(point.generation for point in points.values())
        self._shown.close()
        self._show = self._shown.enter_context(self.counting("generation", generations, done))

    def show_workers(self, task: Task) -> None:
        """If workers evaluate the task, describe the workers, now and in all later progress lines."""
        for each in filter(None, (task, task.single)):  # `single` of a resampled task has the workers
            if isinstance(each.evaluate, RemoteEvaluator):
                self._workers = each.evaluate
                self.say(f"evaluating on {self._workers}, in blocks of {self._workers.block}")

    def end(self, seed: int) -> None:
        """Stop waiting for the progress of a seed whose run was stopped."""
        self._ended.add(seed)

    def update(self, seed: int, point: ProgressPoint) -> None:
        """Store the progress of a seed. Update the display if no other running seed is behind."""
        self._now[seed] = point
        done, going = point.generation, self._now.keys() - self._ended
        if any(self._now[other].generation < done for other in going):
            return
        stands, before = self._now.values(), self._first.values()
        # `seconds` contains only the time spent on generations.
        seconds = max(fsum(s.seconds for s in stands) - fsum(s.seconds for s in before), 1e-9)
        evaluations = sum(s.evaluations for s in stands) - sum(s.evaluations for s in before)
        figures = (
            f"QD-score {fmean(s.qd_score for s in stands):,.1f}  "
            f"coverage {fmean(s.coverage for s in stands):.1%}  "
            f"{_short(evaluations / seconds)} evaluations/s"
        )
        if self._workers is not None:
            figures += f"  {self._workers}"
        pace = seconds / (done - self._first[seed].generation)
        self._show(done, figures, pace * (self._generations - done))

    @contextmanager
    def counting(self, what: str, total: int, before: int = 0) -> Iterator[Callable[..., None]]:
        """Show how many of `total` items are completed, in a progress bar or in lines of text.

        The yielded function `(done, figures="", left=None)` updates the display with the number of
        completed items, additional text, and the remaining seconds. If `left` is None, the remaining
        time is estimated from the elapsed time.
        """
        self._bars.start()
        bar = self._bars.add_task(what, total=total, completed=before, figures="")
        start = time.perf_counter()
        in_notebook = self._console.is_jupyter and not self._console.quiet
        write = _notebook_bar(total) if in_notebook else lambda done, text: self.say(text)
        pause = SECONDS_BETWEEN_UPDATES if in_notebook else SECONDS_BETWEEN_LINES

        def show(done: int, figures: str = "", left: float | None = None) -> None:
            self._bars.update(bar, completed=done, figures=figures)
            now, over = time.perf_counter(), done == total
            if self._bars.disable and (over or now - self._last_line >= pause):
                self._last_line = now
                left = (now - start) / max(done, 1) * (total - done) if left is None else left
                parts = (f"{what} {done}/{total}", figures, f"ETA {duration(left)}")
                write(done, "  ".join(filter(None, parts)))

        try:
            yield show
        finally:
            self._bars.remove_task(bar)


def _notebook_bar(total: int) -> Callable[[int, str], None]:
    """Show a progress bar in a notebook, and return a function that updates it.

    The arguments of the function are the number of completed items and a text.
    """
    notebook: Any = import_module("IPython.display")

    def shown(done: int, text: str) -> Any:
        bar = f'<progress value="{done}" max="{total}"></progress>'
        return notebook.HTML(f"{bar} <code>{escape(text)}</code>")

    handle = notebook.display(shown(0, ""), display_id=True)
    return lambda done, text: handle.update(shown(done, text))


def duration(seconds: float) -> str:
    """Format a time: '0.4 s', '42 s', '3 min 20 s' or '1 h 05 min'."""
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
