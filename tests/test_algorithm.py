import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.archive import Status
from memes.context import Kind
from memes.emitters import ES, Isoline, Parallel

LANES, SAMPLES = 4, 8
task = memes.tasks.arm(joints=3)
cells = memes.cells.grid(task, (8, 8))


@pytest.fixture(scope="module")
def memes_all():
    return memes.presets.memes(task, cells, lanes=LANES, samples=SAMPLES, offer_samples=True)


def advance(algorithm, generations, seed=0):
    init_key, run_key = jax.random.split(jax.random.key(seed))
    state, step = jax.jit(algorithm.init)(init_key), jax.jit(algorithm.step)
    infos = []
    for generation in range(generations):
        state, info = step(jax.random.fold_in(run_key, generation), state)
        infos.append(info)
    return state, infos


def test_scan_equals_a_python_loop():
    algorithm = memes.presets.memes(task, cells, lanes=LANES, samples=SAMPLES, stale_budget=1)
    looped, infos = advance(algorithm, 15)
    init_key, run_key = jax.random.split(jax.random.key(0))

    def body(state, generation):
        return algorithm.step(jax.random.fold_in(run_key, generation), state)

    scanned, info = jax.jit(lambda state: jax.lax.scan(body, state, jnp.arange(15)))(
        jax.jit(algorithm.init)(init_key)
    )
    assert sum(int(jnp.sum(i.reset > 0)) for i in infos) > 0
    jax.tree.map(np.testing.assert_array_equal, scanned, looped)
    jax.tree.map(np.testing.assert_array_equal, info, jax.tree.map(lambda *x: np.stack(x), *infos))


def test_samples_enter_the_archive_only_if_offered(memes_all):
    means_only = memes.presets.memes(task, cells, lanes=LANES, samples=SAMPLES)
    for algorithm, may in ((means_only, False), (memes_all, True)):
        state, infos = advance(algorithm, 1)
        additions = int(infos[0].additions.sum())
        assert additions == int(state.archive.occupied.sum())
        assert (additions > LANES) == may


def test_memes_all_judges_its_lanes_by_an_archive_of_means(memes_all):
    """A mean that is better than all earlier means makes progress, even if samples are better."""
    state = jax.jit(memes_all.init)(jax.random.key(0))
    ask, tell = jax.jit(memes_all.ask), jax.jit(memes_all.tell)
    n = memes_all.batch_size
    for generation in range(3):
        state, batch = ask(jax.random.fold_in(jax.random.key(1), generation), state)
        fitness = jnp.full(n, 100.0).at[:LANES].set(generation)  # samples beat every mean
        feature = jnp.full((n, 2), 0.5).at[:LANES, 0].set(jnp.arange(LANES) / LANES)
        feature = feature.at[LANES:, 0].set(jnp.tile(jnp.arange(LANES) / LANES, SAMPLES))
        state, info = tell(state, batch, (fitness, feature))
        assert (info.status == (Status.NEW if generation == 0 else Status.IMPROVED)).all()
        np.testing.assert_array_equal(info.stale, 0)
    assert state.archive.fitness.max() == 100.0
    assert state.judge.fitness.max() == 2.0
    assert state.judge.genotypes.size == 0


def test_additions_are_counted_by_the_kind_of_lane():
    strategy = memes.strategies.OpenAIES(samples=4)
    emitter = Parallel((ES(memes.objectives.Fitness(), lanes=2, strategy=strategy), Isoline(5)))
    algorithm = memes.compose(task, emitter, cells=cells)
    _, infos = advance(algorithm, 10)
    for info in infos:
        for kind in Kind:
            expected = jnp.sum((info.kind == kind) & (info.status != Status.REJECTED))
            assert int(info.additions[kind]) == int(expected)
    assert sum(int(info.additions[Kind.VARIATION]) for info in infos) > 0


def test_non_finite_evaluations_never_enter_and_are_counted():
    def poisoned(keys, x):
        """Make every third evaluation invalid, with NaN or infinite fitness or an infinite feature."""
        fitness, feature, *_ = task.evaluate(keys, x)
        row = jnp.arange(len(x))
        fitness = jnp.where(row % 9 == 0, jnp.nan, jnp.where(row % 9 == 3, jnp.inf, fitness))
        return fitness, jnp.where((row % 9 == 6)[:, None], -jnp.inf, feature)

    broken = dataclasses.replace(task, evaluate=poisoned)
    for preset in (memes.PRESETS["memes"], memes.PRESETS["memes-all"]):
        algorithm = preset.build(broken, cells, lanes=LANES, samples=SAMPLES)
        state, infos = advance(algorithm, 20)
        expected = sum(1 for row in range(algorithm.batch_size) if row % 3 == 0)
        assert all(int(info.non_finite) == expected for info in infos)
        elites = state.archive.occupied
        assert jnp.isfinite(state.archive.fitness[elites]).all()
        assert jnp.isfinite(state.archive.feature).all()
        assert jnp.isfinite(state.history.rows).all()
        for part in state.emitter:
            assert jnp.isfinite(part.strategy.mean).all()


def test_the_ledger_counts_every_evaluation_including_repeats():
    algorithm = memes.presets.memes(memes.resampled(task, 3), cells, lanes=LANES, samples=SAMPLES)
    _, infos = advance(algorithm, 2)
    for info in infos:
        assert int(info.ledger.candidates) == 3 * LANES
        assert int(info.ledger.samples) == 3 * LANES * SAMPLES


