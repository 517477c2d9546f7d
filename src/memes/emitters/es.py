"""The emitter of MEMES: lanes of evolution strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes.archive import Status
from memes.context import Context
from memes.control.perturbations import Repeats
from memes.emitters.base import Batch, Lanes, Rows, first_search
from memes.errors import at_least
from memes.objectives import Objective
from memes.pytrees import by_lane, choose
from memes.resets import Never, Reset, reason
from memes.selectors import Selector, Uniform, select
from memes.strategies import OpenAIES, Strategy
from memes.task import Task
from memes.validation import check_fields


class ESState(NamedTuple):
    """The state of L lanes.

    Attributes:
        strategy: State of the strategy.
        objective: State of the objective.
        age: Number of steps of each lane since its last start, including the step to its next mean.
        kind: `Kind` of the next mean.
        parent_feature: Feature of each lane's mean before the last step.
        stale: Number of consecutive rejected means of each lane.
        due: Whether the next `ask` resets each lane.
        restarted: Whether each lane samples around an elite in this generation.
        start_feature: Feature of the elite that was selected for each lane.
    """

    strategy: PyTree
    objective: PyTree
    age: Int[Array, " L"]
    kind: Int[Array, " L"]
    parent_feature: Float[Array, "L k"]
    stale: Int[Array, " L"]
    due: Bool[Array, " L"]
    restarted: Bool[Array, " L"]
    start_feature: Float[Array, "L k"]


@dataclass(frozen=True)
class ES:
    """An emitter whose lanes are evolution strategies. The mean of each lane is offered to the archive.

    A generation evaluates the mean of every lane together with the samples around it. After the judge
    has accepted or rejected the mean, the lane either takes a step or is reset.

    A reset lane starts again from an elite, with a new optimiser. This elite is not offered again,
    because a better fitness in another evaluation would only be due to evaluation noise. The elite
    also does not increase the lane's `stale`, and does not enter the history.

    Attributes:
        objective: The objective that the lanes maximise.
        lanes: Number of evolution strategies.
        strategy: Search distribution of each lane.
        reset: Rule that determines when a lane is reset.
        selector: Rule that chooses the elite from which a lane starts again.
    """

    objective: Objective
    lanes: int
    strategy: Strategy = OpenAIES()
    reset: Reset = Never()
    selector: Selector = Uniform()

    transitions: ClassVar[bool] = False
    gradients: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, lanes=self.lanes)

    @property
    def persistent(self) -> tuple[bool, ...]:
        """Whether each lane continues in the next generation: True for all lanes."""
        return (True,) * self.lanes

    @property
    def samples(self) -> int:
        """Number of samples of all lanes."""
        return self.lanes * self.strategy.samples

    def init(self, key: Key[Array, ""], task: Task) -> ESState:
        """Start every lane at a genotype of `task.init`."""
        unknown = jnp.full((self.lanes, task.feature_dim), jnp.nan)
        zero, no = jnp.zeros(self.lanes, jnp.int32), jnp.zeros(self.lanes, bool)
        return ESState(
            strategy=first_search(self.strategy, key, task, self.lanes),
            objective=self.objective.init(self.lanes),
            age=zero,
            kind=self._kind(jnp.int32(0)),
            parent_feature=unknown,
            stale=zero,
            due=no,
            restarted=no,
            start_feature=unknown,
        )

    def ask(self, key: Key[Array, ""], state: ESState, context: Context) -> tuple[ESState, Batch]:
        """Reset the lanes that require it, then propose every mean and the samples around it."""
        select_key, sample_key, objective_key, restart_key = jax.random.split(key, 4)
        planned = self.reset.planned(state.age) & ~state.due
        restarted = state.due | planned
        elite = select(self.selector, select_key, context, self.lanes, restarted)
        started = self.strategy.restart(restart_key, state.strategy, restarted, elite.x)
        # A lane with a planned reset still offers its last mean in this generation.
        means = choose(planned, self.strategy.mean(state.strategy), self.strategy.mean(started))
        searching, samples = self.strategy.ask(sample_key, started)
        starting = restarted | (state.age == 0)
        after = state._replace(
            strategy=searching,
            objective=self.objective.restart(objective_key, state.objective, starting),
            age=jnp.where(state.due, 0, state.age),
            stale=jnp.where(state.due, 0, state.stale),
            parent_feature=choose(state.due, elite.feature, state.parent_feature),
            restarted=restarted,
            start_feature=elite.feature,
        )
        lane = jnp.arange(self.lanes, dtype=jnp.int32)
        return after, Batch(
            candidates=Repeats(means),
            offered=~state.due,
            lane=lane,
            again=jnp.full_like(lane, -1),
            samples=(samples,),
            sample_lane=jnp.repeat(lane, self.strategy.samples),
        )

    def tell(
        self, state: ESState, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[ESState, Lanes]:
        """Count stale means, determine which lanes are reset, and update every mean."""
        offspring = state.age > 0  # False for the start of a lane
        rejected = candidates.status == Status.REJECTED
        stale = jnp.where(offspring & rejected, state.stale + 1, 0)
        earned = self.reset.earned(stale) & ~state.restarted
        planned = state.restarted & offspring

        told = by_lane(samples, self.lanes)
        objective, utilities = self.objective.utilities(state.objective, told.evaluation, context)
        # Lanes that will be reset are also updated, but the next `ask` overwrites the result.
        stepped = self.strategy.tell(state.strategy, told.x, utilities)
        degenerate = self.strategy.degenerate(stepped)
        report = Lanes(
            kind=state.kind,
            parent_feature=state.parent_feature,
            age=state.age,
            stale=stale,
            reset=reason(stale=earned, planned=planned, degenerate=degenerate),
        )
        after = state._replace(
            strategy=stepped,
            objective=objective,
            age=jnp.where(state.restarted, 0, state.age) + 1,
            kind=self._kind(context.generation),
            parent_feature=choose(state.restarted, state.start_feature, candidates.evaluation.feature),
            stale=jnp.where(state.restarted, 0, stale),
            due=earned | degenerate,
        )
        return after, report

    def _kind(self, generation: Int[Array, ""]) -> Int[Array, " L"]:
        return jnp.full(self.lanes, self.objective.kind(generation), jnp.int32)
