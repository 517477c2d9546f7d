import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memes
from memes import UsageError
from memes.analysis.groups import group
from memes.archive import empty
from memes.estimates import Correction
from memes.store import summary as summaries
from memes.store.archives import save_correction
from memes.store.find import find, load_all
from memes.store.folder import load_run
from memes.store.summary import load_summary, save_summary, summarise

TASK = memes.tasks.arm(joints=4)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a short run that has many resets."""
    cells = memes.cells.grid(TASK, (6, 5))
    algorithm = memes.presets.memes(TASK, cells, lanes=4, samples=8, stale_budget=2, fifo_size=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memes.analysis.end_of_run.save_figures", lambda run: [])
        return memes.run(
            algorithm, generations=230, seed=3, out=tmp_path_factory.mktemp("runs") / "a", progress=False
        )


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of the run folder that a test may change."""
    return shutil.copytree(saved.folder, tmp_path / "copy")


def assert_equal(one, other):
    assert one._fields == other._fields
    for name in one._fields:
        np.testing.assert_equal(getattr(one, name), getattr(other, name), name)


def test_the_summary_of_a_run_is_saved_and_loaded(saved, tmp_path):
    made = summarise(load_run(saved.folder))
    assert_equal(load_summary(saved.folder / "summary.json"), made)
    save_summary(tmp_path / "again.json", made)
    assert (tmp_path / "again.json").read_bytes() == (saved.folder / "summary.json").read_bytes()


def test_options_are_equal_before_and_after_loading(saved):
    """Labels contain options, so loading must not change their text, for example from 0 to 0.0."""
    options = summarise(saved).options
    assert options["l2"] == 0
    assert repr(options) == repr(load_summary(saved.folder).options)


def test_curves_are_metrics_including_the_first_and_last_generation(saved):
    curves = load_summary(saved.folder / "summary.json").curves
    generation = curves["generation"].astype(int)
    assert 50 < len(generation) <= summaries.POINTS
    assert generation[0] == 1
    assert generation[-1] == 230
    for name in summaries.CURVES:
        np.testing.assert_allclose(curves[name], saved.metrics[name][generation - 1], rtol=1e-8)


def test_steps_are_medians_in_cell_widths(saved):
    read = load_summary(saved.folder / "summary.json")
    width = np.sqrt(1 / 30)
    assert set(read.steps) == {"exploit", "explore"}
    for kind, step in read.steps.items():
        distance = saved.metrics[f"parent_distance_{kind}"] / width
        assert step == pytest.approx(np.nanmedian(distance), rel=1e-6)
        last = distance[int(read.curves["generation"][-2]) :]
        assert read.curves[f"step_{kind}"][-1] == pytest.approx(np.nanmedian(last), rel=1e-3)


def test_lifespans_are_the_ages_at_resets(saved):
    read = load_summary(saved.folder / "summary.json")
    for code, kind in enumerate(("exploit", "explore")):
        ages = [
            age
            for row in zip(*(saved.lanes[name] for name in ("kind", "reset", "age")), strict=True)
            for of, reason, age in zip(*row, strict=True)
            if of == code and reason == 1
        ]
        expected = {"count": len(ages), "mean": np.mean(ages), "median": np.median(ages)}
        assert len(ages) > 3
        assert read.lifespans[kind]["stale"] == pytest.approx(expected)
        assert read.lifespans[kind]["all"].items() >= read.lifespans[kind]["stale"].items()


def test_the_longest_life_of_each_lane_and_the_mean_of_the_paper(saved):
    """The paper's mean lifespan of a lane with n resets is (n - 1) / n times its longest lifespan."""
    read = load_summary(saved.folder / "summary.json")
    for code, kind in enumerate(("exploit", "explore")):
        longest, means = [], []
        for lane in np.flatnonzero((saved.lanes["kind"] == code).any(axis=0)):
            most = mean = resets = 0
            for age, reason in zip(
                *(saved.lanes[name][:, lane] for name in ("age", "reset")), strict=True
            ):
                if reason:
                    resets, most = resets + 1, max(most, age)
                    mean = ((resets - 1) * most + 0) / resets
            longest.append(most)
            means.append(mean)
        np.testing.assert_array_equal(read.longest_lives[kind], longest)
        assert read.lifespans[kind]["all"]["paper_mean"] == pytest.approx(np.mean(means))


def test_a_summary_of_an_older_version_has_no_longest_lives(folder):
    content = json.loads((folder / "summary.json").read_text())
    del content["longest_lives"]
    (folder / "summary.json").write_text(json.dumps(content))
    assert load_summary(folder / "summary.json").longest_lives == {}


