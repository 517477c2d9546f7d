"""The novelty score: the mean distance to the k nearest features of the past."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from memes.history import Past

GROUP = 16


def novelty(query: Array, past: Past, neighbours: int) -> Array:
    """Mean Euclidean distance of `query[n, k]` to its nearest `neighbours` in the past: [n].

    Exact, in two stages: the k nearest points lie in the k groups whose nearest member is nearest, so a
    search over the minima of groups comes first, then one over the members of the best groups. Where
    the past holds fewer points than `neighbours`, the mean is over those; where it is empty, it is 0.
    """
    h, k = past.feature.shape
    if h == 0:
        return jnp.zeros(query.shape[0])
    padding = -h % GROUP
    # An absent point is infinitely far away: it can be no one's neighbour.
    points = jnp.where(past.valid[:, None], past.feature, jnp.inf)
    points = jnp.pad(points, ((0, padding), (0, 0)), constant_values=jnp.inf)
    groups = points.reshape(-1, GROUP, k)

    nearest_in_group = jnp.min(_squared_distance(query[:, None, None], groups), axis=-1)
    best_groups = _smallest(nearest_in_group, min(neighbours, groups.shape[0]))[1]
    members = groups[best_groups].reshape(query.shape[0], -1, k)
    squared = _smallest(_squared_distance(query[:, None], members), min(neighbours, h))[0]

    found = jnp.isfinite(squared)
    total = jnp.sum(jnp.where(found, jnp.sqrt(squared), 0.0), axis=-1)
    return total / jnp.maximum(jnp.sum(found, axis=-1), 1)


def _squared_distance(a: Array, b: Array) -> Array:
    # Differences, not the expanded square: no cancellation, and k is small.
    return sum(jnp.square(a[..., i] - b[..., i]) for i in range(a.shape[-1]))  # type: ignore[return-value]


def _smallest(values: Array, count: int) -> tuple[Array, Array]:
    negated, index = jax.lax.top_k(-values, count)
    return -negated, index
