import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.errors import UsageError
from memes.estimates import resampled
from memes.executors.task_check import check
from memes.task import (
    Task,
    evaluate,
    initial,
    noisy,
    rowwise,
    seeds_from_keys,
    uniform,
)


def exact(keys, x):
    return x.sum(axis=1), x[:, :2]


PLAIN = Task("plain", 3, (0.0, -1.0), (1.0, 1.0), uniform(3, 0.0, 1.0), exact)
NOISY = noisy(PLAIN, fitness=0.5, feature=0.1)
POINTS = np.linspace(0, 1, 18, dtype=np.float32).reshape(6, 3)


def keys(seed, n):
    return jax.random.split(jax.random.key(seed), n)


def recorder(calls, noise):
    """Return a host task that ignores its keys and records its evaluations in `calls`."""

    def outcome(row_keys, x):
        assert isinstance(x, np.ndarray)
        fitness = noise.normal(size=len(x))
        feature = noise.normal(size=(len(x), 2))
        calls.append((np.asarray(jax.random.key_data(row_keys)), x, fitness, feature))
        return fitness, feature

    return replace(PLAIN, name="recorder", evaluate=outcome, jit=False)


@pytest.fixture(scope="module")
def many():
    """Noise of 4096 evaluations of one genotype, [4096, 3]. The first column is the fitness."""
    x = jnp.full((4096, 3), 0.25)
    fitness, feature, *_ = jax.jit(lambda k: evaluate(NOISY, k, x))(keys(0, 4096))
    return np.column_stack([fitness - 0.75, feature - 0.25])


def test_noise_has_the_given_standard_deviation_and_no_bias(many):
    std = np.array([0.5, 0.1, 0.1])
    np.testing.assert_allclose(many.std(axis=0), std, rtol=0.05)
    assert (np.abs(many.mean(axis=0)) < 5 * std / 64).all()


def test_noise_on_fitness_and_on_each_feature_is_independent(many):
    correlation = np.corrcoef(many.T)
    assert np.abs(correlation - np.eye(3)).max() < 0.08


@pytest.mark.parametrize("exact_part", ["fitness", "feature"])
def test_noise_on_one_output_leaves_the_other_exact(exact_part):
    task = noisy(PLAIN, **{"fitness": 0.5, "feature": 0.5, exact_part: 0.0})
    truth = evaluate(PLAIN, keys(1, 6), POINTS)
    found = evaluate(task, keys(1, 6), POINTS)
    for part in ("fitness", "feature"):
        same = np.array_equal(getattr(found, part), getattr(truth, part))
        assert same == (part == exact_part)


def test_a_row_depends_on_its_key_and_genotype_but_not_on_the_batch():
    task = noisy(resampled(NOISY, 3), fitness=1.0)
    outcome = jax.jit(lambda k, x: evaluate(task, k, x))
    whole = outcome(keys(2, 6), POINTS)
    for rows in (np.array([3, 0, 5, 1, 4, 2]), np.array([4])):
        part = outcome(keys(2, 6)[rows], POINTS[rows])
        np.testing.assert_allclose(part.fitness, whole.fitness[rows], rtol=1e-6)
        np.testing.assert_allclose(part.feature, whole.feature[rows], rtol=1e-6)
    other = outcome(keys(3, 6), POINTS)
    assert (np.asarray(other.fitness) != np.asarray(whole.fitness)).all()


@pytest.mark.parametrize("statistic", [jnp.mean, jnp.median])
def test_resampled_is_the_statistic_of_n_evaluations_of_each_row_with_different_keys(statistic):
    calls = []
    task = resampled(recorder(calls, np.random.default_rng(0)), 5, statistic)
    found = evaluate(task, keys(4, 6), jnp.asarray(POINTS))

    seen_keys, x, fitness, feature = (np.concatenate(part) for part in zip(*calls, strict=True))
    assert len(np.unique(seen_keys, axis=0)) == len(x) == 30
    reduce = getattr(np, statistic.__name__)
    for i, point in enumerate(POINTS):
        own = (x == point).all(axis=1)
        assert own.sum() == 5
        np.testing.assert_allclose(found.fitness[i], reduce(fitness[own]), rtol=1e-5)
        np.testing.assert_allclose(found.feature[i], reduce(feature[own], axis=0), rtol=1e-5)


