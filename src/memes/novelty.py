"""The novelty score: the mean distance to the k nearest features of the past."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from memes.history import Past
from memes.kernels.neighbours import nearest


def novelty(query: Float[Array, "n k"], past: Past, neighbours: int) -> Float[Array, " n"]:
    """Measure the mean Euclidean distance of each query to its nearest `neighbours` in the past.

    Where the past holds fewer points than `neighbours`, the mean is over those; where it is empty, it
    is 0.
    """
    # An absent point is infinitely far away: it can be no one's neighbour.
    points = jnp.where(past.valid[:, None], past.feature, jnp.inf)
    squared = nearest(query, points, neighbours)
    found = jnp.isfinite(squared)
    total = jnp.sum(jnp.where(found, jnp.sqrt(squared), 0.0), axis=-1)
    return total / jnp.maximum(jnp.sum(found, axis=-1), 1)
