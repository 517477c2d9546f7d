"""One search distribution all of whose samples are offered: the emitter of CMA-ME."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int, PyTree

from memes.archive import Status
from memes.context import Context
from memes.emitters.base import Emitter, Lanes, Proposal, Rows, first_search, offspring
from memes.factors import rows
from memes.hints import checked
from memes.objectives import Objective
from memes.resets import Reason, Reset, reason, stagnation
from memes.selectors import Selector, select, uniform
from memes.strategies import Strategy
from memes.task import Task
from memes.trees import by_lane


class CMAState(NamedTuple):
    """The state of one lane, so arrays are [1]. `strategy` and `objective` own their states.

    `age` counts the generations since its start, `stale` those in a row that added nothing to the
    archive. A lane that is `due` is reset by the next `ask`.
    """

    strategy: PyTree
    objective: PyTree
    age: Int[Array, " one"]
    stale: Int[Array, " one"]
    due: Bool[Array, " one"]


@checked
def cma(
    objective: Objective,
    *,
    strategy: Strategy,
    reset: Reset | None = None,
    selector: Selector = uniform,
) -> Emitter:
    """Emit the samples of a search distribution, not its mean; it adapts to how they rank.

    Args:
        objective: What the samples are ranked by: `improvement`, `fitness`, `random_direction`.
        strategy: The distribution, CMA-ES in CMA-ME.
        reset: When it starts again from an elite, with stale generations those in which no sample was
            added to the archive; None is `stagnation(0)`, after the first such generation. It always
            does when the distribution degenerates.
        selector: From which elite.
    """
    when = stagnation(0) if reset is None else reset
    batch = strategy.samples
    head = jnp.arange(batch) == 0

    def init(key: Array, task: Task) -> CMAState:
        zero = jnp.zeros(1, jnp.int32)
        search = first_search(strategy, key, task, 1)
        return CMAState(search, objective.init(1), zero, zero, jnp.zeros(1, bool))

    def ask(key: Array, state: CMAState, context: Context) -> tuple[CMAState, Proposal]:
        select_key, sample_key, objective_key, restart_key = jax.random.split(key, 4)
        elite = select(selector, select_key, context, 1, state.due)
        started = strategy.restart(restart_key, state.strategy, state.due, elite.x)
        searching, samples = strategy.ask(sample_key, started)
        starting = state.due | (state.age == 0)
        state = state._replace(
            strategy=searching,
            objective=objective.restart(objective_key, state.objective, starting),
            age=jnp.where(state.due, 0, state.age),
            stale=jnp.where(state.due, 0, state.stale),
        )
        return state, offspring(rows(samples))._replace(lane=jnp.zeros(batch, jnp.int32))

    def tell(
        state: CMAState, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[CMAState, Lanes]:
        del samples
        told = by_lane(candidates, 1)
        objective_state, utilities = objective.utilities(state.objective, told.evaluation, context)
        searched = strategy.tell(state.strategy, told.x, utilities)
        age = state.age + 1
        stale = jnp.where(jnp.any(told.status != Status.REJECTED, axis=-1), 0, state.stale + 1)
        why = reason(
            stale=when.earned(stale),
            planned=when.planned(age),
            degenerate=strategy.degenerate(searched),
        )
        info = Lanes(
            kind=jnp.full(batch, objective.kind(context.generation), jnp.int32),
            parent_feature=jnp.full_like(candidates.evaluation.feature, jnp.nan),  # of the mean: unknown
            age=jnp.repeat(age, batch),
            stale=jnp.repeat(stale, batch),
            # One reset of one lane, however many candidates it has.
            reset=jnp.where(head, why, Reason.NONE),
        )
        return CMAState(searched, objective_state, age, stale, why != Reason.NONE), info

    return Emitter(
        persistent=(True, *(False,) * (batch - 1)),
        samples=0,
        lanes=1,
        init=init,
        ask=ask,
        tell=tell,
    )
