import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.context import Kind
from memes.emitters import ES
from memes.resets import Reason

LANES, SAMPLES = 3, 4
strategy = memes.strategies.OpenAIES(samples=SAMPLES)


def constant_task(dim=2):
    """Return a task with constant fitness and feature, so that no lane can improve."""
    return memes.Task(
        name="constant_task",
        dim=dim,
        feature_low=(0.0,),
        feature_high=(1.0,),
        init=memes.uniform(dim, 0.0, 1.0),
        evaluate=lambda keys, x: (jnp.zeros(len(x)), jnp.full((len(x), 1), 0.5)),
    )


def follow(algorithm, generations, seed=0):
    """Return the final state, the Infos [G, ...] and the batches [G, ...] of G generations."""

    def body(state, key):
        ask_key, evaluate_key = jax.random.split(key)
        state, batch = algorithm.ask(ask_key, state)
        state, info = algorithm.tell(state, batch, algorithm.evaluate(evaluate_key, batch))
        return state, (info, batch)

    init_key, run_key = jax.random.split(jax.random.key(seed))
    keys = jax.random.split(run_key, generations)
    state, trace = jax.jit(lambda k, ks: jax.lax.scan(body, algorithm.init(k), ks))(init_key, keys)
    return state, *jax.tree.map(np.asarray, trace)


@pytest.mark.parametrize("budget", [0, 5, 32])
def test_a_lane_without_progress_is_reset_after_exactly_budget_plus_one_offspring(budget):
    emitter = ES(
        memes.objectives.Fitness(),
        lanes=LANES,
        strategy=strategy,
        reset=memes.resets.Stagnation(budget),
    )
    _, info, _ = follow(memes.compose(constant_task(), emitter), 3 * (budget + 2) + 1)
    # Lanes start from one genotype each. Generation 0 offers these genotypes to the archive. The next
    # budget + 1 generations offer offspring. Then the lanes restart from other genotypes, which are
    # evaluated but not offered.
    period = budget + 2
    generation = np.arange(len(info.reset))
    expected_age = generation % period
    np.testing.assert_array_equal(info.age, np.repeat(expected_age[:, None], LANES, axis=1))
    np.testing.assert_array_equal(info.stale, info.age)
    due = expected_age == budget + 1
    np.testing.assert_array_equal(info.reset == Reason.STALE, np.repeat(due[:, None], LANES, axis=1))
    assert set(info.age[info.reset > 0]) == {budget + 1}  # the lifespan
    fresh = (expected_age == 0) & (generation > 0)
    np.testing.assert_array_equal(~info.offered, np.repeat(fresh[:, None], LANES, axis=1))


def test_progress_resets_the_stale_counter():
    # Offspring that make progress have the generation number as fitness.
    emitter = ES(
        memes.objectives.Fitness(), lanes=1, strategy=strategy, reset=memes.resets.Stagnation(3)
    )
    algorithm = memes.compose(constant_task(), emitter)
    ask, tell = jax.jit(algorithm.ask), jax.jit(algorithm.tell)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    progress = [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]
    stale, reset = [], []
    for generation, better in enumerate(progress):
        state, batch = ask(jax.random.fold_in(jax.random.key(1), generation), state)
        fitness = jnp.full(1 + SAMPLES, generation if better else -1.0)
        state, info = tell(state, batch, (fitness, jnp.full((1 + SAMPLES, 1), 0.5)))
        stale.append(int(info.stale[0]))
        reset.append(int(info.reset[0]))
    assert stale == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert reset == [0] * 12 + [Reason.STALE]


def test_a_second_evaluation_of_an_elite_does_not_enter_archive_or_history():
    """After a reset, an elite is evaluated again. A better result must not be offered to the archive."""
    emitter = ES(
        memes.objectives.Fitness(), lanes=1, strategy=strategy, reset=memes.resets.Stagnation(0)
    )
    algorithm = memes.compose(constant_task(), emitter, history=memes.history.FIFO(100))
    ask, tell = jax.jit(algorithm.ask), jax.jit(algorithm.tell)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    history_sizes = []
    # The generations evaluate, in this order: the start, a rejected offspring, and the start again.
    for generation, fitness in enumerate([1.0, 0.0, 99.0]):
        state, batch = ask(jax.random.fold_in(jax.random.key(1), generation), state)
        evaluation = (jnp.full(1 + SAMPLES, fitness), jnp.full((1 + SAMPLES, 1), 0.5))
        state, info = tell(state, batch, evaluation)
        history_sizes.append(int(state.history.size))
    assert not info.offered[0]
    np.testing.assert_array_equal(batch.x[0], state.archive.genotypes[state.archive.occupied][0])
    assert float(state.archive.fitness.max()) == 1.0
    assert history_sizes == [1, 2, 2]
    assert int(info.stale[0]) == 0


