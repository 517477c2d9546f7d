"""Selectors: rules that choose the elites from which lanes start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
    """The genotypes, fitness and features of selected individuals."""

    x: Float[Array, "n d"]
    fitness: Float[Array, " n"]
    feature: Float[Array, "n k"]


@runtime_checkable
class Selector(Protocol):
    """A rule that chooses elites."""

    def __call__(self, key: Key[Array, ""], context: Context, n: int) -> Individuals:
        """Choose n elites. If the archive is empty, the result is arbitrary."""


def select(
    selector: Selector,
    key: Key[Array, ""],
    context: Context,
    n: int,
    wanted: Bool[Array, " n"] | None = None,
) -> Individuals:
    """Select `n` individuals from the archive, or draw them from `task.init` if the archive is empty.

    The fitness and feature of drawn individuals are NaN, because these individuals have not been
    evaluated. `wanted` marks the individuals that the caller needs. If the caller needs none of them,
    the result is arbitrary. If `wanted` is None, the caller needs all individuals.
    """

    def draw(key: Array) -> Individuals:
        select_key, init_key = jax.random.split(key)
        elites = selector(select_key, context, n)
        # Both elites and random genotypes are computed, because on a GPU, a branch would block the host.
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

    # On a CPU, the selection is skipped if the caller needs no individuals.
    return by_platform(xla_on_cpu=draw_if_wanted, xla=lambda: draw(again()))()


def _for_branches(key: Array) -> Callable[[], Array]:
    """Return a function that rebuilds the key from its data. Each branch of `jax.lax.cond` calls it.

    If several seeds run together, JAX evaluates both branches. If both branches used the original key,
    JAX would report that the key is used twice.
    """
    numbers, kind = jax.random.key_data(key), jax.random.key_impl(key)
    return lambda: jax.random.wrap_key_data(numbers, impl=kind)


@dataclass(frozen=True)
class Uniform:
    """A selector that draws elites uniformly, with replacement."""

    def __call__(self, key: Key[Array, ""], context: Context, n: int) -> Individuals:
        """Choose n elites."""
        occupied = context.parents.occupied
        c = occupied.shape[0]
        filled = jnp.cumsum(occupied)
        nth = jax.random.randint(key, (n,), 0, jnp.maximum(filled[-1], 1))
        # The draws are indices into a list of occupied cells, because a binary search is slow on a GPU.
        slot = jnp.where(occupied, filled - 1, c)
        cells = jnp.zeros(c, jnp.int32).at[slot].set(jnp.arange(c, dtype=jnp.int32), mode="drop")
        return _take(context, cells[nth])


@dataclass(frozen=True)
class UniformElites:
    """A selector that draws uniformly among all elites of the archive.

    Other selectors draw individuals of the judge, if the judge stores individuals.
    """

    def __call__(self, key: Key[Array, ""], context: Context, n: int) -> Individuals:
        """Choose n elites."""
        return Uniform()(key, replace(context, parents=context.archive), n)


@dataclass(frozen=True)
class Fittest:
    """A selector that draws uniformly among the `count` fittest elites.

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
    """A selector that draws uniformly among the `count` most novel elites.

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
    """A selector that draws uniformly among the fittest elites in the most recently changed cells.

    Attributes:
        count: Number of elites to choose from.
        latest: Number of most recently changed cells to consider.
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
        # Elites outside the recent cells get the lowest finite score. Empty cells are excluded later.
        lowest = jnp.full_like(parents.fitness, np.finfo(np.float32).min)
        score = lowest.at[recent].set(parents.fitness[recent])
        return _one_of_best(key, context, n, min(self.count, self.latest), score)


@dataclass(frozen=True)
class Either:
    """A selector that uses `a` with the given probability, and `b` otherwise.

    Attributes:
        a: The first selector.
        b: The second selector.
        probability: Probability of using the first selector.
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
    """A selector that alternates between two selectors.

    Attributes:
        a: The first selector.
        b: The second selector.
        every: Number of generations after which the selector switches.
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
