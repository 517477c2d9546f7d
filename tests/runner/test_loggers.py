"""Loggers: custom functions, TensorBoard event files, and modules like wandb."""

import json
import struct
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import memes
from memes.commands.main import main
from memes.store.folder import load_metrics
from memes.store.tensorboard import append_scalars, new_events

pytestmark = pytest.mark.usefixtures("compiled_once", "no_figures")

task = memes.tasks.noisy_arm(joints=4)
algorithm = memes.presets.me(task, memes.cells.grid(task, (3, 3)), batch=4)
OPTIONS = {"generations": 12, "seed": 3, "progress": False}
CORRECTED = memes.Corrections(every=5, samples=4)

LIKE_WANDB = """
import json

class Run:
    def __init__(self, **about):
        self.file = open("tracked.jsonl", "a")
        self.write(init=about)

    def write(self, **row):
        print(json.dumps(row), file=self.file, flush=True)

    def log(self, metrics, step):
        self.write(step=step, metrics=metrics)

    def finish(self):
        self.write(finish=True)
        self.file.close()

def init(project, name, config):
    return Run(project=project, name=name, config=config)
"""


@pytest.fixture
def like_wandb(tmp_path, monkeypatch):
    """Create a module with part of wandb's interface. The module records all calls."""
    monkeypatch.chdir(tmp_path)
    Path("likewandb.py").write_text(textwrap.dedent(LIKE_WANDB))
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda: [json.loads(line) for line in Path("tracked.jsonl").read_text().splitlines()]
    sys.modules.pop("likewandb", None)


def expected(run):
    """Return the values that loggers should get, by generation: all finite metrics and corrections."""
    found = {}
    for prefix, table in (("", run.metrics), ("corrected/", run.corrected)):
        for i, generation in enumerate(table["generation"].astype(int)):
            row = {f"{prefix}{name}": column[i] for name, column in table.items()}
            found.setdefault(int(generation), {}).update(
                {name: value for name, value in row.items() if np.isfinite(value)}
            )
    return found


def test_a_function_gets_each_generation_and_each_correction_once(tmp_path):
    rows = []
    observers = [
        memes.LogFunction(lambda generation, metrics: rows.append((generation, metrics))),
        CORRECTED,
    ]
    run = memes.run(algorithm, out=tmp_path, observers=observers, **OPTIONS)
    plain = [(generation, row) for generation, row in rows if "qd_score" in row]
    assert [generation for generation, _ in plain] == list(range(1, 13))
    for name, column in load_metrics(tmp_path / "metrics.csv").items():
        np.testing.assert_allclose([row[name] for _, row in plain], column, rtol=1e-7)
    corrected = [(g, row["corrected/qd_score"]) for g, row in rows if "corrected/qd_score" in row]
    assert corrected == list(zip([5, 10, 12], run.corrected["qd_score"], strict=True))


def read_events(file):
    """Return the scalars of an event file that `memes` has written, as (name, step, value)."""
    data, found = file.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        message, data = data[12 : 12 + length], data[16 + length :]
        step, at = 0, 10
        for shift in range(0, 70, 7):
            step |= (message[at] & 0x7F) << shift
            at += 1
            if not message[at - 1] & 0x80:
                break
        if message[at] == 5 << 3 | 2:
            value = struct.unpack("<f", message[-4:])[0]
            found.append((message[at + 6 : -5].decode(), step, value))
    return found


def test_tensorboard_gets_the_numbers_of_the_tables(tmp_path):
    run = memes.run(
        algorithm, out=tmp_path, observers=[memes.Logger("tensorboard"), CORRECTED], **OPTIONS
    )
    (file,) = (tmp_path / "tensorboard").iterdir()
    found = {}
    for name, step, value in read_events(file):
        found.setdefault(step, {})[name] = value
    wanted = expected(run)
    assert found.keys() == wanted.keys()
    for step, row in wanted.items():
        assert found[step] == pytest.approx(row, rel=1e-6)


def test_tensorboard_reads_our_event_files(tmp_path):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    file = new_events(tmp_path / "events")
    rows = [(1e9 + i, 10**i, {"a": i / 3, "b/ü": -float(i)}) for i in range(12)]
    append_scalars(file, rows)
    read = accumulator.EventAccumulator(str(file.parent))
    read.Reload()
    assert read.Tags()["scalars"] == ["a", "b/ü"]
    for name in ("a", "b/ü"):
        for scalar, (seconds, step, values) in zip(read.Scalars(name), rows, strict=True):
            assert (scalar.wall_time, scalar.step) == (seconds, step)
            assert scalar.value == pytest.approx(values[name], rel=1e-6)


