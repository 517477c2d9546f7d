from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from memes.control.perturbations import entries, rows
from memes.errors import UsageError
from memes.objectives import centred_ranks
from memes.pytrees import by_lane
from memes.strategies import Gaussian, LowRank, OpenAIES

LANES, DIM, SAMPLES, SIGMA = 3, 4, 64, 0.1
ADAM = OpenAIES(samples=SAMPLES, sigma=SIGMA, l2=0.05)
PLAIN = OpenAIES(samples=SAMPLES, sigma=SIGMA, learning_rate=1.0, optimiser=optax.sgd)
# This strategy has many samples, so that tests can measure their distribution.
WIDE = OpenAIES(samples=8192, sigma=SIGMA, learning_rate=1.0, optimiser=optax.sgd)
ask = jax.jit(lambda key, state: by_lane(rows(ADAM.ask(key, state)[1]), LANES))
tell = jax.jit(ADAM.tell)
wide_ask = jax.jit(lambda key, state: by_lane(rows(WIDE.ask(key, state)[1]), LANES))
wide_tell = jax.jit(WIDE.tell)
plain_tell = jax.jit(PLAIN.tell)


def init(strategy, mean):
    return strategy.init(jax.random.key(0), mean)


def restart(strategy, state, where, mean):
    return strategy.restart(jax.random.key(0), state, where, mean)


def means(seed):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(LANES, DIM)), jnp.float32)


def random_utilities(seed):
    return jnp.asarray(np.random.default_rng(seed).uniform(-0.5, 0.5, (LANES, SAMPLES)), jnp.float32)


def after(steps, state, seed=0):
    for step in range(steps):
        x = ask(jax.random.fold_in(jax.random.key(seed), step), state)
        state = tell(state, x, random_utilities((seed, step)))
    return state


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def lanes_of(state, where):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[where], state)


def test_samples_are_mirrored_about_the_mean():
    mean = means(0)
    step = np.asarray(ask(jax.random.key(0), init(ADAM, mean))) - mean[:, None]
    assert step.shape == (LANES, SAMPLES, DIM)
    for lane in step:
        distance = np.abs(lane[:, None] + lane).max(axis=-1)
        np.testing.assert_array_equal((distance < 1e-6).sum(axis=1), np.ones(SAMPLES))


