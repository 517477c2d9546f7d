"""A way out to trackers of experiments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memes.runner.observers.base import Moment, Stage, Watch


@dataclass(frozen=True)
class Track:
    """Hands each generation's row of `metrics.csv` to a function, as `wandb.log` takes it.

    Attributes:
        log: `(row)`, numbers by the name of their column.
    """

    log: Callable[[dict[str, float]], object]

    def watch(self, stage: Stage) -> Watch:
        """Follow a run."""

        def see(moment: Moment) -> None:
            rows = moment.rows
            for values in zip(*rows.values(), strict=True):
                self.log(dict(zip(rows, map(float, values), strict=True)))

        return Watch(see=see)
