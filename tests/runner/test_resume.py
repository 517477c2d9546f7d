"""Runs that are killed and resumed end as if nothing had happened."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
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
from memes.store import checkpoint, files
from memes.store.files import only_writer
from memes.store.folder import load_metrics

TASK = memes.tasks.arm(joints=4)
CELLS = memes.cells.grid(TASK, (10, 10))
OPTIONS = {"generations": 12, "generations_per_call": 2, "seed": 3, "progress": False}


pytestmark = pytest.mark.usefixtures("compiled_once", "no_figures")


@pytest.fixture(scope="module")
def algorithm():
    return memes.presets.memes(TASK, CELLS, lanes=4, samples=8, stale_budget=2, fifo_size=64)


@pytest.fixture(scope="module")
def whole(algorithm, tmp_path_factory):
    """A run that nobody disturbed."""
    return memes.run(algorithm, out=tmp_path_factory.mktemp("whole") / "run", **OPTIONS)


class Killed(BaseException):
    """As sudden as a signal: nothing in the library catches it."""


def assert_equal_runs(one: Path, other: Path) -> None:
    for name in ("archive.npz", "lanes.npz"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    rows = [file.read_text().splitlines() for file in (one / "metrics.csv", other / "metrics.csv")]
    header = rows[0][0].split(",")
    seconds = header.index("seconds")
    for a, b in zip(*rows, strict=True):
        assert [x for i, x in enumerate(a.split(",")) if i != seconds] == [
            x for i, x in enumerate(b.split(",")) if i != seconds
        ]


def killed_after(writes, monkeypatch, algorithm, out, *, half_written=False, **options):
    """A run that is killed just before, or in the middle of, its n-th file."""
    left = [writes]
    original = files.os.replace

    def replace(source, target):
        if left[0] == 0:
            if half_written:
                Path(source).write_bytes(Path(source).read_bytes()[:-100])
            raise Killed
        left[0] -= 1
        original(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "replace", replace)
        with pytest.raises(Killed):
            memes.run(algorithm, out=out, **OPTIONS, **options)
    return left[0]


# A run writes its configuration, a checkpoint a call (or fewer), and in the end lanes, archive and more.
@pytest.mark.parametrize("writes", [1, 2, 3, 5])
@pytest.mark.parametrize("half_written", [False, True])
def test_a_run_killed_while_it_writes_a_file_ends_the_same(
    algorithm, whole, tmp_path, monkeypatch, writes, half_written
):
    out = tmp_path / "run"
    killed_after(writes, monkeypatch, algorithm, out, half_written=half_written)
    resumed = memes.resume(algorithm, out, progress=False)
    assert_equal_runs(whole.folder, out)
    jax.tree.map(np.testing.assert_array_equal, resumed.state, whole.state)
    assert not list(out.rglob("*.tmp"))


def test_a_run_killed_between_the_rows_of_its_log_ends_the_same(algorithm, whole, tmp_path, monkeypatch):
    from memes.store.folder import MetricsWriter

    calls = [0]
    original = MetricsWriter.write

    def write(self, columns):
        calls[0] += 1
        if calls[0] == 4:
            self._file.write("7,1234,0.")  # half a row
            self._file.flush()
            raise Killed
        original(self, columns)

    with monkeypatch.context() as patched:
        patched.setattr(MetricsWriter, "write", write)
        with pytest.raises(Killed):
            memes.run(algorithm, out=tmp_path / "run", **OPTIONS)
    memes.resume(algorithm, tmp_path / "run", progress=False)
    assert_equal_runs(whole.folder, tmp_path / "run")


SMALL = {
    "lanes": 2, "samples": 4, "batch": 6, "stale_budget": 2, "every": 3, "population_size": 3,
    "resamples": 2, "pool": 3, "num_critic_training_steps": 4, "gradient_steps": 2,
    "replay_size": 300, "transitions_batch": 8, "critic_hidden": (4,), "generations": 12,
}  # fmt: skip


def hostile(task):
    """The task, a tenth of whose rows are not a number, infinite or of absurd size."""

    def poisoned(evaluate):
        def evaluate_badly(keys, x):
            found = evaluate(keys, x)
            drawn = jax.random.key_data(keys)[:, 0] % 30  # as random as numbers drawn with the keys
            nonsense = jnp.array([jnp.nan, -jnp.inf, 1e30])[drawn % 3]
            bad = drawn < 3

            def replaced(leaf):
                if not jnp.issubdtype(leaf.dtype, jnp.floating):
                    return leaf
                shape = (-1,) + (1,) * (leaf.ndim - 1)
                return jnp.where(bad.reshape(shape), nonsense.reshape(shape), leaf)

            return jax.tree.map(replaced, found)

        return evaluate and evaluate_badly

    transitions = poisoned(task.evaluate_transitions)
    return replace(task, evaluate=poisoned(task.evaluate), evaluate_transitions=transitions)


def assert_sound(state, task):
    """No nonsense in the archive, the history, or whatever the emitters compute with."""
    elites = np.asarray(state.archive.occupied)
    assert elites.any()
    kept = [leaf[elites] for leaf in state.archive[1:]], state.history
    for leaf in map(np.asarray, jax.tree.leaves(kept)):
        assert (np.abs(leaf) < LIMIT).all()
    for leaf in map(np.asarray, jax.tree.leaves(state.emitter)):
        # The feature of a parent is unknown, NaN, where there is none.
        unknown = np.isnan(leaf) & (leaf.shape[-1:] == (task.feature_dim,))
        assert (unknown | (np.abs(leaf) < LIMIT)).all()


@pytest.mark.slow
@pytest.mark.parametrize("preset", memes.PRESETS)
def test_every_algorithm_resumes_exactly_and_keeps_nonsense_out(preset, tmp_path, monkeypatch):
    import inspect

    build = memes.PRESETS[preset].build
    task = hostile(memes.tasks.point_maze(steps=4, hidden=(3,)) if preset == "pga-me" else TASK)
    accepted = inspect.signature(build).parameters
    options = {name: value for name, value in SMALL.items() if name in accepted}
    algorithm = build(task, memes.cells.grid(task, (8, 8)), **options)
    programs = {}  # compiled once for all three
    whole = memes.run(algorithm, out=tmp_path / "whole", programs=programs, **OPTIONS)
    assert_sound(whole.state, task)
    assert sum(whole.metrics[f"faults_{fault}"][-1] for fault in ("nan", "infinite", "absurd")) > 0
    killed_after(3, monkeypatch, algorithm, tmp_path / "cut", programs=programs)
    memes.resume(algorithm, tmp_path / "cut", programs=programs, progress=False)
    assert_equal_runs(tmp_path / "whole", tmp_path / "cut")


def command(*words):
    return [sys.executable, "-m", "memes.commands.main", *map(str, words)]


ARGUMENTS = (
    "run", "arm", "--joints", 20, "--lanes", 4, "--samples", 16, "--generations", 1200,
    "--generations-per-call", 10, "--quiet",
)  # fmt: skip


@pytest.mark.slow
def test_a_process_killed_at_random_moments_ends_with_the_same_bytes(tmp_path):
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
        if kills < 3:
            before = set(cut.glob("checkpoints/*"))
            while process.poll() is None and set(cut.glob("checkpoints/*")) <= before:
                time.sleep(0.002)
            time.sleep(moments.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        kills += 1
        words = ["resume", cut, "--quiet"]
    assert kills == 3
    assert_equal_runs(tmp_path / "whole", cut)


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_everything_saved_and_resume_goes_on(
    algorithm, whole, tmp_path, monkeypatch, which
):
    from memes.store.folder import MetricsWriter

    calls = [0]
    original = MetricsWriter.write

    def write(self, columns):
        original(self, columns)
        calls[0] += 1
        if calls[0] == 2:
            os.kill(os.getpid(), which)

    with monkeypatch.context() as patched:
        patched.setattr(MetricsWriter, "write", write)
        stopped = memes.run(algorithm, out=tmp_path / "run", **OPTIONS)
    assert 4 <= len(stopped.metrics["generation"]) < 12
    assert memes.load_run(tmp_path / "run").config["generations_done"] < 12
    memes.resume(algorithm, tmp_path / "run", progress=False)
    assert_equal_runs(whole.folder, tmp_path / "run")


def test_a_finished_run_goes_on_only_for_longer(algorithm, whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.folder, out)
    with pytest.raises(UsageError, match="generations must be more than the 12"):
        memes.resume(algorithm, out, progress=False)
    longer = memes.resume(algorithm, out, generations=16, progress=False)
    again = memes.run(algorithm, **OPTIONS | {"generations": 16})
    jax.tree.map(np.testing.assert_array_equal, longer.state, again.state)
    np.testing.assert_array_equal(load_metrics(out / "metrics.csv")["generation"], np.arange(1, 17))


def test_a_history_that_keeps_everything_makes_room_for_more(tmp_path):
    """One run goes on for longer than it was meant to, and ends as one that was meant to be so long."""

    algorithm = memes.presets.ns_es(TASK, CELLS, population_size=2, samples=4, neighbours=3)
    memes.run(algorithm, out=tmp_path / "cut", **OPTIONS | {"generations": 4})
    memes.resume(algorithm, tmp_path / "cut", generations=8, progress=False)
    memes.run(algorithm, out=tmp_path / "whole", **OPTIONS | {"generations": 8})
    assert_equal_runs(tmp_path / "whole", tmp_path / "cut")


def test_a_run_does_not_go_back_behind_its_checkpoint(algorithm, tmp_path, monkeypatch):
    killed_after(4, monkeypatch, algorithm, tmp_path / "run")
    with pytest.raises(UsageError, match=r"generations must be at least the \d+ of the last checkpoint"):
        memes.resume(algorithm, tmp_path / "run", generations=1, progress=False)


def test_another_algorithm_does_not_go_on_with_a_run(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.folder, out)
    other = memes.presets.memes(TASK, CELLS, lanes=4, samples=8, stale_budget=3, fifo_size=64)
    with pytest.raises(UsageError, match=r"stale_budget of the run in .* is 2, got 3"):
        memes.resume(other, out, generations=20)
    with pytest.raises(UsageError, match=r"algorithm of the run in .* is memes, got me"):
        memes.resume(memes.presets.me(TASK, CELLS, batch=36), out, generations=20)
    with pytest.raises(UsageError, match="does not hold a run"):
        memes.resume(other, tmp_path)


def test_a_second_writer_is_refused_and_a_dead_one_is_no_obstacle(algorithm, whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.folder, out)
    (out / ".lock").write_text("12345\n")  # left by a process that is gone
    refused = pytest.raises(UsageError, match=rf"another process \({os.getpid()}\) is writing")
    with only_writer(out), refused:
        memes.resume(algorithm, out, generations=14)
    memes.resume(algorithm, out, generations=14, progress=False)


def test_children_of_a_dead_writer_do_not_keep_its_lock(tmp_path):
    script = """
