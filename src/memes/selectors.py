"""Which elites a lane starts from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.context import Context
from memes.errors import require
from memes.novelty import novelty
from memes.strategies.base import choose_lanes
from memes.task import initial


class Individuals(NamedTuple):
    """Whole elites: `x[n, d]`, `fitness[n]`, `feature[n, k]`."""

    x: Array
    fitness: Array
    feature: Array


# (key, context, n) -> n individuals. What it returns for an empty archive does not matter.
Selector = Callable[[Array, Context, int], Individuals]


def select(
    selector: Selector, key: Array, context: Context, n: int, wanted: Array | None = None
) -> Individuals:
    """`n` individuals by the selector; from an empty archive, draws from `task.init` instead.

    Such draws have never been evaluated: their fitness and feature are NaN. Where none of them is
    `wanted[n]`, it does not matter what is returned; None wants them all.
    """

    def draw(key: Array) -> Individuals:
        select_key, init_key = jax.random.split(key)
        elites = selector(select_key, context, n)
        # Both are computed: on a GPU, a branch would make the host wait for the device.
        some = context.archive.occupied.any()
        return Individuals(
            jnp.where(some, elites.x, initial(context.task, init_key, n)),
            jnp.where(some, elites.fitness, jnp.nan),
            jnp.where(some, elites.feature, jnp.nan),
        )

    if wanted is None or jax.default_backend() != "cpu":
        return draw(key)
    # On a CPU it spares the work in all the generations in which no lane starts anew.
    nobody = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(draw, key))
    return _either_way(wanted.any(), draw, lambda key: nobody, key)


def _either_way(
    first: Array,
    a: Callable[[Array], Individuals],
    b: Callable[[Array], Individuals],
    key: Array,
) -> Individuals:
    """`a(key)` if `first`, else `b(key)`; only that one is computed, unless seeds run together.

    The key goes in as numbers: where seeds run together the branch becomes a choice, which would look
    like a key that is used twice.
    """
    numbers, kind = jax.random.key_data(key), jax.random.key_impl(key)

    def again() -> Array:
        wrapped: Array = jax.random.wrap_key_data(numbers, impl=kind)
        return wrapped

    chosen: Individuals = jax.lax.cond(first, lambda: a(again()), lambda: b(again()))
    return chosen


def uniform(key: Array, context: Context, n: int) -> Individuals:
    """Each elite with equal probability, with replacement."""
    occupied = context.archive.occupied
    c = occupied.shape[0]
    filled = jnp.cumsum(occupied)
    nth = jax.random.randint(key, (n,), 0, jnp.maximum(filled[-1], 1))
    # A list of the occupied cells, and not a binary search for each: that loop is slow on a GPU.
    slot = jnp.where(occupied, filled - 1, c)
    cells = jnp.zeros(c, jnp.int32).at[slot].set(jnp.arange(c, dtype=jnp.int32), mode="drop")
    return _take(context, cells[nth])


def fittest(count: int) -> Selector:
    """One of the `count` fittest elites, each with equal probability."""
    return _one_of_best(count, lambda context: context.archive.fitness)


def most_novel(count: int, neighbours: int = 10) -> Selector:
    """One of the `count` elites most novel with respect to the history, each with equal probability."""
    return _one_of_best(
        count, lambda context: novelty(context.archive.feature, context.past, neighbours)
    )


def fittest_of_latest(count: int, latest: int) -> Selector:
    """One of the `count` fittest among the `latest` cells to have changed, with equal probability."""
    require(latest >= 1, f"latest must be at least 1 cell, got {latest}")

    def score(context: Context) -> Array:
        archive = context.archive
        _, recent = jax.lax.top_k(archive.generation, min(latest, archive.generation.shape[0]))
        # As far below all others as fitness can be; empty cells remain lower still.
        lowest = jnp.full_like(archive.fitness, np.finfo(np.float32).min)
        return lowest.at[recent].set(archive.fitness[recent])

    return _one_of_best(min(count, latest), score)


def either(a: Selector, b: Selector, probability: float = 0.5) -> Selector:
    """Each time by `a` with the given probability, by `b` otherwise."""
    require(0 <= probability <= 1, f"probability must lie in [0, 1], got {probability}")

    def selector(key: Array, context: Context, n: int) -> Individuals:
        key_a, key_b, key_choice = jax.random.split(key, 3)
        by_a = jax.random.bernoulli(key_choice, probability, (n,))
        picked: Individuals = choose_lanes(by_a, a(key_a, context, n), b(key_b, context, n))
        return picked

    return selector


def alternate(a: Selector, b: Selector, every: int) -> Selector:
    """By `a` for `every` generations, then by `b` for as many, as `objectives.alternate` does."""
    require(every >= 1, f"every must be at least 1 generation, got {every}")

    def selector(key: Array, context: Context, n: int) -> Individuals:
        return _either_way(
            (context.generation // every) % 2 == 0,
            lambda key: a(key, context, n),
            lambda key: b(key, context, n),
            key,
        )

    return selector


def _one_of_best(count: int, score: Callable[[Context], Array]) -> Selector:
    require(count >= 1, f"count must be at least 1 elite to choose from, got {count}")

    def selector(key: Array, context: Context, n: int) -> Individuals:
        occupied = context.archive.occupied
        ranked = jnp.where(occupied, score(context), -jnp.inf)
        _, best = jax.lax.top_k(ranked, min(count, ranked.shape[0]))
        choices = jnp.clip(jnp.sum(occupied), 1, best.shape[0])
        nth = jax.random.randint(key, (n,), 0, choices)
        return _take(context, best[nth])

    return selector


def _take(context: Context, cell: Array) -> Individuals:
    archive = context.archive
    return Individuals(archive.genotypes[cell], archive.fitness[cell], archive.feature[cell])
