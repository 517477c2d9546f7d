"""Runs on uncertain tasks correct their archives. Interruptions do not change the results."""

import os
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

import memes
from memes.commands.main import main
from memes.estimates import STATISTICS
from memes.metrics import compare
from memes.runner import corrections, memory
from memes.runner.corrections import Corrections
from memes.runner.observers import Checkpoints
from memes.runner.progress import Reporter
from memes.store.folder import load_corrected

pytestmark = pytest.mark.usefixtures("compiled_once", "no_figures")

TASK = memes.tasks.noisy_arm(joints=4, fitness_noise=0.1, feature_noise=0.1)
CELLS = memes.cells.grid(TASK, (6, 6))
OPTIONS = {"generations": 6, "call_seconds": 0, "seed": 3, "progress": False}
AT_THE_END = Corrections(samples=5)
ON_THE_WAY = Corrections(samples=5, every=2)
COLUMNS = (
    "generation,samples,by_mean,reevaluations,qd_score,coverage,max_fitness,illusory_qd_score,"
    "illusory_coverage,illusory_max_fitness,qd_score_loss,coverage_loss,max_fitness_loss,"
    "qd_score_by_mean,coverage_by_mean,max_fitness_by_mean,"
    "qd_score_loss_by_mean,coverage_loss_by_mean,max_fitness_loss_by_mean,"
    "median_fitness_variance,median_feature_variance"
)


@pytest.fixture(scope="module")
def algorithm():
    return memes.presets.memes(TASK, CELLS, lanes=4, samples=8, stale_budget=2, fifo_size=64)


@pytest.fixture(scope="module")
def whole(algorithm, tmp_path_factory):
    """An uninterrupted run with corrections after generations 2, 4 and 6."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return memes.run(algorithm, out=out, observers=[ON_THE_WAY], **OPTIONS)


def correction_of(result, generation, samples=5):
    """Return the correction of the final archive, computed with the documented key."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(3), corrections.STREAM), generation)
    return memes.reevaluate(result.archive, TASK, samples, key=key)


def test_the_last_row_is_the_correction_of_the_final_archive(whole):
    assert (whole.folder / "corrected.csv").read_text().splitlines()[0] == COLUMNS
    saved = memes.load_run(whole.folder)
    np.testing.assert_array_equal(saved.corrected["generation"], [2, 4, 6])
    np.testing.assert_array_equal(saved.corrected["samples"], 5)
    jax.tree.map(np.testing.assert_array_equal, saved.correction, whole.correction)
    expected = correction_of(whole, 6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), whole.correction, expected)
    last = {name: column[-1] for name, column in saved.corrected.items()}
    for name, value in compare(whole.archive, expected).items():
        assert last[name] == pytest.approx(value, rel=1e-4), name
    for name in ("qd_score", "coverage", "max_fitness"):  # illusory values equal the metrics
        logged = saved.metrics[name][[1, 3, 5]]
        np.testing.assert_allclose(saved.corrected[f"illusory_{name}"], logged, rtol=1e-5)


def test_evaluations_for_corrections_are_counted_separately(whole):
    elites = whole.metrics["coverage"][[1, 3, 5]] * 36
    np.testing.assert_allclose(whole.corrected["reevaluations"], np.cumsum(5 * elites), rtol=1e-6)
    np.testing.assert_array_equal(whole.metrics["evaluations"], 36 * np.arange(1, 7))


def test_corrections_do_not_change_the_run(algorithm, whole, tmp_path):
    never = memes.run(algorithm, out=tmp_path / "run", observers=[Corrections(every=0)], **OPTIONS)
    assert never.correction is None
    assert not list((tmp_path / "run").glob("corrected*"))
    jax.tree.map(np.testing.assert_array_equal, never.state, whole.state)
    jax.tree.map(np.testing.assert_array_equal, never.lanes, whole.lanes)


