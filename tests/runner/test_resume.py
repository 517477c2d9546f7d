"""Runs that are killed and resumed end with the same results as uninterrupted runs."""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import memes
from memes import RunError, UsageError
from memes.archive import LIMIT
from memes.commands.main import main
from memes.parameters import parameters
from memes.runner.observers import Callbacks, Checkpoints
from memes.store import files, folder
from memes.store.files import only_writer
from memes.store.folder import load_metrics

TASK = memes.tasks.arm(joints=4)
CELLS = memes.cells.grid(TASK, (10, 10))
EVERY = Checkpoints(every=2)
OPTIONS = {"generations": 12, "seed": 3, "progress": False, "observers": [EVERY]}

pytestmark = pytest.mark.usefixtures("compiled_once", "no_figures")


@pytest.fixture(scope="module")
def algorithm():
    return memes.presets.memes(TASK, CELLS, lanes=4, samples=8, stale_budget=2, fifo_size=64)


@pytest.fixture(scope="module")
def whole(algorithm, tmp_path_factory):
    """An uninterrupted run."""
    return memes.run(algorithm, out=tmp_path_factory.mktemp("whole") / "run", **OPTIONS)


# A run writes files 14 times, in this order: configuration (twice), metrics, changes, six checkpoints,
# lanes, archive, summary, and configuration.
@pytest.mark.parametrize("writes", [2, 4, 5, 6, 8, 11, 12, 13, 14])
@pytest.mark.parametrize("half_written", [False, True])
def test_a_run_killed_while_it_writes_a_file_ends_with_the_same_files(
    algorithm, whole, tmp_path, killed_at, assert_equal_runs, writes, half_written
):
    def dying(source, target):
        if half_written:
            Path(source).write_bytes(Path(source).read_bytes()[:-100])

    out = tmp_path / "run"
    with killed_at(writes, files.os, "replace", dying=dying):
        memes.run(algorithm, out=out, **OPTIONS)
    resumed = memes.resume(algorithm, out, progress=False)
    assert_equal_runs(whole.folder, out)
    jax.tree.map(np.testing.assert_array_equal, resumed.state, whole.state)
    assert (out / "summary.json").exists()
    assert not list(out.rglob("*.tmp"))


def test_a_run_killed_while_it_appends_metrics_ends_with_the_same_files(
    algorithm, whole, tmp_path, killed_at, assert_equal_runs
):
    def dying(path, columns):
        with (path / "metrics.csv").open("a") as file:
            file.write("7,1234,0.")  # half a row

    with killed_at(4, folder, "append_metrics", dying=dying):
        memes.run(algorithm, out=tmp_path / "run", **OPTIONS)
    memes.resume(algorithm, tmp_path / "run", progress=False)
    assert_equal_runs(whole.folder, tmp_path / "run")


SMALL = {
    "lanes": 2, "samples": 4, "batch": 12, "stale_budget": 2, "every": 3, "population_size": 3,
    "resamples": 2, "pool": 3, "num_critic_training_steps": 4, "gradient_steps": 2,
    "replay_size": 300, "transitions_batch": 8, "critic_hidden": (4,),
}  # fmt: skip


def with_faults(task):
    """Return the task with NaN, infinite or extremely large results in a tenth of the evaluations."""

    def corrupted(evaluate):
        def evaluate_with_faults(keys, x):
            found = evaluate(keys, x)
            drawn = jax.random.key_data(keys)[:, 0] % 30  # parts of the keys serve as random numbers
            invalid = jnp.array([jnp.nan, -jnp.inf, 1e30])[drawn % 3]
            bad = drawn < 3

            def replaced(leaf):
                if not jnp.issubdtype(leaf.dtype, jnp.floating):
                    return leaf
                shape = (-1,) + (1,) * (leaf.ndim - 1)
                return jnp.where(bad.reshape(shape), invalid.reshape(shape), leaf)

            return jax.tree.map(replaced, found)

        return evaluate and evaluate_with_faults

    transitions = corrupted(task.evaluate_transitions)
    return replace(task, evaluate=corrupted(task.evaluate), evaluate_transitions=transitions)


