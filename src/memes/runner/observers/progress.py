"""The progress of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memes.runner.observers.base import Moment, Stage, Watch
from memes.runner.progress import Standing
from memes.store.folder import Run


@dataclass(frozen=True)
class Progress:
    """Shows where a run stands, and when it will be over."""

    prefix: ClassVar[str] = "progress"

    def watch(self, stage: Stage) -> Watch:
        """Follow a run."""

        def see(moment: Moment) -> None:
            stage.report.update(stage.config["seed"], standing(moment.run))

        return Watch(see=see)


def standing(run: Run) -> Standing:
    """Where a run stands after its last generation."""
    if not run.generations:
        return Standing(0, 0.0, 0.0, 0)
    names = ("generation", "qd_score", "coverage", "evaluations")
    generation, qd_score, coverage, evaluations = (run.metrics[name][-1] for name in names)
    return Standing(int(generation), float(qd_score), float(coverage), int(evaluations))
