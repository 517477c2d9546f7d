"""Histories: the features of past offspring, which novelty is measured against."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, PyTree

from memes.archive import Archive
from memes.errors import UsageError, at_least
from memes.ring import Ring, push


class Past(NamedTuple):
    """Features, of which those that are `valid` count."""

    feature: Float[Array, "h k"]
    valid: Bool[Array, " h"]


class History(NamedTuple):
    """A memory of features.

    Attributes:
        init: `(k, room) -> state` for k features. `room` is how many the whole run can push, or None
            where its length is not known.
        push: `(state, feature[n, k], mask[n]) -> state`, remembers the rows in the mask.
        past: `(state, archive) -> Past`, the features that are remembered now.
    """

    init: Callable[[int, int | None], PyTree]
    push: Callable[[PyTree, Array, Array], PyTree]
    past: Callable[[PyTree, Archive], Past]


def fifo(capacity: int = 50_000) -> History:
    """The last `capacity` features; the oldest make room for the newest."""
    at_least(1, **{"capacity of the history": capacity})
    return History(lambda k, room: _ring(capacity, k), push, _past)


def everything() -> History:
    """Every feature of the run, whose length `Algorithm.init` must be told."""

    def init(k: int, room: int | None) -> Ring:
        if room is None:
            raise UsageError(
                "the history 'everything' must know the length of the run: call init with generations"
            )
        at_least(1, **{"generations x candidates": room})
        return _ring(room, k)

    return History(init, push, _past)


def _ring(capacity: int, k: int) -> Ring:
    return Ring(jnp.zeros((capacity, k)), jnp.int32(0))


def _past(ring: Ring, archive: Archive) -> Past:
    del archive
    return Past(ring.rows, jnp.arange(ring.capacity) < ring.size)


def elites() -> History:
    """The features of the archive's present elites; nothing is stored."""
    return History(
        init=lambda k, room: (),
        push=lambda state, feature, mask: state,
        past=lambda state, archive: Past(archive.feature, archive.occupied),
    )


def nothing() -> History:
    """No history, for algorithms that do not use novelty."""
    return History(
        init=lambda k, room: jnp.zeros((0, k)),
        push=lambda state, feature, mask: state,
        past=lambda state, archive: Past(state, jnp.zeros(0, bool)),
    )
