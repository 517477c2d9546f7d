"""Which elites a lane starts from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from memes.context import Context
from memes.errors import require
from memes.novelty import novelty
from memes.task import initial


class Individuals(NamedTuple):
    """Whole elites: `x[n, d]`, `fitness[n]`, `feature[n, k]`."""

    x: Array
    fitness: Array
    feature: Array


# (key, context) with n draws -> n individuals. The archive holds at least one elite when it is called.
Selector = Callable[[Array, Context, int], Individuals]


def select(selector: Selector, key: Array, context: Context, n: int) -> Individuals:
    """`n` individuals by the selector; from an empty archive, draws from `task.init` instead.

    Such draws have never been evaluated: their fitness and feature are NaN.
    """

    def from_init() -> Individuals:
        unknown = jnp.full((n, context.task.feature_dim), jnp.nan)
        return Individuals(initial(context.task, key, n), jnp.full(n, jnp.nan), unknown)

    return jax.lax.cond(  # type: ignore[no-any-return]
        context.archive.occupied.any(), lambda: selector(key, context, n), from_init
    )


def uniform(key: Array, context: Context, n: int) -> Individuals:
    """Each elite with equal probability, with replacement."""
    filled = jnp.cumsum(context.archive.occupied)
    nth = jax.random.randint(key, (n,), 0, filled[-1])
    return _take(context, jnp.searchsorted(filled, nth, side="right"))


def fittest(count: int) -> Selector:
    """One of the `count` fittest elites, each with equal probability."""
    return _one_of_best(count, lambda context: context.archive.fitness)


def most_novel(count: int, neighbours: int = 10) -> Selector:
    """One of the `count` elites most novel with respect to the history, each with equal probability."""
    return _one_of_best(
        count, lambda context: novelty(context.archive.feature, context.past, neighbours)
    )


def _one_of_best(count: int, score: Callable[[Context], Array]) -> Selector:
    require(count >= 1, f"count must be at least 1 elite to choose from, got {count}")

    def selector(key: Array, context: Context, n: int) -> Individuals:
        occupied = context.archive.occupied
        ranked = jnp.where(occupied, score(context), -jnp.inf)
        _, best = jax.lax.top_k(ranked, min(count, ranked.shape[0]))
        nth = jax.random.randint(key, (n,), 0, jnp.minimum(jnp.sum(occupied), best.shape[0]))
        return _take(context, best[nth])

    return selector


def _take(context: Context, cell: Array) -> Individuals:
    archive = context.archive
    return Individuals(archive.genotypes[cell], archive.fitness[cell], archive.feature[cell])
