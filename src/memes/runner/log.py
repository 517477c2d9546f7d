"""What a run leaves behind: records of its generations, collected in memory and in its folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from memes.algorithm import Algorithm, State
from memes.archive import Fault
from memes.metrics import Generation, Totals, accumulate
from memes.runner.progress import Member, Reporter
from memes.store import folder as folders
from memes.store.checkpoint import History
from memes.store.folder import Run
from memes.store.provenance import now

WORDS = {Fault.NAN: "not a number", Fault.INFINITE: "infinite", Fault.ABSURD: "of absurd size"}


class Record(NamedTuple):
    """What is kept of a generation: its measures, and `Info` of the lanes that persist."""

    measures: Generation
    lanes: dict[str, Array]


class Log:
    """Collects the records of a run, on disk if there is a folder, and reports them.

    With a `history` it goes on from there: what the folder holds of later generations is forgotten. Of
    the time of several `runs` that go side by side, each has its share.
    """

    def __init__(
        self,
        path: Path | None,
        report: Reporter | Member,
        config: dict[str, Any],
        history: History | None = None,
        runs: int = 1,
    ) -> None:
        self._path = path
        self._runs = runs
        self._report = report
        self._config = config
        self._columns = [history.columns] if history else []
        self._lanes = [history.lanes] if history else []
        self._totals = Totals(**history.totals) if history else Totals.zero()
        self._generation = history.generation if history else 0
        self._warned: set[Fault] = set()
        self._seconds = float(history.columns["seconds"][-1]) if history else 0.0
        self._start = time.perf_counter() - self._seconds
        if path is not None:
            (path / "figures").mkdir(parents=True, exist_ok=True)
            folders.save_config(path, config)
            self._metrics = folders.MetricsWriter(path, self._columns)

    def write(self, record: Record) -> None:
        """Take the records of the next chunk; waits for the device to have computed them."""
        measures, lanes = jax.device_get(record)
        self._totals, columns = accumulate(self._totals, measures)
        n = len(columns["evaluations"])
        before, self._seconds = self._seconds, (time.perf_counter() - self._start) / self._runs
        generation = self._generation + np.arange(1, n + 1)
        self._generation += n
        columns = {"generation": generation, **columns}
        columns["seconds"] = before + (self._seconds - before) * np.arange(1, n + 1) / n
        self._columns.append(columns)
        self._lanes.append(lanes)
        if self._path is not None:
            self._metrics.write(columns)
        self._warn(columns)
        self._report.update(
            self._generation,
            float(columns["qd_score"][-1]),
            float(columns["coverage"][-1]),
            int(columns["evaluations"][-1]),
        )

    def _warn(self, columns: dict[str, np.ndarray]) -> None:
        """Say of each kind of fault, once, that there is such a thing."""
        for fault in Fault:
            count = int(columns[f"faults_{fault.name.lower()}"][-1])
            if count and fault not in self._warned:
                self._warned.add(fault)
                self._report.say(
                    f"{count} evaluations so far are {WORDS[fault]}: such rows are left out and counted"
                )

    def history(self) -> History:
        """All so far."""
        # Joined once and for all: there may be a checkpoint after every call.
        self._columns, self._lanes = [_join(self._columns)], [_join(self._lanes)]
        return History(self._columns[0], self._lanes[0], self._totals._asdict())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time that does not count as the run's."""
        start = time.perf_counter()
        yield
        passed = time.perf_counter() - start
        self._start += passed
        self._report.leave_out(passed)

    def finish(self, state: State, algorithm: Algorithm) -> Run:
        """Write what is written at the end, and hand everything over."""
        metrics = _join(self._columns)
        lanes = {"generation": metrics["generation"], **_join(self._lanes)}
        config = self._config | {
            "finished": now(),
            "generations_done": self._generation,
            "seconds": self._seconds,
        }
        if self._path is not None:
            folders.save_lanes(self._path / "lanes.npz", lanes)
            folders.save_archive(
                self._path / "archive.npz",
                state.archive,
                task=algorithm.task.name,
                min_fitness=algorithm.task.min_fitness,
            )
            folders.save_config(self._path, config)
        return Run(self._path, config, metrics, lanes, state.archive, {}, None, state)

    def close(self) -> None:
        """Let go of the files, however the run ended."""
        if self._path is not None:
            with suppress(OSError):  # a full disk, which `write` has complained of
                self._metrics.close()


def _join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
