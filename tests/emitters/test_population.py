"""The NS-ES emitter.

Each generation evaluates the mean that was updated last, together with samples around a chosen mean.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.archive import empty
from memes.context import Context
from memes.emitters import ByNovelty, Population
from memes.errors import UsageError
from memes.history import Past

SIZE, SAMPLES = 3, 4
task = memes.tasks.arm(joints=3)
ALGORITHM = memes.compose(
    task,
    Population(
        memes.objectives.Novelty(2), size=SIZE, strategy=memes.strategies.OpenAIES(samples=SAMPLES)
    ),
    history=memes.history.Everything(),
)
init = jax.jit(ALGORITHM.init, static_argnums=1)
ask, tell = jax.jit(ALGORITHM.ask), jax.jit(ALGORITHM.tell)
evaluate = jax.jit(ALGORITHM.evaluate)


@pytest.fixture(scope="module")
def trace():
    """Return (old state, state after `ask`, batch, evaluation, new state, info) for each generation."""
    state, generations = init(jax.random.key(0), 25), []
    for generation in range(25):
        key, evaluate_key = jax.random.split(jax.random.fold_in(jax.random.key(1), generation))
        asked, batch = ask(key, state)
        evaluation = evaluate(evaluate_key, batch)
        after, info = tell(asked, batch, evaluation)
        generations.append((state, asked, batch, evaluation, after, info))
        state = after
    return generations


def test_only_the_chosen_mean_moves(trace):
    played = set()
    for before, asked, _, _, after, _ in trace:
        playing = int(asked.emitter.playing)
        played.add(playing)
        moved = np.any(np.asarray(before.emitter.strategy.mean != after.emitter.strategy.mean), axis=1)
        np.testing.assert_array_equal(np.flatnonzero(moved), [playing])
        for leaf_before, leaf_after in zip(
            jax.tree.leaves(before.emitter.strategy),
            jax.tree.leaves(after.emitter.strategy),
            strict=True,
        ):
            others = np.arange(SIZE) != playing
            np.testing.assert_array_equal(leaf_before[others], leaf_after[others])
    assert played == set(range(SIZE))


def test_a_generation_offers_the_last_step_and_samples_around_the_chosen_mean(trace):
    previous = int(trace[0][1].emitter.playing)  # generation 0 offers a start
    for _, asked, batch, _, _, info in trace:
        playing = int(asked.emitter.playing)
        mean = np.asarray(asked.emitter.strategy.mean)
        np.testing.assert_array_equal(batch.x[0], mean[previous])
        centre = np.asarray(batch.x[1:]).mean(axis=0)  # samples are mirrored
        np.testing.assert_allclose(centre, mean[playing], atol=1e-6)
        np.testing.assert_array_equal(batch.lane, [previous])
        np.testing.assert_array_equal(batch.sample_lane, [playing] * SAMPLES)
        assert info.offered.all()
        assert int(info.lane[0]) == previous
        previous = playing
    assert any(int(t[1].emitter.offering) != int(t[1].emitter.playing) for t in trace)


def test_features_ages_and_parents_belong_to_the_offered_mean(trace):
    known, steps = {}, dict.fromkeys(range(SIZE), 0)
    for _, asked, _, evaluation, after, info in trace:
        lane = int(info.lane[0])
        np.testing.assert_array_equal(info.parent_feature[0], known.get(lane, np.full(2, np.nan)))
        assert int(info.age[0]) == steps[lane]
        known[lane] = np.asarray(evaluation.feature[0])
        steps[int(asked.emitter.playing)] += 1
        for i in range(SIZE):
            expected = known.get(i, np.full(2, np.nan))
            np.testing.assert_array_equal(after.emitter.feature[i], expected)


def test_every_offered_feature_enters_the_history(trace):
    after = trace[-1][4]
    assert int(after.history.size) == len(trace)
    offered = np.stack([evaluation.feature[0] for _, _, _, evaluation, _, _ in trace])
    np.testing.assert_array_equal(after.history.rows[: len(trace)], offered)


def test_non_finite_evaluations_do_not_affect_the_means(trace):
    for generation, bad in [(0, jnp.nan), (0, jnp.inf), (10, -jnp.inf)]:
        _, asked, batch, evaluation, _, _ = trace[generation]
        broken = memes.Evaluation(jnp.full_like(evaluation.fitness, bad), evaluation.feature)
        after, info = tell(asked, batch, broken)
        np.testing.assert_array_equal(after.emitter.feature, asked.emitter.feature)  # unchanged
        assert jnp.isfinite(after.emitter.strategy.mean).all()
        if generation == 0:  # in later generations, the momentum of Adam moves the mean
            np.testing.assert_array_equal(after.emitter.strategy.mean, asked.emitter.strategy.mean)
        assert int(info.non_finite) == 1 + SAMPLES


FEATURES = jnp.array([[0.1, 0.1], [0.4, 0.1], [0.1, 0.9], [0.2, 0.1]])
PAST = Past(jnp.array([[0.1, 0.1], [9.0, 9.0], [0.0, 0.0]]), jnp.array([True, False, False]))
DRAWS = 4000


@partial(jax.jit, static_argnums=0)
def draws(play, key, feature, past=PAST):
    archive = empty(memes.cells.grid(task, (2, 2)), 1)
    context = Context(task, jnp.int32(0), archive, archive, past, None)
    return jax.vmap(lambda k: play(k, context, feature))(jax.random.split(key, DRAWS))


PLAY = ByNovelty(1)


@pytest.mark.parametrize("unknown", [[], [0], [0, 2]])
def test_means_are_drawn_in_proportion_to_their_novelty(unknown):
    feature = FEATURES.at[np.array(unknown, int)].set(jnp.nan)
    novelty = np.linalg.norm(np.asarray(FEATURES) - 0.1, axis=1)
    known = np.setdiff1d(np.arange(4), unknown)
    novelty[unknown] = novelty[known].max()
    expected = novelty / novelty.sum()
    found = np.bincount(draws(PLAY, jax.random.key(0), feature), minlength=4) / DRAWS
    np.testing.assert_allclose(found, expected, atol=5 * 0.5 / np.sqrt(DRAWS))
    assert (found[expected == 0] == 0).all()


def test_without_novelty_all_means_are_equally_likely():
    nowhere = Past(PAST.feature, jnp.zeros(3, bool))
    for feature, past in [(FEATURES, nowhere), (FEATURES * jnp.nan, PAST), (FEATURES * 0 + 0.1, PAST)]:
        found = np.bincount(draws(PLAY, jax.random.key(1), feature, past), minlength=4) / DRAWS
        np.testing.assert_allclose(found, np.full(4, 0.25), atol=5 * 0.5 / np.sqrt(DRAWS))


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda: Population(memes.objectives.Fitness(), size=0), "^size of the population must"),
        (lambda: ByNovelty(0), "^neighbours must"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(mistake, sentence):
    with pytest.raises(UsageError, match=sentence):
        mistake()
