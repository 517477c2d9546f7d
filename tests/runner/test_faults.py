"""Runs and sweeps can be continued if the disk is full or the process is killed at any time."""

import csv
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import faults
import memes
from memes import RunError, UsageError, api
from memes.commands import reproduce
from memes.options.command_line import parse
from memes.reproduce import sweep
from memes.runner import corrections, loop, scheduling
from memes.store import files
from memes.store.files import only_writer
from memes.store.summary import load_summary
from memoization import memoized

WORDS = (
    "noisy-arm", "--algorithm", "me", "--scale", "laptop", "--joints", "4", "--batch", "4",
    "--resolution", "3", "3", "--reevaluate-samples", "2", "--generations", "2",
)  # fmt: skip
ITEM = sweep.Item("noisy-arm", "me", (0, 1), parse([*WORDS], "memes reproduce"))
ALGORITHM = ITEM.parsed.build()
OPTIONS = {
    "generations": 2,
    "progress": False,
    "observers": [memes.Checkpoints(every=1), memes.Corrections(every=1, samples=2)],
}
# Fields that may differ between equal runs, for example because other tests use the device.
TIMES = dict.fromkeys(
    ("when", "commit", "compile_seconds", "seconds_per_generation", "device", "processes_on_device")
)
RECORDED = ("seed", "generations_done", "stopped", "signal", "chunk", "seeds", "seeds_together")


class Drawing:
    """A figure that is drawn immediately."""

    def __init__(self, run):
        self._content = str(run.metrics["qd_score"]).encode()

    def savefig(self, stream, **options):
        stream.write(self._content)


def values(*arguments, **options):
    """Return the bytes of all arrays and numbers in the positional arguments."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(arguments))


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """Memoize slow functions, skip figures and fsync, and run one generation per device call."""
    with pytest.MonkeyPatch.context() as patch:

        def memoize(module, name, **options):
            patch.setattr(module, name, memoized(getattr(module, name), **options))

        for name in ("correct", "compare"):
            memoize(corrections, name, key=values)
        memoize(loop, "compile_fitting", key=lambda algorithm, seeds, *_, **options: seeds)
        for module, name in (
            (loop, "first_state"),
            (corrections, "_fitting"),
            (api, "callbacks_outside"),
            (api, "describe"),
            (sweep, "_compiled"),
        ):
            memoize(module, name)
        patch.setattr(scheduling, "MOST", 1)
        patch.setattr(files, "os", SimpleNamespace(**vars(os) | {"fsync": lambda descriptor: None}))
        for name in ("archive", "curves"):
            patch.setattr(memes.plot, name, type(name, (Drawing,), {}))
        yield


def content(folder):
    """Return the contents of files by path, without checkpoints and other data that depend on times."""
    files = [file for file in folder.rglob("*") if not file.match("checkpoints/*[0-9].npz")]
    return {str(file.relative_to(folder)): content_without_times(file) for file in files}


def content_without_times(file):
    if file.is_dir() or file.name in (".lock", "log.bin"):
        return None
    if file.name == "metrics.csv":
        return [{**row, "seconds": ""} for row in csv.DictReader(file.read_text().splitlines())]
    if file.name == "config.json":
        return {name: json.loads(file.read_text()).get(name) for name in RECORDED}
    if file.suffix == ".json":
        summary = json.loads(file.read_text())
        summary["curves"]["seconds"] = []
        return summary | {"about": {**summary["about"], **TIMES}}
    return file.read_bytes()


def run(out, **options):
    return memes.run(ALGORITHM, out=out, **OPTIONS | options)


def continue_run(out, do):
    """Continue as a user would: resume the run if it exists, otherwise start it again."""
    configs = [json.loads(file.read_text()) for file in out.rglob("config.json")]
    if not configs:
        do(out)
    elif not all("finished" in config for config in configs):
        memes.resume(ALGORITHM, out, progress=False)


def two_seeds(out):
    return run(out, seeds=[0, 1], observers=[*OPTIONS["observers"], memes.Figures(draw=False)])


def each_fault(tmp_path, fail, do, step=1):
    """Run a function repeatedly, with a disk that fails at operation 0, `step`, 2 * `step`, ...

    Yields the folder and the first failed operation of each run. Ends when no operation fails.
    """
    for at in count(0, step):
        out = tmp_path / str(at)
        with faults.failing(at, fail) as done:
            try:
                do(out)
            except (faults.Killed, RunError):
                assert len(done) > at
        if len(done) <= at:
            break
        yield out, done[at]
        shutil.rmtree(out, ignore_errors=True)
    assert at > 40


@pytest.mark.slow
@pytest.mark.parametrize("fail", [faults.killed, faults.full])
def test_a_run_can_be_continued_after_every_fault(tmp_path, fail):
    run(tmp_path / "whole")
    whole = content(tmp_path / "whole")
    for out, operation in each_fault(tmp_path, fail, run):
        continue_run(out, run)
        assert content(out) == whole, operation


def test_a_batch_can_be_continued_if_only_some_seeds_have_started(tmp_path):
    two_seeds(tmp_path / "whole")
    whole = content(tmp_path / "whole")
    cut = each_fault(tmp_path, faults.killed, two_seeds)
    for out, operation in islice(cut, 16):  # the configurations, with two operations each
        continue_run(out, two_seeds)
        assert content(out) == whole, operation


def swept(out, seeds_per_batch=2, keep_archives=True):
    def known():
        return [load_summary(file) for file in sorted(out.glob("summaries/*/*.json"))]

    options = {"seeds_per_batch": seeds_per_batch, "keep_archives": keep_archives, "progress": False}
    with reproduce._in_words("laptop", out, True) as say:
        sweep.sweep([ITEM], known, out, say=say, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds_per_batch", "fail", "step"),
    [
        pytest.param(2, faults.killed, 1, marks=pytest.mark.long),
        (2, faults.killed, 4),
        (2, faults.full, 3),
        pytest.param(1, faults.killed, 3, marks=pytest.mark.long),
    ],
)
def test_a_sweep_can_be_continued_after_every_fault(tmp_path, seeds_per_batch, fail, step):
    swept(tmp_path / "whole", seeds_per_batch)
    whole = content(tmp_path / "whole")
    for out, operation in each_fault(tmp_path, fail, lambda out: swept(out, seeds_per_batch), step):
        swept(out, seeds_per_batch)
        assert content(out) == whole, operation


DYING = """
import pathlib, sys
import faults, test_faults
at, what, out = sys.argv[1:]
with faults.failing(int(at), faults.really_killed):
    getattr(test_faults, what)(pathlib.Path(out))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "times"),
    [
        ("swept", 1),
        pytest.param("swept", 5, marks=pytest.mark.long),
        pytest.param("two_seeds", 5, marks=pytest.mark.long),
    ],
)
def test_a_killed_process_can_be_continued(tmp_path, what, times):
    do = globals()[what]
    with faults.failing() as done:
        do(tmp_path / "whole")
    whole, here = content(tmp_path / "whole"), Path(__file__).parent
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([*sys.path, str(here), str(here.parent)]),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": str(jax.config.values["jax_disable_most_optimizations"]),
    }
    moments = np.linspace(1, len(done) - 6, times) if times > 1 else [len(done) / 2]
    for at in map(int, moments):
        out = tmp_path / str(at)
        words = [sys.executable, "-c", DYING, str(at), what, str(out)]
        assert subprocess.run(words, env=environment).returncode == -signal.SIGKILL
        continue_run(out, two_seeds) if what == "two_seeds" else swept(out)
        assert content(out) == whole, done[at]


