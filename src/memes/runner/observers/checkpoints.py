"""Checkpoints of a run, written in the background."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from memes.errors import at_least
from memes.hints import check_fields
from memes.runner.observers.base import Moment, Stage, Watch
from memes.store.checkpoint import save
from memes.store.folder import Run


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Writes checkpoints, from which `memes resume` goes on, while the run goes on.

    Attributes:
        every: Generations between checkpoints; 0 makes none. None makes one after each call of the
            device, unless the one before is still being written.
    """

    every: int | None = None
    prefix: ClassVar[str] = "checkpoint"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(0, checkpoint_every=self.every or 0)

    def watch(self, stage: Stage) -> Watch:
        """Follow a run."""
        if stage.folder is None or self.every == 0:
            return Watch()
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        stage.closing(thread.shutdown)
        pending: list[Future[None]] = []  # at most one
        saved = -1

        def start(run: Run) -> None:
            nonlocal saved
            wait()
            saved = run.generations
            pending.append(thread.submit(save, run))

        def wait() -> None:
            if pending:
                pending.pop().result()  # raises what went wrong

        def due(generation: int) -> bool:
            return bool(self.every) and generation % (self.every or 1) == 0

        def see(moment: Moment) -> None:
            idle = not pending or pending[0].done()
            if due(moment.run.generations) or (self.every is None and idle):
                start(moment.run)

        def finish(run: Run) -> Run:
            if run.generations != saved:
                start(run)
            wait()
            return run

        return Watch(due=due, see=see, finish=finish)
