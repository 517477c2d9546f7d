"""Controllers and rollouts in a toy environment agree with computations in NumPy."""

import itertools
import math
import pickle
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memes import UsageError
from memes.control import (
    Control,
    Environment,
    control_task,
    mlp,
    rollout,
)
from memes.control.rollouts import transitions
from memes.pytrees import in_chunks
from memes.task import evaluate
from memes.tasks.hexapod import Sinusoids

STEPS = 6


def toy_environment(end_at=math.inf, fail_at=math.inf):
    """Return an environment in which each action moves a point along a line.

    An episode ends if the point passes `end_at`, and fails if it passes `fail_at`.
    """
    return Environment(
        observation_size=1,
        action_size=1,
        steps=STEPS,
        reset=lambda keys: jax.vmap(lambda key: jax.random.uniform(key, (1,)))(keys),
        observe=lambda state: state,
        step=lambda state, action: state + action,
        reward=lambda before, action, after: (after - before)[:, 0] ** 2 + after[:, 0],
        ended=lambda state: state[:, 0] > end_at,
        failed=lambda state: state[:, 0] > fail_at,
        measure=lambda state: jnp.concatenate([state, state**2], axis=1),
    )


@dataclass(frozen=True)
class Constant:
    """A controller whose action is the genotype plus the step number."""

    dim: ClassVar[int] = 1
    policy: ClassVar[None] = None
    blocks: ClassVar[None] = None
    in_factors: ClassVar[None] = None
    network: ClassVar[None] = None
    trees: ClassVar[None] = None

    def init(self, key, n):
        return jax.random.uniform(key, (n, 1))

    def parameters(self, x):
        return x

    def act(self, parameters, observation, t):
        return parameters + t


X = jnp.array([[0.1], [0.5], [0.9], [-3.0]])


def keys_of(seed, n=4):
    """Return new key arrays, because a key may be used only once."""
    return jax.random.split(jax.random.key(seed), n)


def rolled_out(environment, record=None):
    return rollout(Control(environment, Constant(), None), keys_of(0), X, record)


def in_python(end_at):
    """Compute the same episodes in plain Python.

    Returns the total reward, the mean and last measurements, and the length of each episode.
    """
    starts = jax.vmap(lambda key: jax.random.uniform(key, (1,)))(keys_of(0))
    outcomes = []
    for x, place in zip(np.asarray(X[:, 0], float), np.asarray(starts[:, 0], float), strict=True):
        total, seen = 0.0, []
        for t in range(STEPS):
            action = x + t
            place += action
            total += action**2 + place
            seen.append([place, place**2])
            if place > end_at:
                break
        outcomes.append((total, np.mean(seen, axis=0), seen[-1], len(seen)))
    return outcomes


@pytest.mark.parametrize("end_at", [math.inf, 4.0, 0.2])
def test_a_rollout_counts_all_steps_including_the_last(end_at):
    outcome, _ = rolled_out(toy_environment(end_at))
    for i, (total, mean, last, length) in enumerate(in_python(end_at)):
        np.testing.assert_allclose(outcome.total[i], total, rtol=1e-5)
        np.testing.assert_allclose(outcome.mean[i], mean, rtol=1e-5)
        np.testing.assert_allclose(outcome.last[i], last, rtol=1e-5)
        assert outcome.length[i] == length
    assert not outcome.failed.any()


def test_records_have_a_row_per_step_and_are_optional():
    outcome, nothing = rolled_out(toy_environment(4.0))
    assert nothing is None
    same, recorded = rolled_out(toy_environment(4.0), lambda step: (step.reward, step.alive))
    assert recorded[0].shape == recorded[1].shape == (STEPS, len(X))
    np.testing.assert_array_equal(same.total, outcome.total)
    np.testing.assert_array_equal(recorded[1].sum(axis=0), outcome.length)
    counted = jnp.where(recorded[1], recorded[0], 0).sum(axis=0)
    np.testing.assert_allclose(counted, outcome.total, rtol=1e-6)


def test_transitions_are_consecutive_and_end_once():
    control = Control(toy_environment(4.0), Constant(), None)
    outcome, taken = transitions(control, keys_of(0), X)
    np.testing.assert_array_equal(taken.observation[1:], taken.next_observation[:-1])
    ends = np.asarray(taken.ended & taken.alive)
    np.testing.assert_array_equal(ends.sum(axis=0), np.asarray(outcome.length) < STEPS)
    np.testing.assert_array_equal(np.argmax(ends, axis=0)[:3] + 1, outcome.length[:3])


def test_an_episode_has_a_nan_fitness_if_it_fails_before_its_end():
    def task(end_at):
        return control_task(
            "toy",
            toy_environment(end_at, fail_at=10.0),
            Constant(),
            fitness=lambda outcome: outcome.total,
            feature=lambda outcome: outcome.last,
            feature_low=(0, 0),
            feature_high=(1, 1),
        )

    fails = evaluate(task(math.inf), keys_of(0), X)
    np.testing.assert_array_equal(np.isnan(fails.fitness), [True, True, True, False])
    assert np.isfinite(evaluate(task(4.0), keys_of(0), X).fitness).all()


