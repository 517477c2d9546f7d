"""Emitters made of emitters."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PyTree

from memes.context import Context
from memes.emitters.base import Emitter, Lanes, Proposal, Rows
from memes.errors import at_least, require
from memes.task import Task
from memes.trees import concatenate, pick, put, take


def parallel(*emitters: Emitter) -> Emitter:
    """Put emitters side by side: their batches become one, evaluated together."""
    require(len(emitters) >= 1, "parallel needs at least one emitter")
    candidate_at = _offsets([emitter.candidates for emitter in emitters])
    sample_at = _offsets([emitter.samples for emitter in emitters])
    lane_at = _offsets([emitter.lanes for emitter in emitters])

    def init(key: Array, task: Task) -> tuple[PyTree, ...]:
        keys = jax.random.split(key, len(emitters))
        return tuple(e.init(k, task) for e, k in zip(emitters, keys, strict=True))

    def ask(
        key: Array, state: tuple[PyTree, ...], context: Context
    ) -> tuple[tuple[PyTree, ...], Proposal]:
        keys = jax.random.split(key, len(emitters))
        asked = [e.ask(k, s, context) for e, k, s in zip(emitters, keys, state, strict=True)]
        proposals = [
            p._replace(lane=p.lane + first, samples=(), sample_lane=p.sample_lane + first)
            for (_, p), first in zip(asked, lane_at, strict=False)
        ]
        groups = sum((p.samples for _, p in asked), ())
        return tuple(s for s, _ in asked), concatenate(proposals)._replace(samples=groups)

    def tell(
        state: tuple[PyTree, ...], candidates: Rows, samples: Rows, context: Context
    ) -> tuple[tuple[PyTree, ...], Lanes]:
        told = [
            emitter.tell(
                state[i],
                take(candidates, candidate_at[i], candidate_at[i + 1]),
                take(samples, sample_at[i], sample_at[i + 1]),
                context,
            )
            for i, emitter in enumerate(emitters)
        ]
        return tuple(s for s, _ in told), concatenate([lanes for _, lanes in told])

    def part(count: int) -> Emitter | None:
        parts = [dealt for dealt in (emitter.part(count) for emitter in emitters) if dealt]
        return parallel(*parts) if len(parts) == len(emitters) else None

    return Emitter(
        persistent=sum((emitter.persistent for emitter in emitters), ()),
        samples=sample_at[-1],
        lanes=lane_at[-1],
        init=init,
        ask=ask,
        tell=tell,
        transitions=any(emitter.transitions for emitter in emitters),
        part=part,
    )


# (key, context, count) -> which of `count` emitters is in turn, int32[].
Turn = Callable[[Array, Context, int], Array]


def in_turn(key: Array, context: Context, count: int) -> Array:
    """Let the emitters play one after the other."""
    del key
    return context.generation % count


def one_of(emitter: Emitter, count: int, turn: Turn = in_turn) -> Emitter:
    """Copy an emitter `count` times, each with a state of its own; one of them plays a generation."""
    at_least(1, count=count)

    def init(key: Array, task: Task) -> tuple[Array, PyTree]:
        states = jax.vmap(lambda k: emitter.init(k, task))(jax.random.split(key, count))
        return jnp.int32(0), states

    def ask(key: Array, state: tuple[Array, PyTree], context: Context) -> tuple[PyTree, Proposal]:
        turn_key, ask_key = jax.random.split(key)
        playing = turn(turn_key, context, count).astype(jnp.int32)
        states = state[1]
        played, proposal = emitter.ask(ask_key, pick(states, playing), context)
        first = playing * emitter.lanes
        proposal = proposal._replace(
            lane=proposal.lane + first, sample_lane=proposal.sample_lane + first
        )
        return (playing, put(states, playing, played)), proposal

    def tell(
        state: tuple[Array, PyTree], candidates: Rows, samples: Rows, context: Context
    ) -> tuple[tuple[Array, PyTree], Lanes]:
        playing, states = state
        played, lanes = emitter.tell(pick(states, playing), candidates, samples, context)
        return (playing, put(states, playing, played)), lanes

    alone = Emitter(emitter.persistent, emitter.samples, count * emitter.lanes, init, ask, tell)
    return alone._replace(transitions=emitter.transitions)


def _offsets(sizes: list[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))
