"""Shards: the parts of a generation that may be computed apart, and all that passes between them.

What a run computes depends on how many shards there are, never on where they are. A device takes its
shards one after the other, by the same program; whatever is exchanged is put in the order of
the shards; and all that follows from it is computed alike on every device.

In what is "by shard", arrays have an axis [here, ...] for the shards of this device. A single shard has
no such axis: all that is below does nothing then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int, Key, PyTree

T = TypeVar("T")


@dataclass(frozen=True)
class Shards:
    """The shards of a run as one device sees them.

    Attributes:
        count: How many there are in all.
        here: How many of them this device takes.
        axis: The name of the devices in a `jax.shard_map`; None where one device has all shards.
        true: It is, but as an argument of the program. Compilers merge what is computed for a shard with
            what surrounds it, and round differently then; they cannot if there is a condition to it.
    """

    count: int = 1
    here: int = 1
    axis: str | None = None
    true: Array | bool = True

    @property
    def index(self) -> Int[Array, " here"]:
        """The numbers of the shards of this device."""
        device = 0 if self.axis is None else lax.axis_index(self.axis)
        return device * self.here + jnp.arange(self.here)

    def keys(self, key: Key[Array, ""]) -> Key[Array, "*here"]:
        """A key for each shard; the given one if there is a single shard."""
        if self.count == 1:
            return key
        return jax.vmap(lambda i: jax.random.fold_in(key, i))(self.index)

    def each(self, function: Callable[..., T], *trees: PyTree) -> T:
        """Compute `function(*trees)` of each shard, from trees by shard to a tree by shard."""
        if self.count == 1:
            return function(*trees)
        every: T = lax.map(lambda trees: self.alone(function, *trees), trees)
        return every

    def alone(self, function: Callable[..., T], *trees: PyTree) -> T:
        """Compute `function(*trees)` as a program of its own, which rounds alike wherever it is."""
        if self.count == 1:
            return function(*trees)
        program, shapes = jax.make_jaxpr(function, return_shape=True)(*trees)
        constants = [self._unknown(constant) for constant in program.consts]

        def once(constants: list[Array], trees: tuple[PyTree, ...]) -> list[Array]:
            return jax.core.eval_jaxpr(program.jaxpr, constants, *jax.tree.leaves(trees))

        def never(constants: list[Array], trees: tuple[PyTree, ...]) -> list[Array]:
            return [jnp.zeros(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(shapes)]

        leaves = lax.cond(self.true, once, never, constants, trees)
        found: T = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
        return found

    def _unknown(self, constant: Array) -> Array:
        """Keep a constant from compilers, which make use of it here and do not there."""
        computed = isinstance(constant, jax.core.Tracer)
        if computed or jnp.issubdtype(constant.dtype, jax.dtypes.prng_key):
            return constant
        return jnp.where(self.true, constant, jnp.zeros_like(constant))

    def gather(self, tree: T) -> T:
        """Bring rows [here, n, ...] of all shards together, in their order: [count * n, ...]."""
        if self.count == 1:
            return tree
        everyone = tree if self.axis is None else all_gather(tree, self.axis)
        whole: T = jax.tree.map(lambda leaf: lax.collapse(leaf, 0, 2), everyone)
        return whole

    def mine(self, tree: T) -> T:
        """Take the rows [here, n, ...] of this device's shards from those of all: [count * n, ...]."""
        if self.count == 1:
            return tree

        def own(leaf: Array) -> Array:
            by_shard = leaf.reshape(self.count, leaf.shape[0] // self.count, *leaf.shape[1:])
            return lax.dynamic_slice_in_dim(by_shard, self.index[0], self.here)

        taken: T = jax.tree.map(own, tree)
        return taken

    def same(self, tree: T) -> T:
        """Give each shard the same: [...] to [here, ...]."""
        if self.count == 1:
            return tree
        copies: T = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.here, *leaf.shape)), tree)
        return copies

    def fetch(self, x: Float[Array, "*n d"], index: Int[Array, " w"]) -> Float[Array, "w d"]:
        """Fetch rows of `x`, [here, n, d] of each device, by their place among the rows of all.

        These rows alone travel. A place beyond the last gives any row.
        """
        if self.count == 1:
            return jnp.take(x, index, axis=0, mode="clip")
        own = lax.collapse(x, 0, 2)
        if self.axis is None:
            return jnp.take(own, index, axis=0, mode="clip")
        local = index - self.index[0] * x.shape[1]
        held = (local >= 0) & (local < own.shape[0])
        rows = jnp.take(own, jnp.where(held, local, 0), axis=0, mode="clip")
        # Each row is held by one device at most: added to the zeros of the others, its bits stay.
        bits = jnp.where(held[:, None], lax.bitcast_convert_type(rows, jnp.int32), 0)
        everyone = lax.psum(bits, self.axis)  # type: ignore[no-untyped-call]
        return lax.bitcast_convert_type(everyone, jnp.float32)


def all_gather(tree: T, axis: str) -> T:
    """Bring rows [n, ...] of all devices together, in one message of 32-bit words."""
    leaves, structure = jax.tree.flatten(tree)

    def words(leaf: Array) -> Array:
        flat = leaf.reshape(leaf.shape[0], leaf.size // leaf.shape[0])
        if leaf.dtype == bool:
            return flat.astype(jnp.uint32)
        return lax.bitcast_convert_type(flat, jnp.uint32)

    def read(found: Array, leaf: Array) -> Array:
        kind = jnp.uint32 if leaf.dtype == bool else leaf.dtype
        whole = lax.bitcast_convert_type(found, kind).astype(leaf.dtype)
        return whole.reshape(found.shape[0], *leaf.shape[1:])

    packed = [words(leaf) for leaf in leaves]
    ends = np.cumsum([part.shape[1] for part in packed])
    everyone = lax.all_gather(jnp.concatenate(packed, axis=1), axis, tiled=True)
    parts = jnp.split(everyone, ends[:-1], axis=1)
    gathered: T = jax.tree.unflatten(structure, map(read, parts, leaves))
    return gathered


ONE = Shards()


def all_here(count: int) -> Shards:
    """So many shards on one device."""
    return ONE if count == 1 else Shards(count, count)
