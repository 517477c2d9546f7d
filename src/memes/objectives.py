"""Objectives: they turn the evaluations of a lane's samples into utilities."""

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
    """A score for the samples of lanes."""

    def init(self, lanes: int) -> PyTree:
        """Return the first state."""

    def restart(self, key: Key[Array, ""], state: PyTree, where: Bool[Array, " L"]) -> PyTree:
        """Return the state after the lanes in `where` start, for the first time or again."""

    def utilities(
        self, state: PyTree, evaluation: Evaluation, context: Context
    ) -> tuple[PyTree, Utilities]:
        """Score M samples of each of L lanes: `fitness[L, M]` and `feature[L, M, k]`.

        A sample whose evaluation is not finite gets utility 0, so that it does not affect the gradient.
        """

    def kind(self, generation: Int[Array, ""]) -> Int[Array, ""] | int:
        """Return the `Kind` of the candidates that it produces."""


class Stateless:
    """The methods of an objective that has no state."""

    def init(self, lanes: int) -> tuple[()]:
        """Return an empty state."""
        return ()

    def restart(self, key: Key[Array, ""], state: tuple[()], where: Bool[Array, " L"]) -> tuple[()]:
        """Return the empty state."""
        return state


# Up to this number of samples all pairs are compared: on a GPU that is one fused kernel instead of
# several.
PAIRS = 1024
PAIRS_ON_CPU = 256


def centred_ranks(values: Float[Array, "*l m"], valid: Bool[Array, "*l m"]) -> Float[Array, "*l m"]:
    """Rank along the last axis, spread evenly over [-0.5, 0.5]; ties share the mean of their ranks.

    Samples that are not `valid` have rank 0 and do not affect the others.
    """

    def by(few: int) -> Callable[[Array, Array], Array]:
        return _beaten_by_pairs if values.shape[-1] <= few else _beaten_by_sorting

    beaten = choose(xla_on_cpu=by(PAIRS_ON_CPU), xla=by(PAIRS))(values, valid)
    others = jnp.maximum(jnp.sum(valid, axis=-1, keepdims=True) - 1, 1)
    return jnp.where(valid, beaten / (2 * others), 0.0)


def _beaten_by_pairs(values: Array, valid: Array) -> Array:
    """Count the valid entries below each valid one, minus those above it: float32."""
    values = jnp.where(valid, values, 0.0)
    above = jnp.sign(values[..., :, None] - values[..., None, :]) * valid[..., None, :]
    return jnp.sum(above, axis=-1)


def _beaten_by_sorting(values: Array, valid: Array) -> Array:
    """Compute the same by sorting, in M log M steps."""
    behind = jnp.where(valid, values, jnp.inf)  # invalid entries are sorted last
    # Of n valid entries, that of rank r is above r - 1 and below n - r; equal ones share the mean
    # rank.
    ranks: Array = jax.scipy.stats.rankdata(behind, axis=-1)
    return 2 * ranks - 1 - jnp.sum(valid, axis=-1, keepdims=True)


def ranked(score: Utilities, evaluation: Evaluation) -> Utilities:
    """Rank samples by a score, higher is better; samples that are not finite are ignored."""
    return centred_ranks(score, finite(evaluation) & jnp.isfinite(score))


@dataclass(frozen=True)
class Ranked(Stateless):
    """Climb any score: samples are ranked by it.

    Attributes:
        score: `(evaluation, context) -> score[L, M]`, higher is better.
        purpose: The `Kind` of the candidates that it produces.
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

    def kind(self, generation: Int[Array, ""]) -> int:
        """Candidates are of the given kind."""
        return self.purpose


@dataclass(frozen=True)
class Fitness(Stateless):
    """Climb the fitness of the task (exploit)."""

    def utilities(
        self, state: tuple[()], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[()], Utilities]:
        """Rank samples by fitness."""
        return state, ranked(evaluation.fitness, evaluation)

    def kind(self, generation: Int[Array, ""]) -> int:
        """Candidates exploit."""
        return Kind.EXPLOIT


@dataclass(frozen=True)
class Novelty(Stateless):
    """Climb the mean distance to the nearest features of the history (explore).

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

    def kind(self, generation: Int[Array, ""]) -> int:
        """Candidates explore."""
        return Kind.EXPLORE


