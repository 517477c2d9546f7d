"""Computation of a generation on several devices.

The lanes are divided among shards, and the shards are divided among devices. A generation has the same
stages as in `Algorithm`. Each shard computes `ask`, `evaluate` and `assess`. The outcomes of all shards
are gathered, and every device inserts them into its copy of the archive. Then each shard computes
`learn`. If an emitter cannot be divided, every device computes `ask` and `learn` for all lanes. In this
case, only the evaluations are divided among the shards.

The result depends on the number of shards, but must not depend on the number of devices. Therefore,
`isolated` and `each` ensure that all programs compute a shard with the same instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes.algorithm import Algorithm, Info, Outcome, State
from memes.archive import Entries
from memes.emitters import Emitter, Parallel
from memes.pytrees import filled, in_32_bits, take
from memes.task import Evaluation, evaluate

T = TypeVar("T")
AXIS = "devices"  # name of the axis of `jax.shard_map`


def divide(emitter: Emitter, count: int) -> Emitter | None:
    """Return the emitter of one shard out of `count`, or None if the lanes cannot be divided.

    Lanes can be divided if `lanes` is a field of the emitter and a multiple of `count`.
    """
    if isinstance(emitter, Parallel):
        parts = [divide(each, count) for each in emitter.emitters]
        whole = tuple(part for part in parts if part is not None)
        return Parallel(whole) if len(whole) == len(parts) else None
    named = is_dataclass(emitter) and any(field.name == "lanes" for field in fields(emitter))
    if not named or emitter.lanes % count:
        return None
    divided: Emitter = replace(emitter, lanes=emitter.lanes // count)  # type: ignore[type-var]
    return divided


def isolated(function: Callable[..., T], *trees: PyTree, true: Bool[Array, ""]) -> T:
    """Compute `function(*trees)` with the same rounding in every program.

    XLA fuses neighbouring operations, and fused operations may round differently. However, XLA does not
    fuse operations across a branch whose condition is unknown at compile time. Therefore, the function
    is computed in a branch. The condition `true` must be computed from an argument of the compiled
    program. The constants of the function also depend on `true`, because otherwise XLA would fold the
    constants in some programs but not in others. `lax.optimization_barrier` is not sufficient.
    """
    program, shape = jax.make_jaxpr(function, return_shape=True)(*trees)

    def opaque(constant: Array) -> Array:
        computed = isinstance(constant, jax.core.Tracer)
        if computed or jnp.issubdtype(constant.dtype, jax.dtypes.prng_key):
            return constant
        return jnp.where(true, constant, jnp.zeros_like(constant))

    def compute(constants: list[Array], trees: tuple[PyTree, ...]) -> list[Array]:
        return jax.core.eval_jaxpr(program.jaxpr, constants, *jax.tree.leaves(trees))

    def blank(constants: list[Array], trees: tuple[PyTree, ...]) -> list[Array]:
        return [jnp.zeros(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(shape)]

    leaves = lax.cond(true, compute, blank, [opaque(c) for c in program.consts], trees)
    found: T = jax.tree.unflatten(jax.tree.structure(shape), leaves)
    return found


def each(function: Callable[..., T], *trees: PyTree, here: Int[Array, ""]) -> T:
    """Apply a function to each shard of this device, one after the other.

    The leaves of the arguments and of the result have a leading shard axis, [s, ...]. `here` is the
    number of shards, s. It must be an argument of the compiled program, because otherwise XLA would
    unroll loops of length 1 and fold constants into them.
    """
    shape = jax.eval_shape(function, *jax.tree.map(lambda leaf: leaf[0], trees))
    count = jax.tree.leaves(trees)[0].shape[0]
    blank = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), shape)

    def body(i: Array, done: T) -> T:
        own = jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, i, keepdims=False), trees)
        result = isolated(function, *own, true=here > 0)
        written: T = jax.tree.map(
            lambda leaf, new: lax.dynamic_update_index_in_dim(leaf, new, i, 0), done, result
        )
        return written

    every: T = lax.fori_loop(0, here, body, blank)
    return every


def gather(tree: T) -> T:
    """Collect the rows of all shards on every device, in the order of the shards.

    Leaves of shape [s, n, ...] on each device become leaves of shape [count * n, ...].
    """

    def gather_leaf(leaf: Array) -> Array:
        return lax.collapse(lax.all_gather(leaf, AXIS, tiled=True), 0, 2)

    whole: T = jax.tree.map(gather_leaf, tree)
    return whole


def fetch(genotypes: Float[Array, "s n d"], place: Int[Array, " w"]) -> Float[Array, "w d"]:
    """Copy the genotypes with the given indices to every device. No other genotypes are transferred.

    The genotypes of all shards are numbered consecutively. If an index is too large, the result is
    arbitrary.
    """
    own = lax.collapse(genotypes, 0, 2)
    local = place - lax.axis_index(AXIS) * own.shape[0]
    held = (local >= 0) & (local < own.shape[0])
    rows = jnp.take(own, jnp.where(held, local, 0), axis=0, mode="clip")
    # Only one device has the genotype. All others have zeros, so the sum over the devices is exact.
    bits = jnp.where(held[:, None], lax.bitcast_convert_type(rows, jnp.int32), 0)
    everyone = lax.psum(bits, AXIS)  # type: ignore[no-untyped-call]
    return lax.bitcast_convert_type(everyone, jnp.float32)


@dataclass(frozen=True, eq=False)
class Sharded:
    """An algorithm whose work is divided among shards.

    If the emitter is divided, the leaves of its state have a leading shard axis.

    Attributes:
        algorithm: The algorithm.
        count: Number of shards.
        devices: Number of devices. It must divide `count`.
    """

    algorithm: Algorithm
    count: int
    devices: int

    @cached_property
    def part(self) -> Algorithm | None:
        """The algorithm of one shard, or None if the emitter cannot be divided."""
        emitter = divide(self.algorithm.emitter, self.count)
        return None if emitter is None else replace(self.algorithm, emitter=emitter)

    @property
    def persistent(self) -> tuple[bool, ...]:
        """The flags of `Emitter.persistent`, in the order of the shards."""
        part = self.part
        return (
            self.algorithm.emitter.persistent if part is None else part.emitter.persistent * self.count
        )

    @in_32_bits
    def init(self, key: Key[Array, ""], generations: int | None = None) -> State:
        """Return the initial state."""
        state, part = self.algorithm.init(key, generations), self.part
        if part is None:
            return state
        keys = [jax.random.fold_in(key, shard) for shard in range(self.count)]
        emitters = [part.emitter.init(own, part.task) for own in keys]
        return state._replace(emitter=jax.tree.map(lambda *leaves: jnp.stack(leaves), *emitters))

    @in_32_bits
    def step(
        self, key: Key[Array, ""], state: State, here: Int[Array, ""]
    ) -> tuple[State, Info, Outcome]:
        """Advance by one generation, inside a `jax.shard_map` over the devices.

        Returns:
            The next state, the events, and the outcome. If the emitter is divided, the outcome has one
            row per shard of this device, [s, ...]. Otherwise it is the outcome of the whole batch.
        """
        return (self._replicated if self.part is None else self._divided)(key, state, here)

    def _divided(self, key: Array, state: State, here: Array) -> tuple[State, Info, Outcome]:
        """Advance with a divided emitter. Every device inserts the outcomes of all shards."""
        algorithm, part = self.algorithm, self.part
        assert part is not None
        ask_key, evaluate_key = jax.random.split(key)

        def assess(shard: Array, emitter: PyTree) -> tuple[PyTree, Outcome]:
            own, batch = part.ask(jax.random.fold_in(ask_key, shard), state._replace(emitter=emitter))
            evaluation = part.evaluate(jax.random.fold_in(evaluate_key, shard), batch)
            outcome = part.assess(batch, evaluation)
            return own.emitter, _number_lanes(outcome, first=shard * part.emitter.lanes)

        def learn(emitter: PyTree, outcome: Outcome, status: Array) -> tuple[PyTree, PyTree]:
            return part.learn(state, after._replace(emitter=emitter), outcome, status)

        emitter, outcome = each(assess, self._shards(), state.emitter, here=here)
        genotypes, everyone = self._offer(outcome)
        after, answer = algorithm.insert(
            state, everyone, fetch=lambda place, row: fetch(genotypes, jnp.take(place, row, mode="clip"))
        )
        emitter, lanes = each(learn, emitter, outcome, self._own(answer.status), here=here)
        info = algorithm.info(everyone, answer, gather(lanes))
        return algorithm.advance(after, emitter), info, outcome

    def _replicated(self, key: Array, state: State, here: Array) -> tuple[State, Info, Outcome]:
        """Advance with an undivided emitter, and divide only the evaluations among the shards.

        Every device computes `ask` and `tell` for the whole batch.
        """
        algorithm, true = self.algorithm, here > 0
        ask_key, evaluate_key = jax.random.split(key)
        state, batch = isolated(algorithm.ask, ask_key, state, true=true)
        n = algorithm.batch_size
        size = -(-n // self.count) * self.count
        rows = filled(jax.random.split(evaluate_key, n), size, 0), filled(batch.x, size, 0)

        def evaluate_rows(keys: Array, x: Array) -> Evaluation:
            wanted = algorithm.emitter.transitions
            return evaluate(algorithm.task, keys, x, transitions=wanted, chunk=algorithm.chunk)

        evaluation = take(gather(each(evaluate_rows, *self._own(rows), here=here)), 0, n)
        state, info = isolated(algorithm.tell, state, batch, evaluation, true=true)
        return state, info, algorithm.assess(batch, evaluation)

    def _offer(self, outcome: Outcome) -> tuple[Float[Array, "s n d"], Outcome]:
        """Return the genotypes of this device, and all outcomes with indices instead of genotypes."""
        offered = [outcome.candidates, outcome.samples]
        if not self.algorithm.offer_samples:
            offered[1] = jax.tree.map(lambda leaf: leaf[:, :0], outcome.samples)
        genotypes = jnp.concatenate([entries.x for entries in offered], axis=1)
        n, first = genotypes.shape[1], outcome.candidates.x.shape[1]
        place = self._shards()[:, None] * n + jnp.arange(n)
        places = place[:, :first], place[:, first:]
        candidates, samples = (
            Entries(*gather((own, *entries[1:]))) for own, entries in zip(places, offered, strict=True)
        )
        counts = jax.tree.map(lambda own: jnp.sum(own, axis=0), (outcome.faults, outcome.outside))
        faults, outside = lax.psum(counts, AXIS)  # type: ignore[no-untyped-call]
        return genotypes, Outcome(candidates, samples, faults, outside)

    def _shards(self) -> Int[Array, " s"]:
        """Return the indices of the shards on this device."""
        here = self.count // self.devices
        return lax.axis_index(AXIS) * here + jnp.arange(here)

    def _own(self, tree: T) -> T:
        """Select the rows that belong to the shards of this device.

        Leaves of shape [count * n, ...] become leaves of shape [s, n, ...].
        """

        def own(leaf: Array) -> Array:
            by_shard = leaf.reshape(self.count, leaf.shape[0] // self.count, *leaf.shape[1:])
            return lax.dynamic_slice_in_dim(by_shard, self._shards()[0], self.count // self.devices)

        taken: T = jax.tree.map(own, tree)
        return taken


def _number_lanes(outcome: Outcome, first: Int[Array, ""]) -> Outcome:
    """Number the lanes of a shard consecutively, starting at `first`."""
    candidates, samples = outcome.candidates, outcome.samples
    return outcome._replace(
        candidates=candidates._replace(lane=candidates.lane + first),
        samples=samples._replace(lane=samples.lane + first),
    )
