"""Observers that summarise a run and draw its figures when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from memes.runner.observers import Callbacks, RunContext
from memes.store.files import replace_file
from memes.store.folder import Run, check_links
from memes.store.summary import write_summary
from memes.validation import check_fields


@dataclass(frozen=True)
class Summaries:
    """An observer that writes `summary.json` into the folder of a run, for `memes compare`."""

    prefix: ClassVar[str] = "summaries"

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""
        return Callbacks(on_end=write_summary)


@dataclass(frozen=True)
class Figures:
    """An observer that writes the figures of a run into the subfolder `figures` of the run folder.

    Attributes:
        draw: Whether to draw figures at the end of the run. Drawing takes one or two seconds.
    """

    draw: bool = True
    prefix: ClassVar[str] = "figures"

    def __post_init__(self) -> None:
        check_fields(self)

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""

        def on_end(run: Run) -> None:
            save_figures(run)

        return Callbacks(on_end=on_end) if self.draw else Callbacks()


def save_figures(run: Run) -> list[Path]:
    """Write the figures of a run into the subfolder `figures`, and return the files."""
    if run.folder is None:
        return []
    from memes.analysis import plot  # matplotlib is slow to import

    drawn = [plot.archive, plot.curves]
    if run.config.map is not None:
        drawn.append(plot.positions)
    check_links(run.folder)
    folder = run.folder / "figures"
    folder.mkdir(exist_ok=True)
    files = [folder / f"{draw.__name__}.png" for draw in drawn]
    for draw, file in zip(drawn, files, strict=True):
        replace_file(file, partial(draw(run).savefig, format="png", dpi=150))
    return files
