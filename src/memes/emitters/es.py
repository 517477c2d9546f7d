"""Lanes of evolution strategies: the emitter of MEMES."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, PyTree

from memes.archive import Status
from memes.context import Context
from memes.emitters.base import Emitter, Lanes, Proposal, Rows, first_search
from memes.emitters.dealing import by_rows
from memes.errors import at_least
from memes.hints import checked
from memes.objectives import Objective
from memes.resets import Reset, never, reason
from memes.selectors import Selector, select, uniform
from memes.shards import Shards
from memes.strategies import Strategy, openai_es
from memes.task import Task
from memes.trees import by_lane, choose


class ESState(NamedTuple):
    """The state of L lanes. `strategy` and `objective` own their states.

    Of the mean that is offered next: `age`, its steps since the lane's last start; `kind`, what it was
    made for; `parent_feature`, of the mean it was made from. `stale` counts refused candidates. A lane
    that is `due` is reset by the next `ask`. `restarted` lanes sample around an elite this generation,
    whose feature is `start_feature`.
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


@checked
def es(
    objective: Objective,
    *,
    lanes: int,
    strategy: Strategy | None = None,
    reset: Reset | None = None,
    selector: Selector = uniform,
) -> Emitter:
    """Run evolution strategies that climb `objective`; each offers its mean to the archive.

    A generation evaluates every lane's mean together with the samples around it. Once it is known
    whether the archive took the mean, the lane either takes its step or is reset: then it starts again,
    with a fresh optimiser, from an elite that `selector` picks. That elite is not offered again, is not
    counted as stale, and does not enter the history: a lucky second evaluation of an elite would be
    illusory.

    Args:
        objective: What the lanes climb.
        lanes: How many there are.
        strategy: Their search distribution; None is `openai_es()`.
        reset: When a lane starts again; None is `never()`.
        selector: From which elite.
    """
    at_least(1, lanes=lanes)
    search = strategy or openai_es()
    when = reset or never()
    lane = jax.device_put(np.arange(lanes, dtype=np.int32))  # which compiles nothing

    def init(key: Array, task: Task) -> ESState:
        nowhere = jnp.full((lanes, task.feature_dim), jnp.nan)
        none = jnp.zeros(lanes, bool)
        return ESState(
            strategy=first_search(search, key, task, lanes),
            objective=objective.init(lanes),
            age=jnp.zeros(lanes, jnp.int32),
            kind=kind_at(jnp.int32(0)),
            parent_feature=nowhere,
            stale=jnp.zeros(lanes, jnp.int32),
            due=none,
            restarted=none,
            start_feature=nowhere,
        )

    def kind_at(generation: Array) -> Array:
        return jnp.full(lanes, objective.kind(generation), jnp.int32)

    def ask(key: Array, state: ESState, context: Context) -> tuple[ESState, Proposal]:
        select_key, sample_key, objective_key, restart_key = jax.random.split(key, 4)
        planned = when.planned(state.age) & ~state.due
        restarted = state.due | planned
        elite = select(selector, select_key, context, lanes, restarted)
        started = search.restart(restart_key, state.strategy, restarted, elite.x)
        # A planned reset still offers the last mean of the old start.
        candidates = choose(planned, search.mean(state.strategy), search.mean(started))
        searching, samples = search.ask(sample_key, started)
        state = state._replace(
            strategy=searching,
            objective=objective.restart(objective_key, state.objective, restarted | (state.age == 0)),
            age=jnp.where(state.due, 0, state.age),
            stale=jnp.where(state.due, 0, state.stale),
            parent_feature=choose(state.due, elite.feature, state.parent_feature),
            restarted=restarted,
            start_feature=elite.feature,
        )
        proposal = Proposal(
            candidates=candidates,
            offered=~state.due,
            lane=lane,
            samples=(samples,),
            sample_lane=jnp.repeat(lane, search.samples),
        )
        return state, proposal

    def tell(state: ESState, candidates: Rows, samples: Rows, context: Context) -> tuple[ESState, Lanes]:
        offspring = state.age > 0  # the result of a step, not a start
        refused = candidates.status == Status.REJECTED
        stale = jnp.where(offspring & refused, state.stale + 1, 0)
        earned = when.earned(stale) & ~state.restarted
        planned = state.restarted & offspring

        told = by_lane(samples, lanes)
        objective_state, utilities = objective.utilities(state.objective, told.evaluation, context)
        # A lane that is due steps too: its next `ask` overwrites the result.
        searched = search.tell(state.strategy, told.x, utilities)
        broken = search.degenerate(searched)
        lanes_info = Lanes(
            kind=state.kind,
            parent_feature=state.parent_feature,
            age=state.age,
            stale=stale,
            reset=reason(stale=earned, planned=planned, degenerate=broken),
        )
        state = ESState(
            strategy=searched,
            objective=objective_state,
            age=jnp.where(state.restarted, 0, state.age) + 1,
            kind=kind_at(context.generation),
            parent_feature=choose(state.restarted, state.start_feature, candidates.evaluation.feature),
            stale=jnp.where(state.restarted, 0, stale),
            due=earned | broken,
            restarted=state.restarted,
            start_feature=state.start_feature,
        )
        return state, lanes_info

    again = partial(es, objective, reset=reset, selector=selector)

    def part(count: int) -> Emitter | None:
        dealt = lanes % count == 0
        return again(lanes=lanes // count, strategy=strategy) if dealt else None

    def split(shards: Shards) -> Emitter | None:
        divided = search.split(shards) if lanes == 1 else None
        return divided and by_rows(again(lanes=1, strategy=divided), shards)

    return Emitter(
        persistent=(True,) * lanes,
        samples=lanes * search.samples,
        lanes=lanes,
        init=init,
        ask=ask,
        tell=tell,
        part=part,
        split=split,
    )
