"""Objectives: functions that convert the evaluations of a lane's samples to utilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes.archive import Status, finite
from memes.context import Context, Kind
from memes.errors import at_least, in_unit_interval, require
from memes.history import HIGHEST, dominated_novelty, novelty
from memes.kernels.dispatch import choose
from memes.task import Evaluation
from memes.validation import check_fields

Utilities = Float[Array, "L M"]


@runtime_checkable
class Objective(Protocol):
    """A rule that scores the samples of lanes."""

    def init(self, lanes: int) -> PyTree:
        """Return the initial state."""

    def restart(self, key: Key[Array, ""], state: PyTree, where: Bool[Array, " L"]) -> PyTree:
        """Return the state after the lanes in `where` start or restart."""

    def utilities(
        self, state: PyTree, evaluation: Evaluation, context: Context
    ) -> tuple[PyTree, Utilities]:
        """Score the M samples of each of the L lanes, given `fitness[L, M]` and `feature[L, M, k]`.

        A sample with a non-finite evaluation has utility 0, so that it does not affect the gradient.
        """

    def kind(self, generation: Int[Array, ""]) -> Int[Array, ""] | int:
        """Return the `Kind` of the candidates that this objective produces."""


class Stateless:
    """A base class for objectives that have no state and produce only one kind of candidates.

    Attributes:
        purpose: The `Kind` of the candidates.
    """

    purpose: Kind = Kind.EXPLORE

    def init(self, lanes: int) -> tuple[()]:
        """Return an empty state."""
        return ()

    def restart(self, key: Key[Array, ""], state: tuple[()], where: Bool[Array, " L"]) -> tuple[()]:
        """Return the empty state."""
        return state

    def kind(self, generation: Int[Array, ""]) -> int:
        """Return `purpose`."""
        return self.purpose


# Up to this number of samples, all pairs of samples are compared. On a GPU, this comparison is one fused
# kernel, whereas sorting needs several kernels.
PAIRS = 1024
PAIRS_ON_CPU = 256


def centred_ranks(values: Float[Array, "*l m"], valid: Bool[Array, "*l m"]) -> Float[Array, "*l m"]:
    """Return ranks along the last axis, evenly spread over [-0.5, 0.5].

    Equal values get the mean of their ranks. Samples that are not `valid` get rank 0 and do not affect
    the ranks of other samples.
    """

    def by(few: int) -> Callable[[Array, Array], Array]:
        return _beaten_by_pairs if values.shape[-1] <= few else _beaten_by_sorting

    beaten = choose(xla_on_cpu=by(PAIRS_ON_CPU), xla=by(PAIRS))(values, valid)
    others = jnp.maximum(jnp.sum(valid, axis=-1, keepdims=True) - 1, 1)
    return jnp.where(valid, beaten / (2 * others), 0.0)


def _beaten_by_pairs(values: Array, valid: Array) -> Array:
    """For each entry, return the number of smaller valid entries minus the number of larger ones.

    All pairs are compared. The result is a float32 array. Its values for invalid entries are arbitrary.
    """
    values = jnp.where(valid, values, 0.0)
    above = jnp.sign(values[..., :, None] - values[..., None, :]) * valid[..., None, :]
    return jnp.sum(above, axis=-1)


def _beaten_by_sorting(values: Array, valid: Array) -> Array:
    """Compute the result of `_beaten_by_pairs` by sorting, in O(M log M) operations."""
    behind = jnp.where(valid, values, jnp.inf)  # invalid entries are sorted last
    # Among n valid entries, the entry of rank r is above r - 1 entries and below n - r entries. Equal
    # entries get the mean of their ranks.
    ranks: Array = jax.scipy.stats.rankdata(behind, axis=-1)
    return 2 * ranks - 1 - jnp.sum(valid, axis=-1, keepdims=True)


def ranked(score: Utilities, evaluation: Evaluation) -> Utilities:
    """Return the centred ranks of scores. Samples with non-finite values get rank 0."""
    return centred_ranks(score, finite(evaluation) & jnp.isfinite(score))


@dataclass(frozen=True)
class Ranked(Stateless):
    """An objective that ranks samples by a custom score.

    Attributes:
        score: A function `(evaluation, context) -> score[L, M]`. Higher scores are better.
        purpose: The `Kind` of the candidates that this objective produces.
    """

    score: Callable[[Evaluation, Context], Array]
    purpose: Kind = Kind.EXPLORE

    def __post_init__(self) -> None:
        check_fields(self)

    def utilities(
        self, state: tuple[()], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[()], Utilities]:
        """Rank samples by the score."""
        return state, ranked(self.score(evaluation, context), evaluation)


@dataclass(frozen=True)
class Fitness(Stateless):
    """An objective that ranks samples by fitness, for exploitation."""

    purpose = Kind.EXPLOIT

    def utilities(
        self, state: tuple[()], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[()], Utilities]:
        """Rank samples by fitness."""
        return state, ranked(evaluation.fitness, evaluation)


@dataclass(frozen=True)
class Novelty(Stateless):
    """An objective that ranks samples by novelty, for exploration.

    The novelty of a sample is the mean distance to the nearest features in the history.

    Attributes:
        neighbours: Number of nearest features.
    """

    neighbours: int = 10

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, neighbours=self.neighbours)

    def utilities(
        self, state: tuple[()], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[()], Utilities]:
        """Rank samples by novelty."""
        require(
            context.past.feature.shape[0] > 0,
            "history must store features for the objective Novelty, such as memes.history.FIFO()",
        )
        feature = evaluation.feature.reshape(-1, evaluation.feature.shape[-1])
        score = novelty(feature, context.past, self.neighbours).reshape(evaluation.fitness.shape)
        return state, ranked(score, evaluation)


@dataclass(frozen=True)
class DominatedNovelty(Stateless):
    """An objective that ranks samples by dominated novelty, for exploration.

    Dominated novelty is the mean distance to the nearest fitter parents. The parents are the individuals
    of the archive or of the judge. The docstring of `judges.DNSPopulation` contains the formula. Samples
    that are fitter than all parents rank first.

    Attributes:
        neighbours: Number of nearest fitter individuals.
    """

    neighbours: int = 3

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, neighbours=self.neighbours)

    def utilities(
        self, state: tuple[()], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[()], Utilities]:
        """Rank samples by dominated novelty."""
        parents = Evaluation(context.parents.fitness, context.parents.feature)
        score = dominated_novelty(evaluation, parents, self.neighbours)
        return state, ranked(jnp.minimum(score, HIGHEST), evaluation)


@dataclass(frozen=True)
class Improvement(Stateless):
    """An objective that ranks samples by their improvement, for exploration.

    The improvement is the fitness of a sample minus the fitness with which the judge compares the
    sample. The comparison uses the judge's state before this generation. If the judge is the archive,
    samples in empty cells are compared with 0. CMA-MAE uses this ranking ("imp" in pyribs).
    """

    def utilities(
        self, state: tuple[()], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[()], Utilities]:
        """Rank samples by improvement."""
        return state, ranked(context.compare(evaluation).value, evaluation)


@dataclass(frozen=True)
class TwoStageImprovement(Stateless):
    """An objective that ranks samples in two stages by their improvement, for exploration.

    Samples in empty cells rank above all other samples, and are ordered by fitness. The other samples
    are ordered by improvement. The improvement of a sample is its fitness minus the fitness of the
    previous elite in its cell. CMA-ME uses this improvement ranking ("2imp" in pyribs).
    """

    def utilities(
        self, state: tuple[()], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[()], Utilities]:
        """Rank samples by improvement, with samples in empty cells first."""
        status, value = context.compare(evaluation)
        return state, ranked(_in_two_stages(status == Status.NEW, value, evaluation), evaluation)


@dataclass(frozen=True)
class Accepted:
    """An objective with positive utilities for the samples that the judge would accept.

    The utility of an accepted sample is 1 plus its utility under another objective. All other samples
    have utility 0. Samples are compared with the judge's state before this generation. If a strategy
    uses only samples with positive utility as parents, it learns only from accepted samples. CMA-ME uses
    this rule. Reference: Fontaine et al., Covariance Matrix Adaptation for the Rapid Illumination of
    Behavior Space, GECCO 2020, arXiv:1912.02400.

    Attributes:
        objective: The objective that ranks the samples.
    """

    objective: Objective

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, lanes: int) -> PyTree:
        """Return the initial state of the objective."""
        return self.objective.init(lanes)

    def restart(self, key: Key[Array, ""], state: PyTree, where: Bool[Array, " L"]) -> PyTree:
        """Restart the objective."""
        return self.objective.restart(key, state, where)

    def utilities(
        self, state: PyTree, evaluation: Evaluation, context: Context
    ) -> tuple[PyTree, Utilities]:
        """Rank samples, and set the utility of rejected samples to 0."""
        state, utilities = self.objective.utilities(state, evaluation, context)
        accepted = context.compare(evaluation).status != Status.REJECTED
        return state, jnp.where(accepted & finite(evaluation), utilities + 1, 0.0)

    def kind(self, generation: Int[Array, ""]) -> Int[Array, ""] | int:
        """Return the kind of the objective."""
        return self.objective.kind(generation)


@dataclass(frozen=True)
class RandomDirection:
    """An objective that ranks samples along a random direction in feature space, for exploration.

    Each lane draws a uniformly random direction when it starts. Features are scaled by their ranges.
    Samples that the judge would accept rank above all other samples. CMA-ME uses this random-direction
    ranking.

    Attributes:
        features: Number of features.
    """

    features: int

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, features=self.features)

    def init(self, lanes: int) -> Float[Array, "L k"]:
        """Return directions of length 0."""
        return jnp.zeros((lanes, self.features))

    def restart(
        self, key: Key[Array, ""], state: Float[Array, "L k"], where: Bool[Array, " L"]
    ) -> Float[Array, "L k"]:
        """Draw new directions for the lanes in `where`."""
        drawn = jax.random.normal(key, state.shape)
        drawn = drawn / jnp.linalg.norm(drawn, axis=-1, keepdims=True)
        return jnp.where(where[:, None], drawn, state)

    def utilities(
        self, state: Float[Array, "L k"], evaluation: Evaluation, context: Context
    ) -> tuple[Float[Array, "L k"], Utilities]:
        """Rank samples along the direction of their lane, with accepted samples first."""
        task = context.task
        width = jnp.asarray(task.feature_high) - jnp.asarray(task.feature_low)
        along = jnp.sum(state[:, None] * evaluation.feature / width, axis=-1)
        accepted = context.compare(evaluation).status != Status.REJECTED
        score = _in_two_stages(accepted, along, evaluation)
        return state, centred_ranks(score, finite(evaluation))

    def kind(self, generation: Int[Array, ""]) -> int:
        """Return `Kind.EXPLORE`."""
        return Kind.EXPLORE


def _in_two_stages(first: Array, score: Array, evaluation: Evaluation) -> Array:
    """Return scores [L, M] that rank samples by `score`. Samples in `first` rank above all others."""
    return centred_ranks(score, finite(evaluation)) + 2.0 * first


@dataclass(frozen=True)
class Blend:
    """An objective whose utilities are a weighted sum of the utilities of two objectives.

    The sum is not ranked again.

    Attributes:
        a: The first objective, which determines the kind of the candidates.
        b: The second objective.
        weight: Weight of the first objective. The weight of the second objective is 1 minus this weight.
    """

    a: Objective
    b: Objective
    weight: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self)
        in_unit_interval(weight=self.weight)

    def init(self, lanes: int) -> tuple[PyTree, PyTree]:
        """Return the initial states of both objectives."""
        return self.a.init(lanes), self.b.init(lanes)

    def restart(
        self, key: Key[Array, ""], state: tuple[PyTree, PyTree], where: Bool[Array, " L"]
    ) -> tuple[PyTree, PyTree]:
        """Restart both objectives."""
        return _restart_both(self.a, self.b, key, state, where)

    def utilities(
        self, state: tuple[PyTree, PyTree], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[PyTree, PyTree], Utilities]:
        """Return the weighted sum of the utilities of both objectives."""
        state_a, of_a = self.a.utilities(state[0], evaluation, context)
        state_b, of_b = self.b.utilities(state[1], evaluation, context)
        return (state_a, state_b), self.weight * of_a + (1 - self.weight) * of_b

    def kind(self, generation: Int[Array, ""]) -> Int[Array, ""] | int:
        """Return the kind of the first objective."""
        return self.a.kind(generation)


class Adaptation(NamedTuple):
    """The state of the weight of `AdaptiveBlend`.

    Attributes:
        weight: Weight of the first objective.
        best: Best fitness so far.
        waited: Number of generations since the best fitness improved or the weight fell, whichever was
            later.
    """

    weight: Float[Array, ""]
    best: Float[Array, ""]
    waited: Int[Array, ""]


@dataclass(frozen=True)
class AdaptiveBlend:
    """A blend of two objectives with a weight that adapts to the progress of the best fitness.

    The weight of `a` rises when the best fitness in the archive improves. It falls after every
    `patience` generations without improvement. If `a` is fitness and `b` is novelty, this is the rule of
    NSRA-ES (Conti et al., 2018).

    Attributes:
        a: The objective with the adaptive weight.
        b: The objective whose weight is 1 minus the weight of `a`.
        weight: Initial weight of `a`.
        step: Amount by which the weight rises or falls. The weight is clipped to [0, 1].
        patience: Number of generations without improvement after which the weight falls.
    """

    a: Objective
    b: Objective
    weight: float = 1.0
    step: float = 0.05
    patience: int = 50

    def __post_init__(self) -> None:
        check_fields(self)
        in_unit_interval(weight=self.weight)
        require(0 <= self.step <= 1, f"step of the weight must lie in [0, 1], got {self.step}")
        at_least(1, patience=self.patience)

    def init(self, lanes: int) -> tuple[PyTree, PyTree, Adaptation]:
        """Return the initial states of both objectives, and the initial weight."""
        first = Adaptation(jnp.float32(self.weight), jnp.float32(-jnp.inf), jnp.int32(0))
        return self.a.init(lanes), self.b.init(lanes), first

    def restart(
        self, key: Key[Array, ""], state: tuple[PyTree, PyTree, Adaptation], where: Bool[Array, " L"]
    ) -> tuple[PyTree, PyTree, Adaptation]:
        """Restart both objectives, but keep the weight."""
        return *_restart_both(self.a, self.b, key, state[:2], where), state[2]

    def utilities(
        self, state: tuple[PyTree, PyTree, Adaptation], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[PyTree, PyTree, Adaptation], Utilities]:
        """Return the sum of the utilities of both objectives, with the current weights."""
        state_a, of_a = self.a.utilities(state[0], evaluation, context)
        state_b, of_b = self.b.utilities(state[1], evaluation, context)
        now = self._adapt(state[2], jnp.max(context.archive.fitness))
        return (state_a, state_b, now), now.weight * of_a + (1 - now.weight) * of_b

    def kind(self, generation: Int[Array, ""]) -> Int[Array, ""] | int:
        """Return the kind of the first objective."""
        return self.a.kind(generation)

    def _adapt(self, before: Adaptation, best: Float[Array, ""]) -> Adaptation:
        improved = best > before.best
        waited = jnp.where(improved, 0, before.waited + 1)
        fall = waited >= self.patience
        change = jnp.where(improved, self.step, jnp.where(fall, -self.step, 0.0))
        return Adaptation(
            weight=jnp.clip(before.weight + change, 0.0, 1.0),
            best=jnp.maximum(before.best, best),
            waited=jnp.where(fall, 0, waited),
        )


@dataclass(frozen=True)
class Alternate:
    """An objective that switches between two objectives every `every` generations.

    Only the current objective is computed.

    Attributes:
        a: The first objective.
        b: The second objective.
        every: Number of generations between switches.
    """

    a: Objective
    b: Objective
    every: int

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, every=self.every)

    def init(self, lanes: int) -> tuple[PyTree, PyTree]:
        """Return the initial states of both objectives."""
        return self.a.init(lanes), self.b.init(lanes)

    def restart(
        self, key: Key[Array, ""], state: tuple[PyTree, PyTree], where: Bool[Array, " L"]
    ) -> tuple[PyTree, PyTree]:
        """Restart both objectives."""
        return _restart_both(self.a, self.b, key, state, where)

    def utilities(
        self, state: tuple[PyTree, PyTree], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[PyTree, PyTree], Utilities]:
        """Return the utilities of the current objective."""

        def climb_a() -> tuple[tuple[PyTree, PyTree], Array]:
            state_a, of_a = self.a.utilities(state[0], evaluation, context)
            return (state_a, state[1]), of_a

        def climb_b() -> tuple[tuple[PyTree, PyTree], Array]:
            state_b, of_b = self.b.utilities(state[1], evaluation, context)
            return (state[0], state_b), of_b

        found: tuple[tuple[PyTree, PyTree], Array] = jax.lax.cond(
            self._first(context.generation), climb_a, climb_b
        )
        return found

    def kind(self, generation: Int[Array, ""]) -> Int[Array, ""]:
        """Return the kind of the current objective."""
        return jnp.where(self._first(generation), self.a.kind(generation), self.b.kind(generation))

    def _first(self, generation: Int[Array, ""]) -> Bool[Array, ""]:
        return (generation // self.every) % 2 == 0


def _restart_both(
    a: Objective, b: Objective, key: Array, state: tuple[PyTree, PyTree], where: Array
) -> tuple[PyTree, PyTree]:
    key_a, key_b = jax.random.split(key)
    return a.restart(key_a, state[0], where), b.restart(key_b, state[1], where)