import os, pathlib, time
from memes.store.files import only_writer
started, start = os.pipe()
with only_writer(pathlib.Path('.')):
    child = os.fork()
    if child == 0:
        os.write(start, b'!')
        time.sleep(60)
        os._exit(0)
    os.read(started, 1)
try:
    with only_writer(pathlib.Path('.')):
        print('locked again')
finally:
    os.kill(child, 9)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "locked again\n", done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_without_room_for_the_log_ends_the_run_with_a_sentence(algorithm, whole, tmp_path):
    (tmp_path / "metrics.csv").symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"cannot write to .*: No space left on device; 'memes resume"):
        memes.run(algorithm, out=tmp_path, **OPTIONS)
    (tmp_path / "metrics.csv").unlink()
    memes.resume(algorithm, tmp_path, progress=False)
    assert_equal_runs(whole.folder, tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_ends_the_run_with_a_sentence_and_a_checkpoint(
    algorithm, whole, tmp_path, monkeypatch, code
):
    out, left = tmp_path / "run", [3]
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


def test_no_checkpoints_if_none_are_wanted_and_as_often_as_wanted(algorithm, tmp_path):
    for every, expected in ((0, []), (4, ["00000008.npz", "00000012.npz"])):
        out = tmp_path / str(every)
        memes.run(algorithm, out=out, checkpoint_every=every, **OPTIONS)
        assert sorted(file.name for file in out.glob("checkpoints/*")) == expected
    with pytest.raises(UsageError, match="checkpoint_every must be at least 0"):
        memes.run(algorithm, out=tmp_path / "x", checkpoint_every=-1, **OPTIONS)
    assert not (tmp_path / "x").exists()


@pytest.fixture(scope="module")
def checkpoints(whole):
    """The two checkpoints of the run, oldest first, as bytes by name."""
    return {f.name: f.read_bytes() for f in sorted(whole.folder.glob("checkpoints/*.npz"))}


def loaded(folder, algorithm, whole):
    from memes.runner.loop import _identity
    from memes.store.folder import load_config

    said = []
    like = jax.eval_shape(algorithm.init, jax.random.key(0))
    return checkpoint.load(folder, like, _identity(load_config(whole.folder)), said.append), said


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_checkpoint_is_left_out_for_the_one_before(
    data, algorithm, whole, checkpoints, tmp_path
):
    folder = tmp_path / "checkpoints"
    folder.mkdir(exist_ok=True)
    older, newest = checkpoints
    (folder / older).write_bytes(checkpoints[older])
    good = checkpoints[newest]
    if data.draw(st.booleans()):
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    else:
        place = data.draw(st.integers(0, len(good) - 1))
        bad = good[:place] + bytes([good[place] ^ data.draw(st.integers(1, 255))]) + good[place + 1 :]
    (folder / newest).write_bytes(bad)
    found, said = loaded(tmp_path, algorithm, whole)
    assert found is not None
    if said:
        assert newest in said[0]
        assert found.history.generation == int(Path(older).stem)
    else:  # a byte that nobody reads
        (folder / newest).write_bytes(good)
        expected, _ = loaded(tmp_path, algorithm, whole)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_an_edited_checkpoint_is_left_out_as_well(algorithm, whole, checkpoints, tmp_path):
    """As one that somebody wrote with the right tools; its checksums are right."""
    shutil.copytree(whole.folder / "checkpoints", tmp_path / "checkpoints")
    older, newest = checkpoints
    with np.load(tmp_path / "checkpoints" / newest) as data:
        arrays = dict(data)
    arrays["columns/qd_score"] = arrays["columns/qd_score"] + 1
    np.savez(tmp_path / "checkpoints" / newest, **arrays)
    found, said = loaded(tmp_path, algorithm, whole)
    assert found.history.generation == int(Path(older).stem)
    assert "does not hold what was written; looking for an older checkpoint" in said[0]
    (tmp_path / "checkpoints" / older).unlink()
    with pytest.raises(UsageError, match=r"no checkpoint in .* can be read"):
        loaded(tmp_path, algorithm, whole)


def test_a_checkpoint_of_another_run_or_of_the_future_is_named(algorithm, whole, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(whole.folder / "checkpoints", folder)
    like = jax.eval_shape(algorithm.init, jax.random.key(0))
    with pytest.raises(UsageError, match="of another run"):
        checkpoint.load(tmp_path, like, "something else", print)
    newest = max(folder.glob("*.npz"))
    with np.load(newest) as data:
        arrays = dict(data)
    arrays["about"] = np.array(
        str(arrays["about"]).replace('"format_version": 1', '"format_version": 9')
    )
    np.savez(newest, **arrays)
    with pytest.raises(UsageError, match="format version 9, newer than this"):
        loaded(tmp_path, algorithm, whole)


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_files_of_a_run_are_named_in_one_sentence(data, whole, tmp_path):
    folder = tmp_path / "run"
    if not folder.exists():
        shutil.copytree(whole.folder, folder)
    name = data.draw(st.sampled_from(["config.json", "metrics.csv", "lanes.npz", "archive.npz"]))
    good = (whole.folder / name).read_bytes()
    kind = data.draw(st.sampled_from(["truncated", "changed", "missing", "replaced"]))
    if kind == "truncated":
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    elif kind == "changed":
        place = data.draw(st.integers(0, len(good) - 1))
        bad = good[:place] + bytes([good[place] ^ data.draw(st.integers(1, 255))]) + good[place + 1 :]
    else:
        bad = data.draw(st.binary(max_size=200))
    (folder / name).write_bytes(bad)
    if kind == "missing":
        (folder / name).unlink()
    said = f"{name} is read all the same"
    try:
        memes.load_run(folder)
    except UsageError as error:
        said = str(error)
    finally:
        (folder / name).write_bytes(good)
    assert name in said or "does not hold a run" in said
    assert "\n" not in said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def commanded(tmp_path_factory):
    """A finished run of the command, and its configuration."""
    folder = tmp_path_factory.mktemp("commanded") / "run"
    words = ["--joints", "4", "--lanes", "2", "--samples", "4", "--generations", "2", "--quiet"]
    assert main(["run", "arm", *words, "--out", str(folder)]) == 0
    return folder, json.loads((folder / "config.json").read_text())


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_an_edited_configuration_is_named_in_one_sentence(data, commanded, monkeypatch, capsys):
    """Or does no harm: then the run begins to go on, which is as far as this goes."""
    folder, config = commanded
    monkeypatch.setattr("memes.runner.loop._run", lambda *arguments: sys.exit(0))
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
        code = main(["resume", str(folder), "--generations", "9"])
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr().err
    assert code == (2 if said else 0)
    assert said.count("\n") == (code == 2)
    assert str(folder) in said or not said
