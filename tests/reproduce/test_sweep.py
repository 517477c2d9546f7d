"""A sweep computes all missing runs and no other runs."""

import os
import shutil
import signal
import sys

import numpy as np
import pytest

from memes import api
from memes.commands.main import main
from memes.reproduce import results, sweep, turns
from memes.reproduce.experiments import CHANGES, EXPERIMENTS, TASKS, VARIANTS, Experiment
from memes.reproduce.sweep import plan
from memes.runner import observers, scheduling
from memes.store.find import load_all

pytestmark = pytest.mark.usefixtures("traced_once")
WORDS = ["reproduce", "tiny", "--tasks", "arm", "--scale", "laptop", "--quiet", "--out"]


@pytest.fixture(scope="module", autouse=True)
def _tiny():
    """Register a small experiment with MAP-Elites on an arm with four joints. Disable the report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, "tiny", Experiment("a test", ("me",), 2))
        patch.setitem(CHANGES, "laptop", {"arm": {"joints": 4, "generations": 4, "batch": 8}})
        patch.setattr(results.report, "write", lambda comparison, folder: [])
        yield


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folder of an uninterrupted sweep."""
    out = tmp_path_factory.mktemp("swept")
    assert main([*WORDS, str(out)]) == 0
    return out


@pytest.fixture
def asked(monkeypatch):
    """Record which seeds are run or resumed, and for how many generations."""
    seen = {}
    for name in ("run", "resume"):
        inner = getattr(api, name)

        def noted(*arguments, inner=inner, name=name, **options):
            runs = inner(*arguments, **options)
            seen.setdefault(name, []).append({r.config.seed: r.generations for r in runs})
            return runs

        monkeypatch.setattr(sweep.api, name, noted)
    return seen


def summaries(out):
    return {(run.label, run.seed): run for run in load_all([out / "laptop/summaries"])}


def assert_same_runs(found, expected):
    assert set(found) == set(expected)
    for key, run in expected.items():
        np.testing.assert_allclose(found[key].heat, run.heat, rtol=1e-3)
        np.testing.assert_allclose(found[key].curves["qd_score"], run.curves["qd_score"], rtol=1e-5)


def test_a_sweep_keeps_summaries_and_verdicts_but_no_runs(swept):
    found = summaries(swept)
    assert set(found) == {("me", 0), ("me", 1)}
    assert {run.about.seeds_together for run in found.values()} == {2}
    assert {run.generations for run in found.values()} == {4}
    assert sorted(path.name for path in (swept / "laptop").iterdir()) == [
        ".lock",
        "claims.md",
        "summaries",
    ]
    assert "### C1, arm: not tested" in (swept / "laptop/claims.md").read_text()


def test_runs_with_a_summary_are_not_repeated(swept, asked, tmp_path, capsys):
    assert main([*WORDS, str(swept)]) == 0
    assert "2 of 2 runs" in capsys.readouterr().out
    elsewhere = [*WORDS, str(tmp_path), "--summaries", str(swept)]
    assert main(elsewhere) == 0
    assert main([*elsewhere, "--report-only"]) == 0
    assert asked == {}
    assert main([*elsewhere, "--report-only", "--generations", "5"]) == 2  # no such runs exist
    assert "found no runs of these experiments" in capsys.readouterr().err


def test_only_missing_seeds_are_run(swept, asked, tmp_path):
    shutil.copytree(swept, tmp_path, dirs_exist_ok=True)
    (tmp_path / "laptop/summaries/arm/me-4-seed-1.json").unlink()
    assert main([*WORDS, str(tmp_path), "--keep-archives"]) == 0
    assert asked == {"run": [{1: 4}]}
    assert_same_runs(summaries(tmp_path), summaries(swept))
    assert (tmp_path / "laptop/runs/arm/me-4/seed-1/archive.npz").exists()