def test_a_module_like_wandb_gets_the_numbers_of_the_tables(like_wandb):
    observers = [memes.Logger("likewandb"), CORRECTED]
    run = memes.run(algorithm, observers=observers, **OPTIONS)
    first, *rows, last = like_wandb()
    assert first["init"]["project"] == "memes"
    assert first["init"]["name"] == "noisy-arm-me-3"
    assert first["init"]["config"]["seed"] == 3
    assert last == {"finish": True}
    found = {}
    for row in rows:
        found.setdefault(row["step"], {}).update(row["metrics"])
    assert found == {step: pytest.approx(row) for step, row in expected(run).items()}


def test_a_logger_that_does_not_start_gives_an_error_message(like_wandb):
    Path("likewandb.py").write_text("def init():\n    raise KeyError('nobody is logged in')")
    with pytest.raises(memes.UsageError, match="track: likewandb failed to start: KeyError: 'nobody is"):
        memes.run(algorithm, observers=[memes.Logger("likewandb")], **OPTIONS)


def test_a_logger_is_closed_if_the_run_fails(like_wandb):
    class Failing:
        def watch(self, context):
            def on_update(update):
                raise KeyError("no")

            return memes.Callbacks(on_update=on_update)

    with pytest.raises(KeyError):
        memes.run(algorithm, observers=[memes.Logger("likewandb"), Failing()], **OPTIONS)
    assert like_wandb()[-1] == {"finish": True}


def test_wandb_itself_records_a_run_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    memes.run(algorithm, out=tmp_path / "run", observers=[memes.Logger("wandb")], **OPTIONS)
    (written,) = (tmp_path / "run/wandb").glob("offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 30
    while b"qd_score" not in written.read_bytes():  # a separate process writes it at the end
        assert time.monotonic() < deadline
        time.sleep(0.1)


ARM = ["arm", "--joints", "4", "--algorithm", "me", "--batch", "4", "--resolution", "3", "3", "--quiet"]


def test_commands_track_runs_and_resumed_runs(like_wandb):
    assert (
        main(["run", *ARM, "--generations", "3", "--out", "run", "--track", "likewandb", "tensorboard"])
        == 0
    )
    assert [row["step"] for row in like_wandb() if "step" in row] == [1, 2, 3]
    assert main(["resume", "run", "--generations", "5", "--quiet"]) == 0
    assert len(list(Path("run/tensorboard").iterdir())) == 1  # `resume` does not start loggers by itself
    words = ["resume", "run", "--generations", "7", "--track", "likewandb", "--quiet"]
    assert main(words) == 0
    assert [row["step"] for row in like_wandb() if "step" in row] == [1, 2, 3, 6, 7]


WRONG = {
    "tensorbord": "track: there is no module 'tensorbord' here: did you mean 'tensorboard'?",
    "no_such_tracker": "track: there is no module 'no_such_tracker' here: 'pip install no_such_tracker'",
    "no.such": "track: there is no module 'no.such' here",
    "": "track: there is no module '' here",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_missing_logger_gives_an_error_message(name, capsys, tmp_path):
    assert (
        main(["run", *ARM, "--generations", "3", "--out", str(tmp_path / "run"), "--track", name]) == 2
    )
    assert WRONG[name] in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_tensorboard_needs_a_folder():
    with pytest.raises(memes.UsageError, match="tensorboard needs a run with a folder"):
        memes.run(algorithm, observers=[memes.Logger("tensorboard")], **OPTIONS)


def test_setting_the_clock_back_changes_no_result(tmp_path, monkeypatch):
    """The clock goes back by an hour at each reading."""
    whole = memes.run(algorithm, out=tmp_path / "whole", observers=[CORRECTED], **OPTIONS)
    moments = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: next(moments))
    tracked = [CORRECTED, memes.Logger("tensorboard")]
    memes.run(algorithm, out=tmp_path / "back", observers=tracked, **OPTIONS | {"generations": 6})
    back = memes.resume(
        algorithm, tmp_path / "back", generations=12, observers=tracked[1:], progress=False
    )
    assert (np.diff(back.metrics["seconds"]) >= 0).all()
    for name in ("archive.npz", "lanes.npz", "changes.bin", "corrected.csv"):
        assert (tmp_path / "back" / name).read_bytes() == (whole.folder / name).read_bytes()
    assert len(list((tmp_path / "back/tensorboard").iterdir())) == 2


@pytest.mark.parametrize("make", [memes.Logger, memes.LogFunction])
@pytest.mark.parametrize("wrong", [None, 3, b"wandb", ["wandb"]])
def test_loggers_reject_values_of_other_types(make, wrong):
    with pytest.raises(memes.UsageError, match=r"^(to|log) must be (str|a function), got "):
        make(wrong)
