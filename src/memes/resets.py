"""Resets: a lane gives up its mean and starts again from an elite."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int

from memes.errors import at_least


class Reason(IntEnum):
    """The reason for which a lane was reset."""

    NONE = 0
    STALE = 1
    PLANNED = 2
    DEGENERATE = 3


class Reset(NamedTuple):
    """Decides on resets, for each of L lanes.

    Attributes:
        earned: `(stale[L]) -> bool[L]`, judged once the candidate is known to be added or not. The
            lane's samples of that generation are thrown away.
        planned: `(age[L]) -> bool[L]`, known before the generation starts: it evaluates the last
            candidate and already samples around the next start, so that nothing is thrown away.
    """

    earned: Callable[[Array], Array]
    planned: Callable[[Array], Array]


def reason(
    *, stale: Bool[Array, " L"], planned: Bool[Array, " L"], degenerate: Bool[Array, " L"]
) -> Int[Array, " L"]:
    """Return the first `Reason` that holds for each lane."""
    reasons = [Reason.STALE, Reason.PLANNED, Reason.DEGENERATE]
    return jnp.select([stale, planned, degenerate], reasons, Reason.NONE).astype(jnp.int32)


def _no(count: Array) -> Array:
    return jnp.zeros_like(count, bool)


def never() -> Reset:
    """Let a lane go on for ever."""
    return Reset(earned=_no, planned=_no)


def stagnation(budget: int = 32) -> Reset:
    """Reset after more than `budget` generations in a row whose candidate the archive refused."""
    at_least(0, **{"budget of stale generations": budget})
    return Reset(earned=lambda stale: stale > budget, planned=_no)


def every(n: int) -> Reset:
    """Reset every `n` generations, come what may."""
    at_least(1, **{"n generations between resets": n})
    return Reset(earned=_no, planned=lambda age: age >= n)
