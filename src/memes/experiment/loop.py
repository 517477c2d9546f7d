"""The run loop: chunks of generations on the device, everything else between them on the host."""

from __future__ import annotations

import platform
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from memes.algorithm import Algorithm, Batch, Info, State
from memes.archive import Archive
from memes.errors import require
from memes.experiment import folder as folders
from memes.experiment.progress import Reporter
from memes.metrics import Generation, Totals, accumulate, measure
from memes.task import Evaluation
from memes.version import __version__

# Matrix products and distances in full float32: no TF32, no bfloat16 passes.
PRECISION = "highest"
LANE_FIELDS = (
    "lane",
    "kind",
    "offered",
    "fitness",
    "feature",
    "parent_feature",
    "status",
    "age",
    "stale",
    "reset",
)


class Result(NamedTuple):
    """What a run returns. `metrics` and `lanes` are arrays by name, with a leading generation axis."""

    archive: Archive
    metrics: dict[str, np.ndarray]
    lanes: dict[str, np.ndarray]
    state: State
    folder: Path | None


class Record(NamedTuple):
    """What is kept of a generation: its measures, and `Info` of the lanes that persist."""

    measures: Generation
    lanes: dict[str, Array]


# (key, state) -> (state, Record with a leading generation axis)
Advance = Callable[[Array, State], tuple[State, Record]]


def run(
    algorithm: Algorithm,
    *,
    generations: int,
    seed: int = 0,
    out: str | Path | None = None,
    generations_per_call: int | None = None,
    progress: bool = True,
    settings: dict[str, Any] | None = None,
) -> Result:
    """Run an algorithm and record what happens.

    The key of generation g is `fold_in(run_key, g)`: results do not depend on `generations_per_call`.
    A task with `jit=False` is evaluated on the host, one generation at a time. Ctrl-C ends the run
    after the generations computed so far, with everything saved.

    Args:
        algorithm: What to run; it knows its task.
        generations: For how long.
        seed: Seed of all randomness.
        out: Folder for the results; None keeps them in memory only.
        generations_per_call: Generations in one call of the device; the progress bar moves, and
            metrics are written, once a call. None is a twentieth of the run, at most 100.
        progress: Whether to show progress.
        settings: Anything JSON that should be written into `config.json`.
    """
    require(generations >= 1, f"generations must be at least 1, got {generations}")
    require(
        generations_per_call is None or generations_per_call >= 1,
        f"generations_per_call must be at least 1, got {generations_per_call}",
    )
    _check_history(algorithm, generations)
    path = None if out is None else Path(out)
    if path is not None:
        folders.check_free(path)

    init_key, run_key = jax.random.split(jax.random.key(seed))
    lengths = _chunks(generations, generations_per_call)
    with Reporter(generations, show=progress) as report, jax.default_matmul_precision(PRECISION):
        state = jax.jit(algorithm.init)(init_key)
        report.say(f"compiling {algorithm.task.name} for {jax.devices()[0].device_kind} ...")
        started = time.perf_counter()
        advance = _compile(algorithm, set(lengths), run_key, state)
        compile_seconds = time.perf_counter() - started
        report.say(f"compiled in {compile_seconds:.1f} s")

        config = _config(algorithm, generations, seed, lengths[0], settings or {})
        log = _Log(path, report, config | {"compile_seconds": compile_seconds})
        report.begin()
        unread: list[Record] = []
        with _interruptible() as interrupted:
            for n in lengths:
                state, record = advance[n](run_key, state)
                unread.append(record)
                # The device works on the newest chunk while the host reads the one before.
                if len(unread) > 1:
                    log.write(unread.pop(0))
                if interrupted():
                    report.say("interrupted: saving what was computed")
                    break
            for record in unread:
                log.write(record)
        return log.finish(state, algorithm)


class _Log:
    """Collects the records of a run, on disk if there is a folder, and reports them."""

    def __init__(self, path: Path | None, report: Reporter, config: dict[str, Any]) -> None:
        self._path = path
        self._report = report
        self._config = config
        self._totals = Totals.zero()
        self._columns: list[dict[str, np.ndarray]] = []
        self._lanes: list[dict[str, np.ndarray]] = []
        self._seconds = 0.0
        self._generation = 0
        self._start = time.perf_counter()
        if path is not None:
            (path / "figures").mkdir(parents=True, exist_ok=True)
            folders.save_config(path, config)
            self._metrics = folders.MetricsWriter(path)

    def write(self, record: Record) -> None:
        """Take the records of the next chunk; waits for the device to have computed them."""
        measures, lanes = jax.device_get(record)
        self._totals, columns = accumulate(self._totals, measures)
        n = len(columns["evaluations"])
        before, self._seconds = self._seconds, time.perf_counter() - self._start
        generation = self._generation + np.arange(1, n + 1)
        self._generation += n
        columns = {"generation": generation, **columns}
        columns["seconds"] = before + (self._seconds - before) * np.arange(1, n + 1) / n
        self._columns.append(columns)
        self._lanes.append(lanes)
        if self._path is not None:
            self._metrics.write(columns)
        self._report.update(
            self._generation,
            float(columns["qd_score"][-1]),
            float(columns["coverage"][-1]),
            int(columns["evaluations"][-1]),
        )

    def finish(self, state: State, algorithm: Algorithm) -> Result:
        """Write what is written at the end, and hand everything over."""
        metrics = _join(self._columns)
        lanes = {"generation": metrics["generation"], **_join(self._lanes)}
        if self._path is not None:
            self._metrics.close()
            folders.save_lanes(self._path / "lanes.npz", lanes)
            folders.save_archive(
                self._path / "archive.npz",
                state.archive,
                task=algorithm.task.name,
                min_fitness=algorithm.task.min_fitness,
            )
            finished = {"finished": _now(), "seconds": self._seconds}
            folders.save_config(self._path, self._config | finished)
            from memes.analysis.figures import draw_run  # matplotlib is slow to import

            draw_run(self._path)
        return Result(state.archive, metrics, lanes, state, self._path)


