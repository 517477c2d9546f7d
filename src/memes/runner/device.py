"""Compilation of programs that fit into memory and compute several generations per device call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.compilation_cache import compilation_cache

from memes.algorithm import Algorithm, Info, State
from memes.archive import Changes
from memes.control.rollouts import no_transitions
from memes.deep_archive import DeepArchive
from memes.emitters import Batch
from memes.metrics import Generation, measure
from memes.pytrees import by_lane
from memes.runner import memory
from memes.runner.compilation_cache import compiled_programs
from memes.runner.multihost import process_group
from memes.runner.placement import ALONE, REPLICATED, SHARDED, Placement
from memes.runner.sharding import each, gather, isolated
from memes.task import Evaluation, Task, lost

# A device call computes at most `MOST` generations, and records at most `MOST_CHANGES` changed cells of
# each generation.
MOST = 256
MOST_CHANGES = 128
LANE_FIELDS = (
    "lane", "kind", "offered", "fitness", "feature", "parent_feature", "status", "age", "stale", "reset",
)  # fmt: skip


class Record(NamedTuple):
    """The results of G generations, stacked as arrays [G, ...].

    Attributes:
        measures: The metrics that are computed in each generation.
        lanes: Fields of `Info` by name, for the persistent lanes only (see `Emitter`).
        changes: The cells that changed, as a table with up to `MOST_CHANGES` rows per generation. In
            unused rows, `cell` is set to the number of cells.
    """

    measures: Generation
    lanes: dict[str, Array]
    changes: Changes


# Function (key, state, n) that returns the state after n more generations, and arrays of records. Only
# the first n records are valid.
Advance = Callable[[Array, State, int], tuple[State, Record]]


class Program(NamedTuple):
    """A compiled run of one or several seeds.

    Attributes:
        algorithm: The algorithm. Its field `chunk` is set if whole batches do not fit into memory.
        placement: The shards and devices.
        seeds: Number of seeds that run as one batch. For several seeds, keys, states and records have a
            leading axis for the seeds.
        advance: Function that advances the state by a number of generations.
        seconds: Compilation time in seconds.
    """

    algorithm: Algorithm
    placement: Placement
    seeds: int
    advance: Advance
    seconds: float

    def keys(self, seeds: list[int]) -> Array:
        """Return the keys for the generations of the given seeds."""
        keys = [keys_of(seed)[1] for seed in seeds]
        key = keys[0] if self.seeds == 1 else jnp.stack(keys)
        if self.placement.local:
            return key
        put: Array = self.placement.put(key, REPLICATED if self.seeds == 1 else SHARDED)
        return put

    def join(self, states: list[State]) -> State:
        """Join the states of the seeds into one state for `advance`, and put it on the devices."""
        if self.seeds > 1:
            states = [jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(states))]
        joined: State
        if self.placement.local:
            joined = jax.device_put(states[0])
        else:
            joined = self.placement.put(states[0], self._where)
        return joined

    @property
    def _where(self) -> Any:
        return self.placement.of_state(self.algorithm, self.seeds)

    def states(self, joined: State) -> list[State]:
        """Split a joined state into the state of each seed."""
        if not self.placement.local:
            joined = self.placement.on_first(joined)
        return [joined] if self.seeds == 1 else _rows(joined, self.seeds)

    def records(self, joined: Record, n: int) -> list[Record]:
        """Copy each seed's record of the first n generations to the host."""
        host = jax.device_get(joined)
        if self.seeds == 1:
            return [jax.tree.map(lambda leaf: leaf[:n], host)]
        return [jax.tree.map(lambda leaf, i=i: leaf[i, :n], host) for i in range(self.seeds)]


@partial(jax.jit, static_argnums=1)
def _rows(state: State, n: int) -> list[State]:
    return [jax.tree.map(lambda leaf, i=i: leaf[i], state) for i in range(n)]


def keys_of(seed: int) -> tuple[Array, Array]:
    """Return two keys: one for the initial state of a run, and one for the generations of the run."""
    init_key, run_key = jax.random.split(jax.random.key(seed))
    return init_key, run_key


def first_state(
    algorithm: Algorithm, placement: Placement = ALONE, seeds: int = 1
) -> Callable[[Array, int], State]:
    """Return the compiled function `(key, generations) -> State` that makes the initial state."""
    divided = placement.shards > 1 and seeds == 1
    init = placement.sharded(algorithm).init if divided else algorithm.init
    return jax.jit(init, static_argnums=1)


def most_together(task: Task, seeds: int, seeds_per_batch: int | None) -> int:
    """Return the number of seeds per batch. `compile_fitting` reduces it if memory is insufficient."""
    if seeds_per_batch is not None:
        return min(seeds_per_batch, seeds)
    # A simulator uses the whole machine for one seed, so the seeds run one after the other.
    return seeds if task.jit and task.control is None else 1