# Presets with different kinds of emitters. All other presets are variants of these presets.
DISTINCT = ("memes", "memes-sequential", "me", "me-es", "cma-me", "pga-me")


def assert_valid(state, task):
    """Check that the archive, the history and the emitter states contain no invalid numbers."""
    elites = np.asarray(state.archive.occupied)
    assert elites.any()
    kept = jax.tree.map(lambda leaf: leaf[elites], replace(state.archive, cells=())), state.history
    for leaf in map(np.asarray, jax.tree.leaves(kept)):
        assert (np.abs(leaf) < LIMIT).all()
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.emitter):
        # Unknown parent features are NaN. In evosax, the best solution of a lane is unknown until one
        # sample of this lane has a valid evaluation.
        unknown = np.isnan(leaf) & (leaf.shape[-1:] == (task.feature_dim,))
        unknown |= ".best_" in jax.tree_util.keystr(path)
        assert (unknown | (np.abs(leaf) < LIMIT)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "preset",
    [p if p in DISTINCT else pytest.param(p, marks=pytest.mark.long) for p in memes.PRESETS],
)
def test_every_algorithm_resumes_exactly_and_rejects_invalid_values(
    preset, tmp_path, killed_at, assert_equal_runs
):
    build = memes.PRESETS[preset].build
    task = with_faults(memes.tasks.point_maze(steps=4, hidden=(3,)) if preset == "pga-me" else TASK)
    options = {name: value for name, value in SMALL.items() if name in parameters(build)}
    algorithm = build(task, memes.cells.grid(task, (8, 8)), **options)
    whole = memes.run(algorithm, out=tmp_path / "whole", **OPTIONS)
    assert_valid(whole.state, task)
    assert sum(whole.metrics[f"faults_{fault}"][-1] for fault in ("nan", "infinite", "absurd")) > 0
    with killed_at(8, files.os, "replace"):  # the fourth checkpoint
        memes.run(algorithm, out=tmp_path / "cut", **OPTIONS)
    memes.resume(algorithm, tmp_path / "cut", progress=False)
    assert_equal_runs(tmp_path / "whole", tmp_path / "cut")


def command(*words):
    return [sys.executable, "-m", "memes", *map(str, words)]