def test_resampling_n_times_divides_the_variance_by_n_and_keeps_the_mean():
    x = jnp.full((2048, 3), 0.25)
    fitness, feature, *_ = jax.jit(lambda k: evaluate(resampled(NOISY, 16), k, x))(keys(5, 2048))
    np.testing.assert_allclose(np.std(fitness), 0.5 / 4, rtol=0.08)
    np.testing.assert_allclose(np.std(feature, axis=0), [0.1 / 4] * 2, rtol=0.08)
    np.testing.assert_allclose(np.mean(fitness), 0.75, atol=5 * 0.125 / 45)


def test_cost_counts_evaluations_of_the_underlying_problem():
    assert PLAIN.cost == NOISY.cost == 1
    assert resampled(NOISY, 4).cost == 4
    assert noisy(resampled(resampled(PLAIN, 2), 3), fitness=1.0).cost == 6


def test_a_task_is_uncertain_if_it_or_its_wrapper_is():
    assert not noisy(PLAIN).uncertain
    assert noisy(PLAIN, fitness=0.1).uncertain
    assert noisy(PLAIN, feature=0.1).uncertain
    assert noisy(NOISY).uncertain
    assert resampled(NOISY, 8).uncertain
    assert not resampled(PLAIN, 8).uncertain


def test_a_host_task_sees_numpy_and_its_results_become_float32():
    calls = []
    task = recorder(calls, np.random.default_rng(1))
    found = evaluate(task, keys(6, 6), jnp.asarray(POINTS))
    assert found.fitness.dtype == found.feature.dtype == jnp.float32
    np.testing.assert_array_equal(calls[0][1], POINTS)
    np.testing.assert_allclose(found.fitness, calls[0][2], rtol=1e-6)
    np.testing.assert_allclose(found.feature, calls[0][3], rtol=1e-6)


def test_noise_can_be_put_on_a_host_task():
    calls = []
    task = noisy(recorder(calls, np.random.default_rng(2)), feature=0.5)
    found = evaluate(task, keys(7, 6), jnp.asarray(POINTS))
    np.testing.assert_allclose(found.fitness, calls[0][2], rtol=1e-6)
    assert (np.asarray(found.feature) != calls[0][3].astype(np.float32)).all()


WRONG_EVALUATE = {
    "fitness of shape \\(4,\\), got \\(4, 1\\)": lambda keys, x: (x[:, :1], x[:, :2]),
    "fitness of shape \\(4,\\), got \\(\\)": lambda keys, x: (x.sum(), x[:, :2]),
    "feature of shape \\(4, 2\\), got \\(4,\\)": lambda keys, x: (x[:, 0], x[:, 0]),
    "feature of shape \\(4, 2\\), got \\(4, 3\\)": lambda keys, x: (x[:, 0], x),
    "must return \\(fitness, feature\\), got float": lambda keys, x: 1.0,
    "must return \\(fitness, feature\\), got tuple": lambda keys, x: (x[:, 0], x[:, :2], {}, x),
}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("fault", WRONG_EVALUATE)
def test_a_wrong_shape_is_refused_with_the_name_of_the_task(fault, jit):
    task = replace(PLAIN, name="bent", evaluate=WRONG_EVALUATE[fault], jit=jit)
    with pytest.raises(UsageError, match=f"evaluate of task 'bent'.*{fault}"):
        check(task)


@pytest.mark.parametrize("init", [uniform(4, 0.0, 1.0), lambda key, n: jax.random.uniform(key, (3, n))])
def test_a_wrong_shape_from_init_is_refused_with_the_name_of_the_task(init):
    with pytest.raises(
        UsageError, match="init of task 'bent' must return genotypes of shape \\(4, 3\\)"
    ):
        check(replace(PLAIN, name="bent", init=init))


