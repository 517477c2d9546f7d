import dataclasses
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.archive import empty
from memes.cells import Grid
from memes.context import Context, Kind
from memes.errors import UsageError
from memes.history import Past
from memes.judges import SameArchive
from memes.objectives import (
    PAIRS,
    Accepted,
    AdaptiveBlend,
    Alternate,
    Blend,
    Fitness,
    Novelty,
    RandomDirection,
    Ranked,
    TwoStageImprovement,
    centred_ranks,
)
from memes.task import Evaluation

LANES, SAMPLES = 3, 8
ranks = jax.jit(centred_ranks)


def average_ranks(values):
    """Return ranks, starting at 1. Equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def oracle(values, valid=None):
    """Return the centred ranks of the valid entries within each row, and 0 for invalid entries."""
    valid = np.ones(np.shape(values), bool) if valid is None else valid
    result = np.zeros(np.shape(values))
    for row, keep in enumerate(valid):
        if keep.sum() > 1:
            result[row, keep] = (average_ranks(values[row, keep]) - 1) / (keep.sum() - 1) - 0.5
    return result


@pytest.fixture
def evaluation():
    rng = np.random.default_rng(0)
    feature = rng.normal(size=(LANES, SAMPLES, 2))
    return Evaluation(np.float32(rng.normal(size=(LANES, SAMPLES))), np.float32(feature))


PAST = Past(np.random.default_rng(1).normal(size=(20, 2)).astype(np.float32), np.arange(20) < 11)


def novelty_of(evaluation, neighbours):
    points = np.float64(PAST.feature[PAST.valid])
    distance = np.linalg.norm(np.float64(evaluation.feature)[..., None, :] - points, axis=-1)
    return np.sort(distance, axis=-1)[..., :neighbours].mean(axis=-1)


def context_at(generation):
    archive = empty(Grid(jnp.zeros(2), jnp.ones(2), (2, 2)), 1)
    return Context(SimpleNamespace(), generation, archive, archive, PAST, None)


@jax.jit(static_argnums=0)
def advance(objective, state, evaluation, generation):
    return objective.utilities(state, evaluation, context_at(generation))


def utilities(objective, evaluation, generation=0):
    return np.asarray(advance(objective, objective.init(LANES), evaluation, generation)[1])


FITNESS, NOVELTY = Fitness(), Novelty(3)


def test_centred_ranks_equal_average_ranks_including_ties():
    rng = np.random.default_rng(2)
    for levels in (2, 4, 1000):
        values = rng.integers(-levels, levels, (LANES, SAMPLES)).astype(np.float32)
        found = ranks(values, np.ones(values.shape, bool))
        np.testing.assert_allclose(found, oracle(values), atol=1e-6)


def test_invalid_samples_rank_zero_and_do_not_count_for_the_others():
    rng = np.random.default_rng(3)
    for fraction in (0.9, 0.5, 0.2, 0.0):
        values = rng.integers(-4, 4, (LANES, SAMPLES)).astype(np.float32)
        valid = rng.random(values.shape) < fraction
        values[~valid] = rng.choice([np.nan, np.inf, -np.inf, 100.0], (~valid).sum())
        np.testing.assert_allclose(ranks(values, valid), oracle(values, valid), atol=1e-6)


def test_ranks_of_many_samples_agree_including_ties_and_invalid_samples():
    """With many samples, ranks are computed by sorting."""
    rng = np.random.default_rng(6)
    for levels, fraction in [(3, 1.0), (3, 0.5), (10**6, 0.9), (1, 0.5), (50, 0.0)]:
        values = rng.integers(-levels, levels, (LANES, PAIRS + 7)).astype(np.float32)
        valid = rng.random(values.shape) < fraction
        values[~valid] = rng.choice([np.nan, np.inf, -np.inf, 100.0], (~valid).sum())
        np.testing.assert_allclose(ranks(values, valid), oracle(values, valid), atol=1e-6)


def test_ranks_of_each_lane_sum_to_zero_and_reach_both_extremes():
    rng = np.random.default_rng(4)
    values = np.float32(rng.normal(size=(LANES, SAMPLES)))
    valid = np.ones(values.shape, bool)
    valid[1, :3] = False
    found = np.asarray(ranks(values, valid))
    np.testing.assert_allclose(found.sum(axis=1), np.zeros(LANES), atol=1e-6)
    np.testing.assert_allclose(found.max(axis=1), np.full(LANES, 0.5))
    np.testing.assert_allclose(found.min(axis=1), np.full(LANES, -0.5))


@pytest.mark.parametrize(
    "transform", [np.exp, lambda v: v**3, lambda v: 1e6 * v - 5, lambda v: v * 1e-30]
)
def test_ranks_are_invariant_to_monotone_transforms(transform):
    values = np.random.default_rng(5).integers(-5, 5, (LANES, SAMPLES)).astype(np.float32)
    valid = np.ones(values.shape, bool)
    np.testing.assert_array_equal(ranks(np.float32(transform(values)), valid), ranks(values, valid))


def test_equal_values_rank_zero():
    values, valid = np.full((LANES, SAMPLES), 7.0, np.float32), np.ones((LANES, SAMPLES), bool)
    np.testing.assert_array_equal(ranks(values, valid), np.zeros((LANES, SAMPLES)))


def test_a_single_valid_sample_ranks_zero():
    values, valid = np.full((LANES, SAMPLES), 7.0, np.float32), np.arange(SAMPLES) == [[0], [3], [7]]
    np.testing.assert_array_equal(ranks(values, valid), np.zeros((LANES, SAMPLES)))


def test_fitness_ranks_the_fitness_of_each_lane(evaluation):
    np.testing.assert_allclose(utilities(FITNESS, evaluation), oracle(evaluation.fitness), atol=1e-6)


def test_novelty_ranks_the_mean_distance_to_the_nearest_of_the_past(evaluation):
    expected = oracle(novelty_of(evaluation, 3))
    np.testing.assert_allclose(utilities(NOVELTY, evaluation), expected, atol=1e-6)


@pytest.mark.parametrize("objective", [FITNESS, NOVELTY, Blend(FITNESS, NOVELTY)])
def test_lanes_are_ranked_separately(objective, evaluation):
    before = utilities(objective, evaluation)
    changed = Evaluation(evaluation.fitness.copy(), evaluation.feature.copy())
    changed.fitness[1] = 100 + changed.fitness[1, ::-1]
    changed.feature[1] = 100 * changed.feature[1, ::-1]
    after = utilities(objective, changed)
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    assert (after[1] != before[1]).any()
    np.testing.assert_allclose(after.sum(axis=1), np.zeros(LANES), atol=1e-5)


@pytest.mark.parametrize("objective", [FITNESS, NOVELTY, Blend(FITNESS, NOVELTY)])
def test_non_finite_samples_get_no_weight(objective, evaluation):
    broken = Evaluation(evaluation.fitness.copy(), evaluation.feature.copy())
    broken.fitness[0, 2], broken.fitness[1, 5], broken.feature[2, 7, 1] = np.nan, np.inf, -np.inf
    found = utilities(objective, broken)
    at = (np.array([0, 1, 2]), np.array([2, 5, 7]))
    np.testing.assert_array_equal(found[at], np.zeros(3))
    valid = np.ones((LANES, SAMPLES), bool)
    valid[at] = False
    if objective is FITNESS:
        np.testing.assert_allclose(found, oracle(broken.fitness, valid), atol=1e-6)
    if objective is NOVELTY:
        np.testing.assert_allclose(found, oracle(novelty_of(evaluation, 3), valid), atol=1e-6)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_blend_is_the_weighted_mean_of_ranks_not_ranked_again(weight, evaluation):
    expected = weight * oracle(evaluation.fitness) + (1 - weight) * oracle(novelty_of(evaluation, 3))
    found = utilities(Blend(FITNESS, NOVELTY, weight), evaluation)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_blend_does_not_depend_on_the_scale_of_its_parts(evaluation):
    objective = Blend(FITNESS, NOVELTY)
    scaled = evaluation._replace(fitness=1000 * evaluation.fitness)
    np.testing.assert_array_equal(utilities(objective, scaled), utilities(objective, evaluation))


def test_the_weight_falls_while_the_best_fitness_stagnates_and_rises_when_it_improves(evaluation):
    """The weights equal those of NSRA-ES for a given sequence of best fitness values."""
    objective = AdaptiveBlend(FITNESS, NOVELTY, weight=0.9, step=0.2, patience=3)
    of_fitness, of_novelty = utilities(FITNESS, evaluation), utilities(NOVELTY, evaluation)
    best = [1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 4, 4, 4] + [4] * 24
    weight, expected, waited = 0.9, [], 0
    for now, last in zip(best, [-np.inf, *best], strict=False):
        waited = 0 if now > last else waited + 1
        weight += 0.2 if now > last else -0.2 * (waited % 3 == 0)
        weight = min(max(weight, 0.0), 1.0)
        expected.append(weight)
    assert min(expected) == 0
    assert max(expected) == 1

    @jax.jit
    def generation(state, best):
        context = context_at(0)
        elites = replace(context.archive, fitness=jnp.full(4, -jnp.inf).at[2].set(best))
        context = dataclasses.replace(context, archive=elites)
        return objective.utilities(state, jax.tree.map(jnp.asarray, evaluation), context)

    state = objective.init(LANES)
    for now, weight in zip(best, expected, strict=True):
        state, found = generation(state, float(now))
        blended = weight * of_fitness + (1 - weight) * of_novelty
        np.testing.assert_allclose(found, blended, atol=1e-5)


CELLS = Grid(jnp.zeros(2), jnp.ones(2), (2, 2))
BEFORE = replace(empty(CELLS, 1), fitness=jnp.array([1.0, -jnp.inf, 5.0, -jnp.inf]))
AFTER = replace(BEFORE, fitness=jnp.array([9.0, 9.0, 9.0, 9.0]))

# The features of the first seven samples are corners of the grid. Each corner is in a different cell.
# The last sample is out of bounds, and has by far the lowest fitness.
CORNERS = np.float32([[0, 0], [0, 0], [0, 0], [0, 1], [0, 1], [1, 0], [1, 0], [1.5, 1]])
VALUES = np.float32([3, 1.5, 0, 2, 4, 5.25, 3, -50])
TOY = SimpleNamespace(feature_low=(0.0, -1.0), feature_high=(1.0, 3.0))


def ranked(objective, state, batch):
    batch = jax.tree.map(jnp.asarray, batch)
    context = Context(TOY, jnp.int32(0), AFTER, AFTER, PAST, partial(SameArchive().compare, (), BEFORE))
    return np.asarray(objective.utilities(state, batch, context)[1])


def test_improvement_ranks_new_cells_then_gains_over_the_archive_before_this_generation():
    batch = Evaluation(np.stack([VALUES, VALUES[::-1]]), np.stack([CORNERS, CORNERS[::-1]]))
    order = np.argsort(-ranked(TwoStageImprovement(), (), batch), axis=1)
    # The ranking of the first lane has three parts:
    # - samples in new cells, by fitness: 4, 3, 7
    # - samples that are better than the elite: 0 (by 2), 1 (by 0.5), 5 (by 0.25)
    # - samples that are worse than the elite: 2 (by 1), 6 (by 2)
    np.testing.assert_array_equal(order, [[4, 3, 7, 0, 1, 5, 2, 6], [3, 4, 0, 7, 6, 2, 5, 1]])


def test_improvement_ranks_non_finite_samples_in_the_middle():
    broken = VALUES.copy()
    broken[[0, 4]] = np.nan, np.inf
    found = ranked(TwoStageImprovement(), (), Evaluation(broken[None], CORNERS[None]))[0]
    np.testing.assert_array_equal(found[[0, 4]], 0.0)
    np.testing.assert_array_equal(np.argsort(-np.delete(found, [0, 4])), [2, 5, 0, 3, 1, 4])


def test_accepted_samples_have_positive_utilities_in_the_order_of_their_objective():
    broken = VALUES.copy()
    broken[4] = np.inf
    batch = Evaluation(broken[None], CORNERS[None])
    plain, kept = (ranked(o, (), batch)[0] for o in (TwoStageImprovement(), accepted))
    accepts = [0, 1, 3, 5, 7]  # samples 2 and 6 are worse than the elites, and sample 4 is not finite
    np.testing.assert_array_equal(np.flatnonzero(kept), accepts)
    np.testing.assert_allclose(kept[accepts], plain[accepts] + 1)
    assert (kept >= 0).all()
    assert accepted.kind(jnp.int32(0)) == Kind.EXPLORE


accepted = Accepted(TwoStageImprovement())


def test_random_direction_ranks_archive_entries_first_and_then_along_the_direction():
    objective = RandomDirection(2)
    direction = np.float32([[0.6, -0.8], [-1.0, 0.1]])
    feature = np.random.default_rng(7).uniform(0, 1, (2, 50, 2)).astype(np.float32)
    value = np.random.default_rng(8).uniform(0, 6, (2, 50)).astype(np.float32)
    cell = 2 * (feature[..., 0] > 0.5) + (feature[..., 1] > 0.5)
    adds = value > np.asarray(BEFORE.fitness)[cell]
    along = np.einsum("lk,lsk->ls", direction, feature / [1.0, 4.0])  # in units of the bounds
    expected = np.stack([np.lexsort((along[lane], adds[lane])) for lane in range(2)])
    found = ranked(objective, jnp.asarray(direction), Evaluation(value, feature))
    np.testing.assert_array_equal(np.argsort(found, axis=1), expected)


def test_random_directions_are_drawn_uniformly_at_a_restart():
    objective = RandomDirection(2)
    drawn = objective.restart(jax.random.key(0), objective.init(1000), jnp.arange(1000) < 900)
    np.testing.assert_array_equal(drawn[900:], 0.0)
    np.testing.assert_allclose(np.linalg.norm(drawn[:900], axis=1), 1.0, rtol=1e-5)
    quadrant = np.bincount(2 * (drawn[:900, 0] < 0) + (drawn[:900, 1] < 0), minlength=4)
    assert (np.abs(quadrant - 225) < 5 * np.sqrt(225)).all()
    both = Blend(FITNESS, RandomDirection(2))
    _, passed_on = both.restart(jax.random.key(1), both.init(3), jnp.ones(3, bool))
    np.testing.assert_allclose(np.linalg.norm(passed_on, axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("every", [1, 3])
def test_alternate_switches_after_exactly_every_generations(every, evaluation):
    objective = Alternate(NOVELTY, FITNESS, every)
    turns = {Kind.EXPLORE: utilities(NOVELTY, evaluation), Kind.EXPLOIT: utilities(FITNESS, evaluation)}
    order = ([Kind.EXPLORE] * every + [Kind.EXPLOIT] * every) * 2
    for generation, kind in enumerate(order):
        assert objective.kind(jnp.int32(generation)) == kind
        np.testing.assert_array_equal(utilities(objective, evaluation, generation), turns[kind])


@dataclasses.dataclass(frozen=True)
class Counter:
    """An objective that counts its calls and gives every sample the same utility."""

    start: int
    utility: float

    def init(self, lanes):
        return jnp.full(lanes, self.start, jnp.int32)

    def restart(self, key, state, where):
        return state

    def utilities(self, state, evaluation, context):
        return state + 1, jnp.full((LANES, SAMPLES), self.utility)

    def kind(self, generation):
        return Kind.EXPLOIT


def test_alternate_advances_only_the_state_of_the_active_objective(evaluation):
    objective = Alternate(Counter(0, 1.0), Counter(0, 2.0), 3)
    state, plays = objective.init(LANES), []
    for generation in range(8):
        state, found = advance(objective, state, evaluation, generation)
        plays.append((int(state[0][0]), int(state[1][0]), float(found[0, 0])))
    a, b = 1.0, 2.0
    assert plays == [
        (1, 0, a),
        (2, 0, a),
        (3, 0, a),
        (3, 1, b),
        (3, 2, b),
        (3, 3, b),
        (4, 3, a),
        (5, 3, a),
    ]


def test_blend_advances_the_states_of_both(evaluation):
    objective = Blend(Counter(0, 0.0), Counter(10, 0.0))
    (of_a, of_b), _ = objective.utilities(objective.init(LANES), evaluation, context_at(0))
    np.testing.assert_array_equal(of_a, np.full(LANES, 1))
    np.testing.assert_array_equal(of_b, np.full(LANES, 11))


def test_a_custom_score_is_ranked_where_it_is_finite(evaluation):
    objective = Ranked(lambda evaluation, context: jnp.log(evaluation.feature[..., 0]), Kind.EXPLORE)
    valid = evaluation.feature[..., 0] > 0
    assert 0 < valid.sum() < valid.size
    expected = oracle(evaluation.feature[..., 0], valid)
    np.testing.assert_allclose(utilities(objective, evaluation), expected, atol=1e-6)
    assert objective.kind(jnp.int32(0)) == Kind.EXPLORE


def test_candidates_have_the_kind_of_their_objective():
    generation = jnp.int32(0)
    assert FITNESS.kind(generation) == Kind.EXPLOIT
    assert NOVELTY.kind(generation) == Kind.EXPLORE
    assert Blend(FITNESS, NOVELTY).kind(generation) == Kind.EXPLOIT
    assert Blend(NOVELTY, FITNESS).kind(generation) == Kind.EXPLORE


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda: Novelty(0), "^neighbours must"),
        (lambda: Blend(FITNESS, NOVELTY, 1.1), "^weight must"),
        (lambda: Blend(FITNESS, NOVELTY, -0.1), "^weight must"),
        (lambda: Alternate(FITNESS, NOVELTY, 0), "^every must"),
        (lambda: AdaptiveBlend(FITNESS, NOVELTY, weight=1.1), "^weight must"),
        (lambda: AdaptiveBlend(FITNESS, NOVELTY, step=-0.1), "^step of the weight must"),
        (lambda: AdaptiveBlend(FITNESS, NOVELTY, patience=0), "^patience must"),
        (lambda: RandomDirection(0), "^features must"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(mistake, sentence):
    with pytest.raises(UsageError, match=sentence):
        mistake()


def test_novelty_needs_a_history():
    task = memes.tasks.arm(joints=3)
    explorers = memes.emitters.ES(Novelty(3), lanes=2, strategy=memes.strategies.OpenAIES(samples=4))
    with pytest.raises(UsageError, match="history must store features for the objective Novelty"):
        memes.run(memes.compose(task, explorers), generations=1)
