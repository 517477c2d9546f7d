"""Emitters dealt to shards: by their lanes, or by the rows of one lane.

What they take and return is by shard: the rows of a `Proposal`, told rows and `Lanes`. Told samples are
in groups, as those of a proposal, whole or in factors; the first may be empty.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PyTree

from memes.context import Context
from memes.emitters.base import Emitter, Lanes, Proposal, Rows
from memes.factors import rows
from memes.resets import Reason
from memes.shards import Shards
from memes.task import Task
from memes.trees import take


def dealt(emitter: Emitter, shards: Shards) -> Emitter | None:
    """The emitter dealt to shards; None if it can only be had whole."""
    part = emitter if shards.count == 1 else emitter.part(shards.count)
    return emitter.split(shards) if part is None else by_lanes(part, shards)


def by_lanes(part: Emitter, shards: Shards) -> Emitter:
    """Let each shard have lanes of its own, and their state."""

    def init(key: Array, task: Task) -> PyTree:
        return shards.each(lambda key: part.init(key, task), shards.keys(key))

    def ask(key: Array, state: PyTree, context: Context) -> tuple[PyTree, Proposal]:
        state, proposal = shards.each(
            lambda key, state: part.ask(key, state, context), shards.keys(key), state
        )
        if shards.count > 1:
            first = (shards.index * part.lanes)[:, None]
            lane, sample_lane = proposal.lane + first, proposal.sample_lane + first
            proposal = proposal._replace(lane=lane, sample_lane=sample_lane)
        return state, proposal

    def tell(state: PyTree, candidates: Rows, samples: Rows, context: Context) -> tuple[PyTree, Lanes]:
        def tell_one(state: PyTree, candidates: Rows, samples: Rows) -> tuple[PyTree, Lanes]:
            return part.tell(state, candidates, samples._replace(x=whole(samples.x)), context)

        return shards.each(tell_one, state, candidates, samples)

    return part._replace(
        persistent=part.persistent * shards.count,
        samples=part.samples * shards.count,
        lanes=part.lanes * shards.count,
        init=init,
        ask=ask,
        tell=tell,
    )


def by_rows(emitter: Emitter, shards: Shards) -> Emitter:
    """Let each shard have some samples of an emitter whose samples are by shard, and all its state.

    Its candidates are evaluated by every shard; those of the first one are offered.
    """

    def ask(key: Array, state: PyTree, context: Context) -> tuple[PyTree, Proposal]:
        state, proposal = emitter.ask(key, state, context)
        same = shards.same(proposal._replace(samples=(), sample_lane=proposal.sample_lane[:0]))
        return state, same._replace(
            offered=same.offered & (shards.index == 0)[:, None],
            samples=proposal.samples,
            sample_lane=shards.mine(proposal.sample_lane),
        )

    def tell(state: PyTree, candidates: Rows, samples: Rows, context: Context) -> tuple[PyTree, Lanes]:
        outcome, status = shards.gather((candidates.evaluation, candidates.status))
        offered = Rows(candidates.x[0], *take((outcome, status), 0, emitter.candidates))
        x = jax.lax.collapse(shards.each(whole, samples.x), 0, 2)
        drawn = Rows(x, *shards.gather((samples.evaluation, samples.status)))
        state, lanes = emitter.tell(state, offered, drawn, context)
        same = shards.same(lanes)
        first = (shards.index == 0)[:, None]
        return state, same._replace(reset=jnp.where(first, same.reset, Reason.NONE))

    copies = (False,) * (emitter.candidates * (shards.count - 1))
    return emitter._replace(persistent=emitter.persistent + copies, ask=ask, tell=tell)


def whole(groups: Any) -> Array:
    """Make samples of one shard whole, one group after the other."""
    return jnp.concatenate([*map(rows, groups)])
