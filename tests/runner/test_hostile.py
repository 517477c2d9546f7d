"""Simulators that return invalid values, raise exceptions, or are slow."""

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes import RunError
from memes.archive import LIMIT, Fault, faults, finite
from memes.runner.simulators import on_host, surviving
from memes.task import Evaluation

ARM = memes.tasks.arm(joints=4)
INVALID = {Fault.NAN: np.nan, Fault.INFINITE: -np.inf, Fault.ABSURD: 1e30}


def small(task, **options):
    cells = memes.cells.grid(task, (10, 10))
    return memes.presets.memes(task, cells, lanes=4, samples=16, stale_budget=3, fifo_size=64, **options)


def poisoned(value, *, feature):
    """Return the arm task with an invalid fitness or feature in a tenth of the evaluations."""

    def evaluate(keys, x):
        exact = ARM.evaluate(keys, x)
        bad = jax.vmap(lambda key: jax.random.bernoulli(key, 0.1))(keys)
        if feature:
            return exact.fitness, jnp.where(bad[:, None], value, exact.feature)
        return jnp.where(bad, value, exact.fitness), exact.feature

    return replace(ARM, evaluate=evaluate)


@pytest.mark.parametrize(
    ("fault", "feature"),
    [(Fault.NAN, False), (Fault.INFINITE, True), (Fault.ABSURD, False), (Fault.ABSURD, True)],
)
def test_invalid_values_are_counted_and_reported_once_and_stored_nowhere(fault, feature, capsys):
    algorithm = small(poisoned(INVALID[fault], feature=feature))
    result = memes.run(algorithm, generations=40, seed=0)
    counts = {f: int(result.metrics[f"faults_{f.name.lower()}"][-1]) for f in Fault}
    expected = 0.1 * 40 * algorithm.batch_size
    assert 0.7 * expected < counts.pop(fault) < 1.3 * expected
    assert not any(counts.values())
    printed = " ".join(capsys.readouterr().err.split())
    assert printed.count("they are left out") == 1
    for leaf in jax.tree.leaves(result.state._replace(archive=None)):
        assert np.isfinite(leaf).all()
        assert np.abs(leaf).max(initial=0) < LIMIT
    elites = result.archive.occupied
    assert elites.sum() > 10
    assert (np.abs(result.archive.fitness[elites]) < 10).all()
    assert (np.abs(result.archive.feature) < 10).all()


def test_invalid_values_are_reported_once_per_seed(capsys):
    algorithm = memes.presets.me(poisoned(np.nan, feature=False), batch=8)
    runs = memes.run(algorithm, generations=12, seeds=[3, 4], call_seconds=0)
    printed = capsys.readouterr().err
    for run in runs:
        assert 0 < run.metrics["faults_nan"][-1] < 12 * 8 / 2
        assert np.isfinite(run.archive.fitness[run.archive.occupied]).all()
        lines = [line for line in printed.splitlines() if line.startswith(f"seed {run.config.seed}: ")]
        assert sum("are not a number: they are left out" in line for line in lines) == 1


def test_a_row_counts_once_by_its_worst_fault():
    fitness = jnp.array([1.0, np.nan, np.inf, 1e20, 2.0, -np.inf])
    feature = jnp.array([[0, 0], [np.inf, 0], [np.nan, 0], [0, 1], [0, -1e20], [0, 0]])
    evaluation = Evaluation(fitness, feature)
    np.testing.assert_array_equal(faults(evaluation), [2, 1, 2])
    np.testing.assert_array_equal(finite(evaluation), [True] + [False] * 5)


def test_a_lane_with_a_non_finite_mean_is_reset_as_degenerate():
    """The learning rate is so large that every mean overflows after one or two steps."""
    algorithm = small(ARM, learning_rate=3e38, proportion_explore=0.0)
    result = memes.run(algorithm, generations=12, seed=0, progress=False)
    assert result.metrics["resets_degenerate"][-1] > 4
    assert np.isfinite(result.archive.genotypes).all()


def host(simulate):
    return replace(ARM, evaluate=simulate, jit=False)


@jax.jit
def at_once(x):
    return ARM.evaluate(None, x)


def arm_on_host(keys, x):
    """Evaluate the arm with the same compiled program for any batch size."""
    exact = at_once(np.resize(x, (128, ARM.dim)))
    return np.asarray(exact.fitness)[: len(x)], np.asarray(exact.feature)[: len(x)]