@pytest.mark.parametrize(
    ("name", "call", "after"),
    [
        # The process is killed at one of four times: in the middle of the run, after a correction but
        # before it is written, and twice at the end. At the end, everything else is already saved.
        ("correct", 1, False),
        ("compare", 2, False),
        ("compare", 3, False),
        ("correct", 3, True),
    ],
)
def test_a_run_killed_during_a_correction_ends_with_the_same_files(
    algorithm, whole, tmp_path, killed_at, assert_equal_runs, name, call, after
):
    out = tmp_path / "run"
    with killed_at(call, corrections, name, after):
        memes.run(algorithm, out=out, observers=[ON_THE_WAY], **OPTIONS)
    resumed = memes.resume(algorithm, out, progress=False)
    assert_equal_runs(whole.folder, out)
    jax.tree.map(np.testing.assert_array_equal, resumed.correction, whole.correction)
    with pytest.raises(memes.UsageError, match="after 6 generations: extend it with more generations"):
        memes.resume(algorithm, out, progress=False)


def test_a_run_killed_between_the_files_of_its_last_correction_ends_with_the_same_files(
    algorithm, whole, tmp_path, killed_at, assert_equal_runs
):
    """The process is killed after it writes corrected.npz and before it writes corrected.csv."""
    out = tmp_path / "run"
    with killed_at(1, corrections.archives, "save_correction", after=True):
        memes.run(algorithm, out=out, observers=[ON_THE_WAY], **OPTIONS)
    assert (out / "corrected.npz").exists()
    assert load_corrected(out)["generation"].tolist() == [2, 4]
    memes.resume(algorithm, out, progress=False)
    assert_equal_runs(whole.folder, out)


def test_a_correction_after_the_last_checkpoint_is_repeated_once(
    algorithm, whole, tmp_path, killed_at, assert_equal_runs
):
    out = tmp_path / "run"
    with killed_at(2, corrections.folders, "save_corrected", after=True):  # the first call saves no rows
        memes.run(algorithm, out=out, observers=[ON_THE_WAY, Checkpoints(every=1)], **OPTIONS)
    assert load_corrected(out)["generation"].tolist() == [2]
    (out / "checkpoints/00000002.npz").unlink(missing_ok=True)
    memes.resume(algorithm, out, progress=False)
    assert_equal_runs(whole.folder, out)


def interrupting(monkeypatch, calls):
    """Send Ctrl-C during the given calls of the re-evaluation."""
    original, seen = corrections.estimates, [0]

    def estimates(*arguments):
        for part in original(*arguments):
            seen[0] += 1
            if seen[0] in calls:
                os.kill(os.getpid(), signal.SIGINT)
            yield part

    monkeypatch.setattr(corrections, "estimates", estimates)
    monkeypatch.setattr(corrections, "ROWS", {"cpu": 10})  # two elites per call


def test_the_first_interrupt_saves_the_run_and_the_second_skips_the_correction(
    algorithm, whole, tmp_path, monkeypatch, assert_equal_runs, capsys
):
    once, twice = tmp_path / "once", tmp_path / "twice"
    with monkeypatch.context() as patch:
        interrupting(patch, {1})
        stopped = memes.run(algorithm, out=once, observers=[ON_THE_WAY], **OPTIONS)
        assert stopped.metrics["generation"].tolist() == [1, 2]
        assert stopped.corrected["generation"].tolist() == [2]
    with monkeypatch.context() as patch:
        interrupting(patch, {1, 3})
        stopped = memes.run(algorithm, out=twice, observers=[ON_THE_WAY], **OPTIONS | {"progress": True})
        assert stopped.correction is None
        assert memes.load_run(twice).correction is None
        jax.tree.map(np.testing.assert_array_equal, memes.load_archive(twice), stopped.archive)
    printed = " ".join(capsys.readouterr().err.split())
    assert "skipping the rest of the re-evaluation" in printed
    assert f"'memes reevaluate {twice}' does this later" in printed
    for out in (once, twice):
        memes.resume(algorithm, out, progress=False)
        assert_equal_runs(whole.folder, out)


def test_an_extended_run_discards_the_correction_of_its_former_end(algorithm, whole, tmp_path):
    out = tmp_path / "run"
    short = memes.run(algorithm, out=out, observers=[AT_THE_END], **OPTIONS | {"generations": 3})
    assert short.corrected["generation"].tolist() == [3]
    longer = memes.resume(algorithm, out, generations=6, progress=False)
    assert longer.corrected["generation"].tolist() == [6]
    jax.tree.map(np.testing.assert_array_equal, longer.correction, whole.correction)


