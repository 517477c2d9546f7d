import csv
import json
import os
import shutil
import signal
import threading
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import jax
import numpy as np
import pytest

import memes
from folder_contents import contents
from memes.runner.observers import Checkpoints
from memes.store import policies
from memes.store.folder import CONTENT, load_metrics, remove_run
from memes.store.formats import FORMATS, export_run

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture(scope="module")
def optimised():
    return True


task = memes.tasks.arm(joints=4)
cells = memes.cells.grid(task, (10, 10))
algorithm = memes.presets.memes(task, cells, lanes=4, samples=8, stale_budget=2, fifo_size=64)
variation = memes.presets.me(task, cells, batch=4)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A short run in a folder."""
    out = tmp_path_factory.mktemp("runs") / "arm"
    return memes.run(algorithm, generations=21, seed=3, out=out, progress=False, metadata={"x": [1]})


@pytest.mark.parametrize("call_seconds", [0, 1e-3, 1e3])
@pytest.mark.parametrize("every", [0, 5])
def test_results_do_not_depend_on_device_calls_and_checkpoints(saved, tmp_path, call_seconds, every):
    other = memes.run(
        algorithm,
        generations=21,
        seed=3,
        out=tmp_path / "run",
        call_seconds=call_seconds,
        observers=[Checkpoints(every=every), memes.Figures(draw=False)],
        progress=False,
    )
    jax.tree.map(np.testing.assert_array_equal, other.state, saved.state)
    jax.tree.map(np.testing.assert_array_equal, other.lanes, saved.lanes)
    for name in set(saved.metrics) - {"seconds"}:
        np.testing.assert_array_equal(other.metrics[name], saved.metrics[name], name)


def test_a_host_simulator_agrees_with_the_compiled_task(saved):
    compiled = jax.jit(task.evaluate)

    def simulate(keys, x):
        assert isinstance(x, np.ndarray)
        return tuple(np.asarray(part) for part in compiled(keys, x)[:2])

    host = replace(task, evaluate=simulate, jit=False)
    on_host = memes.run(
        memes.presets.memes(host, cells, lanes=4, samples=8, stale_budget=2, fifo_size=64),
        generations=21,
        seed=3,
        progress=False,
    )
    np.testing.assert_allclose(on_host.metrics["qd_score"], saved.metrics["qd_score"], rtol=1e-5)
    np.testing.assert_array_equal(on_host.lanes["reset"], saved.lanes["reset"])
    np.testing.assert_array_equal(on_host.metrics["evaluations"], saved.metrics["evaluations"])


def test_the_metrics_file_contains_the_metrics(saved):
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


def test_metrics_agree_with_the_lanes(saved):
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


def test_load_run_returns_the_run(saved):
    """The elites and lanes of a loaded run are exact. Its metrics are exact to about nine digits."""
    read = memes.load_run(saved.folder)
    assert read.header == saved.header
    for part in ("archive", "lanes"):
        jax.tree.map(np.testing.assert_array_equal, getattr(read, part), getattr(saved, part))
    assert list(read.metrics) == list(saved.metrics)
    for name, column in saved.metrics.items():
        np.testing.assert_allclose(read.metrics[name], column, rtol=1e-8, err_msg=name)
    assert (read.folder, read.corrected, read.correction) == (saved.folder, {}, None)
    assert (read.state, read.generations) == (None, saved.generations)


def test_load_archive_returns_the_archive(saved):
    archive = memes.load_archive(saved.folder)
    jax.tree.map(np.testing.assert_array_equal, archive, saved.archive)


def test_a_tessellation_is_saved_and_loaded(tmp_path):
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


def test_settings_are_recorded_by_name(saved):
    config = json.loads((saved.folder / "config.json").read_text())
    expected = {
        "call_seconds": 1.0, "chunk": None, "seeds_per_batch": None, "seeds_together": 1,
        "checkpoint_every": None, "reevaluate_every": None, "reevaluate_samples": 512,
        "reevaluate_every_samples": None, "reevaluate_statistic": "median", "figures_draw": True,
        "generations_done": 21, "stopped": None,
    }  # fmt: skip
    assert {name: config.get(name, "nothing") for name in expected} == expected


def test_offspring_of_random_variation_are_not_lanes():
    result = memes.run(variation, generations=2, progress=False)
    assert result.lanes["fitness"].shape == (2, 0)
    assert result.metrics["share_variation"][-1] == 1


def test_a_folder_with_a_run_is_refused_and_unchanged(saved):
    before = {file: file.stat().st_mtime_ns for file in saved.folder.rglob("*")}
    with pytest.raises(memes.UsageError, match="out must not contain a run yet"):
        memes.run(algorithm, generations=2, out=saved.folder, progress=False)
    assert before == {file: file.stat().st_mtime_ns for file in saved.folder.rglob("*")}


def test_overwriting_replaces_only_the_files_of_the_run(saved, tmp_path):
    out = tmp_path / "run"
    quick = {"generations": 3, "progress": False, "observers": [memes.Figures(draw=False)]}
    memes.run(variation, out=out, overwrite=True, **quick)  # the folder does not exist yet
    (out / "notes.txt").write_text("mine")
    (out / "figures").mkdir()
    (out / "figures/curves.png").write_text("of the old run")
    (out / "corrected.csv").write_text("of the old run")
    for folder in ("checkpoints", "figures", "export/deeper"):
        (out / folder).mkdir(parents=True, exist_ok=True)
        (out / folder / "mine.txt").write_text("mine")
    again = memes.run(variation, out=out, overwrite=True, seed=1, **quick | {"generations": 2})
    assert {file.name for file in out.iterdir()} == {
        ".lock", "archive.npz", "changes.bin", "checkpoints", "config.json", "export", "figures",
        "lanes.npz", "metrics.csv", "notes.txt", "summary.json",
    }  # fmt: skip
    mine = {"notes.txt", "checkpoints/mine.txt", "figures/mine.txt", "export/deeper/mine.txt"}
    assert {(out / name).read_text() for name in mine} == {"mine"}
    assert not (out / "figures/curves.png").exists()
    assert max(file.name for file in out.glob("checkpoints/*.npz")) == "00000002.npz"
    read = memes.load_run(out)
    assert (read.config.seed, read.generations) == (1, 2)
    jax.tree.map(np.testing.assert_array_equal, read.archive, again.archive)


@pytest.mark.parametrize(
    ("files", "options", "sentence"),
    [
        ({"config.json": '{"format_version": 1}'}, {"generations": 0}, "generations must be at least 1"),
        (
            {"config.json": '{"learning_rate": 3}'},
            {},
            "config.json' is damaged or has the wrong format",
        ),
        ({"checkpoints/7.npz": ""}, {}, "out must not contain checkpoints of another run"),
        ({"changes.bin": "mine"}, {}, "contains '.*changes.bin' and no run"),
        ({"figures/curves.png": "mine"}, {}, "contains '.*figures/curves.png' and no run"),
        ({".lock": "of yarn"}, {}, "is not a lock file of memes"),
    ],
)
def test_a_wrong_use_overwrites_nothing(tmp_path, files, options, sentence):
    files = files | {"notes.csv": "mine", "figures/mine.png": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(memes.UsageError, match=sentence):
        memes.run(variation, **{"generations": 2, "overwrite": True, **options}, out=tmp_path)
    found = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert found == set(files)


def test_overwriting_keeps_files_of_the_user(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/mine.png").write_text("mine")
    memes.run(variation, generations=2, out=tmp_path, overwrite=True, progress=False)
    assert (tmp_path / "figures/mine.png").read_text() == "mine"


@pytest.mark.parametrize("out", ["/", "/..", "home", "home/run/..", "link", "."])
def test_the_root_and_the_home_folder_are_refused(out, tmp_path, monkeypatch):
    (tmp_path / "home/run").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home")
    monkeypatch.chdir(tmp_path)  # the parent of the home folder
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for given in ({"seed": 1}, {"seeds": [1]}, {"overwrite": True}):
        with pytest.raises(memes.UsageError, match="out must not be the root folder, the home folder"):
            memes.run(variation, generations=2, out=out, progress=False, **given)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_remove_run_removes_all_files_of_a_run(tmp_path):
    """`remove_run` removes exactly the files that a run or an export writes. The lock file remains."""
    out, uncertain = tmp_path / "run", memes.presets.me(memes.tasks.noisy_arm(joints=3), batch=4)
    observers = [memes.Corrections(samples=2), memes.Logger("tensorboard")]
    quick = {"out": out, "generations": 2, "progress": False}
    memes.run(uncertain, observers=observers, **quick)
    for form in FORMATS if find_spec("pyarrow") else ("csv", "npz", "tensorboard"):
        export_run(memes.load_run(out), form, out / "export")
    (out / "export" / policies.NAME).touch()
    assert {path.name for path in out.iterdir()} == {".lock", *CONTENT}
    remove_run(out)
    assert [path.name for path in out.iterdir()] == [".lock"]


def test_nothing_is_removed_if_config_json_is_not_that_of_a_run(tmp_path):
    for name in ("config.json", "metrics.csv"):
        (tmp_path / name).write_text('{"model": "mine"}')
    with pytest.raises(memes.UsageError, match=r"config.json' is damaged or has the wrong format"):
        remove_run(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "metrics.csv"}


def test_a_file_cannot_be_the_output_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(memes.UsageError, match="out must be a folder"):
            memes.run(
                algorithm, generations=2, out=tmp_path / "file", overwrite=overwrite, progress=False
            )
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "kind"), [("archive.npz", "file"), (".lock", "file"), ("figures", "folder")]
)
def test_a_run_is_not_replaced_where_a_new_one_could_not_be_written(name, kind, tmp_path):
    quick = partial(memes.run, variation, generations=2, out=tmp_path, progress=False)
    quick()
    if kind == "file":
        (tmp_path / name).unlink()
        (tmp_path / name).mkdir()
    else:
        shutil.rmtree(tmp_path / name)
        (tmp_path / name).touch()
    before = contents(tmp_path)
    with pytest.raises(memes.UsageError, match=rf"out: '.*{name}' must be a {kind}"):
        quick(overwrite=True)
    assert contents(tmp_path) == before


def test_a_folder_does_not_mix_different_runs_or_batches(tmp_path):
    quick = partial(memes.run, variation, generations=2, progress=False)
    quick(seeds=[0, 1, 2], out=tmp_path / "several")
    with pytest.raises(memes.UsageError, match="out must not contain other runs"):
        quick(out=tmp_path / "several")
    with pytest.raises(memes.UsageError, match=r"out: seed-2 in .* would not be overwritten"):
        quick(seeds=[0, 1], out=tmp_path / "several", overwrite=True)
    with pytest.raises(memes.UsageError, match=r"out must not contain other runs.*seed-0"):
        quick(out=tmp_path)  # the runs are two levels below this folder
    quick(seeds=[3], out=tmp_path / "several")
    quick(out=tmp_path / "one")
    with pytest.raises(memes.UsageError, match="out must not contain a run, but"):
        quick(seeds=[0], out=tmp_path / "one")
    for name in ("checkpoints", "export"):  # other commands write to these folders of a run
        with pytest.raises(memes.UsageError, match="out must not be a folder of another run"):
            quick(out=tmp_path / "one" / name)
    assert not (tmp_path / "one/export").exists()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"generations": 0}, "generations must be at least 1, got 0"),
        ({"call_seconds": -1}, "call_seconds must be at least 0, got -1"),
        ({"call_seconds": float("nan")}, "call_seconds must be at least 0, got nan"),
        ({"call_seconds": "1"}, "call_seconds must be float, got '1'"),
        ({"seed": 2**32}, "seed must lie in"),
        ({"seeds": []}, "seeds must contain at least one seed, got none"),
        ({"seeds": [1, 1]}, "seeds must differ, got 1, 1"),
        ({"seeds": [-1]}, "seed must lie in"),
        ({"seeds_per_batch": 0}, "seeds_per_batch must be at least 1"),
        ({"observers": [3]}, "observers must each have a method watch, got 3"),
        ({"observers": [Checkpoints]}, "observers must each have a method watch, got <class"),
        ({"generatoins": 3}, "unknown argument of run 'generatoins': did you mean 'generations'?"),
    ],
)
def test_wrong_arguments_are_named_and_write_nothing(wrong, sentence, tmp_path):
    with pytest.raises(memes.UsageError) as error:
        memes.run(algorithm, **{"generations": 3, "out": tmp_path / "run", **wrong}, progress=False)
    assert sentence in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_history_of_everything_has_the_length_of_the_run():
    small = memes.presets.memes(task, cells, lanes=4, samples=8, explore="everything")
    history = memes.run(small, generations=6, progress=False).state.history
    assert history.capacity == 6 * 4
    assert int(history.size) > 5 * 4


def test_a_task_of_the_wrong_shape_writes_nothing(tmp_path):
    wrong = replace(task, evaluate=lambda keys, x: (x, x[:, :2]))
    with pytest.raises(memes.UsageError, match="fitness of shape"):
        memes.run(memes.presets.memes(wrong), generations=2, out=tmp_path / "run", progress=False)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_saves_the_completed_generations(tmp_path):
    """The simulator sends Ctrl-C during the third generation."""
    calls = 0

    def simulate(keys, x):
        nonlocal calls
        calls += 1
        if calls == 4:  # the first call checks shapes
            os.kill(os.getpid(), signal.SIGINT)
        return np.zeros(len(x)), np.full((len(x), 2), 0.5)

    host = replace(task, evaluate=simulate, jit=False)
    result = memes.run(
        memes.presets.me(host, cells, batch=4),
        generations=100,
        out=tmp_path / "run",
        call_seconds=0,
        progress=False,
    )
    assert result.metrics["generation"][-1] == 3
    assert load_metrics(tmp_path / "run/metrics.csv")["generation"].tolist() == [1, 2, 3]
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert (config["generations_done"], config["stopped"]) == (3, "SIGINT")
    assert (tmp_path / "run/archive.npz").exists()


def test_values_that_json_does_not_support_are_converted(tmp_path):
    odd = replace(task, min_fitness=np.float32(-1))
    chosen = memes.presets.me(odd, cells, batch=4)
    out = tmp_path / "run"
    memes.run(chosen, generations=1, out=out, progress=False, metadata={"path": out})
    config = json.loads((out / "config.json").read_text())
    assert (config["min_fitness"], config["path"]) == (-1.0, str(out))


def test_a_run_works_outside_the_main_thread():
    results = []
    thread = threading.Thread(
        target=lambda: results.append(memes.run(variation, generations=2, progress=False))
    )
    thread.start()
    thread.join()
    assert results[0].metrics["generation"][-1] == 2


def test_runs_and_archives_have_reprs_of_one_line(saved):
    folder = saved.folder
    assert repr(saved) == repr(memes.load_run(folder))
    assert repr(saved).startswith(f"<Run: memes on arm, seed 3 in '{folder}', 21 generations, QD-score ")
    assert "\n" not in repr(saved)
    elites = int(saved.archive.occupied.sum())
    assert repr(saved.archive).startswith(f"Archive({elites} elites of 100 cells")
    jax.jit(lambda archive: print(archive) or archive.fitness)(saved.archive)


@pytest.mark.parametrize("evaluations", [16, 17, 63, 64])
def test_a_budget_of_evaluations_is_rounded_down_to_whole_generations(evaluations):
    task = memes.tasks.arm(joints=4)
    by_number = memes.run(memes.presets.me(task, batch=16), evaluations=evaluations, progress=False)
    assert by_number.generations == evaluations // 16
    assert evaluations - 16 < by_number.metrics["evaluations"][-1] <= evaluations
    same = memes.run(memes.presets.me(task, batch=16), generations=evaluations // 16, progress=False)
    jax.tree.map(np.testing.assert_array_equal, by_number.archive, same.archive)


def test_a_budget_of_evaluations_may_exceed_the_limit_of_other_options():
    class Stop:
        def watch(self, context):
            return memes.Callbacks(on_update=lambda update: context.stop("enough"))

    algorithm = memes.presets.me(memes.tasks.arm(joints=4), batch=16)
    run = memes.run(algorithm, evaluations=10**9, observers=[Stop()], progress=False)
    assert run.config.generations == 10**9 // 16
    assert run.generations < 10


def test_a_budget_of_evaluations_counts_repeated_evaluations():
    algorithm = memes.presets.me_sampling(memes.tasks.noisy_arm(joints=4), batch=4, resamples=8)
    run = memes.run(algorithm, evaluations=100, progress=False, observers=[memes.Corrections(every=0)])
    assert (run.generations, run.metrics["evaluations"][-1]) == (3, 96)


@pytest.mark.parametrize(
    ("length", "sentence"),
    [
        ({}, "give one of them, such as generations=1000"),
        ({"generations": 3, "evaluations": 100}, "give one of them, not both"),
        ({"evaluations": 15}, r"at least 16 \(one generation of me\), got 15"),
        ({"evaluations": 0.5}, "evaluations must be int"),
    ],
)
def test_wrong_lengths_of_a_run_are_refused(length, sentence):
    algorithm = memes.presets.me(memes.tasks.arm(joints=4), batch=16)
    with pytest.raises(memes.UsageError, match=sentence):
        memes.run(algorithm, **length)