@dataclass(frozen=True)
class DominatedNovelty(Stateless):
    """Climb the mean distance to the nearest fitter individuals among the parents (explore).

    This is the score of dominated novelty search (`judges.DNSPopulation` has the formula), among the
    individuals of the archive, or those of the judge. Samples that are fitter than all rank first.

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

    def kind(self, generation: Int[Array, ""]) -> int:
        """Candidates explore."""
        return Kind.EXPLORE


@dataclass(frozen=True)
class Improvement(Stateless):
    """Climb the fitness above that with which the judge compares a sample (explore).

    The judge is in its state before this generation. If the judge is the archive, samples in empty cells
    are compared with 0. This is the ranking of CMA-MAE ("imp" in pyribs).
    """

    def utilities(
        self, state: tuple[()], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[()], Utilities]:
        """Rank samples by improvement."""
        return state, ranked(context.compare(evaluation).value, evaluation)

    def kind(self, generation: Int[Array, ""]) -> int:
        """Candidates explore."""
        return Kind.EXPLORE


@dataclass(frozen=True)
class TwoStageImprovement(Stateless):
    """Climb the improvement of the archive, empty cells first (explore).

    Samples in empty cells rank above all others, by their fitness. The others follow, by the difference
    from the elite of their cell before this generation. This is the improvement ranking of CMA-ME
    ("2imp" in pyribs).
    """

    def utilities(
        self, state: tuple[()], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[()], Utilities]:
        """Rank samples in two stages."""
        status, value = context.compare(evaluation)
        return state, ranked(_in_two_stages(status == Status.NEW, value, evaluation), evaluation)

    def kind(self, generation: Int[Array, ""]) -> int:
        """Candidates explore."""
        return Kind.EXPLORE


@dataclass(frozen=True)
class Accepted:
    """Give the samples that the judge would accept their utility plus 1, and all others 0.

    The judge is the one before this generation. A strategy whose parents are the samples of positive
    utility then learns from the accepted samples alone, as in CMA-ME (Fontaine et al., Covariance Matrix
    Adaptation for the Rapid Illumination of Behavior Space, GECCO 2020, arXiv:1912.02400).

    Attributes:
        objective: The objective that ranks the samples.
    """

    objective: Objective

    def __post_init__(self) -> None:
        check_fields(self)

    def init(self, lanes: int) -> PyTree:
        """Return the state of the objective."""
        return self.objective.init(lanes)

    def restart(self, key: Key[Array, ""], state: PyTree, where: Bool[Array, " L"]) -> PyTree:
        """Restart the objective."""
        return self.objective.restart(key, state, where)

    def utilities(
        self, state: PyTree, evaluation: Evaluation, context: Context
    ) -> tuple[PyTree, Utilities]:
        """Rank samples, then leave those that are accepted."""
        state, utilities = self.objective.utilities(state, evaluation, context)
        accepted = context.compare(evaluation).status != Status.REJECTED
        return state, jnp.where(accepted & finite(evaluation), utilities + 1, 0.0)

    def kind(self, generation: Int[Array, ""]) -> Int[Array, ""] | int:
        """Candidates are of the kind of the objective."""
        return self.objective.kind(generation)


@dataclass(frozen=True)
class RandomDirection:
    """Climb along a random direction of the feature space (explore).

    A lane draws its direction when it starts, uniformly among all directions, in units of the feature
    bounds. Samples that the judge would accept rank above all others. This is the random-direction
    ranking of CMA-ME.

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
        """Draw new directions."""
        drawn = jax.random.normal(key, state.shape)
        drawn = drawn / jnp.linalg.norm(drawn, axis=-1, keepdims=True)
        return jnp.where(where[:, None], drawn, state)

    def utilities(
        self, state: Float[Array, "L k"], evaluation: Evaluation, context: Context
    ) -> tuple[Float[Array, "L k"], Utilities]:
        """Rank samples in two stages."""
        task = context.task
        width = jnp.asarray(task.feature_high) - jnp.asarray(task.feature_low)
        along = jnp.sum(state[:, None] * evaluation.feature / width, axis=-1)
        accepted = context.compare(evaluation).status != Status.REJECTED
        score = _in_two_stages(accepted, along, evaluation)
        return state, centred_ranks(score, finite(evaluation))

    def kind(self, generation: Int[Array, ""]) -> int:
        """Candidates explore."""
        return Kind.EXPLORE


def _in_two_stages(first: Array, score: Array, evaluation: Evaluation) -> Array:
    """Score [L, M] in the order of `score`, but all samples in `first` above all others."""
    return centred_ranks(score, finite(evaluation)) + 2.0 * first


