"""Reports about tasks before a run."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.analysis.task_report import LONGEST, PAPER, SAMPLES, advise, noise_of
from memes.commands.main import main
from memes.runner.findings import Observations, findings
from memes.task import Evaluation

ARM = memes.tasks.arm(joints=4)
TASK = memes.Task(
    "plain", 3, (0, 0), (1, 1), memes.uniform(3, 0, 1), lambda keys, x: (x.sum(1), x[:, :2])
)
BUDGET = {"seconds": 1e-3, "gpu": False, "includes_corrections": True}


@pytest.mark.parametrize("jit", [True, False])
def test_a_good_task_has_a_report_without_findings(jit):
    task = replace(TASK, jit=jit)
    report = memes.check(task, genotypes=20)
    assert report.findings == ()
    assert report.noise is None
    assert (report.outside, report.faults, report.fatal) == (0.0, (0, 0, 0), False)
    assert 0 <= report.low[0] < report.high[0] <= 1
    assert 0 < report.fitness[0] < report.fitness[1] < report.fitness[2] < 3
    assert 10 < report.reached <= 20
    assert (report.compile_seconds is None) == (not jit)
    assert report.seconds > 0
    text = repr(report)
    assert "evaluations of the same genotype are equal; uncertain=False" in text
    assert len(text.splitlines()) < 20


def test_noise_is_estimated_in_units_of_the_spread_and_of_cells():
    rng = np.random.default_rng(0)
    cells = memes.cells.grid(TASK, (10, 20))
    exact = rng.normal(0, 2, 4000), rng.uniform(0.3, 0.7, (4000, 2))

    def noisy():
        fitness = exact[0] + rng.normal(0, 0.5, 4000)
        return Evaluation(
            jnp.asarray(fitness, jnp.float32),
            jnp.asarray(exact[1] + rng.normal(0, 0.02, (4000, 2)), jnp.float32),
        )

    first, again = noisy(), noisy()
    found = noise_of(first, again, cells)
    np.testing.assert_allclose(found.fitness, 0.5 / np.hypot(2, 0.5 / np.sqrt(2)), rtol=0.05)
    np.testing.assert_allclose(found.feature, (0.02 * 10, 0.02 * 20), rtol=0.05)
    broken = again._replace(fitness=again.fitness.at[:10].set(jnp.nan))
    np.testing.assert_allclose(noise_of(first, broken, cells).fitness, found.fitness, rtol=0.05)


def topics(task, **options):
    return [finding.topic for finding in memes.check(task, **options).findings]


def test_wrong_declarations_of_a_task_are_found():
    scaled = replace(TASK, evaluate=lambda keys, x: (x.sum(axis=1), 10 * x[:, :2]))
    report = memes.check(scaled)
    assert [finding.topic for finding in report.findings] == ["bounds"]
    assert report.outside > 0.5
    noise = replace(memes.noisy(TASK, fitness=0.1), uncertain=False)
    assert topics(noise) == ["noise"]
    assert memes.check(noise).noise.fitness > 0
    assert topics(replace(TASK, uncertain=True)) == ["noise"]
    assert topics(replace(TASK, min_fitness=10.0)) == ["min_fitness"]
    same = replace(TASK, evaluate=lambda keys, x: (x.sum(axis=1), 0 * x[:, :2] + 0.5))
    assert topics(same) == ["bounds"]


def test_a_simulator_on_the_host_may_raise_for_some_genotypes():
    def simulate(keys, x):
        if (x[:, 0] > 0.8).any():
            raise ArithmeticError("stuck")
        return x.sum(axis=1), x[:, :2]

    report = memes.check(replace(TASK, evaluate=simulate, jit=False), genotypes=40)
    assert 0 < report.faults[0] < 40
    assert "raised ArithmeticError: stuck" in repr(report)
    assert not report.fatal


@pytest.mark.parametrize("uncertain", [True, False])
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("dim", [20, 2000])
def test_a_suggested_run_is_within_the_budget_and_can_be_built(uncertain, jit, gpu, dim):
    task = replace(TASK, uncertain=uncertain, jit=jit, dim=dim, init=memes.uniform(dim, 0, 1))
    if not jit:
        task = replace(task, evaluate=lambda keys, x: (x.sum(axis=1), np.asarray(x)[:, :2]))
    for evaluations in (100, 5_000, 300_000, 4_000_000, 50_000_000, 10**10):
        options = BUDGET | {"gpu": gpu, "evaluations": evaluations}
        advice = advise(task, 2500, uncertain=uncertain, **options)
        total = advice.evaluations + advice.reevaluations
        assert total <= evaluations
        assert advice.evaluations >= min(evaluations / 2, LONGEST[advice.scale]) * 0.9
        assert advice.seconds == pytest.approx(total * 1e-3)
        assert (advice.reevaluations > 0) == uncertain
        assert advice.limited == (
            jit and 2500 * SAMPLES[advice.scale] > advice.evaluations and uncertain
        )
        algorithm = memes.PRESETS[advice.algorithm].build(task, **advice.options)
        assert algorithm.batch_size * algorithm.task.cost <= advice.evaluations
        assert (advice.scale == "paper") == (gpu and jit and evaluations >= PAPER // 2)


def test_the_suggested_expression_and_the_suggested_command_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    task = memes.tasks.noisy_arm(joints=4)
    report = memes.check(task, genotypes=8, evaluations=40)
    assert eval(report.command, {"memes": memes, "task": task}).metrics["evaluations"][-1] <= 40
    words = ["noisy-arm", "--resolution", "8", "8", "--joints", "4"]
    assert main(["check", *words, "--evaluations", "40", "--genotypes", "8"]) == 0
    command = capsys.readouterr().out.splitlines()[-1].split()
    assert command[:2] == ["memes", "run"]
    assert command[2 : 2 + len(words)] == words
    assert main([*command[1:], "--quiet", "--no-figures-draw"]) == 0
    run = memes.load_run("runs/noisy-arm-me/seed-0")
    assert 32 < run.metrics["evaluations"][-1] <= 40
    assert (run.config.options["joints"], run.config.cells) == (4, (8, 8))


def test_the_exit_code_is_1_if_a_run_would_be_meaningless(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = "import jax.numpy as jnp\nimport memes\n"
    lines += "task = memes.Task('broken', 3, (0, 0), (1, 1), memes.uniform(3, 0, 1), lambda keys, x: "
    (tmp_path / "broken.py").write_text(lines + "(jnp.nan * x[:, 0], x[:, :2]))\n")
    assert main(["check", "broken.py:task"]) == 1
    assert "ERROR" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"genotypes": 1}, "genotypes must be at least 2, got 1"),
        ({"minutes": 0.0}, "minutes must be positive"),
        ({"evaluations": 0}, "evaluations must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"cells": memes.cells.grid(memes.tasks.arm(joints=3), (4, 4)), "minutes": "2"}, "minutes must"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(options, sentence):
    with pytest.raises(memes.UsageError, match=sentence):
        memes.check(ARM, **options)


def test_the_command_needs_a_task(capsys):
    assert main(["check"]) == 2
    assert "TASK is missing" in capsys.readouterr().err


def test_bounds_are_not_suggested_for_features_that_diverge():
    rng = np.random.default_rng(0)
    feature = rng.uniform(-2, 2, (100, 2))
    seen = Observations(100, (0, 0, 0), 50, np.arange(100.0), feature)
    few = replace(seen, fitness=seen.fitness[:4], feature=feature[:4])
    (found,) = [each for each in findings(TASK, seen) if each.topic == "bounds"]
    assert "bounds that fit are feature_low=" in found.sentence
    feature[7, 1] = 1e9
    (found,) = [each for each in findings(TASK, seen) if each.topic == "bounds"]
    assert "feature 2 reaches -" in found.sentence
    assert "check evaluate for a simulation that diverges" in found.sentence
    assert "bounds that fit" not in found.sentence
    (found,) = [each for each in findings(TASK, few) if each.topic == "bounds"]
    assert found.sentence.endswith("'memes check' suggests bounds that fit")


def test_a_run_suggests_bounds_from_all_elites(capsys):
    """More elites enter the archive in the first generation than the device can record."""
    wide = memes.rowwise(lambda key, x: (x[2], 3 * x[:2]))
    task = replace(TASK, evaluate=wide, feature_low=(0.0, 0.0), feature_high=(1.0, 1.0))
    algorithm = memes.presets.me(task, memes.cells.grid(task, (40, 40)), batch=2000)
    memes.run(algorithm, generations=1, observers=[memes.Corrections(every=0)])
    assert "feature_high=(3.3, 3.3)" in capsys.readouterr().err.replace("\n", " ")


def test_random_failures_are_faults_and_not_noise():
    def evaluate(keys, x):
        fitness = np.asarray(x).sum(1)
        fitness[np.asarray(memes.seeds_from_keys(keys)) % 3 == 0] = np.nan
        return fitness, np.asarray(x)[:, :2]

    assert topics(replace(TASK, evaluate=evaluate, jit=False)) == ["faults"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: memes.rowwise(lambda x: (x[0], x[:2])), "the function of rowwise must take the argum"),
        (
            lambda: replace(TASK, evaluate=lambda x: x),
            "evaluate of task 'plain' must take",
        ),
        (lambda: replace(TASK, init=lambda key: key), "must take the arguments (key, n), got (key)"),
    ],
)
def test_functions_of_a_task_with_other_arguments_are_refused(make, sentence):
    with pytest.raises(memes.UsageError) as refused:
        make()
    assert sentence in str(refused.value)
