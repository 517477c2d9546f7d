"""The interface of an emitter, and the data that emitters and the algorithm exchange."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes.context import Context, Kind
from memes.control.perturbations import Repeats, Samples, rows
from memes.resets import Reason
from memes.strategies import Strategy
from memes.task import Evaluation, Task, initial


class Batch(NamedTuple):
    """The genotypes to evaluate: C candidates for the archive, and S samples from which lanes learn.

    Attributes:
        candidates: Genotypes of the candidates. An emitter proposes each candidate once, and
            `Algorithm.ask` sets the number of its evaluations.
        offered: Whether each candidate may enter the archive.
        lane: Lane of each candidate.
        again: For each candidate that is evaluated again, its row in the judge's `parents`. For each new
            candidate, -1.
        samples: Groups of samples, as whole genotypes or in factored form.
        sample_lane: Lane of each sample.
    """

    candidates: Repeats
    offered: Bool[Array, " C"]
    lane: Int[Array, " C"]
    again: Int[Array, " C"]
    samples: tuple[Samples, ...]
    sample_lane: Int[Array, " S"]

    @property
    def size(self) -> int:
        """Number of evaluations."""
        return self.candidates.evaluations + int(self.sample_lane.shape[0])

    @property
    def x(self) -> Float[Array, "n d"]:
        """Whole genotypes of all evaluations, candidates first."""
        return jnp.concatenate([rows(self.candidates), *map(rows, self.samples)])


class Rows(NamedTuple):
    """Evaluated genotypes, each with the `Status` that the judge gave to it."""

    x: Float[Array, "*n d"]
    evaluation: Evaluation
    status: Int[Array, "*n"]


class Lanes(NamedTuple):
    """The report of an emitter on its lanes after a generation, with one entry per candidate.

    Attributes:
        kind: The `Kind` of each candidate.
        parent_feature: The feature of each candidate's parent; NaN if the candidate has no parent.
        age: Number of steps of each candidate's lane since the lane last started.
        stale: Number of consecutive rejected candidates of each candidate's lane.
        reset: The `Reason` why each candidate's lane is reset in this generation; `Reason.NONE` if the
            lane continues.
    """

    kind: Int[Array, " C"]
    parent_feature: Float[Array, "C k"]
    age: Int[Array, " C"]
    stale: Int[Array, " C"]
    reset: Int[Array, " C"]


@runtime_checkable
class Emitter(Protocol):
    """A source of genotypes that learns from their evaluations.

    If an emitter has a field `lanes`, a lane may obtain data about other lanes only from the `Context`.
    The number of lanes can therefore be changed with `dataclasses.replace(emitter, lanes=n)`.
    """

    @property
    def lanes(self) -> int:
        """Number of lanes. The lanes in `Batch.lane` are numbered from 0."""

    @property
    def persistent(self) -> tuple[bool, ...]:
        """One flag per candidate: True if the candidate's lane continues in the next generation."""

    @property
    def samples(self) -> int:
        """Number of samples per generation, S."""

    @property
    def transitions(self) -> bool:
        """True if the emitter learns from transitions. In this case, the task must provide them."""

    @property
    def gradients(self) -> bool:
        """True if the emitter uses gradients. In this case, the task must be differentiable."""

    def init(self, key: Key[Array, ""], task: Task) -> PyTree:
        """Return the initial state."""

    def ask(self, key: Key[Array, ""], state: PyTree, context: Context) -> tuple[PyTree, Batch]:
        """Propose genotypes, with one evaluation per candidate."""

    def tell(
        self, state: PyTree, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[PyTree, Lanes]:
        """Learn from the evaluations after they have entered the archive and the history."""


def first_search(strategy: Strategy, key: Key[Array, ""], task: Task, lanes: int) -> PyTree:
    """Start a strategy at genotypes drawn from `task.init`."""
    # `task.init` may split `key` into at most 2**32 - 1 keys. The key of the strategy differs from all
    # of these keys.
    strategy_key = jax.random.fold_in(key, 2**32 - 1)
    return strategy.init(strategy_key, initial(task, key, lanes))


def offspring(x: Float[Array, "C d"], lane: Int[Array, " C"]) -> Batch:
    """Return a batch of candidates without samples."""
    return Batch(Repeats(x), jnp.ones(lane.shape, bool), lane, jnp.full_like(lane, -1), (), lane[:0])


def report(kind: Kind, parent_feature: Float[Array, "C k"]) -> Lanes:
    """Return the report on candidates whose lanes end after this generation."""
    zero = jnp.zeros(parent_feature.shape[0], jnp.int32)
    return Lanes(
        kind=jnp.full_like(zero, kind),
        parent_feature=parent_feature,
        age=zero,
        stale=zero,
        reset=jnp.full_like(zero, Reason.NONE),
    )
