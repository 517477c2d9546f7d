"""The interface of a search distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jax import Array
from jaxtyping import PyTree

from memes.factors import Samples
from memes.shards import Shards


class Strategy(NamedTuple):
    """L independent search distributions over genotypes of d entries, advanced together.

    Attributes:
        samples: M, the samples that each lane draws in a generation.
        init: `(key, mean[L, d]) -> state`.
        mean: `(state) -> mean[L, d]`.
        ask: `(key, state) -> (state, samples)`: genotypes [L, M, d], or in factors.
        tell: `(state, x[L, M, d], utilities[L, M]) -> state`, with whole genotypes in any case; all that
            is random is drawn by `ask`.
        restart: `(key, state, where[L], mean[L, d]) -> state`; the lanes in `where` start afresh at
            `mean`.
        degenerate: `(state) -> bool[L]`, the lanes whose distribution is of no more use: collapsed, or
            no longer finite.
        split: `(shards) -> Strategy`, the same for one lane whose samples are divided among the shards:
            what `ask` returns is by shard, and so is what `tell` is told, [1, here * M / count, d], with
            all utilities; None if they cannot be divided.
    """

    samples: int
    init: Callable[[Array, Array], PyTree]
    mean: Callable[[PyTree], Array]
    ask: Callable[[Array, PyTree], tuple[PyTree, Samples]]
    tell: Callable[[PyTree, Array, Array], PyTree]
    restart: Callable[[Array, PyTree, Array, Array], PyTree]
    degenerate: Callable[[PyTree], Array]
    split: Callable[[Shards], Strategy | None] = lambda shards: None
