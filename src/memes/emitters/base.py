"""The interface of an emitter."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes.context import Context, Kind
from memes.factors import Samples
from memes.resets import Reason
from memes.shards import Shards
from memes.strategies import Strategy
from memes.task import Evaluation, Task, initial


class Proposal(NamedTuple):
    """Rows that an emitter wants evaluated: a candidate of each of its L lanes, and S samples.

    Candidates may enter the archive where they are `offered`; `lane` says whose they are. Samples, in
    one group after the other and of lanes `sample_lane[S]`, inform the lanes. Of an emitter
    that is dealt to shards all is by shard.
    """

    candidates: Float[Array, "*s L d"]
    offered: Bool[Array, "*s L"]
    lane: Int[Array, "*s L"]
    samples: tuple[Samples, ...]
    sample_lane: Int[Array, "*s S"]


class Rows(NamedTuple):
    """Evaluated rows: genotypes [n, d], their evaluation, and the archive's `Status` for them."""

    x: Float[Array, "*n d"]
    evaluation: Evaluation
    status: Int[Array, "*n"]


class Lanes(NamedTuple):
    """The report of an emitter on its lanes after a generation, with an entry for each candidate.

    Attributes:
        kind: The `Kind` of candidate.
        parent_feature: The feature of what it was made from; NaN if nothing.
        age: How many steps its lane had taken since its last start.
        stale: For how many generations in a row it was refused.
        reset: The `Reason` for which the lane is reset now.
    """

    kind: Int[Array, "*s L"]
    parent_feature: Float[Array, "*s L k"]
    age: Int[Array, "*s L"]
    stale: Int[Array, "*s L"]
    reset: Int[Array, "*s L"]


class Emitter(NamedTuple):
    """A source of genotypes, which learns from what they evaluate to.

    Attributes:
        persistent: One flag a candidate: whether its lane goes on from one generation to the next.
        samples: Number of samples, S.
        lanes: Number of lanes it owns in all; `Proposal.lane` counts from 0 up to this.
        init: `(key, task) -> state`.
        ask: `(key, state, context) -> (state, Proposal)`.
        tell: `(state, candidates, samples, context) -> (state, Lanes)`, with both as `Rows`, and with
            the archive and the history of the context already updated by them.
        transitions: Whether it learns from transitions, which the task then has to yield.
        part: `(count) -> Emitter` of the lanes of one of so many shards; None if they cannot be dealt.
        split: `(shards) -> Emitter`, the same emitter with its samples divided among the shards, as
            `memes.emitters.dealing` has it; None if they cannot be.
    """

    persistent: tuple[bool, ...]
    samples: int
    lanes: int
    init: Callable[[Array, Task], PyTree]
    ask: Callable[[Array, PyTree, Context], tuple[PyTree, Proposal]]
    tell: Callable[[PyTree, Rows, Rows, Context], tuple[PyTree, Lanes]]
    transitions: bool = False
    part: Callable[[int], Emitter | None] = lambda count: None
    split: Callable[[Shards], Emitter | None] = lambda shards: None

    @property
    def candidates(self) -> int:
        """Number of candidates, L."""
        return len(self.persistent)


def first_search(strategy: Strategy, key: Key[Array, ""], task: Task, lanes: int) -> PyTree:
    """Start a strategy at genotypes drawn from `task.init`."""
    # `task.init` may split its key in any way: this number is in none of them.
    strategy_key = jax.random.fold_in(key, 2**32 - 1)
    return strategy.init(strategy_key, initial(task, key, lanes))


def offspring(candidates: Float[Array, "L d"]) -> Proposal:
    """Propose candidates without samples, each of a lane of its own."""
    lane = jnp.arange(candidates.shape[0], dtype=jnp.int32)
    return Proposal(candidates, jnp.ones(lane.shape, bool), lane, (), lane[:0])


def report(kind: Kind, parent_feature: Float[Array, "L k"]) -> Lanes:
    """Report on candidates whose lanes do not go on."""
    zero = jnp.zeros(parent_feature.shape[0], jnp.int32)
    return Lanes(
        kind=jnp.full_like(zero, kind),
        parent_feature=parent_feature,
        age=zero,
        stale=zero,
        reset=jnp.full_like(zero, Reason.NONE),
    )