@dataclass(frozen=True)
class Blend:
    """Add the utilities of two objectives, without ranking them again.

    Attributes:
        a: The first objective, which gives the kind of the candidates.
        b: The second objective.
        weight: Weight of the first; that of the second is 1 minus this.
    """

    a: Objective
    b: Objective
    weight: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self)
        in_unit_interval(weight=self.weight)

    def init(self, lanes: int) -> tuple[PyTree, PyTree]:
        """Return the states of both."""
        return self.a.init(lanes), self.b.init(lanes)

    def restart(
        self, key: Key[Array, ""], state: tuple[PyTree, PyTree], where: Bool[Array, " L"]
    ) -> tuple[PyTree, PyTree]:
        """Restart both."""
        return _restart_both(self.a, self.b, key, state, where)

    def utilities(
        self, state: tuple[PyTree, PyTree], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[PyTree, PyTree], Utilities]:
        """Add the utilities of both."""
        state_a, of_a = self.a.utilities(state[0], evaluation, context)
        state_b, of_b = self.b.utilities(state[1], evaluation, context)
        return (state_a, state_b), self.weight * of_a + (1 - self.weight) * of_b

    def kind(self, generation: Int[Array, ""]) -> Int[Array, ""] | int:
        """Candidates are of the kind of the first objective."""
        return self.a.kind(generation)


class Adaptation(NamedTuple):
    """The weight of the first objective, the best fitness so far, and generations since it improved."""

    weight: Float[Array, ""]
    best: Float[Array, ""]
    waited: Int[Array, ""]


@dataclass(frozen=True)
class AdaptiveBlend:
    """Blend two objectives; the weight of `a` rises when the best fitness improves, and else falls.

    The best fitness is that of all candidates so far; samples do not count. With fitness as `a` and
    novelty as `b` this is the rule of NSRA-ES (Conti et al., 2018).

    Attributes:
        a: The objective with the given weight.
        b: The objective with the remaining weight.
        weight: First weight of `a`.
        step: Change of the weight, which stays in [0, 1].
        patience: Generations without improvement after which the weight falls, each time.
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
        """Return the states of both, and the first weight."""
        first = Adaptation(jnp.float32(self.weight), jnp.float32(-jnp.inf), jnp.int32(0))
        return self.a.init(lanes), self.b.init(lanes), first

    def restart(
        self, key: Key[Array, ""], state: tuple[PyTree, PyTree, Adaptation], where: Bool[Array, " L"]
    ) -> tuple[PyTree, PyTree, Adaptation]:
        """Restart both; the weight stays."""
        return *_restart_both(self.a, self.b, key, state[:2], where), state[2]

    def utilities(
        self, state: tuple[PyTree, PyTree, Adaptation], evaluation: Evaluation, context: Context
    ) -> tuple[tuple[PyTree, PyTree, Adaptation], Utilities]:
        """Add the utilities of both with the present weight."""
        state_a, of_a = self.a.utilities(state[0], evaluation, context)
        state_b, of_b = self.b.utilities(state[1], evaluation, context)
        now = self._adapt(state[2], jnp.max(context.archive.fitness))
        return (state_a, state_b, now), now.weight * of_a + (1 - now.weight) * of_b

    def kind(self, generation: Int[Array, ""]) -> Int[Array, ""] | int:
        """Candidates are of the kind of the first objective."""
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
    """Climb `a` for `every` generations, then `b` for as many, and so on; only one is computed.

    Attributes:
        a: The first objective.
        b: The second objective.
        every: Generations between changes.
    """

    a: Objective
    b: Objective
    every: int

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, every=self.every)

    def init(self, lanes: int) -> tuple[PyTree, PyTree]:
        """Return the states of both."""
        return self.a.init(lanes), self.b.init(lanes)

    def restart(
        self, key: Key[Array, ""], state: tuple[PyTree, PyTree], where: Bool[Array, " L"]
    ) -> tuple[PyTree, PyTree]:
        """Restart both."""
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
        """Candidates are of the kind of the current objective."""
        return jnp.where(self._first(generation), self.a.kind(generation), self.b.kind(generation))

    def _first(self, generation: Int[Array, ""]) -> Bool[Array, ""]:
        return (generation // self.every) % 2 == 0


def _restart_both(
    a: Objective, b: Objective, key: Array, state: tuple[PyTree, PyTree], where: Array
) -> tuple[PyTree, PyTree]:
    key_a, key_b = jax.random.split(key)
    return a.restart(key_a, state[0], where), b.restart(key_b, state[1], where)
