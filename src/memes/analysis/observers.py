"""Observers that sum up and draw a run when it is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memes.runner.observers import Stage, Watch


@dataclass(frozen=True)
class Summaries:
    """Writes `summary.json` of a run that has a folder."""

    prefix: ClassVar[str] = "summaries"

    def watch(self, stage: Stage) -> Watch:
        """Follow a run."""
        return Watch()


@dataclass(frozen=True)
class Figures:
    """Draws the figures of a run that has a folder.

    Attributes:
        draw: Whether to.
    """

    draw: bool = True
    prefix: ClassVar[str] = "figures"

    def watch(self, stage: Stage) -> Watch:
        """Follow a run."""
        return Watch()
