"""Selectors: they choose the elites that lanes start from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key

from memes.context import Context
from memes.errors import at_least, in_unit_interval
from memes.novelty import novelty
from memes.task import initial
from memes.trees import choose


class Individuals(NamedTuple):
    """Whole elites."""

    x: Float[Array, "n d"]
    fitness: Float[Array, " n"]
    feature: Float[Array, "n k"]


# (key, context, n) -> n individuals; of an empty archive, any.
Selector = Callable[[Array, Context, int], Individuals]


def select(
    selector: Selector,
    key: Key[Array, ""],
    context: Context,
    n: int,
    wanted: Bool[Array, " n"] | None = None,
) -> Individuals:
    """Select `n` individuals; from an empty archive, draw them from `task.init` instead.

    Such draws have never been evaluated: their fitness and feature are NaN. Where none of them is
    `wanted`, any are returned; None wants them all.
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

    if wanted is None:
        return draw(key)
    nobody = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(draw, key))
    again = _for_branches(key)
    selected: Individuals = jax.lax.platform_dependent(
        # A CPU is spared the work in all the generations in which no lane starts anew.
        cpu=lambda: jax.lax.cond(wanted.any(), lambda: draw(again()), lambda: nobody),
        default=lambda: draw(again()),
    )
    return selected


def _for_branches(key: Array) -> Callable[[], Array]:
    """Let branches, of which one is taken, have a key each.

    The key goes in as numbers: where seeds run together a branch becomes a choice, which would look
    like a key that is used twice.
    """
    numbers, kind = jax.random.key_data(key), jax.random.key_impl(key)
    return lambda: jax.random.wrap_key_data(numbers, impl=kind)


def uniform(key: Key[Array, ""], context: Context, n: int) -> Individuals:
    """Select each elite with equal probability, with replacement."""
    occupied = context.archive.occupied
    c = occupied.shape[0]
    filled = jnp.cumsum(occupied)
    nth = jax.random.randint(key, (n,), 0, jnp.maximum(filled[-1], 1))
    # A list of the occupied cells, and not a binary search for each: that loop is slow on a GPU.
    slot = jnp.where(occupied, filled - 1, c)
    cells = jnp.zeros(c, jnp.int32).at[slot].set(jnp.arange(c, dtype=jnp.int32), mode="drop")
    return _take(context, cells[nth])


def fittest(count: int) -> Selector:
    """Select one of the `count` fittest elites, each with equal probability."""
    return _one_of_best(count, lambda context: context.archive.fitness)


def most_novel(count: int, neighbours: int = 10) -> Selector:
    """Select one of the `count` elites that are most novel, each with equal probability."""
    return _one_of_best(
        count, lambda context: novelty(context.archive.feature, context.past, neighbours)
    )


def fittest_of_latest(count: int, latest: int) -> Selector:
    """Select one of the `count` fittest among the `latest` cells to have changed."""
    at_least(1, latest=latest)

    def score(context: Context) -> Array:
        archive = context.archive
        _, recent = jax.lax.top_k(archive.generation, min(latest, archive.generation.shape[0]))
        # As far below all others as fitness can be; empty cells remain lower still.
        lowest = jnp.full_like(archive.fitness, np.finfo(np.float32).min)
        return lowest.at[recent].set(archive.fitness[recent])

    return _one_of_best(min(count, latest), score)


def either(a: Selector, b: Selector, probability: float = 0.5) -> Selector:
    """Select by `a` with the given probability, by `b` otherwise."""
    in_unit_interval(probability=probability)

    def selector(key: Array, context: Context, n: int) -> Individuals:
        key_a, key_b, key_choice = jax.random.split(key, 3)
        by_a = jax.random.bernoulli(key_choice, probability, (n,))
        return choose(by_a, a(key_a, context, n), b(key_b, context, n))

    return selector


def alternate(a: Selector, b: Selector, every: int) -> Selector:
    """Select by `a` for `every` generations, then by `b` for as many, and so on."""
    at_least(1, every=every)

    def selector(key: Array, context: Context, n: int) -> Individuals:
        again = _for_branches(key)
        chosen: Individuals = jax.lax.cond(
            (context.generation // every) % 2 == 0,
            lambda: a(again(), context, n),
            lambda: b(again(), context, n),
        )
        return chosen

    return selector


def _one_of_best(count: int, score: Callable[[Context], Array]) -> Selector:
    at_least(1, count=count)

    def selector(key: Array, context: Context, n: int) -> Individuals:
        occupied = context.archive.occupied
        ranked = jnp.where(occupied, score(context), -jnp.inf)
        _, best = jax.lax.top_k(ranked, min(count, ranked.shape[0]))
        choices = jnp.clip(jnp.sum(occupied), 1, best.shape[0])
        nth = jax.random.randint(key, (n,), 0, choices)
        return _take(context, best[nth])

    return selector


def _take(context: Context, cell: Int[Array, " n"]) -> Individuals:
    archive = context.archive
    return Individuals(archive.genotypes[cell], archive.fitness[cell], archive.feature[cell])