def test_samples_are_gaussian_with_deviation_sigma():
    mean = means(1)
    noise = (np.asarray(wide_ask(jax.random.key(1), init(WIDE, mean))) - mean[:, None])[0] / SIGMA
    np.testing.assert_allclose(noise.std(axis=0), np.ones(DIM), rtol=0.05)
    np.testing.assert_allclose((noise**4).mean(axis=0), np.full(DIM, 3.0), rtol=0.2)
    half = noise[: len(noise) // 2]
    assert np.abs(np.corrcoef(half.T) - np.eye(DIM)).max() < 5 / np.sqrt(4096)


def test_noise_differs_between_rows_and_entries():
    mean = jnp.zeros((LANES, DIM))
    noise = np.abs(np.asarray(ask(jax.random.key(2), init(ADAM, mean))))
    assert len(np.unique(noise)) == LANES * SAMPLES * DIM // 2
    other = np.abs(np.asarray(ask(jax.random.key(3), init(ADAM, mean))))
    assert np.intersect1d(noise, other).size == 0


def test_the_gradient_of_a_linear_function_points_along_it():
    slope = means(2)
    state = init(WIDE, means(3))
    x = np.asarray(wide_ask(jax.random.key(4), state))
    rank = np.einsum("lsd,ld->ls", x, slope).argsort(axis=1).argsort(axis=1)
    step = np.asarray(WIDE.mean(wide_tell(state, x, np.float32(rank / 8191 - 0.5))) - state.mean)
    cosine = np.sum(step * slope, 1) / np.linalg.norm(step, axis=1) / np.linalg.norm(slope, axis=1)
    assert (cosine > 0.98).all()


def test_raw_values_as_utilities_estimate_the_slope():
    slope = means(4)
    state = init(WIDE, means(5))
    x = np.asarray(wide_ask(jax.random.key(5), state))
    updated = wide_tell(state, x, np.einsum("lsd,ld->ls", x, slope))
    np.testing.assert_allclose(updated.mean - state.mean, slope, atol=0.15)


def test_equal_utilities_do_not_move_the_mean():
    state = init(PLAIN, means(6))
    updated = plain_tell(
        state, ask(jax.random.key(6), state), np.full((LANES, SAMPLES), 0.5, np.float32)
    )
    np.testing.assert_array_equal(updated.mean, state.mean)


def test_steps_equal_those_of_a_numpy_adam():
    mean = np.float64(means(7))
    state = init(ADAM, means(7))
    first, second = np.zeros_like(mean), np.zeros_like(mean)
    for t in range(1, 5):
        x, utilities = ask(jax.random.key(t), state), random_utilities(t)
        noise = (np.float64(x) - mean[:, None]) / SIGMA
        gradient = np.einsum("ls,lsd->ld", utilities, noise) / (SAMPLES * SIGMA) - 0.05 * mean
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        mean = mean + 0.01 * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        state = tell(state, x, utilities)
        np.testing.assert_allclose(ADAM.mean(state), mean, rtol=1e-4, atol=2e-5)


def test_l2_pulls_the_mean_towards_zero():
    strategy = OpenAIES(samples=SAMPLES, sigma=SIGMA, learning_rate=1.0, optimiser=optax.sgd, l2=0.25)
    state = init(strategy, means(8))
    x = ask(jax.random.key(7), state)
    updated = strategy.tell(state, x, jnp.zeros((LANES, SAMPLES)))
    np.testing.assert_allclose(updated.mean, 0.75 * means(8), rtol=1e-6)


def test_permuting_lanes_permutes_the_result():
    state = after(3, init(ADAM, means(9)))
    x, utilities = ask(jax.random.key(8), state), random_utilities(9)
    order = np.array([2, 0, 1])
    updated = tell(state, x, utilities)
    permuted = tell(lanes_of(state, order), np.asarray(x)[order], utilities[order])
    assert_same(permuted, lanes_of(updated, order))


def test_a_lane_does_not_depend_on_the_utilities_of_another():
    state = after(2, init(ADAM, means(10)))
    x, utilities = ask(jax.random.key(9), state), random_utilities(10)
    changed = utilities.at[1].multiply(-1)
    before, updated = tell(state, x, utilities), tell(state, x, changed)
    assert_same(lanes_of(updated, [0, 2]), lanes_of(before, [0, 2]))
    assert (np.asarray(updated.mean[1]) != np.asarray(before.mean[1])).all()


def test_restart_resets_mean_and_optimiser_of_only_the_chosen_lanes():
    state, fresh = (
        after(3, init(ADAM, means(11))),
        init(ADAM, means(12)),
    )
    restarted = restart(ADAM, state, jnp.array([True, False, True]), means(12))
    assert_same(lanes_of(restarted, [0, 2]), lanes_of(fresh, [0, 2]))
    assert_same(lanes_of(restarted, [1]), lanes_of(state, [1]))


def test_a_restarted_lane_steps_like_a_new_one():
    state = ADAM.restart(
        jax.random.key(0),
        after(5, init(ADAM, means(13))),
        jnp.array([True, False, True]),
        means(14),
    )
    fresh = init(ADAM, means(14))
    x, utilities = ask(jax.random.key(10), fresh), random_utilities(15)
    stepped, expected = tell(state, x, utilities), tell(fresh, x, utilities)
    assert_same(lanes_of(stepped, [0, 2]), lanes_of(expected, [0, 2]))
    # Adam's first step changes every entry by the learning rate.
    step = np.abs(np.asarray(stepped.mean) - means(14))
    np.testing.assert_allclose(step[[0, 2]], np.full((2, DIM), 0.01), rtol=1e-3)


def test_each_lane_climbs_a_different_quadratic():
    strategy = OpenAIES(samples=SAMPLES, sigma=0.02, learning_rate=0.05)
    start, optimum = means(16), means(17)

    def step(state, key):
        state, samples = strategy.ask(key, state)
        x = by_lane(rows(samples), LANES)
        value = -jnp.sum(jnp.square(x - optimum[:, None]), axis=-1)
        return strategy.tell(state, x, centred_ranks(value, jnp.ones(value.shape, bool))), None

    keys = jax.random.split(jax.random.key(11), 150)
    state, _ = jax.jit(lambda state: jax.lax.scan(step, state, keys))(init(strategy, start))
    left = np.linalg.norm(np.asarray(state.mean) - optimum, axis=1)
    assert (left < 0.1 * np.linalg.norm(start - optimum, axis=1)).all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"samples": 7}, "^samples must be even"),
        ({"samples": 0}, "^samples must be even"),
        ({"sigma": 0.0}, "^sigma must"),
        ({"l2": -0.1}, "^l2 must"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        OpenAIES(**settings)


@pytest.mark.parametrize("noise", [Gaussian(), LowRank(1)])
def test_half_precision_noise_is_rounded_once_and_defines_the_gradient(noise):
    """The gradient agrees with a float64 gradient that uses the rounded steps of the samples."""
    full = OpenAIES(samples=SAMPLES, sigma=SIGMA, learning_rate=1.0, optimiser=optax.sgd, noise=noise)
    half = replace(full, noise_dtype="bfloat16")
    state = init(half, means(4))
    exact, samples = (strategy.ask(jax.random.key(5), state)[1] for strategy in (full, half))
    for kept, drawn in zip(jax.tree.leaves(samples.step), jax.tree.leaves(exact.step), strict=True):
        assert kept.dtype == jnp.bfloat16
        np.testing.assert_array_equal(kept, drawn.astype(jnp.bfloat16))

    def in_float64(pairs):
        return np.asarray(entries(pairs.step)[..., :DIM].astype(jnp.float32), np.float64)

    utilities = random_utilities(6)
    apart = np.asarray(utilities, np.float64).reshape(LANES, 2, SAMPLES // 2, 1)

    def ascent(step):
        return ((apart[:, 0] - apart[:, 1]) * step).sum(axis=1) / (SAMPLES * SIGMA**2)

    updated = plain_tell(state, by_lane(rows(samples), LANES), utilities)
    found = np.asarray(updated.mean, np.float64) - np.asarray(state.mean, np.float64)
    np.testing.assert_allclose(found, ascent(in_float64(samples)), rtol=1e-4, atol=1e-5)
    # The gradient of the unrounded noise differs by more than the tolerance, so the test detects it.
    assert np.abs(found - ascent(in_float64(exact))).max() > 1e-4