def test_heat_is_the_fitness_of_each_cell_to_four_digits(saved):
    read = load_summary(saved.folder / "summary.json")
    fitness = np.asarray(saved.archive.fitness).reshape(6, 5)
    np.testing.assert_array_equal(np.isnan(read.heat), np.isinf(fitness))
    filled = ~np.isnan(read.heat)
    np.testing.assert_allclose(read.heat[filled], fitness[filled], rtol=5e-4)
    assert read.corrected is None
    assert read.corrected_heat is None


def test_corrections_in_the_folder_are_read(folder, saved):
    (folder / "corrected.csv").write_text("generation,qd_score,qd_score_loss\n100,9,0.1\n230,8,\n")
    fewer = replace(saved.archive, fitness=saved.archive.fitness.at[0].set(-np.inf))
    variance = np.zeros(1)
    save_correction(folder, Correction(fewer, np.array([1]), variance, variance[:, None], 512))
    summaries.write_summary(load_run(folder))
    read = load_summary(folder / "summary.json")
    np.testing.assert_equal(
        read.corrected,
        {
            "generation": 230,
            "qd_score": 8,
            "qd_score_loss": np.nan,
            "evaluations": saved.metrics["evaluations"][-1],
        },
    )
    assert np.isnan(read.corrected_heat[0, 0])


def test_a_tessellation_has_no_heat(saved):
    centroids = np.random.default_rng(0).random((5, 2), np.float32)
    archive = empty(memes.cells.CVT(*memes.cells._bounds(TASK), centroids), TASK.dim)
    made = summarise(load_run(saved.folder)._replace(archive=archive))
    assert made.heat is None
    assert made.high == (1.0, 1.0)


def test_runs_are_found_once_in_folders_files_and_patterns(folder, tmp_path):
    committed = tmp_path / "summaries/arm"
    committed.mkdir(parents=True)
    shutil.copy(folder / "summary.json", committed / "memes-3.json")
    (committed / "other.json").write_text('{"format": "another"}')
    assert find([folder, f"{tmp_path}/cop*", folder / "summary.json"]) == [folder]
    assert find([tmp_path]) == [folder, committed / "memes-3.json"]
    one, other = load_all([tmp_path])
    assert_equal(one, other)


def test_a_run_without_a_summary_is_summarised(folder):
    before = load_summary(folder / "summary.json")
    (folder / "summary.json").unlink()
    assert_equal(load_all([folder])[0], before)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is damaged"),
        ("[]", "must contain a JSON object"),
        ("{}", "is not the summary of a run"),
        ('{"format": "memes-summary", "format_version": 99}', "format version 99"),
        ('{"format": "memes-summary", "format_version": 1}', "is damaged"),
    ],
)
def test_a_damaged_summary_gives_an_error_message(tmp_path, text, sentence):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(UsageError, match=sentence):
        load_summary(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("field", "value"), [("heat", [1, 2]), ("curves", {"generation": [1]}), ("seed", "x")]
)
def test_a_summary_with_wrong_fields_gives_an_error_message(folder, field, value):
    content = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(content | {field: value}))
    with pytest.raises(UsageError, match=r"summary\.json' (is damaged|must be int)"):
        load_all([folder])


def test_missing_files_are_named(folder, tmp_path):
    with pytest.raises(UsageError, match=r"no file or folder '.*/nothing-\*'"):
        find([tmp_path / "nothing-*"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no run and no summary in '.*/empty'"):
        find([tmp_path / "empty"])
    (folder / "summary.json").unlink()
    (folder / "lanes.npz").write_bytes(b"no zip")
    with pytest.raises(UsageError, match=r"lanes\.npz' is damaged"):
        load_all([folder])


RESULTS = Path(__file__).parents[2] / "results/paper/summaries"


@pytest.mark.skipif(not RESULTS.exists(), reason="a source distribution has no results")
@pytest.mark.parametrize("task", ["ant", "arm"])
def test_summaries_of_version_0_1_are_read_and_compared(task, tmp_path):
    runs = load_all([RESULTS / task])
    assert {run.task for run in runs} == {task}
    assert not any("generations" in run.options for run in runs)
    groups = group(runs)
    labels = {json.loads(file.read_text())["label"] for file in (RESULTS / task).iterdir()}
    assert set(groups[task]) == labels  # no option splits a label
    save_summary(tmp_path / "again.json", runs[0])
    assert_equal(load_summary(tmp_path / "again.json"), runs[0])


def test_generations_in_the_options_of_older_runs_are_ignored(saved):
    old = saved._replace(config=replace(saved.config, options={"lanes": 4, "generations": 230}))
    assert summarise(old).options == {"lanes": 4}