class Stop:
    """Send a signal when the `metrics.csv` files of all runs have a given total number of rows."""

    def __init__(self, monkeypatch, rows, which=signal.SIGINT):
        self.rows, self._write = 0, observers.folders.append_metrics
        monkeypatch.setattr(observers.folders, "append_metrics", self._append)
        self._stop_at, self._which = rows, which

    def _append(self, path, columns):
        self._write(path, columns)
        self.rows += len(columns["generation"]) if columns else 0
        if self.rows == self._stop_at:
            os.kill(os.getpid(), self._which)


def test_a_sweep_that_is_stopped_can_be_continued(swept, asked, tmp_path, monkeypatch):
    """Seeds run one by one. The second seed is stopped after three of its four generations."""
    monkeypatch.setattr(scheduling, "MOST", 1)  # one generation per device call
    with monkeypatch.context() as patch:
        Stop(patch, 7)
        assert main([*WORDS, str(tmp_path), "--seeds-per-batch", "1"]) == 130
    assert set(summaries(tmp_path)) == {("me", 0)}
    assert asked == {"run": [{0: 4, 1: 3}]}
    asked.clear()
    counted = Stop(monkeypatch, -1)
    assert main([*WORDS, str(tmp_path), "--seeds-per-batch", "1"]) == 0
    assert asked == {"resume": [{1: 4}]}
    assert counted.rows == 1  # one generation was missing
    assert_same_runs(summaries(tmp_path), summaries(swept))
    assert not (tmp_path / "laptop/runs").exists()


def test_a_sweep_that_is_stopped_continues_all_seeds_of_a_batch(swept, asked, tmp_path, monkeypatch):
    monkeypatch.setattr(scheduling, "MOST", 1)
    with monkeypatch.context() as patch:
        Stop(patch, 6, signal.SIGTERM)
        assert main([*WORDS, str(tmp_path)]) == 143
    assert not list((tmp_path / "laptop/summaries").rglob("*.json"))
    assert asked == {"run": [{0: 3, 1: 3}]}
    asked.clear()
    assert main([*WORDS, str(tmp_path)]) == 0
    assert asked == {"resume": [{0: 4, 1: 4}]}
    assert_same_runs(summaries(tmp_path), summaries(swept))


def test_a_sweep_that_was_killed_can_be_continued(swept, asked, tmp_path, monkeypatch):
    """The process is killed while writing the second summary. The first summary is complete."""
    calls, save = [], sweep.save_summary

    def save_once(*arguments):
        calls.append(arguments)
        return save(*arguments) if len(calls) == 1 else sys.exit(9)

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "save_summary", save_once)
        with pytest.raises(SystemExit):
            main([*WORDS, str(tmp_path), "--seeds-per-batch", "1"])
    assert set(summaries(tmp_path)) == {("me", 0)}
    assert main([*WORDS, str(tmp_path), "--seeds-per-batch", "1"]) == 0
    assert asked == {"resume": [{1: 4}]}
    assert_same_runs(summaries(tmp_path), summaries(swept))


def test_a_finished_run_without_a_summary_is_not_repeated(swept, asked, tmp_path):
    assert main([*WORDS, str(tmp_path), "--keep-archives"]) == 0
    asked.clear()
    for file in (tmp_path / "laptop/summaries").rglob("*.json"):
        file.unlink()
    assert main([*WORDS, str(tmp_path)]) == 0
    assert asked == {}
    assert_same_runs(summaries(tmp_path), summaries(swept))


def test_no_run_starts_after_the_time_limit(swept, asked, tmp_path, monkeypatch, capsys):
    """The time limit expires before the first seed ends. The same command later runs the second seed."""
    clock, save = [0.0], sweep.save_summary

    def save_and_wait(*arguments):
        save(*arguments)
        clock[0] += 100.0

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "save_summary", save_and_wait)
        patch.setattr(sweep.time, "perf_counter", lambda: clock[0])
        words = [word for word in WORDS if word != "--quiet"]
        limits = ["--seeds-per-batch", "1", "--minutes", "1", "--runs-only"]
        assert main([*words, str(tmp_path), *limits]) == 0
    printed = capsys.readouterr()
    assert "stopped after 1 minutes; run the same command again to continue" in printed.err
    assert "1 of 2 runs" in printed.out
    assert set(summaries(tmp_path)) == {("me", 0)}
    assert not (tmp_path / "laptop/claims.md").exists()
    asked.clear()
    assert main([*WORDS, str(tmp_path), "--seeds-per-batch", "1"]) == 0
    assert [list(runs) for found in asked.values() for runs in found] == [[1]]
    assert_same_runs(summaries(tmp_path), summaries(swept))


