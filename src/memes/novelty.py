"""Novelty scores: mean distances to the nearest features of the past, or of fitter individuals."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from memes.errors import LARGEST_FLOAT
from memes.history import Past
from memes.kernels.neighbours import nearest
from memes.task import Evaluation

HIGHEST = LARGEST_FLOAT  # in place of an infinite score, if it has to be finite to count
BLOCK = 128  # queries at a time: the distances of no more are in memory


def novelty(query: Float[Array, "n k"], past: Past, neighbours: int) -> Float[Array, " n"]:
    """Measure the mean Euclidean distance of each query to its nearest `neighbours` in the past.

    Where the past holds fewer points than `neighbours`, the mean is over those; where it is empty, it
    is 0.
    """
    # An absent point is infinitely far away: it can be no one's neighbour.
    points = jnp.where(past.valid[:, None], past.feature, jnp.inf)
    return _mean_distance(nearest(query, points, neighbours))


def dominated_novelty(
    query: Evaluation, among: Evaluation, neighbours: int, *, itself: bool = False
) -> Float[Array, "*n"]:
    """Measure the mean distance of each query to its nearest `neighbours` that are fitter.

    If fewer are fitter, the mean is over those; if none is, it is infinite. Of equally fit individuals,
    those `among` which it is measured count as fitter than a query.

    Args:
        query: Fitness [*n] and feature [*n, k].
        among: Fitness [h] and feature [h, k] of the individuals; a fitness of -inf is of none.
        neighbours: Number of nearest individuals.
        itself: Whether query and individuals are the same. Of two that are equally fit, the first then
            counts as fitter.
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
    """Return the mean over the finite distances; 0 if there are none."""
    found = jnp.isfinite(squared)
    total = jnp.sum(jnp.where(found, jnp.sqrt(squared), 0.0), axis=-1)
    return total / jnp.maximum(jnp.sum(found, axis=-1), 1)
