"""Test the CMA-ME emitter with prescribed evaluations of its samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.archive import Status
from memes.emitters import CMA, OneOf
from memes.resets import Reason

BATCH, DIM = 8, 3
STRATEGY = memes.strategies.Evosax("cma-es", samples=BATCH, sigma=0.5)
task = memes.Task(
    "toy", DIM, (0.0,), (1.0,), memes.uniform(DIM, 5.0, 6.0), lambda keys, x: (x[:, 0], x[:, :1])
)
ALGORITHM = memes.compose(
    task,
    CMA(memes.objectives.TwoStageImprovement(), strategy=STRATEGY),
    cells=memes.cells.grid(task, (4,)),
)
init, ask, tell = jax.jit(ALGORITHM.init), jax.jit(ALGORITHM.ask), jax.jit(ALGORITHM.tell)
MIDDLE = jnp.full((BATCH, 1), 0.5)


def follow(fitness_of, generations, seed=0):
    """Return (state after ask, batch, state after tell, Info) for each generation.

    `fitness_of(generation)` returns the fitness of the samples of a generation, as an array [B].
    """
    state, trace = init(jax.random.key(seed)), []
    for generation in range(generations):
        asked, batch = ask(jax.random.fold_in(jax.random.key(seed + 1), generation), state)
        state, info = tell(asked, batch, (fitness_of(generation), MIDDLE))
        trace.append((asked, batch, state, info))
    return trace


def test_every_sample_is_offered_and_the_mean_is_not():
    asked, batch, _, info = follow(lambda g: jnp.arange(BATCH) * 1.0, 1)[0]
    assert ALGORITHM.batch_size == BATCH
    assert ALGORITHM.emitter.samples == 0
    assert np.asarray(info.offered).all()
    np.testing.assert_array_equal(info.lane, 0)
    assert int(info.ledger.candidates) == BATCH
    assert (np.asarray(batch.x) != np.asarray(asked.emitter.strategy.mean)).all()
    assert ((np.asarray(asked.emitter.strategy.mean) >= 5) & (asked.emitter.strategy.mean <= 6)).all()


def test_a_lane_restarts_from_an_elite_if_no_sample_enters_the_archive():
    # No sample enters the archive in generations 2 and 5. In all other generations, one of eight samples
    # enters, so the lane continues.
    best = [1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 5.0]
    trace = follow(lambda g: jnp.full(BATCH, -1.0).at[3].set(best[g]), len(best))
    assert [int(info.reset[0]) for *_, info in trace] == [0, 0, 1, 0, 0, 1, 0]
    assert [int(info.age[0]) for *_, info in trace] == [1, 2, 3, 1, 2, 3, 1]
    assert [int(info.stale[0]) for *_, info in trace] == [0, 0, 1, 0, 0, 1, 0]
    for generation in (3, 6):
        asked, _, _, _ = trace[generation]
        elite = np.asarray(trace[generation - 1][2].archive.genotypes)[2]
        np.testing.assert_allclose(asked.emitter.strategy.mean[0], elite, rtol=1e-6)
        np.testing.assert_array_equal(asked.emitter.strategy.std, 0.5)
        np.testing.assert_array_equal(asked.emitter.strategy.p_c, 0.0)
    assert (np.asarray(trace[1][0].emitter.strategy.p_c) != 0).all()
    # A reset is reported once per lane, not once per sample.
    assert sum(int(np.sum(info.reset == Reason.STALE)) for *_, info in trace) == 2


def test_a_lane_restarts_if_its_distribution_degenerates():
    state = init(jax.random.key(0))
    thin = state.emitter.strategy.replace(std=jnp.full(1, 1e-9))
    state = state._replace(emitter=state.emitter._replace(strategy=thin))
    state, batch = ask(jax.random.key(1), state)
    state, info = tell(state, batch, (jnp.arange(BATCH) * 1.0, MIDDLE))
    assert int(info.status.max()) == Status.NEW
    assert int(info.reset[0]) == Reason.DEGENERATE
    state, _ = ask(jax.random.key(2), state)
    np.testing.assert_array_equal(state.emitter.strategy.std, 0.5)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_non_finite_samples_do_not_affect_the_distribution(bad):
    trace = follow(lambda g: jnp.full(BATCH, bad).at[0].set(g), 4)
    for *_, state, _ in trace:
        assert all(
            jnp.isfinite(leaf).all() for leaf in (state.emitter.strategy.mean, state.emitter.strategy.C)
        )
    # Only one sample has a valid rank, so the distribution does not change.
    np.testing.assert_array_equal(trace[3][2].emitter.strategy.mean, trace[0][0].emitter.strategy.mean)
    assert all(int(info.non_finite) == BATCH - 1 for *_, info in trace)
    nothing = follow(lambda g: jnp.full(BATCH, bad), 3)
    assert not nothing[-1][2].archive.occupied.any()
    x = np.asarray(nothing[-1][1].x)  # without elites, restarts draw from init
    assert np.isfinite(x).all()


def test_the_published_cma_me_learns_from_the_samples_that_improve_the_archive():
    """Samples that are not accepted have no effect. If no sample is accepted, the lane restarts."""
    algorithm = memes.presets.cma_me(
        task, memes.cells.grid(task, (4,)), pool=1, batch=BATCH, parents="accepted"
    )
    ask, tell = jax.jit(algorithm.ask), jax.jit(algorithm.tell)
    state, batch = ask(jax.random.key(1), jax.jit(algorithm.init)(jax.random.key(0)))
    fitness = jnp.arange(BATCH) * 1.0
    state, _ = tell(state, batch, (fitness, MIDDLE))
    asked, batch = ask(jax.random.key(2), state)
    improving = fitness + 2 > BATCH - 1  # fitter than the elite of the cell
    means = []
    for worse in (fitness, -fitness):
        after, info = tell(asked, batch, (jnp.where(improving, fitness + 2, worse), MIDDLE))
        assert int(info.reset[0]) == Reason.NONE
        means.append(np.asarray(after.emitter[1].strategy.mean[0, 0]))
    np.testing.assert_array_equal(*means)
    # The new mean is a weighted mean of the best two samples, with weights log(n + 1/2) - log(i).
    weights = np.log(2.5) - np.log([1, 2])
    expected = weights / weights.sum() @ np.asarray(batch.x)[[BATCH - 1, BATCH - 2]]
    np.testing.assert_allclose(means[0], expected, rtol=1e-5)
    after, info = tell(asked, batch, (fitness - 2, MIDDLE))
    assert int(info.reset[0]) == Reason.STALE
    np.testing.assert_array_equal(after.emitter[1].strategy.mean, asked.emitter[1].strategy.mean)


def test_lanes_of_a_pool_alternate_and_have_separate_distributions():
    pool = OneOf(CMA(memes.objectives.RandomDirection(1), strategy=STRATEGY), 3)
    algorithm = memes.compose(task, pool)
    step, state = jax.jit(algorithm.step), jax.jit(algorithm.init)(jax.random.key(0))
    for generation in range(6):
        after, info = step(jax.random.fold_in(jax.random.key(1), generation), state)
        np.testing.assert_array_equal(info.lane, generation % 3)
        moved = np.any(
            np.asarray(after.emitter[1].strategy.mean != state.emitter[1].strategy.mean), (1, 2)
        )
        np.testing.assert_array_equal(np.flatnonzero(moved), [generation % 3])
        state = after
    directions = np.asarray(state.emitter[1].objective)
    np.testing.assert_allclose(np.abs(directions), 1.0, rtol=1e-6)  # drawn when each lane started