def test_the_step_of_a_failure_gives_no_transition():
    """The last step of a failed episode has no valid next state."""
    control = Control(toy_environment(fail_at=4.0), Constant(), None)
    outcome, taken = transitions(control, keys_of(0), X)
    for i, (_, _, _, length) in enumerate(in_python(4.0)):
        fails = i != 3  # point 3 moves in the other direction
        assert outcome.failed[i] == fails
        assert outcome.length[i] == length
        np.testing.assert_array_equal(taken.alive[:, i], np.arange(STEPS) < length - fails)


def test_an_episode_needs_at_least_one_step():
    environment = replace(toy_environment(), steps=0)
    with pytest.raises(UsageError, match="steps must be at least 1, got 0"):
        control_task(
            "toy",
            environment,
            Constant(),
            fitness=lambda episodes: episodes.total,
            feature=lambda episodes: episodes.last,
            feature_low=(0, 0),
            feature_high=(1, 1),
        )


@pytest.mark.parametrize("n", [1, 4, 7, 8, 9])
def test_chunks_do_not_change_results(n):
    x = jax.random.normal(jax.random.key(2), (n, 3))
    calls = []

    def function(keys, x):
        calls.append(x.shape[0])
        return {"sum": x.sum(axis=1), "noise": jax.vmap(jax.random.normal)(keys), "x": x}

    expected = function(keys_of(1, n), x)
    found = in_chunks(function, 4, keys_of(1, n), x)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert max(calls[1:]) <= 4


def numpy_policy(x, observation, sizes):
    """Evaluate the network of one genotype, one layer at a time."""
    start, signal = 0, observation
    for i, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        matrix = x[start : start + rows * columns].reshape(rows, columns)
        bias = x[start + rows * columns : start + rows * columns + columns]
        start += rows * columns + columns
        signal = signal @ matrix + bias
        signal = np.tanh(signal) if i == len(sizes) - 2 else np.maximum(signal, 0)
    assert start == len(x)
    return signal


@pytest.mark.parametrize("sizes", [(5, 3), (4, 7, 2), (3, 8, 6, 1)])
def test_a_policy_evaluates_the_network_of_its_genotype(sizes):
    policy = mlp(sizes)
    rng = np.random.default_rng(0)
    x, observation = rng.normal(size=(9, policy.dim)), rng.normal(size=(9, sizes[0]))
    act = policy.act(policy.parameters(jnp.asarray(x)), jnp.asarray(observation), 0)
    expected = [numpy_policy(*row, sizes) for row in zip(x, observation, strict=True)]
    np.testing.assert_allclose(act, expected, rtol=1e-4, atol=1e-5)


def test_controllers_compare_equal_and_can_be_pickled():
    controllers = mlp([2, 4, 2]), mlp([2, 4, 2], weights="bfloat16"), Constant(), Sinusoids()
    for i, controller in enumerate(controllers):
        assert pickle.loads(pickle.dumps(controller)) == controller
        assert [controller == other for other in controllers] == [i == j for j in range(4)]
    assert repr(controllers[0]) == (
        "MLP(sizes=(2, 4, 2), hidden='relu', output='tanh', weights='float32', trees=None)"
    )


def test_half_precision_weights_give_similar_actions():
    sizes = (6, 16, 2)
    full, half = mlp(sizes), mlp(sizes, weights="bfloat16")
    x = full.init(jax.random.key(0), 50)
    observation = jax.random.normal(jax.random.key(1), (50, 6))
    a, b = (p.act(p.parameters(x), observation, 0) for p in (full, half))
    assert half.parameters(x)[0][0].dtype == jnp.bfloat16
    np.testing.assert_allclose(a, b, atol=0.03)
    assert np.abs(a - b).max() > 0


def test_networks_are_initialised_lecun_uniform_without_biases():
    policy = mlp((27, 64, 8))
    layers = policy.parameters(policy.init(jax.random.key(0), 40))
    for matrix, bias in layers:
        bound = math.sqrt(3 / matrix.shape[1])
        assert np.abs(matrix).max() <= bound
        np.testing.assert_allclose(np.std(matrix), bound / math.sqrt(3), rtol=0.02)
        assert not bias.any()
    # Noise differs between layers and between genotypes.
    flat = np.concatenate([np.asarray(m).reshape(40, -1) for m, _ in layers], axis=1)
    assert np.unique(flat).size > 0.99 * flat.size


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(([4],), "sizes"), (([4, 0, 2],), "sizes")],
)
def test_wrong_networks_are_refused(arguments, named):
    with pytest.raises(UsageError, match=named):
        mlp(*arguments)


def test_wrong_precision_is_refused():
    with pytest.raises(UsageError, match="weights"):
        mlp((1, 1), weights="float8")
