import jax
import numpy as np
import pytest

from memes.errors import UsageError
from memes.task import evaluate, initial
from memes.tasks.arm import arm, noisy_arm


@jax.jit
def outcome(x):
    """Evaluate an arm with one joint per column of `x`."""
    return evaluate(arm(joints=x.shape[1]), jax.random.split(jax.random.key(0), x.shape[0]), x)


def forward_kinematics(x):
    """Return the fitness and feature of one posture, computed in float64 and one link at a time."""
    x = [min(max(float(v), 0.0), 1.0) for v in x]
    heading, end = 0.0, np.zeros(2)
    for v in x:
        heading += 2 * np.pi * v - np.pi
        end += [np.cos(heading), np.sin(heading)]
    mean = sum(x) / len(x)
    deviation = (sum((v - mean) ** 2 for v in x) / len(x)) ** 0.5
    return 1 - deviation, end / (2 * len(x)) + 0.5


@pytest.mark.parametrize("joints", [1, 7, 100])
@pytest.mark.parametrize("reach", [0.0, 0.6])
def test_the_arm_equals_forward_kinematics_link_by_link(joints, reach):
    rng = np.random.default_rng(joints)
    x = np.float32(rng.uniform(-reach, 1 + reach, (8, joints)))
    found = outcome(x)
    fitness, feature = zip(*map(forward_kinematics, x), strict=True)
    np.testing.assert_allclose(found.fitness, fitness, atol=1e-5)
    np.testing.assert_allclose(found.feature, feature, atol=1e-5)


def test_a_straight_arm_reaches_furthest():
    found = outcome(np.full((8, 100), 0.5, np.float32))
    np.testing.assert_allclose(found.feature, [[1.0, 0.5]] * 8, atol=1e-6)
    np.testing.assert_allclose(found.fitness, np.ones(8), atol=1e-6)


def test_equal_joint_angles_are_perfectly_smooth():
    x = np.tile(np.float32([[0.0], [0.25], [0.37], [0.5], [0.71], [1.0], [1.8], [-3.0]]), (1, 100))
    np.testing.assert_allclose(outcome(x).fitness, np.ones(8), atol=1e-5)


def test_an_arm_bent_into_a_regular_polygon_ends_at_its_base():
    x = np.tile(np.float32(0.5 + np.arange(1, 9)[:, None] / 100), (1, 100))
    np.testing.assert_allclose(outcome(x).feature, np.full((8, 2), 0.5), atol=1e-5)


def test_the_mirrored_posture_reaches_the_mirrored_point_with_equal_fitness():
    x = np.float32(np.random.default_rng(0).random((8, 7)))
    found, mirrored = outcome(x), outcome(1 - x)
    np.testing.assert_allclose(mirrored.feature[:, 0], found.feature[:, 0], atol=1e-6)
    np.testing.assert_allclose(mirrored.feature[:, 1], 1 - found.feature[:, 1], atol=1e-6)
    np.testing.assert_allclose(mirrored.fitness, found.fitness, atol=1e-6)


def test_genotypes_are_clipped_for_both_fitness_and_feature():
    x = np.float32(np.random.default_rng(1).uniform(-1, 2, (8, 7)))
    found, clipped = outcome(x), outcome(np.clip(x, 0, 1))
    np.testing.assert_array_equal(found.fitness, clipped.fitness)
    np.testing.assert_array_equal(found.feature, clipped.feature)


def test_random_postures_are_uniform_and_reach_points_within_the_bounds():
    task = arm(joints=7)
    x = np.asarray(initial(task, jax.random.key(2), 2048))
    assert x.shape == (2048, 7)
    assert x.min() >= 0
    assert x.max() <= 1
    np.testing.assert_allclose(x.mean(), 0.5, atol=5 / np.sqrt(12 * x.size))
    np.testing.assert_allclose(x.std(), 1 / np.sqrt(12), rtol=0.05)
    found = outcome(x)
    assert ((found.feature >= task.feature_low[0]) & (found.feature <= task.feature_high[0])).all()
    # All reachable points lie in a circle around (0.5, 0.5), the position of the base.
    assert np.linalg.norm(found.feature - 0.5, axis=1).max() <= 0.5 + 1e-6
    assert ((found.fitness >= 0.5) & (found.fitness <= 1)).all()


def test_the_default_arm_has_a_thousand_joints_as_in_the_paper():
    task = arm()
    assert task.dim == 1000
    assert (task.feature_low, task.feature_high) == ((0.0, 0.0), (1.0, 1.0))
    assert task.min_fitness == 0
    assert not task.uncertain


def test_the_noisy_arm_is_the_arm_with_noise_of_the_given_size():
    task = noisy_arm(joints=7, fitness_noise=0.3, feature_noise=0.1)
    assert task.uncertain
    x = np.tile(np.float32(np.random.default_rng(3).random(7)), (2048, 1))
    found = jax.jit(lambda k: evaluate(task, k, x))(jax.random.split(jax.random.key(1), 2048))
    fitness, feature = forward_kinematics(x[0])
    np.testing.assert_allclose(np.std(found.fitness), 0.3, rtol=0.08)
    np.testing.assert_allclose(np.std(found.feature, axis=0), [0.1, 0.1], rtol=0.08)
    np.testing.assert_allclose(np.mean(found.fitness), fitness, atol=5 * 0.3 / 45)
    np.testing.assert_allclose(np.mean(found.feature, axis=0), feature, atol=5 * 0.1 / 45)


def test_an_arm_needs_a_joint():
    with pytest.raises(UsageError, match=r"^joints must"):
        arm(joints=0)