def test_a_sweep_that_was_killed_while_removing_runs_removes_them(tmp_path, monkeypatch):
    """The process was killed while it was removing a folder of finished runs."""
    with monkeypatch.context() as patched:
        patched.setattr(sweep, "remove_run", lambda folder: faults.killed())
        with pytest.raises(faults.Killed):
            swept(tmp_path, keep_archives=False)
    assert list(tmp_path.glob("runs/*/*"))
    swept(tmp_path, keep_archives=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", "summaries"]


@pytest.mark.parametrize("removed", range(6))
def test_a_run_killed_while_it_replaces_another_can_be_started_again(removed, tmp_path, monkeypatch):
    """config.json is removed last, because it identifies the other files as files of a run."""
    run(tmp_path)
    folder, remove = importlib.import_module("memes.store.folder"), files.remove_files
    places = iter(range(removed))

    def dying(*arguments):
        if next(places, None) is None:
            faults.killed()
        remove(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(folder, "remove_files", dying)
        with pytest.raises(faults.Killed):
            run(tmp_path, overwrite=True)
    assert run(tmp_path, overwrite=True, seed=1).config.seed == 1


def test_a_sweep_reads_summaries_that_another_process_wrote_before_unlocking(tmp_path, monkeypatch):
    """Another process finishes its runs just before this process locks the folder."""

    @contextmanager
    def later(folder):
        with monkeypatch.context() as patched:
            patched.setattr(sweep, "only_writer", only_writer)
            swept(folder)
        monkeypatch.setattr(api, "run", None)  # nothing is left to run
        with only_writer(folder):
            yield

    monkeypatch.setattr(sweep, "only_writer", later)
    swept(tmp_path)


def test_a_run_does_not_replace_runs_that_another_process_wrote_before_unlocking(tmp_path, monkeypatch):
    def later(folder):
        with monkeypatch.context() as patched:
            patched.setattr(api, "only_writer", only_writer)
            run(tmp_path, seeds=[0, 1])
        return only_writer(folder)

    monkeypatch.setattr(api, "only_writer", later)
    with pytest.raises(UsageError, match="out must not contain a run yet"):
        run(tmp_path, seeds=[0, 1])
    assert all(memes.load_run(tmp_path / f"seed-{seed}").generations == 2 for seed in (0, 1))
