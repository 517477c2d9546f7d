from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memes.archive import add, empty
from memes.cells import Grid
from memes.errors import UsageError
from memes.estimates import STATISTICS, Candidates, Correction, reevaluate, resampled
from memes.metrics import compare
from memes.task import Evaluation, Task, noisy, uniform

CELLS = Grid(jnp.zeros(2), jnp.ones(2), (4, 3))


def exact(keys, x):
    """Return the fitness and feature. A genotype is a fitness followed by the entries of a feature."""
    return x[:, 0], x[:, 1:]


TASK = Task("toy", 3, (0.0, 0.0), (1.0, 1.0), uniform(3, 0.0, 1.0), exact)
HOST = replace(TASK, name="host", jit=False)


jitted_add = jax.jit(add)


def archive_of(x, evaluation=None):
    """Return an archive of genotypes x[7, 3] that lanes 20, 21, ... found in generations 10, 11, ..."""
    number, offered = np.arange(7), np.ones(7, bool)
    found = Evaluation(*exact(None, x)) if evaluation is None else evaluation
    return jitted_add(empty(CELLS, 3), x, found, offered, lane=20 + number, generation=10 + number)[0]


def archive_with_noise(x, noise):
    return archive_of(x, Evaluation(x[:, 0] + np.float32(noise), x[:, 1:]))


def elites(seed):
    """Return genotypes [7, 3] whose features are near the centres of different cells."""
    rng = np.random.default_rng(seed)
    cell = rng.permutation(12)[:7]
    centre = np.stack([(cell // 3 + 0.5) / 4, (cell % 3 + 0.5) / 3], axis=1)
    return np.float32(np.column_stack([rng.normal(size=7), centre + rng.uniform(-0.05, 0.05, (7, 2))]))


def recorder(calls, seed):
    """Return a task with `jit=False` and skewed noise, which records its evaluations in `calls`."""
    rng = np.random.default_rng(seed)

    def evaluate(keys, x):
        assert isinstance(x, np.ndarray)
        fitness = x[:, 0] + rng.exponential(size=len(x))
        feature = x[:, 1:] + 0.02 * rng.exponential(size=(len(x), 2))
        calls.append((np.asarray(jax.random.key_data(keys)), x, fitness, feature))
        return fitness, feature

    return replace(HOST, evaluate=evaluate)


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("task", [TASK, HOST, noisy(TASK)], ids=lambda task: task.name)
def test_a_deterministic_task_does_not_change_the_archive(task):
    archive = archive_of(elites(0))
    assert_same(reevaluate(archive, task, 3).archive, archive)


def test_chunks_do_not_change_the_result():
    archive, task = archive_of(elites(1)), noisy(TASK, fitness=0.5, feature=0.1)
    whole = reevaluate(archive, task, 3, key=jax.random.key(1))
    for rows in (1, 12):
        chunked = reevaluate(archive, task, 3, key=jax.random.key(1), rows=rows)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), chunked, whole)


@pytest.mark.parametrize("samples", [3, 9, 30])
def test_at_most_the_requested_rows_are_evaluated_at_once(samples):
    calls = []
    reevaluate(archive_of(elites(2)), recorder(calls, 0), samples, rows=20)
    assert max(len(x) for _, x, _, _ in calls) <= 20
    evaluated = np.concatenate([x for _, x, _, _ in calls])
    for row in elites(2):
        assert (evaluated == row).all(axis=1).sum() >= samples


@pytest.mark.parametrize(
    ("statistic", "reduce"), [(None, np.median), (jnp.nanmedian, np.median), (jnp.nanmean, np.mean)]
)
def test_elites_get_the_statistic_of_their_own_evaluations_per_coordinate(statistic, reduce):
    calls, x = [], elites(3)
    settings = {} if statistic is None else {"statistic": statistic}
    correction = reevaluate(archive_of(x), recorder(calls, 1), 15, **settings)

    keys, seen, fitness, feature = (np.concatenate(part) for part in zip(*calls, strict=True))
    assert len(np.unique(keys, axis=0)) == len(seen) == 7 * 15
    of = [(seen == row).all(axis=1) for row in x]
    truth = Evaluation(
        np.float32([reduce(fitness[own]) for own in of]),
        np.float32([reduce(feature[own], axis=0) for own in of]),
    )
    expected = archive_of(x, truth)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), correction.archive, expected)
    order = np.argsort(CELLS.index(jnp.asarray(x[:, 1:])))  # the illusory elites, by their cells
    np.testing.assert_array_equal(correction.elite_cell, CELLS.index(jnp.asarray(x[order, 1:])))
    spread = np.array([[fitness[own].var(), *feature[own].var(axis=0)] for own in of])[order]
    np.testing.assert_allclose(correction.fitness_variance, spread[:, 0], rtol=1e-4)
    np.testing.assert_allclose(correction.feature_variance, spread[:, 1:], rtol=1e-3)


