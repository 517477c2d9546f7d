"""The emitter of CMA-MEGA and CMA-MAEGA agrees with NumPy versions of the published algorithms."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import memes
from memes.archive import Status
from memes.emitters import GradientArborescence
from memes.resets import Never, Reason

LANES, SAMPLES, DIM, SIGMA = 2, 6, 4, 0.3
STRATEGY = memes.strategies.Evosax("cma-es", samples=SAMPLES, sigma=SIGMA)


def evaluate(keys, x):
    return -jnp.sum(jnp.square(x), axis=1), jnp.stack([x[:, 0], 2 * x[:, 1] + x[:, 2]], axis=1)


task = memes.Task("bowl", DIM, (-2.0, -2.0), (2.0, 2.0), memes.uniform(DIM, -1.0, 1.0), evaluate)
CELLS = memes.cells.grid(task, (8, 8))


def program(**options):
    emitter = GradientArborescence(memes.objectives.TwoStageImprovement(), STRATEGY, LANES, **options)
    algorithm = memes.compose(task, emitter, cells=CELLS)
    return algorithm, *map(jax.jit, (algorithm.init, algorithm.ask, algorithm.tell))


ALGORITHM, init, ask, tell = program()


def directions(mean):
    """Return the gradients at a solution, [3, d], each normalised to length 1."""
    along = np.array([-2 * np.asarray(mean), [1, 0, 0, 0], [0, 2, 1, 0]])
    return along / np.linalg.norm(along, axis=1, keepdims=True)


@pytest.mark.parametrize("step_size", [1.0, 0.5])
def test_generations_follow_the_publication(step_size):
    _, init, ask, tell = program(step_size=step_size, reset=Never())
    state = init(jax.random.key(0))
    for generation in range(4):
        asked, batch = ask(jax.random.fold_in(jax.random.key(1), generation), state)
        x = np.asarray(batch.x).reshape(LANES, 1 + SAMPLES, DIM)
        np.testing.assert_array_equal(x[:, 0], asked.emitter.mean)
        evaluation = evaluate(None, batch.x)
        compared = ALGORITHM.judge.compare((), state.archive, memes.Evaluation(*evaluation))
        state, info = tell(asked, batch, evaluation)
        for lane in range(LANES):
            mean = x[lane, 0]
            branches = np.asarray(asked.emitter.coefficients)[lane] @ directions(mean)
            np.testing.assert_allclose(x[lane, 1:] - mean, branches, atol=1e-5)
            # Samples in empty cells rank before all other samples. In each of these two groups, larger
            # improvements rank first.
            status, value = (np.asarray(part).reshape(LANES, -1)[lane, 1:] for part in compared)
            best = np.lexsort((-value, status != Status.NEW))[: SAMPLES // 2]
            weights = np.log(SAMPLES // 2 + 0.5) - np.log(np.arange(1, SAMPLES // 2 + 1))
            step = weights / weights.sum() @ branches[best]
            np.testing.assert_allclose(state.emitter.mean[lane], mean + step_size * step, atol=1e-5)
        own = np.asarray(info.feature).reshape(LANES, -1, 2)
        parents = np.asarray(info.parent_feature).reshape(LANES, -1, 2)
        np.testing.assert_array_equal(parents[:, 1:], np.broadcast_to(own[:, :1], parents[:, 1:].shape))


def test_a_lane_restarts_from_an_elite_if_no_sample_is_accepted():
    state = init(jax.random.key(2))
    asked, batch = ask(jax.random.key(3), state)
    state, info = tell(asked, batch, evaluate(None, batch.x))
    assert not np.asarray(info.reset).any()
    asked, batch = ask(jax.random.key(4), state)
    # The means are better than all elites. However, only the samples count, and all samples are worse
    # than the elites.
    fitness = jnp.full((LANES, 1 + SAMPLES), -1e3).at[:, 0].set(1.0).ravel()
    inside = state.archive.feature[np.flatnonzero(state.archive.occupied)[0]]
    state, info = tell(asked, batch, (fitness, jnp.broadcast_to(inside, (fitness.size, 2))))
    np.testing.assert_array_equal(np.flatnonzero(info.reset), [0, 1 + SAMPLES])
    assert int(info.reset[0]) == Reason.STALE
    after, _ = ask(jax.random.key(5), state)
    elites = np.asarray(state.archive.genotypes)[np.asarray(state.archive.occupied)]
    for lane in range(LANES):
        assert (np.asarray(after.emitter.mean)[lane] == elites).all(axis=1).any()
    np.testing.assert_array_equal(after.emitter.strategy.mean, 0.0)
    np.testing.assert_array_equal(after.emitter.strategy.std, np.float32(SIGMA))


def test_a_lane_with_only_non_finite_samples_does_not_change():
    asked, batch = ask(jax.random.key(6), init(jax.random.key(7)))
    fitness, feature = evaluate(None, batch.x)
    fitness = fitness.at[1 + SAMPLES :].set(jnp.nan)  # the whole second lane
    state, info = tell(asked, batch, (fitness, feature))
    moved = np.any(np.asarray(state.emitter.mean != asked.emitter.mean), axis=1)
    np.testing.assert_array_equal(moved, [True, False])
    assert int(info.non_finite) == 1 + SAMPLES
    np.testing.assert_array_equal(state.emitter.due, [False, True])


@pytest.mark.parametrize(
    ("second", "reasons"), [(0.0, {Reason.NONE, Reason.DEGENERATE}), (1.0, {Reason.NONE})]
)
def test_a_non_finite_gradient_is_ignored(second, reasons):
    """If no gradient is finite, the lane restarts."""
    broken = memes.Task(
        **{name: getattr(task, name) for name in ("name", "dim", "feature_low", "feature_high", "init")},
        evaluate=evaluate,
        gradients=lambda keys, x: (x * jnp.nan, second * jnp.eye(2, DIM) * jnp.ones((LANES, 1, 1))),
    )
    emitter = GradientArborescence(memes.objectives.Improvement(), STRATEGY, LANES, reset=Never())
    algorithm = memes.compose(broken, emitter, cells=CELLS)
    state, info = jax.jit(lambda k, s: algorithm.step(k, algorithm.init(s)))(
        jax.random.key(8), jax.random.key(9)
    )
    assert set(np.unique(info.reset)) == reasons
    assert np.isfinite(state.archive.genotypes).all()
    assert int(info.non_finite) == 0


def test_adam_moves_the_solution_by_its_learning_rate():
    _, init, ask, tell = program(optimiser=optax.adam, step_size=0.01)
    asked, batch = ask(jax.random.key(0), init(jax.random.key(1)))
    state, _ = tell(asked, batch, evaluate(None, batch.x))
    moved = np.abs(np.asarray(state.emitter.mean - asked.emitter.mean))
    np.testing.assert_allclose(moved, 0.01, rtol=1e-3)


@pytest.mark.parametrize("wrong", [{"lanes": 0}, {"step_size": 0.0}])
def test_a_wrong_argument_is_refused_by_name(wrong):
    with pytest.raises(memes.UsageError, match=f"^{next(iter(wrong))} must"):
        GradientArborescence(memes.objectives.Improvement(), STRATEGY, **wrong)