def test_check_traces_a_jittable_task_without_running_it():
    seen = []

    def spy(keys, x):
        seen.append(isinstance(x, jax.core.Tracer))
        return exact(keys, x)

    check(replace(PLAIN, evaluate=spy))
    assert seen == [True]


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((0.0, 1.0), (1.0, 0.0)),
        ((0.0, 2.0), (1.0, 2.0)),
        ((0.0, np.nan), (1.0, 1.0)),
        ((0, 0), (1, np.inf)),
    ],
)
def test_feature_bounds_that_enclose_nothing_are_refused(low, high):
    with pytest.raises(UsageError, match=r"task 'plain'.*for feature 1"):
        replace(PLAIN, feature_low=low, feature_high=high)


@pytest.mark.parametrize(("low", "high"), [((0.0,), (1.0, 1.0)), ((), ())])
def test_feature_bounds_need_one_entry_for_each_feature(low, high):
    with pytest.raises(UsageError, match="one entry for each feature"):
        replace(PLAIN, feature_low=low, feature_high=high)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda: replace(PLAIN, dim=0), "dim of task 'plain'"),
        (lambda: noisy(PLAIN, fitness=-1.0), "^fitness must"),
        (lambda: noisy(PLAIN, feature=-1.0), "^feature must"),
        (lambda: resampled(PLAIN, 0), "^n must"),
        (lambda: uniform(3, 1.0, 1.0), "^low must"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(mistake, sentence):
    with pytest.raises(UsageError, match=sentence):
        mistake()


def test_uniform_fills_the_interval_evenly():
    x = np.sort(
        np.asarray(initial(replace(PLAIN, init=uniform(3, -2.0, 4.0)), jax.random.key(8), 1000)), 0
    )
    assert x.shape == (1000, 3)
    # The Kolmogorov-Smirnov distance to the uniform distribution must be less than 2 / sqrt(n).
    distance = np.abs((x + 2) / 6 - (np.arange(1000)[:, None] + 0.5) / 1000)
    assert distance.max() < 2 / np.sqrt(1000)


def test_rowwise_equals_a_loop_over_rows():
    def one(key, x):
        return jnp.sum(x) + jax.random.normal(key), x[:2] * x[2]

    found = evaluate(replace(PLAIN, evaluate=rowwise(one)), keys(9, 6), POINTS)
    for i, key in enumerate(keys(9, 6)):
        fitness, feature = one(key, jnp.asarray(POINTS[i]))
        np.testing.assert_allclose(found.fitness[i], fitness, rtol=1e-5)
        np.testing.assert_allclose(found.feature[i], feature, rtol=1e-6)


def on_the_host(function):
    """Return a task in plain Python that evaluates one genotype at a time."""
    return Task("host", 2, (0.0,), (1.0,), uniform(2, 0.0, 1.0), rowwise(function), jit=False)


def test_rowwise_works_with_plain_python():
    def simulate(key, x):
        rng = np.random.default_rng(int(seeds_from_keys(key)))
        return float(sum(x)) + 0 * rng.normal(), [float(x[0])]

    task = on_the_host(simulate)
    check(task)
    x = jnp.array([[0.25, 0.5], [1.0, 2.0], [0.0, 0.5]])
    found = evaluate(task, keys(8, 3), x)
    np.testing.assert_allclose(found.fitness, [0.75, 3.0, 0.5])
    np.testing.assert_allclose(found.feature, [[0.25], [1.0], [0.0]])


def test_a_host_task_may_return_lists():
    def as_lists(keys, x):
        return [float(row.sum()) for row in x], [[float(row[0])] for row in x]

    task = replace(on_the_host(lambda key, x: (0.0, [0.0])), evaluate=as_lists)
    found = evaluate(task, keys(9, 2), jnp.array([[1.0, 2.0], [0.5, 0.0]]))
    assert found.fitness.tolist() == [3.0, 0.5]
    assert found.feature.tolist() == [[1.0], [0.5]]
    ragged = replace(task, evaluate=lambda keys, x: ([1.0] * len(x), [[0.0]] * (len(x) - 1) + [[]]))
    with pytest.raises(UsageError, match="must return feature as numbers of shape"):
        evaluate(ragged, keys(9, 2), jnp.ones((2, 2)))


def test_seeds_are_integers_that_depend_only_on_the_keys():
    found = seeds_from_keys(keys(10, 1000))
    assert found.shape == (1000,)
    assert found.dtype == np.int64
    assert found.min() >= 0
    assert 2**31 < found.max() < 2**32
    assert len(set(found.tolist())) == 1000
    assert seeds_from_keys(keys(10, 1000)[3]) == found[3]


def test_features_without_names_are_numbered():
    named = replace(PLAIN, feature_names=["x (m)", "speed"])
    assert noisy(resampled(named, 2)).feature_names == ("x (m)", "speed")
    assert PLAIN.feature_names == ("feature 1", "feature 2")
    fewer = replace(PLAIN, feature_low=(0.0,), feature_high=(1.0,))
    assert fewer.feature_names == ("feature 1",)


@pytest.mark.parametrize("names", [("x",), ("x", "y", "z"), ("x", "")])
def test_each_feature_has_one_name(names):
    with pytest.raises(UsageError, match="of task 'plain' must be a name for each of its 2"):
        replace(PLAIN, feature_names=names)


@pytest.mark.parametrize("names", ["xy", 3, ("x", 3)])
def test_names_of_features_are_text(names):
    with pytest.raises(UsageError, match="feature_names of task 'plain' must be tuple"):
        replace(PLAIN, feature_names=names)


def breaks(row_keys, x):
    if (x[:, 0] < 0.5).any():
        raise RuntimeError("the solver diverged")
    return exact(row_keys, x)


def test_a_simulator_may_raise_for_some_rows_of_the_first_check():
    task = replace(PLAIN, name="fragile", evaluate=breaks, jit=False)
    drawn = np.array([[0.9, 0, 0], [0.1, 0, 0], [0.1, 0, 0], [0.9, 0, 0]], np.float32)
    check(replace(task, init=lambda key, n: drawn[:n]))
    with pytest.raises(RuntimeError, match="the solver diverged"):
        check(replace(task, init=lambda key, n: np.zeros((n, 3), np.float32)))


def noisy_and_fragile(row_keys, x):
    if (x[:, 0] < 0.5).any():
        raise RuntimeError("the solver diverged")
    return np.asarray(jax.vmap(jax.random.normal)(row_keys)), x[:, :2]


def test_noise_is_detected_although_a_simulator_raises_for_some_rows():
    task = replace(PLAIN, name="both", evaluate=noisy_and_fragile, jit=False)
    drawn = np.array([[0.1, 0, 0], [0.9, 0, 0], [0.9, 0, 0], [0.9, 0, 0]], np.float32)
    with pytest.warns(UserWarning, match="'both' evaluates equal genotypes differently"):
        check(replace(task, init=lambda key, n: drawn[:n]))


def test_undeclared_noise_of_a_simulator_gives_a_warning():
    task = recorder([], np.random.default_rng(3))
    with pytest.warns(UserWarning, match="'recorder' evaluates equal genotypes differently"):
        check(task)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(replace(task, uncertain=True))
        check(replace(PLAIN, jit=False))


@pytest.mark.parametrize("mistake", [lambda x: x[0] if x[0] > 0 else 0.0, lambda x: float(x[0])])
def test_numpy_or_python_control_flow_in_a_traced_task_is_refused(mistake):
    task = replace(PLAIN, name="bent", evaluate=rowwise(lambda key, x: (mistake(x), x[:2])))
    with pytest.raises(UsageError, match="evaluate of task 'bent' uses NumPy, 'if' or float"):
        check(task)


@pytest.mark.parametrize("name", [None, 3, "", "x" * 501, b"task"])
def test_a_name_is_short_text(name):
    arm = memes.tasks.arm(joints=3)
    with pytest.raises(memes.UsageError, match="name of a task must be str of 1 to 500 characters"):
        replace(arm, name=name)
