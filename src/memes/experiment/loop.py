"""The run loop: chunks of generations on the device, everything else between them on the host."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.algorithm import Algorithm, Batch, Info, State
from memes.errors import require
from memes.experiment.folder import check_free
from memes.experiment.log import Log, Record, Result
from memes.experiment.progress import Reporter
from memes.experiment.provenance import describe
from memes.metrics import measure
from memes.task import Evaluation

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
            metrics are written, once a call. None is a twentieth of the run, at most 100, or one
            generation for a task with `jit=False`.
        progress: Whether to show progress.
        settings: Anything JSON that should be written into `config.json`.
    """
    require(0 <= seed < 2**32, f"seed must lie in [0, 2^32), got {seed}")
    require(generations >= 1, f"generations must be at least 1, got {generations}")
    require(
        generations_per_call is None or generations_per_call >= 1,
        f"generations_per_call must be at least 1, got {generations_per_call}",
    )
    _check_history(algorithm, generations)
    path = None if out is None else Path(out)
    if path is not None:
        check_free(path)

    init_key, run_key = jax.random.split(jax.random.key(seed))
    if generations_per_call is None and not algorithm.task.jit:
        generations_per_call = 1  # the simulator decides the pace; show every generation
    lengths = _chunks(generations, generations_per_call)
    with Reporter(generations, show=progress) as report:
        state = jax.jit(algorithm.init)(init_key)
        report.say(f"compiling {algorithm.task.name} for {jax.devices()[0].device_kind} ...")
        started = time.perf_counter()
        advance = _compile(algorithm, set(lengths), run_key, state)
        compile_seconds = time.perf_counter() - started
        report.say(f"compiled in {compile_seconds:.1f} s")

        config = {
            **describe(algorithm),
            **(settings or {}),
            "seed": seed,
            "generations": generations,
            "generations_per_call": lengths[0],
            "compile_seconds": compile_seconds,
        }
        log = Log(path, report, config)
        report.begin()
        unread: list[Record] = []
        with _interruptible(report.say) as interrupted:
            for n in lengths:
                state, record = advance[n](run_key, state)
                unread.append(record)
                # The device works on the newest chunk while the host reads the one before.
                if len(unread) > 1:
                    log.write(unread.pop(0))
                if interrupted():
                    break
            for record in unread:
                log.write(record)
        return log.finish(state, algorithm)


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
    evaluation = Evaluation(jnp.zeros(n), jnp.zeros((n, k)))
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
def _interruptible(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C only makes the yielded function return True; the second one interrupts."""
    seen = False

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        say("stopping after this call of the device; Ctrl-C again stops at once, without saving")
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
