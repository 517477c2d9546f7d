"""Histories: the features of past offspring, which novelty is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, PyTree

from memes.archive import Archive
from memes.errors import UsageError, at_least
from memes.ring import Ring
from memes.ring import push as push_rows
from memes.validation import check_fields


class Past(NamedTuple):
    """Features, of which those that are `valid` count."""

    feature: Float[Array, "h k"]
    valid: Bool[Array, " h"]


@runtime_checkable
class History(Protocol):
    """A memory of features."""

    def init(self, k: int, room: int | None) -> PyTree:
        """Return the first state for k features.

        `room` is the number of features that the whole run can push; None if its length is not known.
        """

    def push(self, state: PyTree, feature: Float[Array, "n k"], mask: Bool[Array, " n"]) -> PyTree:
        """Remember the features in the mask."""

    def past(self, state: PyTree, archive: Archive) -> Past:
        """Return the features that are remembered now."""


@dataclass(frozen=True)
class FIFO:
    """The last `capacity` features; the oldest make room for the newest.

    Attributes:
        capacity: Number of features.
    """

    capacity: int = 50_000

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, **{"capacity of the history": self.capacity})

    def init(self, k: int, room: int | None) -> Ring:
        """Return an empty ring buffer."""
        return _ring(self.capacity, k)

    def push(self, state: Ring, feature: Float[Array, "n k"], mask: Bool[Array, " n"]) -> Ring:
        """Write features over the oldest."""
        return push_rows(state, feature, mask)

    def past(self, state: Ring, archive: Archive) -> Past:
        """Return all features in the buffer."""
        return _filled(state)


@dataclass(frozen=True)
class Everything:
    """Every feature of the run, whose length `Algorithm.init` needs."""

    def init(self, k: int, room: int | None) -> Ring:
        """Return an empty buffer for all features of the run."""
        if room is None:
            raise UsageError(
                "the history 'Everything' needs the length of the run: call init with generations"
            )
        at_least(1, **{"generations x candidates": room})
        return _ring(room, k)

    def push(self, state: Ring, feature: Float[Array, "n k"], mask: Bool[Array, " n"]) -> Ring:
        """Append features."""
        return push_rows(state, feature, mask)

    def past(self, state: Ring, archive: Archive) -> Past:
        """Return all features so far."""
        return _filled(state)


@dataclass(frozen=True)
class Elites:
    """The features of the present elites of the archive; it stores nothing."""

    def init(self, k: int, room: int | None) -> tuple[()]:
        """Return an empty state."""
        return ()

    def push(self, state: tuple[()], feature: Array, mask: Array) -> tuple[()]:
        """Store nothing."""
        return state

    def past(self, state: tuple[()], archive: Archive) -> Past:
        """Return the features of the elites."""
        return Past(archive.feature, archive.occupied)


@dataclass(frozen=True)
class Nothing:
    """No history, for algorithms that do not use novelty."""

    def init(self, k: int, room: int | None) -> Float[Array, "0 k"]:
        """Return an empty state."""
        return jnp.zeros((0, k))

    def push(self, state: Float[Array, "0 k"], feature: Array, mask: Array) -> Float[Array, "0 k"]:
        """Store nothing."""
        return state

    def past(self, state: Float[Array, "0 k"], archive: Archive) -> Past:
        """Return no features."""
        return Past(state, jnp.zeros(0, bool))


def _ring(capacity: int, k: int) -> Ring:
    return Ring(jnp.zeros((capacity, k)), jnp.int32(0))


def _filled(ring: Ring) -> Past:
    return Past(ring.rows, jnp.arange(ring.capacity) < ring.size)
