"""Commands that run without file permissions, in parallel with other runs, or on degenerate tasks."""

import json
import os
import shutil
import subprocess
import sys
from itertools import count

import jax.numpy as jnp
import numpy as np
import pytest

import memes
from folder_contents import contents
from memes.commands.main import main
from memes.view.follow import Follower

pytestmark = pytest.mark.usefixtures("traced_once", "no_figures")
SMALL = (
    "--algorithm", "me", "--joints", "4", "--batch", "4", "--resolution", "3", "3", "--generations", "2",
    "--no-figures-draw", "--quiet",
)  # fmt: skip

# Root has privileges to write everywhere. These options of `setpriv` drop these privileges.
DROPPED = "--bounding-set=-dac_override,-dac_read_search,-fowner", "--inh-caps=-all"
EACH = """
import json, sys
from memes.commands.main import main
for words in json.loads(sys.argv[1]):
    print(main(words), flush=True)
"""


def unprivileged(*commands):
    """Run commands in a process without special privileges, and return their exit codes and errors."""
    dropping = [shutil.which("setpriv"), *DROPPED] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*dropping, sys.executable, "-c", EACH, json.dumps(commands)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    return done.stdout.split(), done.stderr.splitlines()


@pytest.mark.skipif(
    os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everywhere"
)
def test_folders_without_permission_are_named_and_unchanged(tmp_path):
    run, locked, parent = (tmp_path / name for name in ("run", "locked", "parent"))
    assert main(["run", "noisy-arm", *SMALL, "--reevaluate-samples", "2", "--out", str(run)]) == 0
    shutil.copytree(run, locked)
    parent.mkdir()
    before = contents(locked)
    for path in (*locked.rglob("*"), locked, parent):
        path.chmod(path.stat().st_mode & 0o555)
    codes, errors = unprivileged(
        ["run", "arm", *SMALL, "--out", str(parent / "new")],
        ["run", "arm", *SMALL, "--out", str(locked), "--overwrite"],
        ["resume", str(locked), "--generations", "4", "--quiet"],
        ["plot", str(locked)],
        ["export", str(locked), "--to", "csv"],
        ["reevaluate", str(locked), "--quiet"],
        ["compare", str(run), str(locked), "--out", str(parent / "new")],
    )
    for path in (locked, parent, *locked.rglob("*")):
        path.chmod(path.stat().st_mode | 0o700)
    assert len(codes) == 7
    assert set(codes) == {"1", "2"}
    assert len(errors) == 7, errors
    for error, folder in zip(errors, [parent, *[locked] * 5, parent], strict=True):
        assert str(folder) in error or folder.name in error
        assert "ermission" in error
    assert contents(locked) == before
    assert list(parent.iterdir()) == []


@pytest.mark.long
def test_six_runs_that_start_at_once_with_an_empty_cache(tmp_path):
    """The runs share the cache, but each run uses its own default folder."""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "memes", "run", "arm", *SMALL]
    started = [subprocess.Popen(command, env=environment, cwd=tmp_path) for _ in range(6)]
    assert [process.wait() for process in started] == [0] * 6
    found = [(tmp_path / file).read_bytes() for file in sorted(tmp_path.glob("runs/*/*/archive.npz"))]
    assert len(found) == 6
    assert len(set(found)) == 1


def test_setting_the_clock_back_changes_no_result(tmp_path, monkeypatch):
    algorithm = memes.presets.me(memes.tasks.arm(joints=4), batch=4)
    quick = {"observers": [memes.Logger("tensorboard")], "progress": False}
    whole = memes.run(algorithm, generations=6, out=tmp_path / "whole", **quick)
    memes.run(algorithm, generations=3, out=tmp_path / "back", **quick)
    follower = Follower(tmp_path / "back")
    assert follower.poll(strict=True).generations == 3
    clock = count(1_600_000_000, -1000)
    monkeypatch.setattr("time.time", lambda: next(clock))
    resumed = memes.resume(algorithm, tmp_path / "back", generations=6, **quick)
    for file in tmp_path.glob("back/**/*"):
        os.utime(file, (0, 0))
    assert follower.poll().generations == 6
    assert (np.diff(resumed.metrics["seconds"]) >= 0).all()
    files = ("archive.npz", "lanes.npz", "changes.bin")
    for name in files:
        assert (tmp_path / "back" / name).read_bytes() == (whole.folder / name).read_bytes()


def plane(fitness, **options):
    """Return a task whose feature equals the genotype."""
    low, high = (-1.0, -1.0), (1.0, 1.0)
    evaluate = memes.rowwise(lambda key, x: (fitness(x), x))
    return memes.Task("plane", 2, low, high, memes.uniform(2, -1.0, 1.0), evaluate, **options)


def test_a_million_cells():
    task = plane(lambda x: -jnp.sum(x**2), resolution=(1000, 1000), min_fitness=-4.0)
    run = memes.run(memes.presets.me(task, batch=64), generations=3, progress=False)
    filled = np.flatnonzero(np.asarray(run.archive.occupied))
    assert 64 < filled.size <= 192
    assert run.metrics["coverage"][-1] == pytest.approx(filled.size / 1e6)


def test_each_cell_keeps_the_first_of_equally_fit_solutions():
    task = plane(lambda x: 0 * x[0] + 1.0, resolution=(4, 4))
    run = memes.run(memes.presets.me(task, batch=8), generations=5, progress=False)
    changes = sum(run.metrics[f"added_{kind.name.lower()}"].sum() for kind in memes.Kind)
    assert changes == np.asarray(run.archive.occupied).sum() == run.metrics["qd_score"][-1]


def test_a_score_that_can_only_be_zero_is_explained(capsys):
    task = plane(lambda x: -jnp.sum(x**2), resolution=(4, 4), min_fitness=1e6)
    run = memes.run(memes.presets.me(task, batch=8), generations=2, progress=True)
    assert run.metrics["qd_score"][-1] == 0 < run.metrics["coverage"][-1]
    assert "no elite is fitter than the task's min_fitness, 1e+06" in capsys.readouterr().err