def test_corrections_of_a_resampled_task_use_single_evaluations(whole):
    found = corrections.corrected(
        whole._replace(corrected={}, correction=None),
        memes.resampled(TASK, 7),
        samples=5,
        statistic="median",
        report=Reporter(show=False),
        stopped=lambda: False,
    )
    jax.tree.map(np.testing.assert_array_equal, found.correction, whole.correction)
    assert found.corrected["reevaluations"].tolist() == [5 * len(found.correction.elite_cell)]


def test_elites_are_re_evaluated_in_smaller_batches_if_memory_is_short(
    algorithm, whole, monkeypatch, capsys
):
    # Bytes of available memory: first enough for a generation, and then too few for a re-evaluation.
    room = iter([2**40, 2])
    monkeypatch.setattr(memory, "available", lambda: next(room, 2**40))
    cut = memes.run(algorithm, observers=[AT_THE_END], **OPTIONS | {"progress": True})
    printed = " ".join(capsys.readouterr().err.split())
    assert "too little memory: re-evaluating in batches of 1 evaluations" in printed
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), cut.correction, whole.correction
    )


def test_earlier_corrections_may_have_fewer_samples_than_the_last(algorithm, whole):
    observers = [Corrections(samples=5, every=4, every_samples=2)]
    run = memes.run(algorithm, observers=observers, **OPTIONS)
    assert run.corrected["generation"].tolist() == [4, 6]
    assert run.corrected["samples"].tolist() == [2, 5]
    jax.tree.map(np.testing.assert_array_equal, run.correction, whole.correction)


@pytest.fixture(scope="module")
def batch(algorithm, tmp_path_factory):
    """Three seeds in one batch without interruption. The last seed is the seed of the run `whole`."""
    return memes.run(
        algorithm, out=tmp_path_factory.mktemp("batch"), seeds=BATCH, observers=[ON_THE_WAY], **TOGETHER
    )


BATCH = (1, 2, 3)
TOGETHER = {name: value for name, value in OPTIONS.items() if name != "seed"}


