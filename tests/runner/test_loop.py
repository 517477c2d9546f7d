import csv
import io
import json
import os
import signal
import threading

import jax
import numpy as np
import pytest
from rich.console import Console

import memes
from memes.runner import device as programs
from memes.runner import loop
from memes.runner.progress import Reporter
from memes.store.folder import load_metrics


@pytest.fixture(scope="module")
def optimised():
    return True


task = memes.tasks.arm(joints=4)
cells = memes.cells.grid(task, (10, 10))
algorithm = memes.presets.memes(task, cells, lanes=4, samples=8, stale_budget=2, fifo_size=64)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A short run in a folder."""
    out = tmp_path_factory.mktemp("runs") / "arm"
    return memes.run(algorithm, generations=21, seed=3, out=out, progress=False, settings={"x": [1]})


def test_results_do_not_depend_on_how_the_run_is_cut(saved):
    for per_call in (1, 5, 21):
        other = memes.run(
            algorithm, generations=21, seed=3, progress=False, generations_per_call=per_call
        )
        jax.tree.map(np.testing.assert_array_equal, other.state, saved.state)
        jax.tree.map(np.testing.assert_array_equal, other.lanes, saved.lanes)
        for name in set(saved.metrics) - {"seconds"}:
            np.testing.assert_array_equal(other.metrics[name], saved.metrics[name], name)


def test_a_host_simulator_gives_what_the_compiled_task_gives(saved):
    compiled = jax.jit(task.evaluate)

    def simulate(keys, x):
        assert isinstance(x, np.ndarray)
        return tuple(np.asarray(part) for part in compiled(keys, x)[:2])

    host = memes.Task(**{**vars(task), "evaluate": simulate, "jit": False})
    on_host = memes.run(
        memes.presets.memes(host, cells, lanes=4, samples=8, stale_budget=2, fifo_size=64),
        generations=21,
        seed=3,
        progress=False,
    )
    np.testing.assert_allclose(on_host.metrics["qd_score"], saved.metrics["qd_score"], rtol=1e-5)
    np.testing.assert_array_equal(on_host.lanes["reset"], saved.lanes["reset"])
    np.testing.assert_array_equal(on_host.metrics["evaluations"], saved.metrics["evaluations"])


def test_the_metrics_file_holds_the_metrics(saved):
    read = load_metrics(saved.folder / "metrics.csv")
    assert list(read) == list(saved.metrics)
    for name, column in saved.metrics.items():
        np.testing.assert_allclose(read[name], column, rtol=1e-7, err_msg=name)
    required = {"generation", "evaluations", "qd_score", "coverage", "max_fitness", "seconds"}
    assert required <= set(read)
    np.testing.assert_array_equal(read["generation"], np.arange(1, 22))
    np.testing.assert_array_equal(read["evaluations"], 36 * np.arange(1, 22))
    assert (np.diff(read["seconds"]) > 0).all()
    assert (np.diff(read["qd_score"]) >= 0).all()
    with (saved.folder / "metrics.csv").open() as file:
        assert all(len(row) == len(read) for row in csv.reader(file))


def test_metrics_follow_from_the_lanes(saved):
    lanes, metrics = saved.lanes, saved.metrics
    for code, kind in enumerate(("exploit", "explore")):
        reset = (lanes["reset"] > 0) & (lanes["kind"] == code)
        spans = [lanes["age"][: g + 1][reset[: g + 1]] for g in range(21)]
        expected = [span.mean() if span.size else np.nan for span in spans]
        np.testing.assert_allclose(metrics[f"lifespan_{kind}"], expected)
        added = ((lanes["status"] > 0) & (lanes["kind"] == code)).sum(axis=1)
        np.testing.assert_array_equal(metrics[f"added_{kind}"], added)
    np.testing.assert_array_equal(metrics["resets_stale"], np.cumsum((lanes["reset"] == 1).sum(axis=1)))
    shares = [metrics[f"share_{kind}"] for kind in ("exploit", "explore", "variation")]
    np.testing.assert_allclose(np.sum(shares, axis=0), 1)
    distance = np.linalg.norm(lanes["feature"] - lanes["parent_feature"], axis=-1)
    for code, kind in enumerate(("exploit", "explore")):
        seen = (lanes["kind"] == code) & lanes["offered"] & np.isfinite(distance)
        expected = [distance[g][seen[g]].mean() if seen[g].any() else np.nan for g in range(21)]
        np.testing.assert_allclose(metrics[f"parent_distance_{kind}"], expected, rtol=1e-5)


def test_an_archive_is_loaded_in_one_line(saved):
    archive = memes.load_archive(saved.folder)
    jax.tree.map(np.testing.assert_array_equal, archive, saved.archive)


def test_a_tessellation_survives_saving(tmp_path):
    tessellation = memes.cells.cvt(jax.random.key(0), task, 20, points=500)
    chosen = memes.presets.me(task, tessellation, batch=16)
    result = memes.run(chosen, generations=2, out=tmp_path / "cvt", progress=False)
    archive = memes.load_archive(tmp_path / "cvt" / "archive.npz")
    jax.tree.map(np.testing.assert_array_equal, archive, result.archive)


def test_the_folder_is_complete_and_readable_without_the_library(saved):
    config = json.loads((saved.folder / "config.json").read_text())
    assert config["format_version"] == 1
    assert config["seed"] == 3
    assert config["generations"] == 21
    assert config["x"] == [1]
    assert {"versions", "device", "precision", "git_commit", "started", "finished"} <= set(config)
    with np.load(saved.folder / "archive.npz", allow_pickle=False) as file:
        assert file["genotypes"].shape == (len(file["cell"]), task.dim)
        assert len(file["cell"]) == int(saved.archive.occupied.sum())
    with np.load(saved.folder / "lanes.npz", allow_pickle=False) as file:
        assert file["fitness"].shape == (21, 4)
        assert file["kinds"].tolist() == ["exploit", "explore", "variation"]
    for picture in ("archive", "curves"):
        assert (saved.folder / f"figures/{picture}.png").read_bytes().startswith(b"\x89PNG")


def test_offspring_of_random_variation_are_not_lanes():
    result = memes.run(memes.presets.me(task, cells, batch=16), generations=2, progress=False)
    assert result.lanes["fitness"].shape == (2, 0)
    assert result.metrics["share_variation"][-1] == 1


def test_a_folder_that_holds_a_run_is_refused_and_left_alone(saved):
    before = {file: file.stat().st_mtime_ns for file in saved.folder.rglob("*")}
    with pytest.raises(memes.UsageError, match="out must not hold a run yet"):
        memes.run(algorithm, generations=2, out=saved.folder, progress=False)
    assert before == {file: file.stat().st_mtime_ns for file in saved.folder.rglob("*")}


def test_a_file_cannot_be_the_output_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(memes.UsageError, match="out must be a folder"):
        memes.run(algorithm, generations=2, out=tmp_path / "file", progress=False)


@pytest.mark.parametrize("name", ["generations", "generations_per_call"])
def test_wrong_lengths_are_named(name):
    with pytest.raises(memes.UsageError, match=f"{name} must be at least 1, got 0"):
        memes.run(algorithm, **{"generations": 3, name: 0}, progress=False)


def test_a_history_that_keeps_everything_fits_the_run():
    small = memes.presets.memes(task, cells, lanes=4, samples=8, explore="everything")
    history = memes.run(small, generations=6, progress=False).state.history
    assert history.capacity == 6 * 4
    assert int(history.size) > 5 * 4


def test_a_task_of_the_wrong_shape_writes_nothing(tmp_path):
    wrong = memes.Task(**{**vars(task), "evaluate": lambda keys, x: (x, x[:, :2])})
    with pytest.raises(memes.UsageError, match="fitness of shape"):
        memes.run(memes.presets.memes(wrong), generations=2, out=tmp_path / "run", progress=False)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_saves_what_was_computed(tmp_path):
    """Ctrl-C, sent by the simulator itself in its third generation."""
    calls = 0

    def simulate(keys, x):
        nonlocal calls
        calls += 1
        if calls == 4:  # the check of shapes is the first call
            os.kill(os.getpid(), signal.SIGINT)
        return np.zeros(len(x)), np.full((len(x), 2), 0.5)

    host = memes.Task(**{**vars(task), "evaluate": simulate, "jit": False})
    result = memes.run(
        memes.presets.me(host, cells, batch=4),
        generations=100,
        out=tmp_path / "run",
        progress=False,
    )
    assert result.metrics["generation"][-1] == 3
    assert load_metrics(tmp_path / "run/metrics.csv")["generation"].tolist() == [1, 2, 3]
    assert json.loads((tmp_path / "run/config.json").read_text())["generations_done"] == 3
    assert (tmp_path / "run/archive.npz").exists()


def test_the_pace_of_a_resumed_run_is_its_own(monkeypatch):
    clock, text = [100.0], io.StringIO()
    monkeypatch.setattr("memes.runner.progress.time.perf_counter", lambda: clock[0])
    report = Reporter(400, show=True, console=Console(file=text, width=200))
    report.begin(100, 1000)
    clock[0] += 10.0
    report.update(200, 1.0, 0.5, 3000)
    assert "200 evaluations/s  ETA 20 s" in text.getvalue()


def test_interrupts_are_heard_while_the_device_computes():
    """The first is noted, the second ends the wait, for a device that would never be ready."""

    class Busy:
        def is_ready(self):
            return False

    said = []
    # A shell that starts the tests in the background has them ignore Ctrl-C.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts = [threading.Timer(s, os.kill, (os.getpid(), signal.SIGINT)) for s in (0.05, 0.3)]
    with loop._interruptible(said.append, "stopping") as interrupted:
        for interrupt in interrupts:
            interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            loop._wait([Busy()])
        assert interrupted()
    signal.signal(signal.SIGINT, inherited)
    assert len(said) == 1


def test_the_host_is_free_while_the_device_computes(monkeypatch, tmp_path):
    """It gets to waiting, by way of the copy for a checkpoint, before the first call is done."""
    ready = []
    wait = loop._wait

    def look_and_wait(record):
        ready.append(jax.tree.leaves(record)[-1].is_ready())
        wait(record)

    monkeypatch.setattr(loop, "_wait", look_and_wait)
    monkeypatch.setattr("memes.analysis.figures.draw_run", lambda path: [])
    slow = memes.presets.me(memes.tasks.arm(joints=200), batch=1024)
    options = {"generations": 60, "generations_per_call": 30, "progress": False}
    memes.run(slow, out=tmp_path / "run", **options)
    assert ready[0] is False


@pytest.mark.parametrize("generations", [1, 40, 1009, 2000])
@pytest.mark.parametrize("per_call", [None, 7])
@pytest.mark.parametrize("every", [None, 0, 1, 60, 101])
def test_calls_of_the_device_end_at_checkpoints_and_are_long(generations, per_call, every):
    lengths = programs.calls(generations, per_call, every)
    assert sum(lengths) == generations
    ends = set(np.cumsum(lengths))
    assert set(range(every or generations, generations, every or generations)) <= ends
    assert len(set(lengths)) <= 3
    size = per_call or min(100, -(-generations // 50))
    assert max(lengths) <= size
    assert max(lengths) >= min(size, every or size, generations) / 2
    assert programs.remaining(lengths, sum(lengths[:2])) == lengths[2:]


def test_what_json_does_not_know_is_written_all_the_same(tmp_path):
    odd = memes.Task(**{**vars(task), "min_fitness": np.float32(-1)})
    chosen = memes.presets.me(odd, cells, batch=4)
    out = tmp_path / "run"
    memes.run(chosen, generations=1, out=out, progress=False, settings={"path": out})
    config = json.loads((out / "config.json").read_text())
    assert (config["min_fitness"], config["path"]) == (-1.0, str(out))


def test_a_run_works_outside_the_main_thread():
    results = []
    chosen = memes.presets.me(task, cells, batch=4)
    thread = threading.Thread(
        target=lambda: results.append(memes.run(chosen, generations=2, progress=False))
    )
    thread.start()
    thread.join()
    assert results[0].metrics["generation"][-1] == 2