def test_measures_of_a_correction_follow_from_the_two_archives_and_the_variances():
    x = elites(9)
    x[:, 0] = [5, -1, 2, -9, 0, 3, 1]
    illusory, corrected = archive_with_noise(x, 2.0), archive_of(x[[0, 1, 2, 4, 5, 6, 0]])
    variances = np.array([1, 9, np.nan, 4, 2, 2, 7.0])
    correction = Correction(
        corrected, np.arange(7), variances, np.stack([variances, 3 * variances], 1), 5
    )
    found = compare(illusory, correction, min_fitness=-4.0)
    before, after = 4 + np.array([7, 1, 4, 2, 5, 3]), 4 + np.array([5, -1, 2, 0, 3, 1])
    expected = {
        "qd_score": after.sum(),
        "coverage": 6 / 12,
        "max_fitness": 5,
        "illusory_qd_score": before.sum(),  # one elite is below the offset
        "illusory_coverage": 7 / 12,
        "illusory_max_fitness": 7,
        "qd_score_loss": 1 - after.sum() / before.sum(),
        "coverage_loss": 1 / 7,
        "max_fitness_loss": 2 / (4 + 7),  # relative to the fitness above the offset
        "median_fitness_variance": 3.0,
        "median_feature_variance": 6.0,
    }
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("statistic", ["median", "mean"])
def test_every_correction_also_has_measures_by_means(statistic):
    """For every statistic, scores `*_by_mean` equal the scores of a correction that uses means."""
    noisy_archive = archive_with_noise(elites(6), 3.0)
    task = noisy(TASK, fitness=0.5, feature=0.3)

    def graded(statistic):
        key = jax.random.key(2)
        return compare(
            noisy_archive, reevaluate(noisy_archive, task, 9, key=key, statistic=STATISTICS[statistic])
        )

    found, by_mean = graded(statistic), graded("mean")
    names = ("qd_score", "coverage", "max_fitness", "qd_score_loss", "coverage_loss", "max_fitness_loss")
    assert {name: found[f"{name}_by_mean"] for name in names} == {name: by_mean[name] for name in names}
    assert (found["qd_score"] == found["qd_score_by_mean"]) == (statistic == "mean")


def test_overestimated_elites_return_to_about_their_true_fitness():
    x = elites(4)
    noisy_archive = archive_with_noise(x, 3.0)
    task = noisy(TASK, fitness=0.5, feature=0.01)
    corrected = reevaluate(noisy_archive, task, 512, key=jax.random.key(2)).archive
    np.testing.assert_array_equal(corrected.occupied, noisy_archive.occupied)
    cell = np.asarray(corrected.occupied)
    truth = np.asarray(corrected.genotypes)[cell]
    # The median of n normal values has a standard deviation of 1.25 sigma / sqrt(n).
    np.testing.assert_allclose(corrected.fitness[cell], truth[:, 0], atol=5 * 1.25 * 0.5 / np.sqrt(512))
    np.testing.assert_allclose(
        corrected.feature[cell], truth[:, 1:], atol=5 * 1.25 * 0.01 / np.sqrt(512)
    )


