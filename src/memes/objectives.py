"""What a lane climbs: objectives turn the evaluations of its samples into utilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from memes.archive import finite
from memes.context import Context, Kind
from memes.errors import require
from memes.novelty import novelty as novelty_score
from memes.task import Evaluation


class Objective(NamedTuple):
    """Scores samples for lanes.

    Attributes:
        init: `(lanes) -> state`.
        utilities: `(state, evaluation, context) -> (state, utilities[L, M])`, for the M samples of each
            of L lanes, `evaluation.fitness[L, M]` and `evaluation.feature[L, M, k]`. A sample that could
            not be evaluated (non-finite) gets utility 0, which keeps it out of the gradient.
        kind: `(generation) -> Kind` of the candidates it makes.
    """

    init: Callable[[int], Any]
    utilities: Callable[[Any, Evaluation, Context], tuple[Any, Array]]
    kind: Callable[[Array], Array | Kind]


def centred_ranks(values: Array, valid: Array) -> Array:
    """Ranks along the last axis, spread evenly over [-0.5, 0.5]; ties share the mean of their ranks.

    Samples that are not `valid` rank 0 and do not count for the others.
    """
    values = jnp.where(valid, values, 0.0)
    above = jnp.sign(values[..., :, None] - values[..., None, :]) * valid[..., None, :]
    others = jnp.maximum(jnp.sum(valid, axis=-1, keepdims=True) - 1, 1)
    return jnp.where(valid, jnp.sum(above, axis=-1) / (2 * others), 0.0)


def stateless(score: Callable[[Evaluation, Context], Array], kind: Kind) -> Objective:
    """An objective that centre-ranks `score(evaluation, context) -> [L, M]`; higher is better."""

    def utilities(state: Any, evaluation: Evaluation, context: Context) -> tuple[Any, Array]:
        score_of_samples = score(evaluation, context)
        valid = finite(evaluation) & jnp.isfinite(score_of_samples)
        return state, centred_ranks(score_of_samples, valid)

    return Objective(init=lambda lanes: (), utilities=utilities, kind=lambda generation: kind)


def fitness() -> Objective:
    """Climb the task's fitness (exploit)."""
    return stateless(lambda evaluation, context: evaluation.fitness, Kind.EXPLOIT)


def novelty(neighbours: int = 10) -> Objective:
    """Climb the mean distance to the nearest `neighbours` features of the history (explore)."""
    require(neighbours >= 1, f"neighbours must be at least 1, got {neighbours}")

    def score(evaluation: Evaluation, context: Context) -> Array:
        lanes, samples, k = evaluation.feature.shape
        feature = evaluation.feature.reshape(lanes * samples, k)
        return novelty_score(feature, context.past, neighbours).reshape(lanes, samples)

    return stateless(score, Kind.EXPLORE)


def blend(a: Objective, b: Objective, weight: float = 0.5) -> Objective:
    """`weight` of the utilities of `a` and the rest of those of `b`: ranks blended, not ranked again."""
    require(0 <= weight <= 1, f"weight must lie in [0, 1], got {weight}")

    def utilities(state: Any, evaluation: Evaluation, context: Context) -> tuple[Any, Array]:
        state_a, of_a = a.utilities(state[0], evaluation, context)
        state_b, of_b = b.utilities(state[1], evaluation, context)
        return (state_a, state_b), weight * of_a + (1 - weight) * of_b

    return Objective(init=lambda lanes: (a.init(lanes), b.init(lanes)), utilities=utilities, kind=a.kind)


def alternate(a: Objective, b: Objective, every: int) -> Objective:
    """`a` for `every` generations, then `b` for as many, and so on. Only the one in turn is computed."""
    require(every >= 1, f"every must be at least 1 generation, got {every}")

    def turn_of_a(generation: Array) -> Array:
        return (generation // every) % 2 == 0

    def utilities(state: Any, evaluation: Evaluation, context: Context) -> tuple[Any, Array]:
        def play_a() -> tuple[Any, Array]:
            state_a, of_a = a.utilities(state[0], evaluation, context)
            return (state_a, state[1]), of_a

        def play_b() -> tuple[Any, Array]:
            state_b, of_b = b.utilities(state[1], evaluation, context)
            return (state[0], state_b), of_b

        return jax.lax.cond(turn_of_a(context.generation), play_a, play_b)  # type: ignore[no-any-return]

    return Objective(
        init=lambda lanes: (a.init(lanes), b.init(lanes)),
        utilities=utilities,
        kind=lambda generation: jnp.where(turn_of_a(generation), a.kind(generation), b.kind(generation)),
    )