def test_each_seed_of_a_batch_has_the_correction_of_a_single_run(whole, batch):
    for run in batch:
        assert run.corrected["generation"].tolist() == [2, 4, 6]
        saved = memes.load_run(run.folder)
        jax.tree.map(np.testing.assert_array_equal, saved.correction, run.correction)
    assert not np.array_equal(batch[0].corrected["qd_score"], batch[1].corrected["qd_score"])
    for name, column in whole.corrected.items():
        np.testing.assert_allclose(batch[2].corrected[name], column, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(("name", "call"), [("correct", 2), ("compare", 6), ("correct", 9)])
def test_a_batch_killed_during_a_correction_ends_with_the_same_files(
    algorithm, batch, tmp_path, killed_at, assert_equal_runs, name, call
):
    with killed_at(call, corrections, name):
        memes.run(algorithm, out=tmp_path, seeds=BATCH, observers=[ON_THE_WAY], **TOGETHER)
    memes.resume(algorithm, tmp_path, progress=False)
    for run in batch:
        assert_equal_runs(run.folder, tmp_path / run.folder.name)


def test_an_interrupt_during_a_correction_stops_the_whole_batch(
    algorithm, batch, tmp_path, monkeypatch, assert_equal_runs
):
    with monkeypatch.context() as patch:
        interrupting(patch, {1})
        stopped = memes.run(algorithm, out=tmp_path, seeds=BATCH, observers=[ON_THE_WAY], **TOGETHER)
    for run in stopped:
        assert run.generations == 2
        assert run.stopped == "SIGINT"
        assert run.corrected["generation"].tolist() == [2]
    memes.resume(algorithm, tmp_path, progress=False)
    for run in batch:
        assert_equal_runs(run.folder, tmp_path / run.folder.name)


def test_a_seed_whose_correction_was_skipped_can_be_resumed(
    algorithm, batch, tmp_path, monkeypatch, assert_equal_runs
):
    """Ctrl-C is sent at the end, while the second of three seeds is re-evaluated."""
    with monkeypatch.context() as patch:
        calls = -(-int(batch[0].archive.occupied.sum()) // 2)
        interrupting(patch, {calls + 1})
        runs = memes.run(algorithm, out=tmp_path, seeds=BATCH, observers=[AT_THE_END], **TOGETHER)
    assert [run.generations for run in runs] == [6, 6, 6]
    assert [run.correction is None for run in runs] == [False, True, True]
    resumed = memes.resume(algorithm, tmp_path, progress=False)
    assert [run.config.seed for run in resumed] == [2, 3]
    for run, other in zip(resumed, batch[1:], strict=True):
        jax.tree.map(np.testing.assert_array_equal, run.correction, other.correction)


COMMAND = [
    "noisy-arm", "--joints", "4", "--fitness-noise", "0.1", "--feature-noise", "0.1", "--lanes", "4",
    "--samples", "8", "--stale-budget", "2", "--fifo-size", "64", "--resolution", "6", "6",
    "--generations", "6", "--call-seconds", "0", "--seed", "3", "--reevaluate-samples", "5",
    "--quiet",
]  # fmt: skip


def test_the_command_corrects_a_saved_run(whole, tmp_path, assert_equal_runs, capsys):
    out = tmp_path / "run"
    assert main(["run", *COMMAND, "--out", str(out), "--reevaluate-every", "2"]) == 0
    row = {name: column[-1] for name, column in memes.load_run(out).corrected.items()}
    assert (
        f"corrected by 5 evaluations of each elite: QD-score {row['qd_score']:.1f}, "
        f"coverage {row['coverage']:.1%}, max fitness {row['max_fitness']:.4g}; "
        f"{row['qd_score_loss']:.1%} of the QD-score is lost"
    ) in capsys.readouterr().out
    assert_equal_runs(whole.folder, out)

    (out / "corrected.npz").unlink()
    assert main(["reevaluate", str(out), "--samples", "5", "--quiet"]) == 0
    again = memes.load_run(out).corrected
    assert (out / "corrected.npz").read_bytes() == (whole.folder / "corrected.npz").read_bytes()
    for name in set(again) - {"reevaluations"}:
        np.testing.assert_array_equal(again[name], memes.load_run(whole.folder).corrected[name])
    spent = 5 * round(36 * row["illusory_coverage"])
    assert again["reevaluations"][-1] == row["reevaluations"] + spent
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["illusory", "corrected", "loss"]
    assert printed[2].split() == [
        "coverage", f"{row['illusory_coverage']:.1%}", f"{row['coverage']:.1%}",
        f"{row['coverage_loss']:.1%}",
    ]  # fmt: skip

    assert main(["reevaluate", str(out), "--samples", "7", "--statistic", "mean", "--quiet"]) == 0
    saved = memes.load_run(out)
    np.testing.assert_array_equal(saved.corrected["generation"], [2, 4, 6])
    np.testing.assert_array_equal(saved.corrected["samples"], [5, 5, 7])
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(3), corrections.STREAM), 6)
    mean = memes.reevaluate(saved.archive, TASK, 7, key=key, statistic=STATISTICS["mean"])
    np.testing.assert_allclose(saved.correction.archive.fitness, mean.archive.fitness, rtol=1e-5)
    assert np.load(out / "corrected.npz")["statistic"] == "mean"


