"""What a run executes: calls of the device, each of so many generations, compiled to fit into memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.algorithm import Algorithm, Batch, Info, State
from memes.metrics import measure
from memes.runner import memory
from memes.runner.log import Record
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
# By the lengths of its calls: an algorithm that fits into memory, and what advances it by each length.
Programs = dict[frozenset[int], tuple[Algorithm, dict[int, Advance]]]


def calls(generations: int, per_call: int | None, *pauses: int | None) -> list[int]:
    """How many generations each call of the device computes. Each distinct number is compiled.

    Calls end after each multiple of the pauses, where checkpoints are written or elites re-evaluated.
    """
    span = math.gcd(*(pause for pause in pauses if pause)) or generations
    size = min(per_call or min(100, -(-generations // 50)), span, generations)
    if per_call is None:
        # Rather a somewhat smaller chunk than a remainder that must be compiled as well.
        size = next((s for s in range(size, size // 2, -1) if span % s == 0), size)
    lengths, done = [], 0
    while done < generations:
        lengths.append(min(size, span - done % span, generations - done))
        done += lengths[-1]
    return lengths


def remaining(lengths: list[int], done: int) -> list[int]:
    """The calls of the device that are left after so many generations."""
    left = []
    for n in lengths:
        skipped = min(n, done)
        done -= skipped
        left += [n - skipped] if n > skipped else []
    return left


def fitting(
    algorithm: Algorithm,
    chunk: int | None,
    lengths: list[int],
    key: Array,
    state: State,
    say: Callable[[str], None],
) -> tuple[Algorithm, dict[int, Advance]]:
    """The algorithm, evaluating in chunks if it has to, and what advances it; see `compile_calls`."""
    algorithm = algorithm._replace(chunk=chunk)
    advance = compile_calls(algorithm, set(lengths), key, state)
    rows = chunk or algorithm.batch_size
    while fewer := memory.fewer(rows, advance.values(), "a generation", say):
        if chunk is not None:
            break
        rows = fewer
        say(f"that is too much: evaluating {rows} of {algorithm.batch_size} rows at a time")
        algorithm = algorithm._replace(chunk=rows)
        advance = compile_calls(algorithm, set(lengths), key, state)
    return algorithm, advance


def compile_calls(
    algorithm: Algorithm,
    lengths: Iterable[int],
    key: Array,
    state: State,
    over: Callable[[Advance], Advance] = lambda advance: advance,
) -> dict[int, Advance]:
    """For each length n, a function that advances the run by n generations.

    With `over=jax.vmap` it advances several runs; all arrays then have a leading axis of runs.
    """
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
        def advance(key: Array, state: State) -> tuple[State, Record]:
            return jax.lax.scan(lambda state, _: step_on_device(key, state), state, length=n)

        return over(advance)(key, state)

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
