"""What novelty is measured against: the features that offspring had in the past."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from memes.archive import Archive
from memes.errors import require


class Past(NamedTuple):
    """Features `feature[h, k]`, of which those with `valid[h]` count."""

    feature: Array
    valid: Array


class History(NamedTuple):
    """Keeps features.

    Attributes:
        init: `(k) -> state` for k features.
        push: `(state, feature[n, k], mask[n]) -> state`, remembers the rows in the mask.
        past: `(state, archive) -> Past`, what is remembered now.
        keeps_all: The most features it can be given if none may be forgotten; None if it may forget.
        adopt: `(state) -> state`, that of one which keeps all and has another capacity as its own.
    """

    init: Callable[[int], Any]
    push: Callable[[Any, Array, Array], Any]
    past: Callable[[Any, Archive], Past]
    keeps_all: int | None = None
    adopt: Callable[[Any], Any] = lambda state: state


class Ring(NamedTuple):
    """A ring buffer: `feature[capacity, k]`, how many slots are filled, and which is written next."""

    feature: Array
    size: Array
    position: Array


def fifo(capacity: int = 50_000) -> History:
    """The last `capacity` features; the oldest make room for the newest."""
    require(capacity >= 1, f"capacity of the history must be at least 1, got {capacity}")

    def init(k: int) -> Ring:
        return Ring(jnp.zeros((capacity, k)), jnp.int32(0), jnp.int32(0))

    def push(ring: Ring, feature: Array, mask: Array) -> Ring:
        order = jnp.cumsum(mask) - 1
        count = jnp.sum(mask)
        # Where a batch exceeds the capacity only its last rows may write, each to a slot of its own.
        written = mask & (order >= count - capacity)
        slot = jnp.where(written, (ring.position + order) % capacity, capacity)
        return Ring(
            ring.feature.at[slot].set(feature, mode="drop"),
            jnp.minimum(ring.size + count, capacity),
            (ring.position + count) % capacity,
        )

    def past(ring: Ring, archive: Archive) -> Past:
        del archive
        return Past(ring.feature, jnp.arange(capacity) < ring.size)

    return History(init, push, past)


def everything(capacity: int) -> History:
    """Every feature. `capacity` must hold the whole run; a run that would exceed it is refused."""

    def adopt(ring: Ring) -> Ring:
        kept = ring.feature[:capacity]  # all there are: as many as fit into both
        feature = jnp.pad(kept, ((0, capacity - kept.shape[0]), (0, 0)))
        return Ring(feature, ring.size, ring.size % capacity)

    return fifo(capacity)._replace(keeps_all=capacity, adopt=adopt)


def elites() -> History:
    """The features of the archive's present elites; nothing is stored."""
    return History(
        init=lambda k: (),
        push=lambda state, feature, mask: state,
        past=lambda state, archive: Past(archive.feature, archive.occupied),
    )


def nothing() -> History:
    """No history, for algorithms that do not use novelty."""
    return History(
        init=lambda k: jnp.zeros((0, k)),
        push=lambda state, feature, mask: state,
        past=lambda state, archive: Past(state, jnp.zeros(0, bool)),
    )
