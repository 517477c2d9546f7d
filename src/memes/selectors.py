"""Selectors: they choose the elites from which lanes start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key

from memes.context import Context
from memes.errors import at_least, in_unit_interval
from memes.history import novelty
from memes.kernels.dispatch import choose as by_platform
from memes.pytrees import choose
from memes.task import initial
from memes.validation import check_fields


class Individuals(NamedTuple):
    """Elites with their genotypes."""

    x: Float[Array, "n d"]
    fitness: Float[Array, " n"]
    feature: Float[Array, "n k"]


@runtime_checkable
class Selector(Protocol):
    """A rule by which elites are chosen."""

    def __call__(self, key: Key[Array, ""], context: Context, n: int) -> Individuals:
        """Choose n elites; any individuals if the archive is empty."""


def select(
    selector: Selector,
    key: Key[Array, ""],
    context: Context,
    n: int,
    wanted: Bool[Array, " n"] | None = None,
) -> Individuals:
    """Select `n` individuals; if the archive is empty, draw them from `task.init` instead.

    These draws have not been evaluated: their fitness and feature are NaN. If none of them is `wanted`,
    the result is arbitrary; None wants all of them.
    """

    def draw(key: Array) -> Individuals:
        select_key, init_key = jax.random.split(key)
        elites = selector(select_key, context, n)
        # Both are computed: on a GPU, the host would have to wait for a branch.
        some = context.parents.occupied.any()
        return Individuals(
            jnp.where(some, elites.x, initial(context.task, init_key, n)),
            jnp.where(some, elites.fitness, jnp.nan),
            jnp.where(some, elites.feature, jnp.nan),
        )

    if wanted is None:
        return draw(key)
    nobody = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(draw, key))
    again = _for_branches(key)

    def draw_if_wanted() -> Individuals:
        drawn: Individuals = jax.lax.cond(wanted.any(), lambda: draw(again()), lambda: nobody)
        return drawn

    # On a CPU, this saves the work in all generations in which no lane starts again.
    return by_platform(xla_on_cpu=draw_if_wanted, xla=lambda: draw(again()))()


def _for_branches(key: Array) -> Callable[[], Array]:
    """Return a function that gives a key to each branch, of which one is taken.

    The key is passed as numbers. If seeds run together, JAX evaluates both branches, and would report a
    key that is used twice.
    """
    numbers, kind = jax.random.key_data(key), jax.random.key_impl(key)
    return lambda: jax.random.wrap_key_data(numbers, impl=kind)


@dataclass(frozen=True)
class Uniform:
    """Select each elite with equal probability, with replacement."""

    def __call__(self, key: Key[Array, ""], context: Context, n: int) -> Individuals:
        """Choose n elites."""
        occupied = context.parents.occupied
        c = occupied.shape[0]
        filled = jnp.cumsum(occupied)
        nth = jax.random.randint(key, (n,), 0, jnp.maximum(filled[-1], 1))
        # A list of the occupied cells instead of a binary search, which is slow on a GPU.
        slot = jnp.where(occupied, filled - 1, c)
        cells = jnp.zeros(c, jnp.int32).at[slot].set(jnp.arange(c, dtype=jnp.int32), mode="drop")
        return _take(context, cells[nth])


@dataclass(frozen=True)
class Fittest:
    """Select one of the `count` fittest elites, each with equal probability.

    Attributes:
        count: Number of elites to choose from.
    """

    count: int

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, count=self.count)

    def __call__(self, key: Key[Array, ""], context: Context, n: int) -> Individuals:
        """Choose n elites."""
        return _one_of_best(key, context, n, self.count, context.parents.fitness)


@dataclass(frozen=True)
class MostNovel:
    """Select one of the `count` most novel elites, each with equal probability.

    Attributes:
        count: Number of elites to choose from.
        neighbours: Number of nearest features in the novelty score.
    """

    count: int
    neighbours: int = 10

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, count=self.count, neighbours=self.neighbours)

    def __call__(self, key: Key[Array, ""], context: Context, n: int) -> Individuals:
        """Choose n elites."""
        score = novelty(context.parents.feature, context.past, self.neighbours)
        return _one_of_best(key, context, n, self.count, score)


@dataclass(frozen=True)
class FittestOfLatest:
    """Select one of the `count` fittest among the `latest` cells that changed.

    Attributes:
        count: Number of elites to choose from.
        latest: Number of cells among which they are the fittest.
    """

    count: int
    latest: int

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, count=self.count, latest=self.latest)

    def __call__(self, key: Key[Array, ""], context: Context, n: int) -> Individuals:
        """Choose n elites."""
        parents = context.parents
        _, recent = jax.lax.top_k(parents.generation, min(self.latest, parents.generation.shape[0]))
        # The lowest possible fitness; empty cells are still lower.
        lowest = jnp.full_like(parents.fitness, np.finfo(np.float32).min)
        score = lowest.at[recent].set(parents.fitness[recent])
        return _one_of_best(key, context, n, min(self.count, self.latest), score)


@dataclass(frozen=True)
class Either:
    """Select by `a` with the given probability, and by `b` otherwise.

    Attributes:
        a: The first selector.
        b: The second selector.
        probability: Probability of the first.
    """

    a: Selector
    b: Selector
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self)
        in_unit_interval(probability=self.probability)

    def __call__(self, key: Key[Array, ""], context: Context, n: int) -> Individuals:
        """Choose n elites."""
        key_a, key_b, key_choice = jax.random.split(key, 3)
        by_a = jax.random.bernoulli(key_choice, self.probability, (n,))
        return choose(by_a, self.a(key_a, context, n), self.b(key_b, context, n))


@dataclass(frozen=True)
class Cycle:
    """Select by `a` for `every` generations, then by `b` for as many, and so on.

    Attributes:
        a: The first selector.
        b: The second selector.
        every: Generations between changes.
    """

    a: Selector
    b: Selector
    every: int

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, every=self.every)

    def __call__(self, key: Key[Array, ""], context: Context, n: int) -> Individuals:
        """Choose n elites."""
        again = _for_branches(key)
        chosen: Individuals = jax.lax.cond(
            (context.generation // self.every) % 2 == 0,
            lambda: self.a(again(), context, n),
            lambda: self.b(again(), context, n),
        )
        return chosen


def _one_of_best(
    key: Key[Array, ""], context: Context, n: int, count: int, score: Float[Array, " c"]
) -> Individuals:
    occupied = context.parents.occupied
    ranked = jnp.where(occupied, score, -jnp.inf)
    _, best = jax.lax.top_k(ranked, min(count, ranked.shape[0]))
    choices = jnp.clip(jnp.sum(occupied), 1, best.shape[0])
    nth = jax.random.randint(key, (n,), 0, choices)
    return _take(context, best[nth])


def _take(context: Context, row: Int[Array, " n"]) -> Individuals:
    parents = context.parents
    return Individuals(parents.genotypes[row], parents.fitness[row], parents.feature[row])
