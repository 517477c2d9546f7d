"""Observers: all that a run does besides advancing.

An observer is a frozen dataclass with its settings and a method `watch`. It is asked once for each run:

    @dataclass(frozen=True)
    class Stagnation:
        patience: int = 50

        def watch(self, stage: Stage) -> Watch:
            def due(generation: int) -> bool:
                return generation % 10 == 0

            def see(moment: Moment) -> None:
                coverage = moment.run.metrics["coverage"]
                if due(len(coverage)) and coverage[-1] in coverage[: -self.patience]:
                    stage.stop(f"coverage has not grown for {self.patience} generations")

            return Watch(due=due, see=see)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from memes.algorithm import Algorithm
from memes.runner.progress import Reporter
from memes.store.folder import Run


class Moment(NamedTuple):
    """A run after a call of the device: all of it so far, and how many of its generations are new."""

    run: Run
    new: int

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """The rows of `metrics.csv` that are new, by column."""
        return {name: column[-self.new :] for name, column in self.run.metrics.items()}


class Watch(NamedTuple):
    """The functions through which an observer follows one run.

    Those that return a run may change it; None leaves it as it is.

    Attributes:
        begin: `(run) -> run`, before the first generation, or the first one of a resumed run.
        due: `(generation) -> bool`: must a call of the device end after so many generations? Calls are
            sized by time: only there does every run of a seed have a moment.
        see: `(moment) -> run`, after each call of the device.
        finish: `(run) -> run`, after the last generation, also if the run was stopped.
    """

    begin: Callable[[Run], Run | None] = lambda run: None
    due: Callable[[int], bool] = lambda generation: False
    see: Callable[[Moment], Run | None] = lambda moment: None
    finish: Callable[[Run], Run | None] = lambda run: None


@dataclass(frozen=True)
class Stage:
    """One run, as its observers find it.

    Attributes:
        algorithm: As it is run here; it knows its task.
        config: What `config.json` says of the run when it starts.
        folder: Where the run is saved; None if it is only in memory.
        report: Where progress is shown.
        say: Prints a line, which names the run where there are several.
        stop: `(reason)`: ends the run after the moment that is being seen.
        interrupted: Whether somebody wants whatever goes on to end soon.
        once: `(key, make) -> object`: what observers of runs side by side have in common, made once.
        closing: Takes a function to be called when the run is over, however it ends.
    """

    algorithm: Algorithm
    config: dict[str, Any]
    folder: Path | None
    report: Reporter
    say: Callable[[str], None]
    stop: Callable[[str], None]
    interrupted: Callable[[], bool]
    once: Callable[[Hashable, Callable[[], Any]], Any]
    closing: Callable[[Callable[[], object]], object]


class Observer(Protocol):
    """Whatever can watch a run."""

    def watch(self, stage: Stage) -> Watch:
        """Begin to follow a run."""
        ...