def _compile(
    algorithm: Algorithm, lengths: Iterable[int], key: Array, state: State
) -> dict[int, Advance]:
    """For each length n, a function that advances the run by n generations."""
    persistent = np.flatnonzero(algorithm.emitter.persistent)

    def record(state: State, info: Info) -> Record:
        lanes = {name: getattr(info, name)[persistent] for name in LANE_FIELDS}
        return Record(measure(state.archive, info, algorithm.task.min_fitness), lanes)

    if not algorithm.task.jit:
        step = _host_step(algorithm, record, key, state)
        return {n: partial(_loop, step, n) for n in lengths}

    def step_on_device(key: Array, state: State) -> tuple[State, Record]:
        state, info = algorithm.step(jax.random.fold_in(key, state.generation), state)
        return state, record(state, info)

    def scan(n: int, key: Array, state: State) -> tuple[State, Record]:
        return jax.lax.scan(lambda state, _: step_on_device(key, state), state, length=n)

    compiled = jax.jit(scan, static_argnums=0, donate_argnums=2)
    return {n: compiled.lower(n, key, state).compile() for n in lengths}


def _host_step(
    algorithm: Algorithm, record: Callable[[State, Info], Record], key: Array, state: State
) -> Advance:
    """One generation, with the evaluation on the host between a compiled ask and a compiled tell."""

    def ask(key: Array, state: State) -> tuple[State, Batch, Array]:
        ask_key, evaluate_key = jax.random.split(jax.random.fold_in(key, state.generation))
        return *algorithm.ask(ask_key, state), evaluate_key

    def tell(state: State, batch: Batch, evaluation: Evaluation) -> tuple[State, Record]:
        state, info = algorithm.tell(state, batch, evaluation)
        return state, record(state, info)

    n, k = algorithm.batch_size, algorithm.task.feature_dim
    evaluation = Evaluation(
        jax.ShapeDtypeStruct((n,), np.float32), jax.ShapeDtypeStruct((n, k), np.float32)
    )
    asked, batch, _ = jax.eval_shape(ask, key, state)
    compiled_ask = jax.jit(ask).lower(key, state).compile()
    compiled_tell = jax.jit(tell, donate_argnums=0).lower(asked, batch, evaluation).compile()

    def step(key: Array, state: State) -> tuple[State, Record]:
        state, batch, evaluate_key = compiled_ask(key, state)
        told: tuple[State, Record] = compiled_tell(state, batch, algorithm.evaluate(evaluate_key, batch))
        return told

    return step


def _loop(step: Advance, n: int, key: Array, state: State) -> tuple[State, Record]:
    """What `lax.scan` does, on the host."""
    records = []
    for _ in range(n):
        state, last = step(key, state)
        records.append(last)
    return state, jax.tree.map(lambda *leaves: np.stack(leaves), *records)


def _chunks(generations: int, per_call: int | None) -> list[int]:
    """How many generations each call of the device computes. Each distinct number is compiled."""
    size = min(per_call or min(100, -(-generations // 20)), generations)
    if per_call is None:
        # Rather a somewhat smaller chunk than a remainder that must be compiled as well.
        size = next((s for s in range(size, size // 2, -1) if generations % s == 0), size)
    whole, rest = divmod(generations, size)
    return [size] * whole + [rest] * (rest > 0)


def _check_history(algorithm: Algorithm, generations: int) -> None:
    room = algorithm.history.keeps_all
    needed = generations * algorithm.emitter.candidates
    require(
        room is None or needed <= room,
        f"generations must be at most {(room or 0) // algorithm.emitter.candidates} for a history that "
        f"keeps everything and has room for {room} features, got {generations}; build the algorithm "
        f"with generations={generations}",
    )


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C only makes the yielded function return True; the second one interrupts."""
    seen = False

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, note)
    except ValueError:  # not in the main thread, where signals do not arrive anyway
        yield lambda: False
        return
    try:
        yield lambda: seen
    finally:
        signal.signal(signal.SIGINT, before)


def _join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _config(
    algorithm: Algorithm,
    generations: int,
    seed: int,
    per_call: int,
    settings: dict[str, Any],
) -> dict[str, Any]:
    task = algorithm.task
    device = jax.devices()[0]
    return {
        "task": task.name,
        "algorithm": None,
        "seed": seed,
        "generations": generations,
        "generations_per_call": per_call,
        **settings,
        "dim": task.dim,
        "feature_low": list(map(float, task.feature_low)),
        "feature_high": list(map(float, task.feature_high)),
        "min_fitness": task.min_fitness,
        "uncertain": task.uncertain,
        "batch_size": algorithm.batch_size,
        "precision": PRECISION,
        "device": f"{device.platform}: {device.device_kind}",
        "versions": _versions(),
        "git_commit": _git_commit(),
        "started": _now(),
    }


def _versions() -> dict[str, str]:
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "optax")}
    return {"memes": __version__, "python": platform.python_version(), **packages}


def _git_commit() -> str | None:
    """The commit of the working directory, if it is a git checkout."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
