"""Emitters that combine other emitters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int, Key, PyTree

from memes.context import Context
from memes.emitters.base import Batch, Emitter, Lanes, Rows
from memes.errors import at_least, require
from memes.pytrees import concatenate, pick, put, take
from memes.task import Task
from memes.validation import check_fields


@dataclass(frozen=True)
class Parallel:
    """Several emitters that run in parallel, so that their batches are evaluated together.

    Attributes:
        emitters: The emitters, in the order of their lanes.
    """

    emitters: tuple[Emitter, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        require(len(self.emitters) >= 1, "emitters must contain at least one emitter, got none")

    @property
    def lanes(self) -> int:
        """Total number of lanes of all emitters."""
        return sum(emitter.lanes for emitter in self.emitters)

    @property
    def persistent(self) -> tuple[bool, ...]:
        """The `persistent` flags of all emitters, in order."""
        return sum((emitter.persistent for emitter in self.emitters), ())

    @property
    def samples(self) -> int:
        """Total number of samples of all emitters."""
        return sum(emitter.samples for emitter in self.emitters)

    @property
    def transitions(self) -> bool:
        """True if any emitter learns from transitions."""
        return any(emitter.transitions for emitter in self.emitters)

    @property
    def gradients(self) -> bool:
        """True if any emitter uses gradients."""
        return any(emitter.gradients for emitter in self.emitters)

    def init(self, key: Key[Array, ""], task: Task) -> tuple[PyTree, ...]:
        """Return the states of all emitters."""
        keys = jax.random.split(key, len(self.emitters))
        return tuple(e.init(k, task) for e, k in zip(self.emitters, keys, strict=True))

    def ask(
        self, key: Key[Array, ""], state: tuple[PyTree, ...], context: Context
    ) -> tuple[tuple[PyTree, ...], Batch]:
        """Concatenate the batches of all emitters."""
        keys = jax.random.split(key, len(self.emitters))
        asked = [e.ask(k, s, context) for e, k, s in zip(self.emitters, keys, state, strict=True)]
        first = accumulate((emitter.lanes for emitter in self.emitters), initial=0)
        batches = [
            b._replace(lane=b.lane + at, sample_lane=b.sample_lane + at, samples=())
            for (_, b), at in zip(asked, first, strict=False)
        ]
        samples = sum((b.samples for _, b in asked), ())
        return tuple(s for s, _ in asked), concatenate(batches)._replace(samples=samples)

    def tell(
        self, state: tuple[PyTree, ...], candidates: Rows, samples: Rows, context: Context
    ) -> tuple[tuple[PyTree, ...], Lanes]:
        """Pass the evaluations of each batch to its emitter."""
        told, c, s = [], 0, 0
        for emitter, own in zip(self.emitters, state, strict=True):
            ends = c + len(emitter.persistent), s + emitter.samples
            told.append(
                emitter.tell(own, take(candidates, c, ends[0]), take(samples, s, ends[1]), context)
            )
            c, s = ends
        return tuple(s for s, _ in told), concatenate([lanes for _, lanes in told])


@runtime_checkable
class Turn(Protocol):
    """A rule that chooses one of `count` emitters."""

    def __call__(self, key: Key[Array, ""], context: Context, count: int) -> Int[Array, ""]:
        """Return the index of the chosen emitter."""


@dataclass(frozen=True)
class InTurn:
    """A rule that chooses each emitter in turn."""

    def __call__(self, key: Key[Array, ""], context: Context, count: int) -> Int[Array, ""]:
        """Return the index of the chosen emitter."""
        return context.generation % count


@dataclass(frozen=True)
class OneOf:
    """Copies of an emitter with separate states. One copy is active per generation.

    Attributes:
        emitter: The emitter.
        count: Number of copies.
        turn: Rule that chooses the active copy.
    """

    emitter: Emitter
    count: int
    turn: Turn = InTurn()

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, count=self.count)

    @property
    def lanes(self) -> int:
        """Total number of lanes of all copies."""
        return self.count * self.emitter.lanes

    @property
    def persistent(self) -> tuple[bool, ...]:
        """The `persistent` flags of one copy."""
        return self.emitter.persistent

    @property
    def samples(self) -> int:
        """Number of samples of one copy."""
        return self.emitter.samples

    @property
    def transitions(self) -> bool:
        """True if the emitter learns from transitions."""
        return self.emitter.transitions

    @property
    def gradients(self) -> bool:
        """True if the emitter uses gradients."""
        return self.emitter.gradients

    def init(self, key: Key[Array, ""], task: Task) -> tuple[Int[Array, ""], PyTree]:
        """Return the index of the active copy, and the states of all copies."""
        keys = jax.random.split(key, self.count)
        return jnp.int32(0), jax.vmap(lambda k: self.emitter.init(k, task))(keys)

    def ask(
        self, key: Key[Array, ""], state: tuple[Int[Array, ""], PyTree], context: Context
    ) -> tuple[tuple[Int[Array, ""], PyTree], Batch]:
        """Propose the batch of the chosen copy."""
        turn_key, ask_key = jax.random.split(key)
        active = self.turn(turn_key, context, self.count).astype(jnp.int32)
        states = state[1]
        own, batch = self.emitter.ask(ask_key, pick(states, active), context)
        first = active * self.emitter.lanes
        batch = batch._replace(lane=batch.lane + first, sample_lane=batch.sample_lane + first)
        return (active, put(states, active, own)), batch

    def tell(
        self,
        state: tuple[Int[Array, ""], PyTree],
        candidates: Rows,
        samples: Rows,
        context: Context,
    ) -> tuple[tuple[Int[Array, ""], PyTree], Lanes]:
        """Pass the evaluations to the active copy."""
        active, states = state
        own, lanes = self.emitter.tell(pick(states, active), candidates, samples, context)
        return (active, put(states, active, own)), lanes
