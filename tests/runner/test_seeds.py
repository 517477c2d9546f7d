"""Runs of several seeds, one by one or as one batch on the device."""

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import pytest

import memes
from memes.runner import memory
from memes.runner.observers import Callbacks, Checkpoints, RunContext, Update
from memes.store import files

pytestmark = pytest.mark.usefixtures("compiled_once", "no_figures")

task = memes.tasks.arm(joints=4)
cells = memes.cells.grid(task, (10, 10))
algorithm = memes.presets.memes(task, cells, lanes=4, samples=8, stale_budget=2, fifo_size=64)
quick = memes.presets.me(task, cells, batch=4)
SEEDS = (0, 3, 5)
OPTIONS = {"seeds": SEEDS, "generations": 12, "progress": False}


@pytest.fixture(scope="module")
def single():
    """Runs of the seeds one by one."""
    return memes.run(algorithm, seeds_per_batch=1, **OPTIONS)


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """Runs of the seeds together, without interruption."""
    return memes.run(quick, out=tmp_path_factory.mktemp("batch"), **OPTIONS)


def assert_agree(results, expected):
    """Check that all records of two lists of runs, except times, agree up to rounding."""
    for result, other in zip(results, expected, strict=True):
        assert set(result.metrics) == set(other.metrics)
        for name in set(other.metrics) - {"seconds"}:
            np.testing.assert_allclose(result.metrics[name], other.metrics[name], rtol=1e-5)
        for name in other.lanes:
            np.testing.assert_allclose(result.lanes[name], other.lanes[name], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(result.archive.fitness, other.archive.fitness, rtol=1e-5)
        np.testing.assert_allclose(result.archive.genotypes, other.archive.genotypes, atol=1e-5)


def assert_same_bits(result, other):
    for name in set(other.metrics) - {"seconds"}:
        np.testing.assert_array_equal(result.metrics[name], other.metrics[name], name)
    for part in ("lanes", "archive"):
        jax.tree.map(np.testing.assert_array_equal, getattr(result, part), getattr(other, part))


def assert_saved(out: Path, expected) -> None:
    """Check that the folders of the seeds contain bitwise equal runs."""
    for run in expected:
        saved, folder = memes.load_run(out / f"seed-{run.config.seed}"), run.folder
        assert_same_bits(saved, memes.load_run(folder))
        assert (saved.folder / "archive.npz").read_bytes() == (folder / "archive.npz").read_bytes()
        assert saved.outcome.generations_done == 12


@dataclass(frozen=True)
class At:
    """An observer that calls a function after a given generation of a seed."""

    generation: int
    do: object
    seed: int = 3

    def watch(self, context: RunContext) -> Callbacks:
        def on_update(update: Update) -> None:
            if update.run.generations == self.generation and context.config.seed == self.seed:
                self.do(context)

        return Callbacks(on_update=on_update, due=lambda generation: generation == self.generation)


def send(which):
    return lambda stage: os.kill(os.getpid(), which)


@pytest.fixture
def compiled(traced_once):
    """Return a list to which the name of each function is added when the function is compiled."""
    names = []

    def note(event, seconds, fun_name="", **about):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(fun_name)

    traced_once.clear()
    jax.monitoring.register_event_duration_secs_listener(note)
    yield names
    jax.monitoring.unregister_event_duration_listener(note)


def test_seeds_that_run_one_by_one_equal_single_runs_and_compile_once(single, compiled, traced_once):
    alone = memes.run(algorithm, generations=12, seed=SEEDS[1], progress=False)
    jax.tree.map(np.testing.assert_array_equal, single[1].state, alone.state)
    jax.tree.map(np.testing.assert_array_equal, single[1].lanes, alone.lanes)
    assert [result.config.seed for result in single] == list(SEEDS)
    for_one = list(compiled)
    assert sum("advance" in name for name in for_one) == 1
    compiled.clear()
    traced_once.clear()
    memes.run(algorithm, seeds_per_batch=1, **OPTIONS)
    assert len(compiled) == len(for_one)
    assert [result.provenance.compile_seconds > 0 for result in single] == [True, False, False]


def test_corrections_of_all_seeds_are_compiled_once(compiled, traced_once):
    noisy = memes.tasks.noisy_arm(joints=4)
    chosen = memes.presets.me(noisy, cells, batch=4)
    options = {"generations": 2, "progress": False, "observers": [memes.Corrections(samples=3)]}
    memes.run(chosen, **options)
    for seeds, together in (([0], 1), ([1, 2, 3], 1), ([1, 2, 3], 3)):
        compiled.clear()
        traced_once.clear()
        runs = memes.run(chosen, seeds=seeds, seeds_per_batch=together, **options)
        assert all(run.correction is not None for run in runs)
        assert sum("estimate" in name for name in compiled) == 1


def test_seeds_that_run_together_agree_with_single_runs_up_to_rounding(
    single, monkeypatch, capsys, tmp_path
):
    """The memory is sufficient for two of the three seeds, so the second batch has only one seed."""
    needs = iter([1000, 10])
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr(memory, "needed", lambda compiled: next(needs))
    results = memes.run(algorithm, out=tmp_path, **OPTIONS | {"progress": True})
    printed = capsys.readouterr().err
    assert "3 seeds of memes together" in printed
    assert "too little memory: running 2 seeds at once" in printed
    assert_agree(results, single)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["seed-0", "seed-3", "seed-5"]
    for seed, result in zip(SEEDS, results, strict=True):
        saved = memes.load_run(tmp_path / f"seed-{seed}")
        jax.tree.map(np.testing.assert_array_equal, saved.archive, result.archive)
        assert saved.config.seed == seed
        assert saved.config.seeds_together == 2
        assert saved.outcome.generations_done == 12


@pytest.mark.parametrize("call_seconds", [0, 1e-3, 1e3])
def test_results_of_a_batch_do_not_depend_on_device_calls_or_order(batch, call_seconds):
    options = OPTIONS | {"seeds": SEEDS[::-1], "call_seconds": call_seconds}
    for run, other in zip(memes.run(quick, **options), batch[::-1], strict=True):
        assert run.config.seed == other.config.seed
        jax.tree.map(np.testing.assert_array_equal, run.state, other.state)
        assert_same_bits(run, other)


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_batch_with_all_files_and_resume_continues(batch, tmp_path, which):
    stopped = memes.run(quick, out=tmp_path, observers=[At(5, send(which))], **OPTIONS)
    assert [run.config.seed for run in stopped] == list(SEEDS)
    for run in stopped:
        assert run.generations == 5
        assert run.stopped == which.name
        assert memes.load_run(run.folder).outcome.generations_done == 5
    memes.resume(quick, tmp_path, progress=False)
    assert_saved(tmp_path, batch)
    with pytest.raises(
        memes.UsageError, match=r"all runs in .* are finished: extend them with more generations"
    ):
        memes.resume(quick, tmp_path, progress=False)


# For each seed, files are written in this order: configuration (twice), metrics, changes, two
# checkpoints, lanes, archive, summary, and configuration.
@pytest.mark.parametrize("writes", [2, 3, 5, 8, 11, 12, 13, 16, 18, 19, 20, 24, 30])
def test_a_batch_killed_while_it_writes_a_file_ends_with_the_same_files(
    batch, tmp_path, killed_at, writes
):
    with killed_at(writes, files.os, "replace"):
        memes.run(quick, out=tmp_path, observers=[Checkpoints(every=6)], **OPTIONS)
    memes.resume(quick, tmp_path, progress=False)
    assert_saved(tmp_path, batch)
    assert len(list(tmp_path.glob("*/summary.json"))) == 3
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_killed_batch_with_lanes_ends_with_the_same_files(tmp_path, killed_at):
    options = {"seeds": (0, 3), "generations": 12, "progress": False}
    whole = memes.run(algorithm, out=tmp_path / "whole", **options)
    with killed_at(13, files.os, "replace"):
        memes.run(algorithm, out=tmp_path / "cut", observers=[Checkpoints(every=2)], **options)
    memes.resume(algorithm, tmp_path / "cut", progress=False)
    assert_saved(tmp_path / "cut", whole)


def test_one_seed_of_a_batch_can_be_resumed_alone(batch, tmp_path):
    memes.run(quick, out=tmp_path, observers=[At(5, send(signal.SIGINT))], **OPTIONS)
    run = memes.resume(quick, tmp_path / "seed-3", progress=False)
    assert_same_bits(run, batch[1])
    assert memes.load_run(tmp_path / "seed-0").generations == 5
    (run,) = memes.resume(quick, tmp_path, seeds=[5], progress=False)
    assert_same_bits(run, batch[2])
    assert memes.load_run(tmp_path / "seed-0").generations == 5
    with pytest.raises(memes.UsageError, match=r"seeds: '.*' contains no run of 7, 8"):
        memes.resume(quick, tmp_path, seeds=[7, 8], progress=False)


def test_stopping_one_seed_does_not_stop_the_others(batch, tmp_path, capsys):
    observers = [At(5, lambda context: context.stop("it is enough"))]
    runs = memes.run(quick, out=tmp_path, observers=observers, **OPTIONS | {"progress": True})
    assert [run.generations for run in runs] == [12, 5, 12]
    assert [run.stopped for run in runs] == [None, "it is enough", None]
    for i in (0, 2):
        assert_same_bits(runs[i], batch[i])
    printed = capsys.readouterr().err
    assert "seed 3: stopping: it is enough" in printed
    assert "generation 12/12" in printed  # progress does not wait for the stopped seed
    (resumed,) = memes.resume(quick, tmp_path, progress=False)
    assert_same_bits(resumed, batch[1])
    assert_saved(tmp_path, batch)


@pytest.mark.parametrize("together", [1, 2])
def test_resume_runs_seeds_that_had_not_started(tmp_path, together):
    options = OPTIONS | {"seeds_per_batch": together}
    whole = memes.run(quick, out=tmp_path / "whole", **options)
    stopped = memes.run(quick, out=tmp_path / "cut", observers=[At(4, send(2), seed=0)], **options)
    assert [run.config.seed for run in stopped] == list(SEEDS[:together])
    resumed = memes.resume(quick, tmp_path / "cut", progress=False)
    assert [run.config.seed for run in resumed] == list(SEEDS)
    assert_saved(tmp_path / "cut", whole)


def test_a_batch_can_be_extended(batch, tmp_path):
    memes.run(quick, out=tmp_path, **OPTIONS | {"generations": 7})
    for run, other in zip(
        memes.resume(quick, tmp_path, generations=12, progress=False), batch, strict=True
    ):
        assert_same_bits(run, other)
    assert_saved(tmp_path, batch)


def test_seeds_with_different_settings_must_be_resumed_one_by_one(tmp_path):
    for seed, generations in ((1, 3), (2, 4)):
        out = tmp_path / f"seed-{seed}"
        memes.run(
            quick, generations=generations, seed=seed, out=out, progress=False,
            observers=[At(2, send(signal.SIGINT), seed=seed)],
        )  # fmt: skip
    with pytest.raises(memes.UsageError, match="differ in generations: resume them one by one"):
        memes.resume(quick, tmp_path, progress=False)
    assert len(memes.resume(quick, tmp_path, generations=4, progress=False)) == 2


def test_a_resumed_batch_that_exceeds_memory_uses_smaller_chunks(batch, tmp_path, monkeypatch):
    """The number of seeds per batch stays the same, because another number would change the rounding."""
    memes.run(quick, out=tmp_path, observers=[At(5, send(signal.SIGINT))], **OPTIONS)
    needs = iter([1000, 10])
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr(memory, "needed", lambda compiled: next(needs))
    for run in memes.resume(quick, tmp_path, progress=False):
        assert run.config.seeds_together == 3
        assert run.config.chunk < quick.batch_size


def test_seeds_of_a_host_simulator_run_one_by_one():
    def simulate(keys, x):
        return np.zeros(len(x)), np.full((len(x), 2), 0.5)

    chosen = memes.presets.me(replace(task, evaluate=simulate, jit=False), cells, batch=4)
    options = {"seeds": [1, 2], "generations": 2, "progress": False}
    with pytest.raises(memes.UsageError, match="seeds_per_batch must be 1"):
        memes.run(chosen, seeds_per_batch=2, **options)
    assert [run.config.seeds_together for run in memes.run(chosen, **options)] == [1, 1]


def test_seeds_of_a_device_simulator_run_one_by_one_by_default():
    maze = memes.tasks.point_maze(steps=2, hidden=(2,))
    chosen = memes.presets.me(maze, memes.cells.grid(maze, (4, 4)), batch=2)
    for together, expected in ((None, 1), (2, 2)):
        runs = memes.run(chosen, seeds=[1, 2], generations=1, seeds_per_batch=together, progress=False)
        assert {run.config.seeds_together for run in runs} == {expected}


def test_all_seeds_are_refused_if_one_folder_contains_a_run(batch, tmp_path):
    (tmp_path / "seed-5").mkdir()
    config = '{"format_version": 1, "task": "arm", "algorithm": "me", "seed": 5}'
    (tmp_path / "seed-5/config.json").write_text(config)
    with pytest.raises(memes.UsageError, match=r"out must not contain a run yet, but '.*seed-5' does"):
        memes.run(quick, out=tmp_path, **OPTIONS)
    assert [file.name for file in tmp_path.iterdir()] == ["seed-5"]
    memes.run(quick, out=tmp_path, overwrite=True, **OPTIONS)
    assert_saved(tmp_path, batch)
