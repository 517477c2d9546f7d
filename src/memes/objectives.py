"""Objectives: they turn the evaluations of a lane's samples into the utilities that it climbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, PyTree

from memes.archive import finite
from memes.context import Context, Kind
from memes.errors import at_least, in_unit_interval, require
from memes.novelty import novelty as novelty_score
from memes.task import Evaluation


class Objective(NamedTuple):
    """A score for the samples of lanes.

    Attributes:
        init: `(lanes) -> state`.
        utilities: `(state, evaluation, context) -> (state, utilities[L, M])`, for the M samples of each
            of L lanes, `evaluation.fitness[L, M]` and `evaluation.feature[L, M, k]`. A sample that could
            not be evaluated (non-finite) gets utility 0, which keeps it out of the gradient.
        kind: `(generation) -> Kind` of the candidates it makes.
        restart: `(key, state, where[L]) -> state`, for lanes that start, at first or again: what an
            objective holds for one life of a lane is drawn here.
    """

    init: Callable[[int], PyTree]
    utilities: Callable[[PyTree, Evaluation, Context], tuple[PyTree, Array]]
    kind: Callable[[Array], Array | Kind]
    restart: Callable[[Array, PyTree, Array], PyTree] = lambda key, state, where: state


# Up to so many samples all pairs are compared: on a GPU that is one fused kernel, a sort is several.
PAIRS = 1024
PAIRS_ON_CPU = 256


def centred_ranks(values: Float[Array, "*l m"], valid: Bool[Array, "*l m"]) -> Float[Array, "*l m"]:
    """Rank along the last axis, spread evenly over [-0.5, 0.5]; ties share the mean of their ranks.

    Samples that are not `valid` rank 0 and do not count for the others.
    """

    def by(few: int) -> Callable[[Array, Array], Array]:
        return _beaten_by_pairs if values.shape[-1] <= few else _beaten_by_sorting

    beaten = jax.lax.platform_dependent(values, valid, cpu=by(PAIRS_ON_CPU), default=by(PAIRS))
    others = jnp.maximum(jnp.sum(valid, axis=-1, keepdims=True) - 1, 1)
    return jnp.where(valid, beaten / (2 * others), 0.0)


def _beaten_by_pairs(values: Array, valid: Array) -> Array:
    """Count the valid entries below each valid one, less those above it: float32."""
    values = jnp.where(valid, values, 0.0)
    above = jnp.sign(values[..., :, None] - values[..., None, :]) * valid[..., None, :]
    return jnp.sum(above, axis=-1)


def _beaten_by_sorting(values: Array, valid: Array) -> Array:
    """Count them in M log M steps."""
    behind = jnp.where(valid, values, jnp.inf)  # all that count
    # Of n valid entries, one of rank r lies above r - 1 and below n - r; equals share the mean rank.
    ranks: Array = jax.scipy.stats.rankdata(behind, axis=-1)
    return 2 * ranks - 1 - jnp.sum(valid, axis=-1, keepdims=True)


def stateless(score: Callable[[Evaluation, Context], Array], kind: Kind) -> Objective:
    """Make an objective that centre-ranks `score(evaluation, context) -> [L, M]`; higher is better."""

    def utilities(state: PyTree, evaluation: Evaluation, context: Context) -> tuple[PyTree, Array]:
        score_of_samples = score(evaluation, context)
        valid = finite(evaluation) & jnp.isfinite(score_of_samples)
        return state, centred_ranks(score_of_samples, valid)

    return Objective(init=lambda lanes: (), utilities=utilities, kind=lambda generation: kind)


def fitness() -> Objective:
    """Climb the task's fitness (exploit)."""
    return stateless(lambda evaluation, context: evaluation.fitness, Kind.EXPLOIT)


def novelty(neighbours: int = 10) -> Objective:
    """Climb the mean distance to the nearest `neighbours` features of the history (explore)."""
    at_least(1, neighbours=neighbours)

    def score(evaluation: Evaluation, context: Context) -> Array:
        require(
            context.past.feature.shape[0] > 0,
            "history must remember features for the objective 'novelty', such as memes.history.fifo()",
        )
        feature = evaluation.feature.reshape(-1, evaluation.feature.shape[-1])
        return novelty_score(feature, context.past, neighbours).reshape(evaluation.fitness.shape)

    return stateless(score, Kind.EXPLORE)


def blend(a: Objective, b: Objective, weight: float = 0.5) -> Objective:
    """Blend the utilities: `weight` of those of `a`, the rest of those of `b`; not ranked again."""
    in_unit_interval(weight=weight)

    def utilities(state: PyTree, evaluation: Evaluation, context: Context) -> tuple[PyTree, Array]:
        state_a, of_a = a.utilities(state[0], evaluation, context)
        state_b, of_b = b.utilities(state[1], evaluation, context)
        return (state_a, state_b), weight * of_a + (1 - weight) * of_b

    return _of_two(a, b, utilities, a.kind)


class Adaptation(NamedTuple):
    """The `weight` of the first objective, the `best` fitness so far, and for how long it has stood."""

    weight: Float[Array, ""]
    best: Float[Array, ""]
    waited: Int[Array, ""]


