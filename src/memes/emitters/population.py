"""The emitter of NS-ES: a population of means, one of which is updated per generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key, PyTree

from memes.archive import Status, finite
from memes.context import Context
from memes.control.perturbations import Repeats
from memes.emitters.base import Batch, Lanes, Rows, first_search
from memes.errors import at_least
from memes.history import novelty
from memes.objectives import Objective
from memes.pytrees import by_lane, pick, put
from memes.resets import Reason
from memes.strategies import OpenAIES, Strategy
from memes.task import Task
from memes.validation import check_fields


@runtime_checkable
class Play(Protocol):
    """A rule that chooses one of n means."""

    def __call__(
        self, key: Key[Array, ""], context: Context, feature: Float[Array, "n k"]
    ) -> Int[Array, ""]:
        """Choose a mean, given the features of all means (NaN if unknown), and return its index."""


@dataclass(frozen=True)
class ByNovelty:
    """A rule that chooses means with probabilities proportional to the novelty of their features.

    A mean with an unknown feature has the same probability as the most novel mean. If all means have a
    novelty of 0, they have equal probabilities.

    Attributes:
        neighbours: Number of nearest neighbours from which novelty is computed.
    """

    neighbours: int = 10

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, neighbours=self.neighbours)

    def __call__(
        self, key: Key[Array, ""], context: Context, feature: Float[Array, "n k"]
    ) -> Int[Array, ""]:
        """Return the index of the chosen mean."""
        known = jnp.isfinite(feature).all(axis=-1)
        score = jnp.where(known, novelty(feature, context.past, self.neighbours), 0.0)
        weight = jnp.where(known, score, jnp.max(score))
        weight = jnp.where(jnp.any(weight > 0), weight, 1.0)
        return jax.random.categorical(key, jnp.log(weight))


class PopulationState(NamedTuple):
    """The state of n means.

    Attributes:
        strategy: State of the strategy, with a leading axis n.
        objective: State of the objective, which all means share.
        feature: Last recorded feature of each mean; NaN until its first evaluation.
        age: Number of steps of each mean.
        stale: Number of consecutive rejected candidates of each mean.
        kind: `Kind` of the next candidate.
        offering: Index of the mean that is the next candidate; -1 before the first step.
        playing: Index of the mean around which samples are drawn.
    """

    strategy: PyTree
    objective: PyTree
    feature: Float[Array, "n k"]
    age: Int[Array, " n"]
    stale: Int[Array, " n"]
    kind: Int[Array, ""]
    offering: Int[Array, ""]
    playing: Int[Array, ""]


@dataclass(frozen=True)
class Population:
    """An emitter with a population of means, one of which is updated per generation.

    Each generation evaluates the mean that was updated in the previous generation. It also evaluates
    samples around a newly chosen mean. All other means keep their state.

    Attributes:
        objective: The objective that the means maximise. All means share its state.
        size: Number of means.
        strategy: Search distribution of each mean.
        play: Rule that chooses the mean around which samples are drawn.
    """

    objective: Objective
    size: int
    strategy: Strategy = OpenAIES()
    play: Play = ByNovelty()

    transitions: ClassVar[bool] = False
    gradients: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, **{"size of the population": self.size})

    @property
    def lanes(self) -> int:
        """Number of lanes: one per mean."""
        return self.size

    @property
    def persistent(self) -> tuple[bool, ...]:
        """True for the only candidate, because its mean continues in later generations."""
        return (True,)

    @property
    def samples(self) -> int:
        """Number of samples around one mean."""
        return self.strategy.samples

    def init(self, key: Key[Array, ""], task: Task) -> PopulationState:
        """Start every mean at a genotype of `task.init`."""
        zero = jnp.zeros(self.size, jnp.int32)
        return PopulationState(
            strategy=first_search(self.strategy, key, task, self.size),
            objective=self.objective.init(1),
            feature=jnp.full((self.size, task.feature_dim), jnp.nan),
            age=zero,
            stale=zero,
            kind=jnp.asarray(self.objective.kind(jnp.int32(0)), jnp.int32),
            offering=jnp.int32(-1),
            playing=jnp.int32(0),
        )

    def ask(
        self, key: Key[Array, ""], state: PopulationState, context: Context
    ) -> tuple[PopulationState, Batch]:
        """Propose the mean that was updated last, together with samples around the chosen mean."""
        play_key, sample_key, objective_key = jax.random.split(key, 3)
        playing = self.play(play_key, context, state.feature).astype(jnp.int32)
        # In the first generation, no mean has been updated, so the candidate is the chosen mean.
        offering = jnp.where(state.offering < 0, playing, state.offering)
        searching, samples = self.strategy.ask(sample_key, pick(state.strategy, playing[None]))
        first = context.generation[None] == 0
        state = state._replace(
            strategy=put(state.strategy, playing[None], searching),
            objective=self.objective.restart(objective_key, state.objective, first),
            offering=offering,
            playing=playing,
        )
        batch = Batch(
            candidates=Repeats(self.strategy.mean(state.strategy)[offering[None]]),
            offered=jnp.ones(1, bool),
            lane=offering[None],
            again=jnp.full(1, -1, jnp.int32),
            samples=(samples,),
            sample_lane=jnp.full(self.strategy.samples, playing),
        )
        return state, batch

    def tell(
        self, state: PopulationState, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[PopulationState, Lanes]:
        """Record the candidate, and update the chosen mean."""
        offering, playing = state.offering, state.playing
        age, parent_feature = state.age[offering], state.feature[offering]
        rejected = candidates.status[0] == Status.REJECTED
        stale = jnp.where((age > 0) & rejected, state.stale[offering] + 1, 0)
        report = Lanes(
            kind=state.kind[None],
            parent_feature=parent_feature[None],
            age=age[None],
            stale=stale[None],
            reset=jnp.full(1, Reason.NONE, jnp.int32),
        )

        told = by_lane(samples, 1)
        objective, utilities = self.objective.utilities(state.objective, told.evaluation, context)
        stepped = self.strategy.tell(pick(state.strategy, playing[None]), told.x, utilities)
        known = jnp.where(
            finite(candidates.evaluation)[0], candidates.evaluation.feature[0], parent_feature
        )
        state = state._replace(
            strategy=put(state.strategy, playing[None], stepped),
            objective=objective,
            feature=state.feature.at[offering].set(known),
            age=state.age.at[playing].add(1),
            stale=state.stale.at[offering].set(stale),
            kind=jnp.asarray(self.objective.kind(context.generation), jnp.int32),
            offering=playing,
        )
        return state, report
