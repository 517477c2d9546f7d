"""A ring buffer of rows: the newest take the places of the oldest."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int, PyTree


class Ring(NamedTuple):
    """The last rows that were pushed: `rows`, an array or a pytree of arrays [capacity, ...].

    `pushed[]` counts them; once the ring is full it goes round in [capacity, 2 capacity). So a ring that
    never was full can be given more room behind.
    """

    rows: PyTree
    pushed: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """The number of rows that fit in."""
        return int(jax.tree.leaves(self.rows)[0].shape[0])

    @property
    def size(self) -> Int[Array, ""]:
        """The number of rows that are filled, from the first on."""
        return jnp.minimum(self.pushed, self.capacity)


def push(ring: Ring, rows: PyTree, mask: Bool[Array, " n"]) -> Ring:
    """Write those of the rows [n, ...] that are in the mask, in their order."""
    capacity = ring.capacity
    order = jnp.cumsum(mask) - 1
    added = jnp.sum(mask, dtype=jnp.int32)
    # Where a batch exceeds the capacity only its last rows may write, each to a slot of its own.
    written = mask & (order >= added - capacity)
    slot = jnp.where(written, (ring.pushed + order) % capacity, capacity)
    pushed = ring.pushed + added
    return Ring(
        jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), ring.rows, rows),
        jnp.where(pushed < 2 * capacity, pushed, capacity + pushed % capacity),
    )
