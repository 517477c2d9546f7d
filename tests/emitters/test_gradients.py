"""Gradients of tasks, computed by JAX or by the task. Tasks without gradients raise an error."""

import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.emitters.gradients import gradients
from memes.errors import UsageError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from baselines import projection, sphere

DIM = 6
ARM = memes.tasks.arm(joints=DIM)
SPHERE = projection(sphere, DIM)


def keys(n):
    return jax.random.split(jax.random.key(0), n)


def points(low, high, n=5):
    return np.float32(np.random.default_rng(0).uniform(low, high, (n, DIM)))


def test_gradients_of_the_sphere_agree_with_its_formula():
    x = points(-8, 8)  # inside and outside the bounds
    bound, optimum = 5.12, 0.4 * 5.12
    worst = DIM * (-1.4 * bound) ** 2
    inside = np.abs(x) <= bound
    slope = np.where(inside, 1.0, -bound / np.square(x))
    halves = np.arange(DIM) < DIM // 2
    found = jax.jit(lambda x: gradients(SPHERE, keys(len(x)), x))(x)
    np.testing.assert_allclose(found.fitness, -200 * (x - optimum) / worst, rtol=1e-4)
    np.testing.assert_allclose(found.feature[:, 0], slope * halves, rtol=1e-4)
    np.testing.assert_allclose(found.feature[:, 1], slope * ~halves, rtol=1e-4)


def test_gradients_of_the_arm_agree_with_finite_differences():
    x, step = points(0.2, 0.8, 3), 1e-2
    found = gradients(ARM, keys(len(x)), jnp.asarray(x))
    for i in range(DIM):
        ends = [ARM.evaluate(None, jnp.asarray(x + sign * step * np.eye(DIM)[i])) for sign in (1, -1)]
        slope = jax.tree.map(lambda a, b: (a - b) / (2 * step), *ends)
        np.testing.assert_allclose(found.fitness[:, i], slope.fitness, atol=2e-3)
        np.testing.assert_allclose(found.feature[:, :, i], slope.feature, atol=2e-3)


def test_gradients_of_a_task_are_used_if_given():
    def given(keys, x):
        return 2 * x, jnp.stack([x, -x], axis=1)

    x = jnp.asarray(points(0, 1))
    found = gradients(replace(ARM, gradients=given), keys(len(x)), x)
    np.testing.assert_array_equal(found.fitness, 2 * x)
    np.testing.assert_array_equal(found.feature, np.stack([x, -x], axis=1))
    noisy = memes.noisy(replace(ARM, gradients=given), fitness=1.0)
    np.testing.assert_array_equal(gradients(noisy, keys(len(x)), x).fitness, 2 * x)
    wrong = replace(ARM, gradients=lambda keys, x: (x, x))
    with pytest.raises(
        UsageError, match=r"must return feature gradients of shape \(5, 2, 6\), got \(5, 6\)"
    ):
        gradients(wrong, keys(len(x)), x)


def stopping(keys, x):
    """Halve entries until they are small. JAX can differentiate this loop only in forward mode."""
    x = jax.lax.while_loop(lambda x: jnp.any(jnp.abs(x) > 0.1), lambda x: x / 2, x)
    return x.sum(axis=1), x[:, :2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"evaluate": stopping}, "^evaluate of task 'arm' cannot be differentiated .*give the task `gr"),
        ({"jit": False}, "^task 'arm' has jit=False, .*; give the task `gradients`, or use"),
    ],
)
def test_tasks_without_gradients_are_refused_with_a_suggestion(changes, sentence):
    task = replace(ARM, **changes)
    for preset in (memes.presets.cma_mega, memes.presets.cma_maega):
        with pytest.raises(UsageError, match=sentence):
            preset(task)


def test_a_python_task_can_have_gradients():
    def evaluate(keys, x):
        assert isinstance(x, np.ndarray)
        return -np.square(x - 0.5).sum(axis=1), x[:, :2]

    def given(keys, x):
        return 1 - 2 * x, jnp.broadcast_to(jnp.eye(2, DIM), (len(x), 2, DIM))

    task = replace(ARM, evaluate=evaluate, jit=False, gradients=given, min_fitness=-10.0)
    algorithm = memes.presets.cma_mega(task, memes.cells.grid(task, (5, 5)), samples=5, sigma=0.1)
    run = memes.run(algorithm, generations=5, progress=False)
    assert run.metrics["coverage"][-1] > 0.1
    assert run.metrics["evaluations"][-1] == 5 * 6