def test_a_simulator_that_raises_occasionally_loses_only_those_rows(capsys):
    calls = [0]

    def simulate(keys, x):
        calls[0] += 1
        if (x[:, 0] > 0.9).any():
            raise ArithmeticError("joint [/0] got stuck")
        return arm_on_host(keys, x)

    task = replace(host(simulate), init=lambda key, n: 0.5 + 0.0 * ARM.init(key, n))
    algorithm = small(task, sigma=0.2)
    result = memes.run(algorithm, generations=5, seed=0)
    printed = " ".join(capsys.readouterr().err.split())
    assert printed.count("raised ArithmeticError: joint [/0] got stuck; evaluations that fail") == 1
    assert result.metrics["faults_nan"][-1] > 5
    assert (np.asarray(result.archive.genotypes)[:, 0] <= 0.9).all()
    assert result.archive.occupied.any()


def test_rows_that_raise_are_found_at_any_position():
    """Failing evaluations may be adjacent, fill one half of a batch, or fill a whole small batch."""
    bad = np.array([0, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0], bool)

    def simulate(keys, x):
        if bad[x[:, 0].astype(int)].any():
            raise ArithmeticError("stuck")
        return 10 + x[:, 0], x[:, 1:3]

    messages = []
    task = surviving(host(simulate), messages.append, rows=11)
    x = np.repeat(np.arange(11.0)[:, None], 4, axis=1)
    fitness, feature = task.evaluate(np.arange(11), x)
    np.testing.assert_array_equal(fitness, np.where(bad, np.nan, 10 + x[:, 0]))
    np.testing.assert_array_equal(feature, np.where(bad[:, None], np.nan, x[:, 1:3]))
    fitness, _ = task.evaluate(np.arange(4), x[4:8])
    assert np.isnan(fitness).all()
    assert len(messages) == 1


def test_a_simulator_that_raises_for_a_whole_generation_ends_the_run():
    def always(keys, x):
        raise ZeroDivisionError("nothing works")

    with pytest.raises(ZeroDivisionError, match="nothing works"):
        small(host(always))
    task = surviving(host(always), lambda sentence: None, rows=8)
    task.evaluate(np.arange(4), np.zeros((4, 4)))
    with pytest.raises(RunError, match="raised ZeroDivisionError: nothing works for every genotype"):
        task.evaluate(np.arange(4), np.zeros((4, 4)))


def test_a_callback_from_jax_may_raise(tmp_path, capfd, no_figures):
    """A rare exception affects few evaluations. If every call raises one, the run can be resumed."""
    refused = [0.8]

    def simulate(x):
        if (x[:, 0] > refused[0]).any():
            raise FileNotFoundError("no joint 0")
        return x.sum(axis=1), x[:, :2]

    def evaluate(keys, x):
        n = x.shape[0]
        shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((n,), (n, 2))]
        return tuple(jax.pure_callback(simulate, shapes, x))

    task = replace(ARM, evaluate=evaluate)
    algorithm = memes.presets.me(task, memes.cells.grid(task, (10, 10)), batch=16)
    memes.run(algorithm, generations=3, out=tmp_path / "run")
    printed = " ".join(capfd.readouterr().err.split())
    assert printed.count("raised FileNotFoundError: no joint 0; evaluations that fail") == 1
    assert "Traceback" not in printed
    lost = int(memes.load_run(tmp_path / "run").metrics["faults_nan"][-1])
    assert 2 < lost < 30
    refused[0] = -1.0
    with pytest.raises(RunError) as ended:
        memes.resume(algorithm, tmp_path / "run", generations=5, progress=False)
    assert "\n" not in str(ended.value)
    for part in (
        f"'{task.name}' raised FileNotFoundError: no joint 0 for every genotype",
        "'memes resume",
    ):
        assert part in str(ended.value)
    refused[0] = 2.0
    resumed = memes.resume(algorithm, tmp_path / "run", generations=5, progress=False)
    np.testing.assert_array_equal(resumed.metrics["generation"], np.arange(1, 6))
    assert resumed.metrics["faults_nan"][-1] == lost


def test_a_callback_inside_a_loop_is_found():
    def evaluate(keys, x):
        shape = jax.ShapeDtypeStruct((), jnp.float32)

        def body(i, total):
            return total + jax.pure_callback(np.sum, shape, x[i])

        total = jax.jit(lambda: jax.lax.fori_loop(0, 2, body, 0.0))()
        return jnp.full(x.shape[0], total), x[:, :2]

    assert not on_host(replace(ARM, evaluate=evaluate)).jit
    assert on_host(ARM) is ARM