def test_stop_runs_stops_a_run_at_the_time_limit(swept, asked, tmp_path, monkeypatch):
    """A run is stopped after two of four generations, and the next sweep resumes it."""
    monkeypatch.setattr(scheduling, "MOST", 1)
    clock, write = [0.0], observers.folders.append_metrics

    def write_and_wait(*arguments):
        write(*arguments)
        clock[0] += 40.0

    with monkeypatch.context() as patch:
        patch.setattr(observers.folders, "append_metrics", write_and_wait)
        patch.setattr(sweep.time, "perf_counter", lambda: clock[0])
        limits = ["--minutes", "1", "--stop-runs", "--runs-only", "--seeds-per-batch", "1"]
        assert main([*WORDS, str(tmp_path), *limits]) == 0
    assert asked == {}
    assert not list((tmp_path / "laptop/summaries").rglob("*.json"))
    assert main([*WORDS, str(tmp_path), "--seeds-per-batch", "1"]) == 0
    assert asked["resume"] == [{0: 4, 1: 4}]
    assert_same_runs(summaries(tmp_path), summaries(swept))


def test_time_measurements_need_no_runs(tmp_path, monkeypatch, capsys):
    """The algorithms are measured alternately, ten times each. A repeated command measures nothing."""
    monkeypatch.setitem(EXPERIMENTS, "turns", Experiment("a test", ("me", "me-128"), seeds=0))
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    words = [word.replace("tiny", "turns") for word in WORDS]
    assert plan(["turns"], ["arm"], "laptop") == []
    assert main([*words, str(tmp_path)]) == 0
    (times,) = turns.load_times(tmp_path / "laptop/times")
    assert (times.task, times.scale, set(times.seconds)) == ("arm", "laptop", {"me", "me-128"})
    assert all(len(each) == turns.TURNS and min(each) > 0 for each in times.seconds.values())
    assert times.about.processes_on_device >= 1
    file = tmp_path / "laptop/times/arm.json"
    before = file.read_bytes()
    assert main([*words, str(tmp_path)]) == 0
    assert file.read_bytes() == before
    file.write_text('{"task": 1}')
    assert main([*words, str(tmp_path)]) == 2
    assert "task in" in capsys.readouterr().err


def test_seeds_of_different_batches_are_continued_separately(swept, asked, tmp_path, monkeypatch):
    """Seed 0 was stopped in an earlier sweep, and seed 1 is new."""
    monkeypatch.setattr(scheduling, "MOST", 1)
    with monkeypatch.context() as patch:
        Stop(patch, 2)
        assert main([*WORDS, str(tmp_path), "--seeds", "1"]) == 130
    asked.clear()
    assert main([*WORDS, str(tmp_path)]) == 0
    assert asked == {"resume": [{0: 4}], "run": [{1: 4}]}
    assert_same_runs(summaries(tmp_path), summaries(swept))


def test_a_plan_contains_each_variant_once_with_the_largest_number_of_seeds():
    items = plan(["main", "explore", "reset", "lanes", "samples", "beyond"], ["arm"], "paper")
    found = {item.label: item for item in items}
    assert len(found) == len(items)
    applies = {label for label, variant in VARIANTS.items() if "arm" in variant.tasks}
    assert set(found) == applies - {"memes-sequential"}
    assert found["memes"].seeds == tuple(range(30))  # the resets need 30, only on the Arm
    assert found["memes-all"].seeds == tuple(range(10))
    assert found["memes-ga"].seeds == tuple(range(5))
    assert {item.seeds for item in plan(["reset"], ["hexapod"], "paper")} == {tuple(range(5))}
    assert {item.generations for item in items} == {2000}
    assert found["memes-x4"].parsed.algorithm_options["lanes"] == 128
    assert found["me-x4"].parsed.algorithm_options["batch"] == 65_536
    assert found["memes-reset-50"].parsed.algorithm_options["reset_every"] == 50
    samples = [
        found[label].parsed.algorithm_options["samples"] for label in EXPERIMENTS["samples"].labels
    ]
    assert samples == [64, 128, 256, 512, 1024]
    assert found["cma-me"].parsed.algorithm_options["sigma"] == 0.5
    assert found["cma-me-tuned"].parsed.algorithm_options["sigma"] < 0.5