def adaptive_blend(
    a: Objective, b: Objective, *, weight: float = 1.0, step: float = 0.05, patience: int = 50
) -> Objective:
    """Blend with a weight of `a` that rises while the best fitness improves, and else falls.

    The best fitness is that of the archive, so of all candidates so far; samples do not count. This is
    the rule of NSRA-ES, where `a` is fitness and `b` novelty.

    Args:
        a: What to climb while it pays.
        b: What to climb when it does not.
        weight: Of `a`, at first.
        step: By how much the weight rises with each improvement, up to 1, and falls, down to 0.
        patience: Generations without improvement after which it falls; then as many again.
    """
    in_unit_interval(weight=weight)
    require(0 <= step <= 1, f"step of the weight must lie in [0, 1], got {step}")
    at_least(1, patience=patience)

    def init(lanes: int) -> tuple[PyTree, PyTree, Adaptation]:
        adaptation = Adaptation(jnp.float32(weight), jnp.float32(-jnp.inf), jnp.int32(0))
        return a.init(lanes), b.init(lanes), adaptation

    def utilities(state: PyTree, evaluation: Evaluation, context: Context) -> tuple[PyTree, Array]:
        state_a, of_a = a.utilities(state[0], evaluation, context)
        state_b, of_b = b.utilities(state[1], evaluation, context)
        now = adapt(state[2], jnp.max(context.archive.fitness))
        return (state_a, state_b, now), now.weight * of_a + (1 - now.weight) * of_b

    def adapt(before: Adaptation, best: Array) -> Adaptation:
        improved = best > before.best
        waited = jnp.where(improved, 0, before.waited + 1)
        fall = waited >= patience
        change = jnp.where(improved, step, jnp.where(fall, -step, 0.0))
        return Adaptation(
            weight=jnp.clip(before.weight + change, 0.0, 1.0),
            best=jnp.maximum(before.best, best),
            waited=jnp.where(fall, 0, waited),
        )

    def restart(key: Array, state: PyTree, where: Array) -> tuple[PyTree, PyTree, Adaptation]:
        return *_restart_both(a, b, key, state[:2], where), state[2]

    return Objective(init, utilities, a.kind, restart)


def improvement() -> Objective:
    """Climb what a sample adds to the archive as it was before this generation (explore).

    Samples in empty cells come first, ordered by fitness; then all others, ordered by how far they
    exceed the elite of their cell, or fall short of it. The `imp` ranking of CMA-ME.
    """

    def score(evaluation: Evaluation, context: Context) -> Array:
        incumbent = _incumbent(evaluation, context)
        new = incumbent == -jnp.inf
        gain = evaluation.fitness - jnp.where(new, 0.0, incumbent)
        return _in_two_tiers(new, gain, evaluation)

    return stateless(score, Kind.EXPLORE)


def random_direction(features: int) -> Objective:
    """Climb along a random direction in the space of `features` features (explore).

    A lane draws its direction when it starts, uniformly over all of them, in units of the feature
    bounds. Samples that would enter the archive as it was before this generation come first. The `rnd`
    ranking of CMA-ME.
    """
    at_least(1, features=features)

    def utilities(state: Array, evaluation: Evaluation, context: Context) -> tuple[Array, Array]:
        task = context.task
        width = jnp.asarray(task.feature_high) - jnp.asarray(task.feature_low)
        along = jnp.sum(state[:, None] * evaluation.feature / width, axis=-1)
        adds = evaluation.fitness > _incumbent(evaluation, context)
        score = _in_two_tiers(adds, along, evaluation)
        return state, centred_ranks(score, finite(evaluation))

    def restart(key: Array, state: Array, where: Array) -> Array:
        drawn = jax.random.normal(key, state.shape)
        drawn = drawn / jnp.linalg.norm(drawn, axis=-1, keepdims=True)
        return jnp.where(where[:, None], drawn, state)

    return Objective(
        init=lambda lanes: jnp.zeros((lanes, features)),
        utilities=utilities,
        kind=lambda generation: Kind.EXPLORE,
        restart=restart,
    )


def _incumbent(evaluation: Evaluation, context: Context) -> Array:
    """Look up the fitness of the elite in each sample's cell, before this generation; -inf if none."""
    archive = context.archive if context.before is None else context.before
    return archive.fitness[archive.cells.index(evaluation.feature)]


def _in_two_tiers(first: Array, score: Array, evaluation: Evaluation) -> Array:
    """Score [L, M] in the order of `score`, but all samples in `first` ahead of all others."""
    return centred_ranks(score, finite(evaluation)) + 2.0 * first


def alternate(a: Objective, b: Objective, every: int) -> Objective:
    """Climb `a` for `every` generations, then `b` for as many, and so on; only one is computed."""
    at_least(1, every=every)

    def turn_of_a(generation: Array) -> Array:
        return (generation // every) % 2 == 0

    def utilities(state: PyTree, evaluation: Evaluation, context: Context) -> tuple[PyTree, Array]:
        def play_a() -> tuple[PyTree, Array]:
            state_a, of_a = a.utilities(state[0], evaluation, context)
            return (state_a, state[1]), of_a

        def play_b() -> tuple[PyTree, Array]:
            state_b, of_b = b.utilities(state[1], evaluation, context)
            return (state[0], state_b), of_b

        return jax.lax.cond(turn_of_a(context.generation), play_a, play_b)  # type: ignore[no-any-return]

    def kind(generation: Array) -> Array:
        return jnp.where(turn_of_a(generation), a.kind(generation), b.kind(generation))

    return _of_two(a, b, utilities, kind)


def _of_two(
    a: Objective,
    b: Objective,
    utilities: Callable[[PyTree, Evaluation, Context], tuple[PyTree, Array]],
    kind: Callable[[Array], Array | Kind],
) -> Objective:
    """Make an objective whose state is the pair of those of `a` and `b`."""
    return Objective(
        init=lambda lanes: (a.init(lanes), b.init(lanes)),
        utilities=utilities,
        kind=kind,
        restart=lambda key, state, where: _restart_both(a, b, key, state, where),
    )


def _restart_both(
    a: Objective, b: Objective, key: Array, state: PyTree, where: Array
) -> tuple[PyTree, PyTree]:
    key_a, key_b = jax.random.split(key)
    return a.restart(key_a, state[0], where), b.restart(key_b, state[1], where)