def test_wrong_uses_of_the_command_give_a_one_line_error(whole, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(whole.folder, run)
    wrong = {
        "RUN is missing: memes reevaluate RUN": ["reevaluate", "--samples", "3"],
        "'nothing' does not contain a run": ["reevaluate", "nothing"],
        "samples must be at least 1, got 0": ["reevaluate", str(run), "--samples", "0"],
        "does not record joints": ["reevaluate", str(run)],  # the run was made in Python
        "reevaluate_every must be at least 0, got -1": ["run", *COMMAND, "--reevaluate-every", "-1"],
        "reevaluate_samples must be at least 1": ["run", *COMMAND, "--reevaluate-samples", "0"],
    }
    for sentence, arguments in wrong.items():
        assert main(arguments) == 2, sentence
        printed = capsys.readouterr().err
        assert sentence in printed
        assert printed.count("\n") == 1
    with pytest.raises(memes.UsageError, match="statistic must be one of median, mean, got 'mode'"):
        Corrections(statistic="mode")


UNDECLARED = """
import jax
import memes

def evaluate(key, x):
    return -(x**2).sum() + jax.random.normal(key), x[:2]

draw = memes.uniform(3, -1, 1)
task = memes.Task("noisy", 3, (-1, -1), (1, 1), draw, memes.rowwise(evaluate){rest})
"""


def test_a_correction_finds_undeclared_noise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(UNDECLARED.format(rest=""))
    small = ["--lanes", "2", "--samples", "4", "--generations", "2", "--resolution", "3", "3"]
    assert main(["run", "own.py:task", *small, "--quiet", "--out", "run"]) == 0
    assert not Path("run/corrected.npz").exists()
    assert main(["reevaluate", "run", "--task", "own.py:task", "--samples", "3", "--quiet"]) == 0
    assert "'noisy' evaluates equal genotypes differently" in capsys.readouterr().out
    assert Path("run/corrected.npz").exists()


def test_a_qd_score_that_must_be_0_gives_a_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--lanes", "2", "--samples", "4", "--generations", "2", "--resolution", "3", "3"]
    warning = "no elite is fitter than the task's min_fitness"
    for least, warns in ((1000, True), (-1000, False)):
        Path("own.py").write_text(UNDECLARED.format(rest=f", min_fitness={least}"))
        assert main(["run", "own.py:task", *small, "--out", f"run{least}"]) == 0
        assert (warning in " ".join(capsys.readouterr().err.split())) == warns


def on_host(keys, x):
    noise = np.array([np.random.default_rng(seed).normal() for seed in memes.seeds_from_keys(keys)])
    return x.sum(axis=1) + 0.1 * noise, x[:, :2]


HOST = memes.Task("host", 3, (0, 0), (1, 1), memes.uniform(3, 0, 1), on_host, uncertain=True, jit=False)


def evaluations_of(*, observer, generations=4, task=HOST):
    """Run MAP-Elites, and return (evaluations, elites, re-evaluations, samples per elite).

    The first two results have one entry per generation. The last two have one entry per correction.
    """
    algorithm = memes.presets.me(task, memes.cells.grid(task, (6, 6)), batch=16)
    run = memes.run(algorithm, generations=generations, seed=0, observers=[observer])
    elites = [round(share * 36) for share in run.metrics["coverage"]]
    corrected = run.corrected
    return run.metrics["evaluations"], elites, corrected["reevaluations"], corrected["samples"]


@pytest.mark.parametrize(("limit", "times"), [(None, 1.0), (3.0, 3.0), (0.001, 0.0), (1e9, 1e9)])
def test_a_correction_on_the_host_respects_the_limit(limit, times, capsys):
    searched, elites, spent, samples = evaluations_of(observer=Corrections(samples=40, limit=limit))
    expected = max(1, min(40, times * searched[-1] // elites[-1]))
    assert (samples.tolist(), spent.tolist()) == ([expected], [expected * elites[-1]])
    printed = " ".join(capsys.readouterr().err.split())
    often = "once" if expected == 1 else f"{expected:.0f} times"
    assert f"re-evaluating every elite {often}: {spent[-1]:,.0f} evaluations" in printed
    needed = f"--reevaluate-limit {-(-40 * elites[-1] // int(searched[-1]))} allows them"
    assert (needed in printed) == (expected < 40)


def test_an_earlier_correction_takes_at_most_the_search_since_the_previous_one():
    searched, elites, spent, samples = evaluations_of(observer=Corrections(samples=40, every=2))
    assert len(samples) == 2
    assert samples[0] == searched[1] // elites[1]
    searched, elites, spent, samples = evaluations_of(
        observer=Corrections(samples=40, every=2), generations=6
    )
    assert samples[1] == (searched[3] - searched[1]) // elites[3]
    # The last correction may use as many evaluations as the whole search.
    assert samples[2] == searched[-1] // elites[-1]
    assert spent[-1] < 2 * searched[-1]


def test_a_compiled_task_has_no_limit_unless_one_is_given():
    *_, samples = evaluations_of(observer=Corrections(samples=9), generations=1, task=TASK)
    assert samples.tolist() == [9]
    searched, elites, _, samples = evaluations_of(
        observer=Corrections(samples=9, limit=1.0), generations=1, task=TASK
    )
    assert samples.tolist() == [searched[-1] // elites[-1]]
    assert samples[0] < 9
