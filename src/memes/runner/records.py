"""From records of the device to what a `Run` holds of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from memes.algorithm import State
from memes.archive import Fault
from memes.context import Kind
from memes.metrics import Totals, accumulate
from memes.resets import Reason
from memes.runner.device import Record
from memes.store.folder import Run


def new_run(config: dict[str, Any], state: State, **fields: Any) -> Run:
    """A run of which no generation is done."""
    parts: dict[str, Any] = {
        "folder": None,
        "metrics": {},
        "lanes": {},
        "corrected": {},
        "correction": None,
    }
    return Run(config=config, archive=state.archive, state=state, **parts | fields)


def extended(
    run: Run, totals: Totals, state: State, record: Record, seconds: float
) -> tuple[Run, Totals]:
    """Add generations to a run.

    Args:
        run: The run so far.
        totals: Sums over its generations.
        state: That after the new generations.
        record: Of the new generations, [G, ...], on the host.
        seconds: How long they took.
    """
    totals, columns = accumulate(totals, record.measures)
    n, done = len(columns["evaluations"]), run.generations
    before = float(run.metrics["seconds"][-1]) if done else 0.0
    share = np.arange(1, n + 1) / n
    columns = {"generation": done + np.arange(1, n + 1), **columns, "seconds": before + seconds * share}
    lanes: dict[str, Any] = {"generation": columns["generation"], **record.lanes}
    metrics = _joined(run.metrics, columns) if done else columns
    lanes = _joined(run.lanes, lanes) if done else lanes
    return run._replace(metrics=metrics, lanes=lanes, archive=state.archive, state=state), totals


def _joined(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([first[name], second[name]]) for name in first}


def totals_of(run: Run) -> Totals:
    """The sums over the generations of a run, worked out from its metrics and lanes."""
    if not run.generations:
        return Totals.zero()
    metrics, lanes = run.metrics, run.lanes
    ended = (lanes["kind"] == np.arange(len(Kind))[:, None, None]) & (lanes["reset"] != Reason.NONE)

    def last(prefix: str, names: type[Kind] | type[Reason] | type[Fault]) -> np.ndarray:
        columns = (metrics.get(f"{prefix}_{name.name.lower()}", [0])[-1] for name in names)
        return np.array([int(value) for value in columns])

    return Totals(
        samples=np.asarray(metrics["samples"][-1], np.int64),
        candidates=np.asarray(metrics["candidates"][-1], np.int64),
        additions=np.array([int(metrics[f"added_{kind.name.lower()}"].sum()) for kind in Kind]),
        resets=last("resets", Reason),
        lifespans=np.sum(np.where(ended, lanes["age"], 0), axis=(1, 2)),
        ended=ended.sum(axis=(1, 2)),
        faults=last("faults", Fault),
    )
