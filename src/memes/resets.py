"""Resets: rules that determine when a lane abandons its mean and starts again from an elite."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int

from memes.errors import at_least
from memes.validation import check_fields


class Reason(IntEnum):
    """The reason why a lane was reset."""

    NONE = 0
    STALE = 1
    PLANNED = 2
    DEGENERATE = 3


@runtime_checkable
class Reset(Protocol):
    """A rule that determines which of L lanes are reset."""

    def earned(self, stale: Int[Array, " L"]) -> Bool[Array, " L"]:
        """Return True for every lane that is reset because its candidates were rejected.

        The decision is made after the evaluation. The samples that a reset lane drew in the same
        generation are discarded.
        """

    def planned(self, age: Int[Array, " L"]) -> Bool[Array, " L"]:
        """Return True for every lane whose reset is determined before the generation starts.

        A reset lane still offers its last candidate in the generation. However, its samples are drawn
        around the elite from which it starts again. Therefore, no evaluation is discarded.
        """


def reason(
    *, stale: Bool[Array, " L"], planned: Bool[Array, " L"], degenerate: Bool[Array, " L"]
) -> Int[Array, " L"]:
    """Return the first `Reason` that applies to each lane."""
    reasons = [Reason.STALE, Reason.PLANNED, Reason.DEGENERATE]
    return jnp.select([stale, planned, degenerate], reasons, Reason.NONE).astype(jnp.int32)


@dataclass(frozen=True)
class Never:
    """A rule that never resets a lane."""

    def earned(self, stale: Int[Array, " L"]) -> Bool[Array, " L"]:
        """Return False for every lane."""
        return jnp.zeros_like(stale, bool)

    def planned(self, age: Int[Array, " L"]) -> Bool[Array, " L"]:
        """Return False for every lane."""
        return jnp.zeros_like(age, bool)


@dataclass(frozen=True)
class Stagnation:
    """A rule that resets a lane after more than `budget` consecutive rejected candidates.

    Attributes:
        budget: Maximum number of consecutive rejected candidates of a lane (S_max of the paper).
    """

    budget: int = 32

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(0, **{"budget of stale generations": self.budget})

    def earned(self, stale: Int[Array, " L"]) -> Bool[Array, " L"]:
        """Return True for every lane with more consecutive rejected candidates than the budget."""
        return stale > self.budget

    def planned(self, age: Int[Array, " L"]) -> Bool[Array, " L"]:
        """Return False for every lane."""
        return jnp.zeros_like(age, bool)


@dataclass(frozen=True)
class Every:
    """A rule that resets a lane every `n` generations, regardless of its progress.

    Attributes:
        n: Number of generations between two resets.
    """

    n: int

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, **{"n generations between resets": self.n})

    def earned(self, stale: Int[Array, " L"]) -> Bool[Array, " L"]:
        """Return False for every lane."""
        return jnp.zeros_like(stale, bool)

    def planned(self, age: Int[Array, " L"]) -> Bool[Array, " L"]:
        """Return True for every lane that has taken at least `n` steps."""
        return age >= self.n