def test_sampled_candidates_are_judged_by_the_statistic_of_their_evaluations():
    repeats = 5
    algorithm = memes.presets.memes(
        task, cells, lanes=LANES, samples=SAMPLES, candidate_samples=repeats, offer_samples=True
    )
    state = jax.jit(algorithm.init)(jax.random.key(0))
    ask, tell = jax.jit(algorithm.ask), jax.jit(algorithm.tell)
    random = np.random.default_rng(0)
    n, first = algorithm.batch_size, LANES * repeats
    assert n == first + LANES * SAMPLES
    for generation in range(3):
        state, batch = ask(jax.random.fold_in(jax.random.key(1), generation), state)
        of_lane = np.asarray(batch.x[:first]).reshape(LANES, repeats, -1)
        np.testing.assert_array_equal(of_lane, of_lane[:, :1].repeat(repeats, axis=1))
        fitness = random.normal(size=n).astype(np.float32)
        feature = random.uniform(size=(n, 2)).astype(np.float32)
        broken = repeats * np.arange(LANES) + generation  # one evaluation of each candidate
        fitness[broken], feature[broken] = np.nan, np.inf
        state, info = tell(state, batch, (fitness, feature))
        whole = np.delete(fitness[:first], broken).reshape(LANES, repeats - 1)
        np.testing.assert_allclose(info.fitness, np.median(whole, axis=1), rtol=1e-6)
        places = np.delete(feature[:first], broken, axis=0).reshape(LANES, repeats - 1, 2)
        np.testing.assert_allclose(info.feature, np.median(places, axis=1), rtol=1e-6)
        assert int(info.ledger.candidates) == first
        assert int(info.ledger.samples) == LANES * SAMPLES
        assert int(info.non_finite) == LANES
        # For candidates, the archive and history store estimates. For samples, they store single
        # evaluations.
        known = np.concatenate([info.fitness, fitness[first:]])
        new = (state.archive.generation == generation) & state.archive.occupied
        assert np.isin(state.archive.fitness[new], known).all()
        past = np.asarray(state.history.rows[generation * LANES : (generation + 1) * LANES])
        np.testing.assert_array_equal(past[np.asarray(info.offered)], info.feature[info.offered])


def test_one_evaluation_of_a_candidate_is_used_unchanged():
    options = {"lanes": LANES, "samples": SAMPLES}
    once, plain = (
        advance(memes.presets.memes(task, cells, **options, **more), 5)
        for more in ({"candidate_samples": 1, "candidate_statistic": "mean"}, {})
    )
    jax.tree.map(np.testing.assert_array_equal, once, plain)


@pytest.mark.parametrize(
    ("fitness", "feature"), [((36, 1), (36, 2)), ((36,), (36, 1)), ((35,), (35, 2))]
)
def test_evaluations_must_have_the_right_shape(fitness, feature):
    algorithm = memes.presets.memes(task, cells, lanes=LANES, samples=SAMPLES)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    state, batch = jax.eval_shape(algorithm.ask, jax.random.key(1), state)
    told = jnp.zeros(fitness), jnp.zeros(feature)
    with pytest.raises(memes.UsageError, match="of task 'arm' must return"):
        jax.eval_shape(algorithm.tell, state, batch, told)


def test_cells_must_fit_the_task():
    other = dataclasses.replace(task, feature_low=(0.0,), feature_high=(1.0,), feature_names=())
    with pytest.raises(memes.UsageError, match="cells must have 2 features"):
        memes.presets.memes(task, memes.cells.grid(other))


def test_each_genotype_is_evaluated_with_a_different_key():
    seen = []

    def spy(keys, x):
        seen.append(np.asarray(jax.random.key_data(keys)))
        return np.zeros(len(x)), np.zeros((len(x), 2))

    host = dataclasses.replace(task, evaluate=spy, jit=False)
    algorithm = memes.presets.memes(host, cells, lanes=LANES, samples=SAMPLES)
    seen.clear()  # discard the call that checked the shapes
    state, ask = jax.jit(algorithm.init)(jax.random.key(0)), jax.jit(algorithm.ask)
    for generation in range(2):
        ask_key, evaluate_key = jax.random.split(jax.random.fold_in(jax.random.key(1), generation))
        state, batch = ask(ask_key, state)
        algorithm.evaluate(evaluate_key, batch)
    keys = np.concatenate(seen)
    assert len(np.unique(keys, axis=0)) == len(keys) == 2 * algorithm.batch_size


def test_reprs_are_one_line():
    algorithm = memes.presets.memes(task, lanes=4, samples=8)
    archive = algorithm.init(jax.random.key(0)).archive
    assert repr(algorithm).startswith("Algorithm('memes' on 'arm', 4 candidates and 32 samples")
    assert repr(task).startswith("Task('arm', dim=")
    assert repr(archive).startswith("Archive(0 elites of 2500 cells")
    for shown in (algorithm, task, archive, jax.eval_shape(lambda: archive), jax.tree.map(id, archive)):
        assert "\n" not in repr(shown)
    jax.jit(lambda archive: repr(archive) and archive.fitness)(archive)  # traced arrays work too


def test_wrong_arguments_of_the_parts_are_named():
    objective = memes.objectives.Fitness()
    with pytest.raises(TypeError, match="unexpected keyword argument 'lane'"):
        memes.emitters.ES(objective, lane=2)
    with pytest.raises(memes.UsageError, match="did you mean 'history'"):
        memes.compose(task, memes.emitters.Isoline(4), histroy=None)
    with pytest.raises(memes.UsageError, match=r"lanes must be int, got 2\.5"):
        dataclasses.replace(memes.emitters.ES(objective, lanes=2), lanes=2.5)
    with pytest.raises(memes.UsageError, match="strategy must be Strategy, got 'openai-es'"):
        memes.emitters.ES(objective, lanes=2, strategy="openai-es")
