"""The tables and arrays of a run, and sentences about nonsense in its evaluations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from memes.archive import Fault
from memes.runner.observers.base import Moment, Stage, Watch
from memes.store import folder as folders
from memes.store.folder import Run

WORDS = {Fault.NAN: "not a number", Fault.INFINITE: "infinite", Fault.ABSURD: "of absurd size"}


@dataclass(frozen=True)
class Log:
    """Writes `metrics.csv`, `lanes.npz` and `archive.npz` of a run that has a folder."""

    prefix: ClassVar[str] = "log"

    def watch(self, stage: Stage) -> Watch:
        """Follow a run."""
        folder, task = stage.folder, stage.algorithm.task

        def begin(run: Run) -> None:
            if folder is not None:
                folders.save_metrics(folder, run.metrics)

        def see(moment: Moment) -> None:
            if folder is not None:
                folders.append_metrics(folder, moment.rows)
            for fault in Fault:
                counts = moment.run.metrics[f"faults_{fault.name.lower()}"]
                if counts[-1] and (len(counts) == moment.new or not counts[-moment.new - 1]):
                    stage.say(
                        f"{int(counts[-1])} evaluations so far are {WORDS[fault]}: such rows are left "
                        "out and counted"
                    )

        def finish(run: Run) -> None:
            if folder is not None:
                folders.save_lanes(folder / "lanes.npz", run.lanes)
                folders.save_archive(
                    folder / "archive.npz", run.archive, task=task.name, min_fitness=task.min_fitness
                )

        return Watch(begin=begin, see=see, finish=finish)