@pytest.mark.parametrize("seeds", [None, [0, 1]])
def test_a_device_failure_ends_the_run_with_an_error_message(tmp_path, monkeypatch, seeds):
    failing = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nat a place of no interest")

    def wait(record):
        raise failing

    monkeypatch.setattr("memes.runner.scheduling.wait", wait)
    with pytest.raises(RunError) as ended:
        memes.run(
            memes.presets.me(ARM, batch=4),
            generations=2,
            seeds=seeds,
            out=tmp_path / "run",
            progress=False,
        )
    assert str(ended.value) == (
        "task 'arm' failed on the device: JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory; "
        f"'memes resume {tmp_path / 'run'}' continues from the last checkpoint"
    )


def test_a_simulator_that_fails_ends_all_seeds_with_an_error_message(tmp_path, no_figures):
    """The simulator works for the first seed and fails for the second seed. Then it works again."""
    calls, broken = [0], [True]

    def simulate(keys, x):
        calls[0] += 1
        if broken[0] and calls[0] > 3:  # one call checks shapes, two are generations
            raise ZeroDivisionError("no licence")
        return arm_on_host(keys, x)

    algorithm = memes.presets.me(host(simulate), memes.cells.grid(ARM, (5, 5)), batch=4)
    out = tmp_path / "runs"
    with pytest.raises(RunError) as ended:
        memes.run(algorithm, generations=2, seeds=[5, 6], out=out, progress=False)
    assert "raised ZeroDivisionError: no licence for every genotype of a generation" in str(ended.value)
    assert f"'memes resume {out}' continues from the last checkpoint" in str(ended.value)
    assert memes.load_run(out / "seed-5").outcome.generations_done == 2
    broken[0] = False
    (resumed,) = memes.resume(algorithm, out, progress=False)
    assert (resumed.config.seed, resumed.generations) == (6, 2)


def test_a_run_waits_for_a_slow_simulator():
    def simulate(keys, x):
        time.sleep(0.3)
        return arm_on_host(keys, x)

    result = memes.run(small(host(simulate)), generations=2, progress=False)
    assert result.metrics["seconds"][-1] > 0.6
    assert result.archive.occupied.any()


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e30])
@pytest.mark.parametrize("jit", [True, False])
def test_a_run_whose_first_generation_has_no_usable_evaluation_ends_with_an_error(tmp_path, value, jit):
    def evaluate(keys, x):
        return (jnp if jit else np).full(len(x), value), x[:, :2]

    algorithm = memes.presets.me(replace(ARM, evaluate=evaluate, jit=jit), batch=8)
    with pytest.raises(memes.UsageError, match="for 8 random genotypes: 8 are"):
        memes.run(algorithm, generations=3, out=tmp_path / "run", progress=False)
    assert (tmp_path / "run/metrics.csv").read_text() == ""


@pytest.mark.parametrize("build", [memes.presets.me, memes.presets.memes])
def test_features_outside_the_bounds_are_counted_and_reported_once(build, capsys):
    def evaluate(keys, x):
        return x.sum(axis=1), 10 * x[:, :2]

    task = replace(ARM, evaluate=evaluate, feature_low=(-1, -1), feature_high=(1, 1), min_fitness=-100.0)
    options = {"batch": 64} if build is memes.presets.me else {"lanes": 4, "samples": 16}
    drawn = np.asarray(task.init(jax.random.key(0), 1000))
    expected = np.mean((np.abs(10 * drawn[:, :2]) > 1).any(axis=1))
    result = memes.run(build(task, **options), generations=4, seeds=[0, 1])[0]
    counted, evaluations = (result.metrics[name] for name in ("outside_bounds", "evaluations"))
    assert expected > 0.8
    assert abs(counted[0] / evaluations[0] - expected) < 0.2
    assert (np.diff(counted) <= np.diff(evaluations)).all()
    assert (np.diff(counted) > 0).all()
    printed = " ".join(capsys.readouterr().err.split())
    assert printed.count("of the features lie outside feature_low and feature_high") == 1
    # The archive of MEMES has only four means, which are too few to suggest bounds of the features.
    assert ("bounds that fit are feature_low=" in printed) == (build is memes.presets.me)


def test_undeclared_noise_of_a_compiled_task_is_reported(capsys):
    task = memes.tasks.noisy_arm(joints=4)
    memes.run(memes.presets.me(replace(task, uncertain=False), batch=8), generations=2)
    assert "has uncertain=False; with uncertain=True its archives" in capsys.readouterr().err
    memes.run(memes.presets.me(ARM, batch=8), generations=2)
    assert "uncertain" not in capsys.readouterr().err


def test_a_min_fitness_that_no_fitness_exceeds_is_reported_after_the_first_generation(capsys):
    algorithm = memes.presets.me(replace(ARM, min_fitness=50.0), batch=8)
    memes.run(algorithm, generations=2)
    assert "exceeds its min_fitness, 50" in " ".join(capsys.readouterr().err.split())