def compile_fitting(
    algorithm: Algorithm,
    seeds: int,
    generations: int,
    say: Callable[[str], None],
    exactly: bool = False,
    placement: Placement = ALONE,
) -> Program:
    """Compile a run of several seeds as one batch.

    If memory is insufficient, the number of seeds is reduced, or evaluations are divided into chunks.
    Several seeds are divided equally among the shards, so their number is rounded up to a multiple of
    the number of shards. This function prints its progress and the required memory.

    Args:
        algorithm: The algorithm. Its `chunk` is changed only if it is None.
        seeds: Number of seeds per batch.
        generations: Number of generations of the run.
        say: Function that prints messages.
        exactly: Whether to keep the number of seeds even if memory is insufficient. Resumed runs
            require this.
        placement: The shards and devices.

    Returns:
        The compiled program.
    """
    device, start = jax.devices()[0].device_kind, time.perf_counter()
    several = f"{seeds} seeds of {algorithm.name} together" if seeds > 1 else algorithm.task.name
    say(f"compiling {several} for {placement.in_words(device)} ...")
    shards = placement.shards
    if not placement.divides(algorithm, seeds):
        say(
            f"the lanes of {algorithm.name} cannot be divided equally among {shards} shards: each "
            "device computes all lanes, and evaluates its share"
        )
    batch = algorithm.batch_size if seeds > 1 else -(-algorithm.batch_size // shards)
    chosen, size, rows = algorithm, _filled(seeds, shards), algorithm.chunk or batch
    fewest = shards if seeds > 1 else 1  # minimum number of seeds per batch
    while True:
        advance, compiled = compile_run(chosen, placement, size, generations)
        what = "a generation" if size == 1 else f"a generation of {size} seeds"
        fewer = process_group().agree(memory.fewer, rows, compiled, what, say) or None
        if fewer is None or (size <= fewest and algorithm.chunk is not None):
            break
        if size > fewest and not exactly:
            size = _filled(-(-size // 2), shards)
            say(
                f"too little memory: running {size} seeds at once"
                if size > 1
                else "too little memory: running one seed at a time"
            )
        elif rows > 1:
            rows = fewer
            chosen = replace(algorithm, chunk=rows)
            say(f"too little memory: evaluating in chunks of {rows} of {batch} evaluations")
    seconds = time.perf_counter() - start
    say(f"compiled in {seconds:.1f} s")
    return Program(chosen, placement, size, advance, seconds)


def _filled(seeds: int, shards: int) -> int:
    """Round the number of seeds up to a multiple of `shards`. A single seed is not rounded up."""
    return 1 if seeds == 1 else -(-seeds // shards) * shards


def compile_run(
    algorithm: Algorithm, placement: Placement, seeds: int, generations: int
) -> tuple[Advance, Any]:
    """Compile the function that advances a run.

    Returns:
        A pair of the function and the compiled program that the function calls. The program is None if
        this process does not compute generations on a device.
    """
    if placement.waits:
        no_record: Any = None
        return lambda key, state, n: (state, no_record), None
    several_shards = placement.shards > 1 and seeds == 1
    sharded = placement.sharded(algorithm)
    flags = sharded.persistent if several_shards else algorithm.emitter.persistent
    persistent = np.flatnonzero(flags)
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(lambda key: first_state(algorithm, placement, seeds)(key, generations), key)

    def record(state: State, info: Info) -> Record:
        lanes = {name: getattr(info, name)[persistent] for name in LANE_FIELDS}
        measures = measure(state.archive, info, float(algorithm.task.min_fitness))
        return Record(measures, lanes, _changes(algorithm, state))

    if not algorithm.task.jit:
        return _on_host(algorithm, record, key, state), None

    def step(key: Array, state: State) -> tuple[State, Record]:
        state, info = algorithm.step(key, state)
        return state, record(state, info)

    def step_in_shards(here: Array, key: Array, state: State) -> tuple[State, Record]:
        state, info, _ = sharded.step(key, state, here)
        return state, isolated(record, state, info, true=here > 0)

    if seeds > 1:
        several = jax.vmap(lambda i, tree: tree, in_axes=(0, None))
        key, state = jax.eval_shape(several, jnp.arange(seeds), (key, state))
    if several_shards:
        return _on_devices(placement, seeds, algorithm, key, state, step_in_shards)
    if placement.shards > 1:
        return _on_devices(placement, seeds, algorithm, key, state, lambda here, *rest: step(*rest))
    advance = partial(_advance, step)
    together = jax.vmap(advance, in_axes=(0, 0, None)) if seeds > 1 else advance
    compiled = jax.jit(together).lower(key, state, np.int32(0)).compile()
    return lambda key, state, n: compiled(key, state, np.int32(n)), compiled


def _advance(
    step: Callable[[Array, State], tuple[State, Record]], key: Array, state: State, n: Array
) -> tuple[State, Record]:
    """Advance by n generations, where n is at most `MOST`.

    The same compiled program is used for every n. Therefore results do not depend on how a run is
    divided into device calls.
    """

    def once(state: State) -> tuple[State, Record]:
        return step(jax.random.fold_in(key, state.generation), state)

    kept = jax.eval_shape(once, state)[1]
    blank = jax.tree.map(lambda leaf: jnp.zeros((MOST, *leaf.shape), leaf.dtype), kept)

    def body(i: Array, carried: tuple[State, Record]) -> tuple[State, Record]:
        state, latest = once(carried[0])
        return state, jax.tree.map(lambda rows, row: rows.at[i].set(row), carried[1], latest)

    done: tuple[State, Record] = jax.lax.fori_loop(0, n, body, (state, blank))
    return done


def _changes(algorithm: Algorithm, state: State) -> Changes:
    """Return up to `MOST_CHANGES` of the cells that changed in the last generation."""
    emitter, count = algorithm.emitter, algorithm.cells.count
    most = len(emitter.persistent) + (emitter.samples if algorithm.offer_samples else 0)
    if isinstance(algorithm.judge, DeepArchive):
        most *= 2  # an individual that moves changes two cells
    now = state.archive.generation == state.generation - 1
    (cell,) = jnp.nonzero(now, size=min(most, count, MOST_CHANGES), fill_value=count)
    columns = {name: getattr(state.archive, name)[cell] for name in Changes._fields if name != "cell"}
    return Changes(cell=cell, **columns)


def _on_devices(
    placement: Placement,
    seeds: int,
    algorithm: Algorithm,
    key: Array,
    state: State,
    step: Callable[[Array, Array, State], tuple[State, Record]],
) -> tuple[Advance, Any]:
    """Compile the program that advances a run whose lanes or seeds are divided among several shards."""

    def lanes(here: Array, n: Array, key: Array, state: State) -> tuple[State, Record]:
        return _advance(partial(step, here), key, state, n)

    def some_seeds(here: Array, n: Array, keys: Array, states: State) -> tuple[State, Record]:
        together = jax.vmap(lambda key, state: lanes(here, n, key, state))
        states, record = each(together, *by_lane((keys, states), placement.here), here=here)
        return jax.tree.map(lambda leaf: jax.lax.collapse(leaf, 0, 2), states), gather(record)

    where = placement.of_state(algorithm, seeds)
    arguments = (REPLICATED, REPLICATED, REPLICATED if seeds == 1 else SHARDED, where)
    mapped = placement.mapped(lanes if seeds == 1 else some_seeds, arguments, (where, REPLICATED))
    lie = placement.shardings(arguments), placement.shardings((where, REPLICATED))
    program = jax.jit(mapped, in_shardings=lie[0], out_shardings=lie[1])
    here = np.int32(placement.here)  # `each` requires this argument of the program
    compiled = program.lower(here, np.int32(0), key, state).compile()

    def call(key: Array, state: State, n: int) -> tuple[State, Record]:
        numbers = placement.put((here, np.int32(n)), (REPLICATED, REPLICATED))
        done: tuple[State, Record] = compiled(*numbers, key, state)
        return done

    return call, compiled


def _on_host(
    algorithm: Algorithm, record: Callable[[State, Info], Record], key: Array, state: State
) -> Advance:
    """Return a function that advances a run whose task is evaluated on the host.

    Only `ask` and `tell` are compiled.
    """

    def ask(key: Array, state: State) -> tuple[State, Batch, Array]:
        ask_key, evaluate_key = jax.random.split(jax.random.fold_in(key, state.generation))
        return *algorithm.ask(ask_key, state), evaluate_key

    def tell(state: State, batch: Batch, evaluation: Evaluation) -> tuple[State, Record]:
        state, info = algorithm.tell(state, batch, evaluation)
        return state, record(state, info)

    n = algorithm.batch_size
    evaluation = lost(algorithm.task, n)
    if algorithm.emitter.transitions and algorithm.task.control is not None:
        evaluation = evaluation._replace(transitions=no_transitions(algorithm.task.control, n))
    asked, batch, _ = jax.eval_shape(ask, key, state)
    compiled_ask = jax.jit(ask).lower(key, state).compile()
    compiled_tell = jax.jit(tell).lower(asked, batch, evaluation).compile()

    def advance(key: Array, state: State, n: int) -> tuple[State, Record]:
        records = []
        for _ in range(n):
            state, batch, evaluate_key = compiled_ask(key, state)
            state, latest = compiled_tell(state, batch, algorithm.evaluate(evaluate_key, batch))
            records.append(latest)
        return state, jax.tree.map(lambda *leaves: np.stack(leaves), *records)

    return advance


def keep_compiled() -> None:
    """Let JAX cache compiled programs for later runs, unless the user has configured JAX's cache."""
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    cache = compiled_programs()
    if cache is not None:
        update: Any = jax.config.update
        update("jax_compilation_cache_dir", str(cache))
        update("jax_persistent_cache_min_compile_time_secs", 0.1)
        compilation_cache.reset_cache()  # otherwise JAX reads these settings only once