def test_ant_trap_has_more_generations_unless_it_has_four_times_the_lanes():
    items = plan(["lanes"], ["ant-trap"], "paper", labels=["memes", "memes-x4"])
    assert {item.label: item.generations for item in items} == {"memes": 10_000, "memes-x4": 4000}


def test_the_laptop_scale_reduces_all_options_consistently(monkeypatch):
    monkeypatch.setitem(CHANGES, "laptop", {"arm": {"lanes": 8, "samples": 64, "batch": 512}})
    items = {item.label: item for item in plan(["lanes", "main"], ["arm"], "laptop")}
    options = {label: item.parsed.algorithm_options for label, item in items.items()}
    assert {len(item.seeds) for item in items.values()} == {7}
    assert options["memes"]["lanes"] * options["memes"]["samples"] == options["me"]["batch"] == 512
    assert options["memes-x4"]["lanes"] == 32
    assert options["me-128"]["batch"] == 128


def test_a_plan_can_be_restricted_to_labels_and_seeds():
    items = plan(["main"], ["arm"], "paper", labels=["cma-me"], seeds=2, first_seed=4)
    assert [(item.label, item.seeds) for item in items] == [("cma-me", (4, 5))]


def test_the_list_shows_planned_runs(capsys):
    assert main(["reproduce", "--list", "lanes", "time", "--tasks", "arm"]) == 0
    printed = capsys.readouterr().out
    for name in ("lanes", "time"):
        assert f"{name:12}{EXPERIMENTS[name].title}" in printed
    assert any(
        line.split()[:5] == ["arm", "memes-x4", "2,000", "10", "0"] for line in printed.splitlines()
    )
    assert "arm       in turns: me-128, me, memes, memes-all" in printed
    assert "pga-me" not in printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "EXPERIMENT is missing"),
        (["mian"], "unknown experiment 'mian': did you mean 'main'?"),
        (["main", "--tasks", "amr"], "unknown task 'amr': did you mean 'arm'?"),
        (["main", "--labels", "mems"], "unknown label 'mems': did you mean 'memes'?"),
        (["main", "--seeds", "0"], "seeds must be at least 1"),
        (["main", "--generations", "0"], "generations must be at least 1"),
        (["main", "--minutes", "0"], "minutes must be more than 0"),
        (["main", "--runs-only", "--report-only"], "exclude each other"),
        (["sampling", "--tasks", "arm"], "tasks: no runs of sampling on arm"),
        (["main", "--summaries", "nowhere"], "there is no file or folder 'nowhere'"),
    ],
)
def test_wrong_options_are_named(words, sentence, capsys, tmp_path):
    assert main(["reproduce", *words, "--out", str(tmp_path)]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["runs", "runs/arm", "summaries", "summaries/arm", "times"])
def test_links_in_the_folder_of_a_sweep_are_refused(name, tmp_path, capsys):
    place = tmp_path / "out/laptop" / name
    place.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "elsewhere")
    assert main([*WORDS, str(tmp_path / "out")]) == 2
    assert f"'{place}' is a link" in capsys.readouterr().err
    assert not list((tmp_path / "elsewhere").iterdir())


def test_every_task_of_the_paper_has_experiments_and_claims():
    assert {task for experiment in EXPERIMENTS.values() for task in experiment.tasks} == set(TASKS)
    for experiment in EXPERIMENTS.values():
        assert set(experiment.labels) <= set(VARIANTS)
