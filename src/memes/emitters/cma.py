"""One search distribution all of whose samples are offered: the emitter of CMA-ME."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from memes.archive import Status
from memes.context import Context
from memes.emitters.base import Emitter, Lanes, Proposal, Rows
from memes.objectives import Objective
from memes.resets import Reason, Reset, stagnation
from memes.selectors import Selector, select, uniform
from memes.strategies import Strategy
from memes.task import Task, initial


class CMAState(NamedTuple):
    """One lane, so arrays are [1]. `strategy` and `objective` own their states.

    `age` counts the generations since its start, `stale` those in a row that added nothing to the
    archive. A lane that is `due` is reset by the next `ask`.
    """

    strategy: Any
    objective: Any
    age: Array
    stale: Array
    due: Array


def cma(
    objective: Objective,
    *,
    strategy: Strategy,
    reset: Reset | None = None,
    selector: Selector = uniform,
) -> Emitter:
    """A search distribution that offers its samples, not its mean, and adapts to how they rank.

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
    lane = jnp.zeros(batch, jnp.int32)
    head = jnp.arange(batch) == 0

    def init(key: Array, task: Task) -> CMAState:
        zero = jnp.zeros(1, jnp.int32)
        start = strategy.init(initial(task, key, 1))
        return CMAState(start, objective.init(1), zero, zero, jnp.zeros(1, bool))

    def ask(key: Array, state: CMAState, context: Context) -> tuple[CMAState, Proposal]:
        select_key, sample_key, objective_key = jax.random.split(key, 3)
        elite = select(selector, select_key, context, 1, state.due)
        started = strategy.restart(state.strategy, state.due, elite.x)
        searching, samples = strategy.ask(sample_key, started)
        starting = state.due | (state.age == 0)
        state = state._replace(
            strategy=searching,
            objective=objective.restart(objective_key, state.objective, starting),
            age=jnp.where(state.due, 0, state.age),
            stale=jnp.where(state.due, 0, state.stale),
        )
        proposal = Proposal(
            candidates=samples[0],
            offered=jnp.ones(batch, bool),
            lane=lane,
            samples=jnp.zeros((0, samples.shape[-1])),
            sample_lane=lane[:0],
        )
        return state, proposal

    def tell(
        state: CMAState, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[CMAState, Lanes]:
        del samples
        told: Rows = jax.tree.map(lambda leaf: leaf[None], candidates)
        objective_state, utilities = objective.utilities(state.objective, told.evaluation, context)
        searched = strategy.tell(state.strategy, told.x, utilities)
        age = state.age + 1
        stale = jnp.where(jnp.any(told.status != Status.REJECTED, axis=-1), 0, state.stale + 1)
        reason = jnp.select(
            [when.earned(stale), when.planned(age), strategy.degenerate(searched)],
            [Reason.STALE, Reason.PLANNED, Reason.DEGENERATE],
            Reason.NONE,
        )
        info = Lanes(
            kind=jnp.full(batch, objective.kind(context.generation), jnp.int32),
            parent_feature=jnp.full_like(candidates.evaluation.feature, jnp.nan),  # of the mean: unknown
            age=jnp.repeat(age, batch),
            stale=jnp.repeat(stale, batch),
            # One reset of one lane, however many candidates it has.
            reset=jnp.where(head, reason, Reason.NONE).astype(jnp.int32),
        )
        return CMAState(searched, objective_state, age, stale, reason != Reason.NONE), info

    return Emitter((True,) + (False,) * (batch - 1), 0, 1, init, ask, tell)
