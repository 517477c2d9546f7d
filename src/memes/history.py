"""Histories, which store the features of earlier candidates.

The novelty of a feature is its mean distance to the nearest features in the history.

The class `Ring` implements histories of a limited size and the replay buffer of policy gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int, PyTree

from memes.archive import Archive
from memes.errors import LARGEST_FLOAT, UsageError, at_least
from memes.kernels.neighbours import nearest
from memes.task import Evaluation
from memes.validation import check_fields

HIGHEST = LARGEST_FLOAT  # this value replaces infinite scores if scores must be finite
BLOCK = 128  # number of queries whose distances are in memory at the same time


class Past(NamedTuple):
    """The features in a history. Features that are not `valid` are ignored."""

    feature: Float[Array, "h k"]
    valid: Bool[Array, " h"]


class Ring(NamedTuple):
    """A ring buffer that stores the most recent rows.

    Until the buffer is full, `pushed` is the number of stored rows, whatever the capacity. Therefore, a
    buffer that is not full can be enlarged.

    Attributes:
        rows: An array [capacity, ...], or a pytree of such arrays.
        pushed: Number of rows pushed so far. For a full buffer, a multiple of the capacity is subtracted
            from this number, so that it stays in [capacity, 2 capacity).
    """

    rows: PyTree
    pushed: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """The maximum number of rows."""
        return int(jax.tree.leaves(self.rows)[0].shape[0])

    @property
    def size(self) -> Int[Array, ""]:
        """The number of stored rows. The stored rows are the first rows of the buffer."""
        return jnp.minimum(self.pushed, self.capacity)


def push(ring: Ring, rows: PyTree, mask: Bool[Array, " n"]) -> Ring:
    """Write the rows [n, ...] that the mask selects, in order."""
    capacity = ring.capacity
    order = jnp.cumsum(mask) - 1
    added = jnp.sum(mask, dtype=jnp.int32)
    # If a batch exceeds the capacity, only its last rows are written, each to a different slot.
    written = mask & (order >= added - capacity)
    slot = jnp.where(written, (ring.pushed + order) % capacity, capacity)
    pushed = ring.pushed + added
    return Ring(
        jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), ring.rows, rows),
        jnp.where(pushed < 2 * capacity, pushed, capacity + pushed % capacity),
    )


@runtime_checkable
class History(Protocol):
    """A store of the features of past offspring."""

    def init(self, k: int, room: int | None) -> PyTree:
        """Return the initial state for features with k entries.

        `room` is the maximum number of features that are pushed in the whole run, or None if the length
        of the run is unknown.
        """

    def push(self, state: PyTree, feature: Float[Array, "n k"], mask: Bool[Array, " n"]) -> PyTree:
        """Store the features that the mask selects."""

    def past(self, state: PyTree, archive: Archive) -> Past:
        """Return the stored features."""


@dataclass(frozen=True)
class FIFO:
    """A history of the last `capacity` features, in which the newest features replace the oldest.

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
        """Replace the oldest features with new features."""
        return push(state, feature, mask)

    def past(self, state: Ring, archive: Archive) -> Past:
        """Return all features in the buffer."""
        return _filled(state)


@dataclass(frozen=True)
class Everything:
    """A history of all features of a run.

    The length of the run must be passed to `Algorithm.init`.
    """

    def init(self, k: int, room: int | None) -> Ring:
        """Return an empty buffer that can store all features of the run."""
        if room is None:
            raise UsageError(
                "the history 'Everything' needs the length of the run: call init with generations"
            )
        at_least(1, **{"generations x candidates": room})
        return _ring(room, k)

    def push(self, state: Ring, feature: Float[Array, "n k"], mask: Bool[Array, " n"]) -> Ring:
        """Append the features that the mask selects."""
        return push(state, feature, mask)

    def past(self, state: Ring, archive: Archive) -> Past:
        """Return all features so far."""
        return _filled(state)


@dataclass(frozen=True)
class Elites:
    """A history that consists of the features of the elites that are currently in the archive."""

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
    """An empty history, for algorithms that do not use novelty."""

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


def novelty(query: Float[Array, "n k"], past: Past, neighbours: int) -> Float[Array, " n"]:
    """Return the mean Euclidean distance of each query to the nearest features in the history.

    The mean is over the `neighbours` nearest features, or over all features if the history contains
    fewer. If the history is empty, the novelty is 0.
    """
    # Invalid points are placed at infinity, so they are never among the nearest points.
    points = jnp.where(past.valid[:, None], past.feature, jnp.inf)
    return _mean_distance(nearest(query, points, neighbours))


def dominated_novelty(
    query: Evaluation, among: Evaluation, neighbours: int, *, itself: bool = False
) -> Float[Array, "*n"]:
    """Return the mean distance of each query to the nearest fitter individuals.

    The mean is over the `neighbours` nearest fitter individuals, or over all fitter individuals if there
    are fewer. If no individual is fitter, the result is infinite. Equally fit individuals count as
    fitter, unless `itself` is True.

    Args:
        query: Fitness `[*n]` and feature `[*n, k]`.
        among: Fitness [h] and feature [h, k] of the individuals. Individuals with fitness -inf are
            ignored.
        neighbours: Maximum number of distances in the mean.
        itself: Whether `query` and `among` contain the same individuals in the same order. If True, the
            first of two equally fit individuals counts as fitter, and the second does not.
    """
    h, k = among.feature.shape
    place = jnp.arange(query.fitness.size) if itself else jnp.full(query.fitness.size, h)

    def of_one(row: tuple[Array, Array, Array]) -> Array:
        fitness, feature, before = row
        equal = (among.fitness == fitness) & (jnp.arange(h) < before)
        fitter = ((among.fitness > fitness) | equal) & (among.fitness > -jnp.inf)
        squared = jnp.sum(jnp.square(among.feature - feature), axis=-1)
        negated, _ = lax.top_k(jnp.where(fitter, -squared, -jnp.inf), min(neighbours, h))
        return -negated

    rows = (query.fitness.reshape(-1), query.feature.reshape(-1, k), place)
    squared = lax.map(of_one, rows, batch_size=BLOCK)
    none = jnp.isinf(squared[:, 0])
    return jnp.where(none, jnp.inf, _mean_distance(squared)).reshape(query.fitness.shape)


def _mean_distance(squared: Float[Array, "n c"]) -> Float[Array, " n"]:
    """Return the mean of the finite distances, or 0 if no distance is finite."""
    found = jnp.isfinite(squared)
    total = jnp.sum(jnp.where(found, jnp.sqrt(squared), 0.0), axis=-1)
    return total / jnp.maximum(jnp.sum(found, axis=-1), 1)