ARGUMENTS = (
    "run", "arm", "--joints", 20, "--lanes", 4, "--samples", 16, "--generations", 1200,
    "--call-seconds", 0.05, "--no-figures-draw", "--quiet",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_process_killed_at_random_times_ends_with_the_same_files(times, tmp_path, assert_equal_runs):
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    subprocess.run(command(*ARGUMENTS, "--out", tmp_path / "whole"), env=environment, check=True)
    cut, moments = tmp_path / "cut", random.Random(0)
    words = [*ARGUMENTS, "--out", cut]
    kills = 0
    while True:
        process = subprocess.Popen(command(*words), env=environment)
        if kills < times:
            before = set(cut.glob("checkpoints/*.npz"))
            while process.poll() is None and set(cut.glob("checkpoints/*.npz")) <= before:
                time.sleep(0.002)
            time.sleep(moments.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        kills += 1
        words = ["resume", cut, "--quiet"]
    assert kills == times
    assert_equal_runs(tmp_path / "whole", cut)


@dataclass(frozen=True)
class Send:
    """An observer that sends a signal to the process after a given generation."""

    which: int
    generation: int

    def watch(self, context):
        def on_update(update):
            if update.run.generations == self.generation:
                os.kill(os.getpid(), self.which)

        return Callbacks(on_update=on_update, due=lambda generation: generation == self.generation)


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_all_files_and_resume_continues(
    algorithm, whole, tmp_path, assert_equal_runs, which
):
    out = tmp_path / "run"
    stopped = memes.run(algorithm, out=out, **OPTIONS | {"observers": [Send(which, 5)]})
    assert stopped.generations == 5
    outcome = memes.load_run(out).outcome
    assert (outcome.generations_done, outcome.stopped) == (5, which.name)
    resumed = memes.resume(algorithm, out, progress=False)
    assert len(resumed.provenance.resumed) == 1
    assert_equal_runs(whole.folder, out)


def test_a_signal_in_the_last_update_does_not_stop_the_run(algorithm, whole, tmp_path):
    out = tmp_path / "run"
    done = memes.run(algorithm, out=out, **OPTIONS | {"observers": [Send(signal.SIGINT, 12)]})
    assert (done.generations, done.stopped) == (12, None)


def test_a_finished_run_can_only_be_extended(algorithm, whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.folder, out)
    with pytest.raises(UsageError, match="is finished after 12 generations: extend it with more"):
        memes.resume(algorithm, out, progress=False)
    longer = memes.resume(algorithm, out, generations=16, progress=False)
    again = memes.run(algorithm, **OPTIONS | {"generations": 16})
    jax.tree.map(np.testing.assert_array_equal, longer.state, again.state)
    np.testing.assert_array_equal(load_metrics(out / "metrics.csv")["generation"], np.arange(1, 17))


def test_a_history_of_everything_grows_if_the_run_is_extended(tmp_path, assert_equal_runs):
    """An extended run ends with the same files as a run that was started with the final length."""

    algorithm = memes.presets.ns_es(TASK, CELLS, population_size=2, samples=4, neighbours=3)
    memes.run(algorithm, out=tmp_path / "cut", **OPTIONS | {"generations": 4})
    longer = memes.resume(algorithm, tmp_path / "cut", generations=8, progress=False)
    whole = memes.run(algorithm, out=tmp_path / "whole", **OPTIONS | {"generations": 8})
    assert_equal_runs(tmp_path / "whole", tmp_path / "cut")
    jax.tree.map(np.testing.assert_array_equal, longer.state, whole.state)
    assert longer.state.history.capacity == 8


def test_a_history_of_everything_shrinks_if_the_run_is_shortened(tmp_path, killed_at, assert_equal_runs):
    """A run is killed and then resumed with fewer generations than planned."""
    algorithm = memes.presets.ns_es(TASK, CELLS, population_size=2, samples=4, neighbours=3)
    with killed_at(7, files.os, "replace"):
        memes.run(algorithm, out=tmp_path / "cut", **OPTIONS)
    shorter = memes.resume(algorithm, tmp_path / "cut", generations=8, progress=False)
    whole = memes.run(algorithm, out=tmp_path / "whole", **OPTIONS | {"generations": 8})
    assert_equal_runs(tmp_path / "whole", tmp_path / "cut")
    jax.tree.map(np.testing.assert_array_equal, shorter.state, whole.state)


def test_a_run_cannot_end_before_its_last_checkpoint(algorithm, tmp_path, killed_at):
    with killed_at(7, files.os, "replace"):
        memes.run(algorithm, out=tmp_path / "run", **OPTIONS)
    with pytest.raises(UsageError, match=r"generations must be at least 4, as in the last checkpoint"):
        memes.resume(algorithm, tmp_path / "run", generations=1, progress=False)


def test_a_run_cannot_be_resumed_with_another_algorithm(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.folder, out)
    other = memes.presets.memes(TASK, CELLS, lanes=4, samples=8, stale_budget=3, fifo_size=64)
    with pytest.raises(UsageError, match=r"stale_budget of the run in .* is 2, got 3"):
        memes.resume(other, out, generations=20)
    with pytest.raises(UsageError, match=r"algorithm of the run in .* is memes, got me"):
        memes.resume(memes.presets.me(TASK, CELLS, batch=36), out, generations=20)
    for nothing in (tmp_path / "nowhere", tmp_path / "run/checkpoints"):
        with pytest.raises(UsageError, match="does not contain a run"):
            memes.resume(other, nothing)


def test_a_second_writer_is_refused_and_an_old_lock_is_ignored(algorithm, whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.folder, out)
    (out / ".lock").write_text("12345\n")  # left by a process that has ended
    refused = pytest.raises(UsageError, match=rf"another process \({os.getpid()}\) is writing")
    with only_writer(out), refused:
        memes.resume(algorithm, out, generations=14)
    memes.resume(algorithm, out, generations=14, progress=False)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_ends_the_run_with_an_error_message_and_a_checkpoint(
    algorithm, whole, tmp_path, monkeypatch, assert_equal_runs, code
):
    out, left = tmp_path / "run", [5]
    original = files.os.replace

    def replace(source, target):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(code, os.strerror(code))
        original(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "replace", replace)
        with pytest.raises(RunError, match=os.strerror(code)):
            memes.run(algorithm, out=out, **OPTIONS)
    assert list(out.glob("checkpoints/*.npz"))
    assert not list(out.rglob("*.tmp"))
    memes.resume(algorithm, out, progress=False)
    assert_equal_runs(whole.folder, out)


def test_checkpoints_are_written_at_the_given_interval_or_not_at_all(algorithm, tmp_path):
    for every, expected in ((0, []), (4, ["00000008.npz", "00000012.npz"])):
        out = tmp_path / str(every)
        memes.run(algorithm, out=out, **OPTIONS | {"observers": [Checkpoints(every=every)]})
        assert sorted(file.name for file in out.glob("checkpoints/*.npz")) == expected
    with pytest.raises(UsageError, match="checkpoint_every must be at least 0"):
        Checkpoints(every=-1)


def written():
    """Return the number of bytes that this process has written to files so far."""
    return int(re.search(r"wchar: (\d+)", Path("/proc/self/io").read_text())[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "generations", [500, *(pytest.param(n, marks=pytest.mark.long) for n in (2_000, 20_000))]
)
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs /proc/self/io of Linux")
def test_a_long_host_run_writes_less_than_ten_times_the_size_of_its_results(generations, tmp_path):
    task = replace(TASK, evaluate=lambda keys, x: (-x.var(axis=1), x[:, :2]), jit=False)
    algorithm = memes.presets.memes(task, CELLS, lanes=2, samples=2, fifo_size=64)
    before = written()
    memes.run(algorithm, generations=generations, out=tmp_path / "run", progress=False)
    results = sum(file.stat().st_size for file in (tmp_path / "run").iterdir() if file.is_file())
    print(f"{written() - before} bytes written, {results} of them are the results")
    assert written() - before < 10 * results


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def commanded(tmp_path_factory):
    """A finished run that was started on the command line, and its configuration."""
    folder = tmp_path_factory.mktemp("commanded") / "run"
    words = ["--joints", "4", "--lanes", "2", "--samples", "4", "--generations", "2", "--quiet"]
    assert main(["run", "arm", *words, "--out", str(folder)]) == 0
    return folder, json.loads((folder / "config.json").read_text())


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_an_edited_configuration_gives_a_one_line_error_or_none(data, commanded, monkeypatch, capsys):
    """No run is continued, because the test replaces `run_all`."""
    folder, config = commanded
    monkeypatch.setattr("memes.api.run_all", lambda *arguments, **options: sys.exit(0))
    places = list(config) + [("options", name) for name in config["options"]]
    place = data.draw(st.sampled_from(places))
    table = edited = json.loads(json.dumps(config))
    if isinstance(place, tuple):
        table, place = edited["options"], place[1]
    del table[place]
    if data.draw(st.booleans()):
        table[place] = data.draw(JSON)
    (folder / "config.json").write_text(json.dumps(edited))
    try:
        code = main(["resume", str(folder), "--generations", "9", "--quiet"])
    except SystemExit as stopped:
        code = stopped.code
    printed = capsys.readouterr().err
    assert code == (2 if printed else 0)
    assert printed.count("\n") == (code == 2)
    assert str(folder) in printed or not printed