def test_the_parent_feature_after_a_reset_is_that_of_the_stored_elite():
    task = memes.noisy(memes.tasks.arm(joints=3), feature=0.05)
    emitter = ES(
        memes.objectives.Fitness(), lanes=4, strategy=strategy, reset=memes.resets.Stagnation(1)
    )
    algorithm = memes.compose(task, emitter, cells=memes.cells.grid(task, (5, 5)))
    _, info, _ = follow(algorithm, 60)
    restarted, lane = np.nonzero(~info.offered[:-1])
    assert len(restarted) > 10
    stored = info.parent_feature[restarted, lane]
    assert np.isfinite(stored).all()
    # The second evaluation of an elite has a different feature. The parent feature is still the feature
    # in the archive.
    np.testing.assert_array_equal(info.parent_feature[restarted + 1, lane], stored)
    assert (np.abs(info.feature[restarted, lane] - stored).max(axis=1) > 0).all()
    continues = info.offered[:-1] & (info.reset[:-1] == Reason.NONE) & info.offered[1:]
    np.testing.assert_array_equal(info.parent_feature[1:][continues], info.feature[:-1][continues])


def test_a_planned_reset_discards_no_offspring():
    task, n = memes.tasks.arm(joints=3), 4
    emitter = ES(memes.objectives.Fitness(), lanes=LANES, strategy=strategy, reset=memes.resets.Every(n))
    _, info, batch = follow(memes.compose(task, emitter), 3 * n + 1)
    assert info.offered.all()
    generation = np.arange(3 * n + 1)
    # The ages are 0 for the first start, and 1 to n for the n offspring of each start.
    age = np.where(generation == 0, 0, (generation - 1) % n + 1)
    np.testing.assert_array_equal(info.age, np.repeat(age[:, None], LANES, axis=1))
    np.testing.assert_array_equal(info.reset == Reason.PLANNED, info.age == n)
    # Samples are mirrored pairs around the lane's mean, or around the new start after a reset.
    x = np.asarray(jax.vmap(lambda batch: batch.x)(batch))
    samples = x[:, LANES:].reshape(len(generation), LANES, 2, SAMPLES // 2, -1)
    centre = samples.mean(axis=2)[:, :, 0]
    around_mean = np.isclose(centre, x[:, :LANES], atol=1e-5).all(axis=-1)
    np.testing.assert_array_equal(around_mean, info.age != n)


def test_alternate_objectives_and_planned_resets_are_synchronous():
    task = memes.tasks.arm(joints=3)
    algorithm = memes.presets.memes_sequential(task, lanes=2, every=3, samples=4)
    _, info, _ = follow(algorithm, 13)
    # Each candidate was created in the previous generation. In that generation, all lanes had the
    # candidate's kind (explore or exploit).
    made_in = np.maximum(np.arange(13) - 1, 0)
    kind = np.where(made_in // 3 % 2 == 0, Kind.EXPLORE, Kind.EXPLOIT)
    np.testing.assert_array_equal(info.kind, np.repeat(kind[:, None], 2, axis=1))
    np.testing.assert_array_equal(np.flatnonzero((info.reset > 0).all(axis=1)), [3, 6, 9, 12])


@pytest.fixture(scope="module")
def one_generation():
    """Return the compiled `tell` of an algorithm, a state, a batch, and the evaluation of this batch."""
    emitter = ES(memes.objectives.Fitness(), lanes=LANES, strategy=strategy)
    algorithm = memes.compose(memes.tasks.arm(joints=3), emitter)
    state, batch = jax.jit(algorithm.ask)(jax.random.key(1), jax.jit(algorithm.init)(jax.random.key(0)))
    evaluation = jax.jit(algorithm.evaluate)(jax.random.key(2), batch)
    return jax.jit(algorithm.tell), state, batch, evaluation


def test_lanes_are_independent(one_generation):
    """Changes to the samples of one lane do not affect the other lanes."""
    tell, state, batch, evaluation = one_generation
    first_lane = slice(LANES, LANES + SAMPLES)
    changed = evaluation._replace(fitness=evaluation.fitness.at[first_lane].multiply(-1))
    means = [tell(state, batch, e)[0].emitter.strategy.mean for e in (evaluation, changed)]
    differs = np.any(np.asarray(means[0] != means[1]), axis=1)
    np.testing.assert_array_equal(differs, [True, False, False])


def test_non_finite_samples_do_not_affect_the_mean(one_generation):
    """Non-finite samples have no weight. If no sample is finite, the mean does not change."""
    tell, state, batch, evaluation = one_generation
    for bad in (jnp.nan, jnp.inf, -jnp.inf):
        broken = evaluation._replace(fitness=evaluation.fitness.at[LANES:].set(bad))
        after, info = tell(state, batch, broken)
        np.testing.assert_array_equal(after.emitter.strategy.mean, state.emitter.strategy.mean)
        assert int(info.non_finite) == LANES * SAMPLES
    half = evaluation._replace(feature=evaluation.feature.at[LANES::2].set(jnp.nan))
    after, info = tell(state, batch, half)
    assert jnp.isfinite(after.emitter.strategy.mean).all()
    assert int(info.non_finite) == LANES * SAMPLES // 2
