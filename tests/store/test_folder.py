"""Run folders, including damaged folders and folders of older versions."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import memes
from memes import UsageError
from memes.commands.main import main
from memes.store.folder import load_metrics, save_corrected, save_metrics

TASK = memes.tasks.noisy_arm(joints=4)
ALGORITHM = memes.presets.me(TASK, memes.cells.grid(TASK, (5, 5)), batch=4)
# This run was made by version 0.1 with 'memes run noisy-arm --algorithm memes-everything'.
OLD = Path(__file__).parents[1] / "data/run-0.1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with all files."""
    out = tmp_path_factory.mktemp("whole") / "run"
    observers = [memes.Corrections(samples=3, every=2), memes.Figures(draw=False)]
    return memes.run(ALGORITHM, generations=4, out=out, observers=observers, progress=False)


def test_load_run_returns_the_corrected_run(whole):
    read = memes.load_run(whole.folder)
    for part in ("archive", "lanes", "correction"):
        jax.tree.map(np.testing.assert_array_equal, getattr(read, part), getattr(whole, part))
    assert type(read.correction) is type(whole.correction)
    for table in ("metrics", "corrected"):
        assert list(getattr(read, table)) == list(getattr(whole, table))
        for name, column in getattr(whole, table).items():
            np.testing.assert_allclose(getattr(read, table)[name], column, rtol=1e-8, err_msg=name)
    assert repr(read) == repr(whole)


def test_a_run_of_version_0_1_is_read():
    run = memes.load_run(OLD)
    assert run.provenance.versions["memes"] == "0.1.0"
    assert run.generations == 30
    assert run.lanes["fitness"].shape == (30, 4)
    elites = int(run.archive.occupied.sum())
    assert elites == round(36 * run.metrics["coverage"][-1])
    assert run.corrected["generation"].tolist() == [10, 20, 30]
    assert run.correction.samples == 16
    assert len(run.correction.elite_cell) == elites
    assert repr(run) == (
        f"<Run: memes-everything on noisy-arm, seed 0 in '{OLD}', 30 generations, "
        f"QD-score {run.metrics['qd_score'][-1]:.1f}, coverage {elites / 36:.1%}>"
    )


def test_a_run_of_version_0_1_can_only_be_restarted(tmp_path, capsys):
    """Checkpoints of version 0.1 raise an error. Without checkpoints, `resume` starts the run again."""
    run = shutil.copytree(OLD, tmp_path / "run")
    about = {"format_version": 1, "identity": "", "digest": ""}
    (run / "checkpoints").mkdir()
    np.savez(run / "checkpoints/00000030.npz", about=np.array(json.dumps(about)))
    command = ["resume", str(run), "--generations", "31", "--quiet"]
    assert main(command) == 2
    printed = capsys.readouterr().err
    assert "has format version 1, which an older version of memes wrote; continue with" in printed
    assert printed.count("\n") == 1
    shutil.rmtree(run / "checkpoints")
    assert main(command) == 0
    again = memes.load_run(run)
    assert again.generations == 31
    assert again.corrected["generation"].tolist() == [10, 20, 30, 31]


def test_tables_have_nine_digits_and_empty_fields_for_nan(tmp_path):
    columns = {"generation": np.arange(3), "score": np.array([np.nan, 1 / 3, 1e-30])}
    save_metrics(tmp_path, columns)
    assert (tmp_path / "metrics.csv").read_text().splitlines()[1] == "0,"
    for name, column in load_metrics(tmp_path / "metrics.csv").items():
        np.testing.assert_allclose(column, columns[name], rtol=1e-9)
    save_corrected(tmp_path, columns)
    assert (tmp_path / "corrected.csv").read_text() == (tmp_path / "metrics.csv").read_text().replace(
        "\r", ""
    )
    save_corrected(tmp_path, {})
    assert not (tmp_path / "corrected.csv").exists()


def test_a_folder_of_a_newer_version_is_refused(whole, tmp_path):
    run = shutil.copytree(whole.folder, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"format_version": 9}))
    with pytest.raises(UsageError, match=r"config.json' has format version 9, which is too new"):
        memes.load_run(run)


def test_an_unfinished_run_is_refused_by_load_run(whole, tmp_path):
    run = shutil.copytree(whole.folder, tmp_path / "run")
    (run / "archive.npz").unlink()
    with pytest.raises(UsageError, match=r"the run in .* has no archive.npz yet"):
        memes.load_run(run)


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_files_of_a_run_give_a_one_line_error(data, whole, tmp_path):
    folder = tmp_path / "run"
    if not folder.exists():
        shutil.copytree(whole.folder, folder)
    name = data.draw(
        st.sampled_from(
            ["config.json", "metrics.csv", "lanes.npz", "archive.npz", "corrected.csv", "corrected.npz"]
        )
    )
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
    message = f"{name} is read without an error"
    try:
        memes.load_run(folder)
    except UsageError as error:
        message = str(error)
    finally:
        (folder / name).write_bytes(good)
    assert name in message or "does not contain a run" in message
    assert "\n" not in message
