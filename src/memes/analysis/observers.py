"""Observers that sum up and draw a run when it is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memes.hints import check_fields
from memes.runner.observers import Stage, Watch
from memes.store.folder import Run
from memes.store.summary import write_summary


@dataclass(frozen=True)
class Summaries:
    """Writes `summary.json` into the folder of a run, for `memes compare`."""

    prefix: ClassVar[str] = "summaries"

    def watch(self, stage: Stage) -> Watch:
        """Follow a run."""
        return Watch(finish=write_summary)


@dataclass(frozen=True)
class Figures:
    """Draws a run into `figures/` of its folder.

    Attributes:
        draw: Draw figures when the run is over, which takes a second or two.
    """

    draw: bool = True
    prefix: ClassVar[str] = "figures"

    def __post_init__(self) -> None:
        check_fields(self)

    def watch(self, stage: Stage) -> Watch:
        """Follow a run."""
        if not self.draw or stage.folder is None:
            return Watch()

        def finish(run: Run) -> None:
            from memes.analysis.figures import save_figures  # matplotlib is slow to import

            save_figures(run)

        return Watch(finish=finish)
