"""The emitter of CMA-ME and CMA-MAE: search distributions whose samples are offered to the archive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int, Key, PyTree

from memes.archive import Status
from memes.context import Context
from memes.control.perturbations import rows
from memes.emitters.base import Batch, Lanes, Rows, first_search, offspring
from memes.errors import at_least
from memes.objectives import Objective
from memes.pytrees import by_lane
from memes.resets import Reason, Reset, Stagnation, reason
from memes.selectors import Selector, Uniform, select
from memes.strategies import Strategy
from memes.task import Task
from memes.validation import check_fields


class CMAState(NamedTuple):
    """The state of L lanes.

    Attributes:
        strategy: State of the strategy.
        objective: State of the objective.
        age: Number of generations since each lane last started.
        stale: Number of consecutive generations in which the judge accepted no sample.
        due: For each lane, whether the next `ask` resets it.
    """

    strategy: PyTree
    objective: PyTree
    age: Int[Array, " L"]
    stale: Int[Array, " L"]
    due: Bool[Array, " L"]


@dataclass(frozen=True)
class CMA:
    """An emitter whose lanes are search distributions. Their samples are offered to the archive.

    A lane is reset if its distribution degenerates, or if the rule `reset` applies. The lane then starts
    again from an elite.

    Attributes:
        objective: The objective that ranks the samples of a lane.
        strategy: Search distribution of each lane, usually CMA-ES.
        lanes: Number of distributions.
        reset: Rule that determines when a lane is reset. By default, a lane is reset after its first
            generation without an accepted sample.
        selector: Rule that chooses the elite from which a lane starts again.
    """

    objective: Objective
    strategy: Strategy
    lanes: int = 1
    reset: Reset = Stagnation(0)
    selector: Selector = Uniform()

    samples: ClassVar[int] = 0
    transitions: ClassVar[bool] = False
    gradients: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, lanes=self.lanes)

    @property
    def persistent(self) -> tuple[bool, ...]:
        """One flag per sample, which is True for the first sample of each lane."""
        return (True, *(False,) * (self.strategy.samples - 1)) * self.lanes

    def init(self, key: Key[Array, ""], task: Task) -> CMAState:
        """Start every lane at a genotype of `task.init`."""
        zero = jnp.zeros(self.lanes, jnp.int32)
        search = first_search(self.strategy, key, task, self.lanes)
        return CMAState(search, self.objective.init(self.lanes), zero, zero, jnp.zeros(self.lanes, bool))

    def ask(self, key: Key[Array, ""], state: CMAState, context: Context) -> tuple[CMAState, Batch]:
        """Reset the lanes that require it, then propose the samples of all lanes."""
        select_key, sample_key, objective_key, restart_key = jax.random.split(key, 4)
        elite = select(self.selector, select_key, context, self.lanes, state.due)
        started = self.strategy.restart(restart_key, state.strategy, state.due, elite.x)
        searching, samples = self.strategy.ask(sample_key, started)
        starting = state.due | (state.age == 0)
        after = state._replace(
            strategy=searching,
            objective=self.objective.restart(objective_key, state.objective, starting),
            age=jnp.where(state.due, 0, state.age),
            stale=jnp.where(state.due, 0, state.stale),
        )
        lane = jnp.repeat(jnp.arange(self.lanes, dtype=jnp.int32), self.strategy.samples)
        return after, offspring(rows(samples), lane)

    def tell(
        self, state: CMAState, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[CMAState, Lanes]:
        """Update every distribution according to the ranks of its samples."""
        told = by_lane(candidates, self.lanes)
        objective, utilities = self.objective.utilities(state.objective, told.evaluation, context)
        searched = self.strategy.tell(state.strategy, told.x, utilities)
        age = state.age + 1
        stale = jnp.where(jnp.any(told.status != Status.REJECTED, axis=-1), 0, state.stale + 1)
        why = reason(
            stale=self.reset.earned(stale),
            planned=self.reset.planned(age),
            degenerate=self.strategy.degenerate(searched),
        )
        each, count = self.strategy.samples, candidates.status.shape[0]
        first = jnp.arange(count) % each == 0  # a reset is reported once per lane
        report = Lanes(
            kind=jnp.full(count, self.objective.kind(context.generation), jnp.int32),
            parent_feature=jnp.full_like(candidates.evaluation.feature, jnp.nan),  # unknown
            age=jnp.repeat(age, each),
            stale=jnp.repeat(stale, each),
            reset=jnp.where(first, jnp.repeat(why, each), Reason.NONE),
        )
        return CMAState(searched, objective, age, stale, why != Reason.NONE), report
