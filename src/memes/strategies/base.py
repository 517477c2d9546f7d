"""The interface of a search distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Strategy(NamedTuple):
    """L independent search distributions over genotypes of d entries, advanced together.

    Attributes:
        samples: M, the samples that each lane draws in a generation.
        init: `(mean[L, d]) -> state`.
        mean: `(state) -> mean[L, d]`.
        ask: `(key, state) -> (state, x[L, M, d])`.
        tell: `(state, x[L, M, d], utilities[L, M]) -> state`.
        restart: `(state, where[L], mean[L, d]) -> state`; the lanes in `where` start afresh at `mean`.
        degenerate: `(state) -> bool[L]`, the lanes whose distribution is of no more use: collapsed, or
            no longer finite.
    """

    samples: int
    init: Callable[[Array], Any]
    mean: Callable[[Any], Array]
    ask: Callable[[Array, Any], tuple[Any, Array]]
    tell: Callable[[Any, Array, Array], Any]
    restart: Callable[[Any, Array, Array], Any]
    degenerate: Callable[[Any], Array]


def choose_lanes(where: Array, new: Any, old: Any) -> Any:
    """For each lane, all leaves of `new` where `where[L]`, those of `old` elsewhere."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(where.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, new, old)
