"""Findings about a task, derived from a few evaluations."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.runner.findings import Observations, findings, fitting_bounds, observe, uses_keys
from memes.task import Evaluation, Task, noisy, uniform

TASK = Task(
    "plain", 3, (0.0, -1.0), (1.0, 1.0), uniform(3, 0.0, 1.0), lambda keys, x: (x.sum(1), x[:, :2])
)
CELLS = memes.cells.grid(TASK, (4, 4))
RNG = np.random.default_rng(0)


def seen(fitness, feature, **more):
    evaluation = Evaluation(jnp.asarray(fitness, jnp.float32), jnp.asarray(feature, jnp.float32))
    return observe(evaluation, CELLS, **more)


def good(n=50, **more):
    return seen(RNG.uniform(0, 3, n), RNG.uniform((0, -1), (1, 1), (n, 2)), **more)


def topics(task, observations):
    return [finding.topic for finding in findings(task, observations)]


def test_observations_equal_a_loop_over_the_rows():
    fitness, feature = RNG.normal(0, 1, 200), RNG.normal(0.5, 0.7, (200, 2))
    fitness[RNG.random(200) < 0.2] = np.nan
    feature[RNG.random((200, 2)) < 0.1] = np.inf
    usable = [i for i in range(200) if np.isfinite([fitness[i], *feature[i]]).all()]
    beyond = [i for i in usable if not (0 <= feature[i, 0] <= 1 and -1 <= feature[i, 1] <= 1)]
    found = seen(fitness, feature)
    assert 20 < len(beyond) < len(usable) - 20 < 180
    assert (found.evaluations, found.usable, found.outside) == (200, len(usable), len(beyond))
    np.testing.assert_array_equal(found.fitness, fitness[usable].astype(np.float32))
    np.testing.assert_array_equal(found.feature, feature[usable].astype(np.float32))


def test_a_correct_task_has_no_findings():
    assert findings(TASK, good()) == []
    assert findings(TASK, good(noisy=False)) == []
    assert findings(replace(TASK, uncertain=True), good(noisy=True)) == []


@pytest.mark.parametrize(
    ("uncertain", "differs", "sentence"),
    [(False, True, "with uncertain=True its archives are"), (True, False, "with uncertain=False no")],
)
def test_noise_that_contradicts_the_declaration_is_found(uncertain, differs, sentence):
    (found,) = findings(replace(TASK, uncertain=uncertain), good(noisy=differs))
    assert found.topic == "noise"
    assert sentence in found.sentence


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e20])
def test_findings_are_fatal_only_if_all_evaluations_are_unusable(value):
    (found,) = findings(TASK, seen(np.full(8, value), np.zeros((8, 2))))
    assert found.fatal
    assert "for 8 random genotypes: 8 are" in found.sentence
    fitness = np.array([value] * 7 + [1.0])
    (found,) = findings(TASK, seen(fitness, np.full((8, 2), 0.5)))
    assert not found.fatal
    assert "among 8 evaluations of task 'plain', 7 are" in found.sentence


def test_features_outside_the_bounds_are_found_with_suggested_bounds():
    feature = RNG.uniform(-10, 10, (60, 2))
    (found,) = findings(TASK, seen(RNG.uniform(0, 1, 60), feature))
    share = np.mean(((feature < (0, -1)) | (feature > (1, 1))).any(axis=1))
    assert found.sentence.startswith(f"{share:.0%} of the features lie outside")
    low, high = fitting_bounds(feature)
    assert f"feature_low={low}, feature_high={high}" in found.sentence
    fitting = replace(TASK, feature_low=low, feature_high=high)
    again = observe(
        Evaluation(jnp.zeros(60) + jnp.arange(60), jnp.asarray(feature)), memes.cells.grid(fitting)
    )
    assert (again.outside, findings(fitting, again)) == (0, [])


@pytest.mark.parametrize("scale", [1e-6, 0.3, 1.0, 7e8])
def test_suggested_bounds_contain_all_features_and_are_tight_and_short(scale):
    feature = scale * RNG.normal(2, 1, (40, 3))
    low, high = fitting_bounds(feature)
    width = feature.max(axis=0) - feature.min(axis=0)
    assert (np.array(low) < feature.min(axis=0)).all()
    assert (np.array(high) > feature.max(axis=0)).all()
    assert (np.array(high) - low < 1.5 * width).all()
    assert max(len(f"{each:g}") for each in low + high) <= 8
    low, high = fitting_bounds(np.full((3, 1), 5.0))  # a constant feature
    assert low[0] < 5 < high[0]


@pytest.mark.parametrize(
    ("min_fitness", "sentence"),
    [
        (4.0, "no fitness of task 'plain' exceeds its min_fitness, 4"),
        (1.5, "of the fitness values lie below min_fitness"),
        (-1e6, "is far below the fitness values"),
    ],
)
def test_an_unsuitable_min_fitness_is_found(min_fitness, sentence):
    (found,) = findings(replace(TASK, min_fitness=min_fitness), good())
    assert found.topic == "min_fitness"
    assert sentence in found.sentence


def test_without_usable_evaluations_fitness_and_bounds_have_no_findings():
    empty = Observations(10, (0, 0, 0), 9, np.zeros(0), np.zeros((0, 2)))
    (found,) = findings(TASK, empty)
    assert found.sentence.endswith("are assigned to cells at the edge")


def noise_in_loop(keys, x):
    """Return a result with noise that is drawn in a loop, as in simulators."""

    def step(_, carried):
        key, row = carried
        key, own = jax.random.split(key)
        return key, jnp.where(row.sum() > 0, row + jax.random.normal(own, row.shape), row)

    def episode(key, row):
        _, last = jax.lax.fori_loop(0, 3, step, (key, row))
        return last.sum(), last[:2]

    return jax.vmap(episode)(keys, x)


def unused_noise(keys, x):
    """Draw random numbers that do not affect the result."""
    jax.vmap(jax.random.normal)(keys)
    return x.sum(axis=1), x[:, :2]


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (TASK, False),
        (replace(TASK, evaluate=unused_noise), False),
        (noisy(TASK, fitness=0.1), True),
        (noisy(TASK, feature=0.1), True),
        (replace(TASK, evaluate=noise_in_loop), True),
        (memes.tasks.arm(joints=4), False),
        (memes.tasks.noisy_arm(joints=4), True),
        (memes.tasks.point_maze(), False),
    ],
)
def test_the_trace_of_a_task_shows_whether_its_result_depends_on_its_keys(task, expected):
    assert uses_keys(task) is expected


def test_uses_keys_evaluates_nothing():
    def evaluate(keys, x):
        assert isinstance(x, jax.core.Tracer)
        return x.sum(axis=1), x[:, :2]

    assert not uses_keys(replace(TASK, evaluate=evaluate))
    assert topics(TASK, good(noisy=None)) == []
