"""The interface of an emitter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array

from memes.context import Context
from memes.task import Evaluation, Task


class Proposal(NamedTuple):
    """What an emitter wants evaluated: a candidate of each of its L lanes, and S samples.

    Candidates `candidates[L, d]` may enter the archive where `offered[L]`; `lane[L]` says whose they
    are. Samples `samples[S, d]`, of lanes `sample_lane[S]`, inform the lanes.
    """

    candidates: Array
    offered: Array
    lane: Array
    samples: Array
    sample_lane: Array


class Rows(NamedTuple):
    """Evaluated rows: `x[n, d]`, their `evaluation`, and their archive `status[n]`."""

    x: Array
    evaluation: Evaluation
    status: Array


class Lanes(NamedTuple):
    """What an emitter says of its lanes after a generation; one entry for each candidate, [L].

    `kind` is the `Kind` of candidate; `parent_feature[L, k]` the feature of what it was made from (NaN
    if nothing); `age` how many steps its lane had taken since its last start; `stale` for how many
    generations in a row it was refused; `reset` the `Reason` for which the lane is reset now.
    """

    kind: Array
    parent_feature: Array
    age: Array
    stale: Array
    reset: Array


class Emitter(NamedTuple):
    """Proposes genotypes, and learns from what they evaluate to.

    Attributes:
        persistent: One flag a candidate: whether its lane goes on from one generation to the next.
        samples: Number of samples, S.
        lanes: Number of lanes it owns in all; `Proposal.lane` counts from 0 up to this.
        init: `(key, task) -> state`.
        ask: `(key, state, context) -> (state, Proposal)`.
        tell: `(state, candidates, samples, context) -> (state, Lanes)`, with both as `Rows`, and with
            the archive and the history of the context already updated by them.
        transitions: Whether it learns from transitions, which the task then has to yield.
    """

    persistent: tuple[bool, ...]
    samples: int
    lanes: int
    init: Callable[[Array, Task], Any]
    ask: Callable[[Array, Any, Context], tuple[Any, Proposal]]
    tell: Callable[[Any, Rows, Rows, Context], tuple[Any, Lanes]]
    transitions: bool = False

    @property
    def candidates(self) -> int:
        """Number of candidates, L."""
        return len(self.persistent)


def take(tree: Any, start: int, stop: int) -> Any:
    """Rows `start` to `stop` of every leaf."""
    return jax.tree.map(lambda leaf: leaf[start:stop], tree)
