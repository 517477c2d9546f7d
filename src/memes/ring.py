"""A ring buffer of rows: the newest take the places of the oldest."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

Rows = TypeVar("Rows")


class Ring(NamedTuple, Generic[Rows]):
    """The last rows that were pushed: `rows`, an array or a pytree of arrays [capacity, ...].

    `pushed[]` counts them; once the ring is full it goes round in [capacity, 2 capacity). So a ring that
    never was full can be given more room behind.
    """

    rows: Rows
    pushed: Array

    @property
    def capacity(self) -> int:
        """The number of rows that fit in."""
        return int(jax.tree.leaves(self.rows)[0].shape[0])

    @property
    def size(self) -> Array:
        """The number of rows that are filled, from the first on: int32[]."""
        return jnp.minimum(self.pushed, self.capacity)


def push(ring: Ring[Any], rows: Any, mask: Array) -> Ring[Any]:
    """Write those of the rows [n, ...] that are in `mask[n]`, in their order."""
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