def test_elites_that_move_into_one_cell_compete_and_the_winner_keeps_its_origin():
    x = elites(5)
    best = x[:, 0].argmax()
    gathered = replace(TASK, evaluate=lambda keys, x: (x[:, 0], jnp.full((x.shape[0], 2), 0.9)))
    corrected = reevaluate(archive_of(x), gathered, 2).archive
    np.testing.assert_array_equal(np.flatnonzero(corrected.occupied), [11])
    np.testing.assert_array_equal(corrected.genotypes[11], x[best])
    np.testing.assert_array_equal(corrected.fitness[11], x[best, 0])
    np.testing.assert_allclose(corrected.feature[11], [0.9, 0.9])
    assert corrected.generation[11] == 10 + best
    assert corrected.lane[11] == 20 + best


def test_the_illusory_fitness_of_an_elite_does_not_affect_the_correction():
    x = elites(6)
    assert_same(reevaluate(archive_with_noise(x, np.arange(7) * 10), TASK, 2).archive, archive_of(x))


@pytest.mark.parametrize("fault", [np.nan, np.inf, -np.inf])
def test_failed_evaluations_are_ignored_and_elites_that_always_fail_are_dropped(fault):
    def evaluate(keys, x):
        failed = rng.random(len(x)) < np.where(x[:, 0] == dead, 1.0, 0.6)
        return np.where(failed, fault, x[:, 0]), x[:, 1:]

    x, rng = elites(7), np.random.default_rng(2)
    dead = x[2, 0]
    corrected = reevaluate(archive_of(x), replace(HOST, evaluate=evaluate), 40).archive
    survivors = np.asarray(corrected.genotypes)[np.asarray(corrected.occupied)]
    np.testing.assert_array_equal(np.sort(survivors[:, 0]), np.sort(np.delete(x[:, 0], 2)))
    cell = np.asarray(corrected.occupied)
    np.testing.assert_array_equal(corrected.fitness[cell], survivors[:, 0])


def test_an_empty_archive_stays_empty_without_evaluations():
    calls = []
    nothing = empty(CELLS, 3)
    correction = reevaluate(nothing, recorder(calls, 3), 5)
    assert_same(correction.archive, nothing)
    assert calls == []
    assert correction.fitness_variance.shape == (0,)
    assert correction.feature_variance.shape == (0, 2)
    assert compare(nothing, correction)["coverage"] == 0


def test_results_depend_on_the_key_and_the_default_key_is_fixed():
    def evaluate(keys, x):
        noise = np.asarray(jax.random.key_data(keys))[:, 1] / 2**32
        return x[:, 0] + noise, x[:, 1:]

    archive, task = archive_of(elites(8)), replace(HOST, evaluate=evaluate)
    once = reevaluate(archive, task, 3)
    assert_same(reevaluate(archive, task, 3), once)
    other = reevaluate(archive, task, 3, key=jax.random.key(3))
    cell = np.asarray(archive.occupied)
    assert (np.asarray(other.archive.fitness)[cell] != np.asarray(once.archive.fitness)[cell]).all()


@pytest.mark.parametrize("setting", [{"samples": 0}, {"rows": 0}], ids=str)
def test_a_wrong_setting_is_refused_by_name(setting):
    (name,) = setting
    with pytest.raises(UsageError, match=f"^{name} must"):
        reevaluate(empty(CELLS, 3), TASK, **setting)


def test_single_and_uncertain_of_wrapped_tasks():
    task = noisy(TASK, fitness=0.5)
    assert resampled(task, 4).uncertain
    assert resampled(resampled(task, 4), 3).single is task
    assert noisy(resampled(task, 4), fitness=0.1).single is None
    assert not resampled(TASK, 4).uncertain


@pytest.mark.parametrize("wrong", [len, print, lambda values: 0.0, lambda values, axis: values])
def test_functions_that_are_not_statistics_are_rejected(wrong):
    task = Task("plain", 2, (0.0,), (1.0,), uniform(2, 0.0, 1.0), lambda keys, x: (x[:, 0], x[:, :1]))
    archive = empty(Grid(jnp.zeros(1), jnp.ones(1), (4,)), 2)
    with pytest.raises(UsageError, match=r"^candidate_statistic must be a function"):
        Candidates(4, wrong)
    with pytest.raises(UsageError, match=r"^statistic must be a function"):
        reevaluate(archive, task, 2, statistic=wrong)
    Candidates(4, lambda values, axis: jnp.nanmean(values, axis=axis))
