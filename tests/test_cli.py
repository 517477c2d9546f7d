import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.cli import main
from memes.experiment import settings
from memes.tasks.control import rollout

QUICK = ["--scale", "laptop", "--joints", "4", "--lanes", "4", "--samples", "8", "--generations", "3"]
EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_run_saves_to_a_new_folder_each_time(capsys):
    assert main(["run", "arm", *QUICK]) == 0
    printed = capsys.readouterr()
    assert "saved to runs/arm-memes-0" in printed.out
    assert "compiling arm" in printed.err
    assert "generation 3/3" in printed.err
    assert main(["run", "arm", *QUICK, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    runs = sorted(path.name for path in Path("runs").iterdir())
    assert runs == ["arm-memes-0", "arm-memes-0-2"]
    config = json.loads(Path("runs/arm-memes-0/config.json").read_text())
    assert config["options"]["samples"] == 8
    assert config["options"]["joints"] == 4
    assert config["algorithm"] == "memes"

    Path("runs/arm-memes-0/figures/archive.png").unlink()
    assert main(["plot", "runs/arm-memes-0"]) == 0
    assert capsys.readouterr().out.split() == [
        "runs/arm-memes-0/figures/archive.png",
        "runs/arm-memes-0/figures/curves.png",
    ]
    assert Path("runs/arm-memes-0/figures/archive.png").exists()


def test_list_shows_every_task_and_algorithm(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    for name in [*memes.PRESETS, *memes.TASKS]:
        assert f" {name} " in printed
    assert max(map(len, printed.splitlines())) < 80


@pytest.mark.parametrize("preset", memes.PRESETS)
def test_help_explains_every_option(preset, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["run", "arm", "--algorithm", preset, "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    options = settings._options_of(memes.PRESETS[preset].build, "")
    for field in options.__dataclass_fields__.values():
        assert f"--{field.name.replace('_', '-')}" in text
        assert field.type.__metadata__[0].help, field.name


def test_scale_then_file_then_flags():
    Path("my.toml").write_text('lanes = 6\nsamples = 10\nresolution = [7, 9]\nscale = "laptop"\n')
    parsed = settings.parse(["arm", "--config", "my.toml", "--samples", "12"], "memes run")
    assert parsed.task_options == {"joints": 100}  # of the scale, which the file chose
    assert parsed.algorithm_options["lanes"] == 6  # of the file
    assert parsed.algorithm_options["samples"] == 12  # of the flag
    assert parsed.settings.resolution == (7, 9)
    algorithm = settings.build(parsed)
    assert algorithm.emitter.lanes == 6
    assert algorithm.task.dim == 100


def test_paper_is_the_default_scale():
    parsed = settings.parse(["arm"], "memes run")
    assert parsed.settings.generations == 2000
    assert parsed.task_options == {"joints": 1000}
    algorithm = settings.build(parsed)
    assert algorithm.batch_size == 32 * 513


def test_the_history_that_keeps_everything_fits_the_run():
    arguments = ["arm", "--algorithm", "memes-everything", "--joints", "2", "--generations", "3000"]
    algorithm = settings.build(settings.parse(arguments, "memes run"))
    assert algorithm.history.keeps_all == 3000 * 32


def test_a_scale_does_not_change_what_a_preset_is_named_for():
    arguments = ["arm", "--algorithm", "me-128", "--scale", "laptop"]
    assert settings.parse(arguments, "memes run").algorithm_options["batch"] == 128
    arguments[2] = "me"
    assert settings.parse(arguments, "memes run").algorithm_options["batch"] == 2048


def test_a_scale_makes_nothing_larger():
    arguments = ["arm", "--algorithm", "cma-me", "--scale", "laptop"]
    assert settings.parse(arguments, "memes run").algorithm_options["batch"] == 128
    arguments[2] = "me-es"
    assert settings.parse(arguments, "memes run").algorithm_options["samples"] == 128


def test_a_strategy_of_evosax_by_name(capsys):
    assert main(["run", "arm", *QUICK, "--strategy", "sep-cma-es", "--out", "run", "--quiet"]) == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["options"]["strategy"] == "sep-cma-es"


def test_every_setting_is_written_down(capsys):
    assert main(["run", "arm", *QUICK, "--resolution", "7", "8", "--out", "run", "--quiet"]) == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["resolution"] == config["cells"] == [7, 8]
    assert config["options"]["stale_budget"] == 32
    assert config["generations_per_call"] == 1  # as it was worked out, not as it was left open
    assert config["generations_done"] == config["generations"] == 3


def test_centroids_make_a_tessellation():
    parsed = settings.parse(["arm", "--joints", "2", "--centroids", "30"], "memes run")
    assert settings._cells(memes.tasks.arm(joints=2), parsed.settings).count == 30


def test_a_task_of_your_own():
    Path("mine.py").write_text(
        "import memes\n"
        "def make(*, size: int = 3):\n"
        "    return memes.tasks.arm(joints=size)\n"
        "task = make(size=2)\n"
    )
    for name, joints in [("mine:task", 2), ("mine.py:task", 2), ("mine:make", 3)]:
        assert settings.build(settings.parse([name], "memes run")).task.dim == joints
    assert settings.build(settings.parse(["mine:make", "--size", "5"], "memes run")).task.dim == 5


WRONG = {
    "unknown command 'rnu': did you mean run?": ["rnu"],
    "TASK is missing": ["run"],
    "TASK is missing: it": ["run", "--lanes", "3"],
    "unknown task 'amr': did you mean 'arm'": ["run", "amr"],
    "unknown task 'zzz': choose from arm": ["run", "zzz"],
    "unknown algorithm 'mems': did you mean 'memes'": ["run", "arm", "--algorithm", "mems"],
    "unknown scale 'huge'": ["run", "arm", "--scale", "huge"],
    "samples must be even": ["run", "arm", "--samples", "7"],
    "lanes must be at least 1, got 0": ["run", "arm", "--lanes", "0"],
    "generations must be at least 1": ["run", "arm", "--generations", "0", "--joints", "2"],
    "joints must be at least 1": ["run", "arm", "--joints", "0"],
    "unknown strategy 'cma': did you mean 'cma-es'?": ["run", "arm", "--strategy", "cma"],
    "resolution must have one entry for each of the 2": ["run", "arm", "--resolution", "5"],
    "resolution must be at least 1": ["run", "arm", "--resolution", "5", "0"],
    "resolution and centroids exclude": ["run", "arm", "--resolution", "5", "5", "--centroids", "9"],
    "centroids must be at least 1": ["run", "arm", "--centroids", "0"],
    "config: cannot read 'no.toml'": ["run", "arm", "--config", "no.toml"],
    "config: 'broken.toml' is not TOML": ["run", "arm", "--config", "broken.toml"],
    "unknown key of 'typo.toml' 'lanse': did you mean 'lanes'": ["run", "arm", "--config", "typo.toml"],
    "task: there is no module 'nowhere'": ["run", "nowhere:task"],
    "task: there is no file 'nowhere.py'": ["run", "nowhere.py:task"],
    "'mine' has nothing called 'tsak'": ["run", "mine:tsak"],
    "must be a Task or a function that returns one, got int": ["run", "mine:number"],
    "must return fitness of shape (4,), got (4, 3)": ["run", "mine:misshapen"],
    "must return feature of shape (4, 2), got (2, 4)": ["run", "mine:transposed"],
    "must return feature as one array, got a list": ["run", "mine:listed"],
    "must return (fitness, feature), got dict": ["run", "mine:dictionary"],
    "uses NumPy where JAX must trace it": ["run", "mine:with_numpy"],
    "must be a function that returns a Task, got int": ["run", "mine:no_task"],
    "its option 'sigma' has the name of another option": ["run", "mine:clash"],
    "must take keyword-only parameters, got 'size'": ["run", "mine:positional"],
    "must be module:name or file.py:name": ["run", ":task"],
    "memes list takes no arguments, got 'all'": ["list", "all"],
    "seed must lie in [0, 2^32), got -1": ["run", "arm", *QUICK, "--seed", "-1"],
    "seed must lie in [0, 2^32), got 4294967296": ["run", "arm", *QUICK, "--seed", "4294967296"],
    "resolution must give at most": ["run", "arm", "--resolution", "100000", "100000"],
    "lanes in 'types.toml' must be int, got True": ["run", "arm", "--config", "types.toml"],
    "unknown algorithm '['memes']'": ["run", "arm", "--config", "list.toml"],
    "out must be a folder, but": ["run", "arm", *QUICK, "--out", "typo.toml/below"],
    "feature_low must be below feature_high": ["run", "mine:reversed_bounds"],
    "out must not hold a run yet": ["run", "arm", *QUICK, "--out", "taken"],
    "out must be a folder": ["run", "arm", *QUICK, "--out", "typo.toml"],
    "RUN is missing": ["plot"],
    "'nothing' does not hold a run": ["plot", "nothing"],
    "Unrecognized options: --lanse": ["run", "arm", "--lanse", "3"],
    "Error parsing --lanes": ["run", "arm", "--lanes", "many"],
}


@pytest.mark.parametrize(("sentence", "arguments"), WRONG.items(), ids=WRONG)
def test_wrong_use_is_one_sentence_and_exit_code_2_and_writes_nothing(sentence, arguments, capsys):
    Path("broken.toml").write_text("lanes =")
    Path("typo.toml").write_text("lanse = 3")
    Path("types.toml").write_text("lanes = true")
    Path("list.toml").write_text('algorithm = ["memes"]')
    Path("taken").mkdir()
    Path("taken/config.json").write_text("{}")
    Path("mine.py").write_text(
        "import memes\n"
        "number = 3\n"
        "arm = memes.tasks.arm(joints=3)\n"
        "misshapen = memes.Task(**{**vars(arm), 'evaluate': lambda keys, x: (x, x[:, :2])})\n"
        "import numpy as np\n"
        "def task(evaluate, **more): return memes.Task(**{**vars(arm), 'evaluate': evaluate, **more})\n"
        "transposed = task(lambda k, x: (x[:, 0], x[:, :2].T), jit=False)\n"
        "listed = task(memes.rowwise(lambda k, x: (x[0], [x[0], x[1]])))\n"
        "dictionary = task(lambda k, x: {'fitness': x[:, 0], 'feature': x[:, :2]})\n"
        "with_numpy = task(lambda k, x: (np.sum(np.asarray(x), axis=1), x[:, :2]))\n"
        "def no_task(): return 3\n"
        "def clash(*, sigma=1.0): return arm\n"
        "def positional(size): return arm\n"
        "def reversed_bounds():\n"
        "    return memes.Task(**{**vars(arm), 'feature_low': (2.0, 0.0)})\n"
    )
    sys.modules.pop("mine", None)
    before = {path for path in Path().rglob("*") if "__pycache__" not in path.parts}
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    printed = capsys.readouterr()
    assert code == 2
    assert sentence in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert {path for path in Path().rglob("*") if "__pycache__" not in path.parts} == before


def test_a_task_file_may_use_its_neighbours_and_runs_once(capsys):
    Path("sub").mkdir()
    Path("sub/neighbour_of_mine.py").write_text("joints = 3")
    Path("sub/own.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "import memes, neighbour_of_mine\n"
        "@dataclass\n"
        "class Box:\n"
        "    size: int\n"
        "print('executed')\n"
        "task = memes.tasks.arm(joints=neighbour_of_mine.joints)\n"
    )
    assert settings.build(settings.parse(["sub/own.py:task"], "memes run")).task.dim == 3
    assert capsys.readouterr().out.count("executed") == 1


def test_a_robot_of_ones_own_runs_and_stands_where_nothing_moves_it(capsys):
    """Policies without weights: both feet stay on the ground, or nearly, until time is over."""
    task = f"{EXAMPLES / 'custom_robot.py'}:runner"
    options = ["--lanes", "2", "--samples", "4", "--generations", "2", "--hidden", "4"]
    assert main(["run", task, *options, "--quiet", "--out", "own"]) == 0
    runner = settings.task_of(memes.load_run("own"), task)
    assert runner.uncertain
    keys = jax.random.split(jax.random.key(0), 16)
    outcome, _ = rollout(runner.control, keys, jnp.zeros((16, runner.dim)))
    np.testing.assert_array_equal(outcome.length, 100)
    assert not outcome.failed.any()
    assert np.min(outcome.mean) > 0.9
    assert np.abs(outcome.total).max() < 0.2
    assert "own/figures/archive.png" in capsys.readouterr().out


def test_help_does_not_load_jax():
    code = "import sys, memes.cli; memes.cli.main(['--help']); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_examples_run(example):
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / example], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    coverage = float(done.stdout.split("coverage ")[-1].rstrip("%\n"))
    assert coverage > 3


def test_doctor_describes_the_machine_and_checks_the_library(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for word in ("jax", "cores", "device 0", "precision", "compiled programs", "extra 'evosax'"):
        assert word in said
    assert "evolution on the arm: coverage" in said
    assert "physics against MuJoCo: backend" in said


def test_doctor_names_what_fails(capsys, monkeypatch):
    def broken():
        raise ZeroDivisionError("one by nought")

    monkeypatch.setattr("memes.doctor.self_check", lambda: {"arithmetic": broken})
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "arithmetic: FAILED: ZeroDivisionError: one by nought" in captured.out
    assert captured.err == "memes: the self-check failed: arithmetic\n"


def test_programs_are_kept_in_the_users_cache_unless_the_user_says_otherwise(tmp_path, monkeypatch):
    environment = {"XDG_CACHE_HOME": str(tmp_path), "OPENBLAS_NUM_THREADS": "7"}
    monkeypatch.setattr(os, "environ", environment)
    assert main(["list"]) == 0
    assert Path(environment["JAX_COMPILATION_CACHE_DIR"]) == tmp_path / "memes" / "xla"
    assert environment["OPENBLAS_NUM_THREADS"] == "7"
    environment["JAX_COMPILATION_CACHE_DIR"] = "elsewhere"
    assert main(["list"]) == 0
    assert environment["JAX_COMPILATION_CACHE_DIR"] == "elsewhere"


def test_a_home_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    environment = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    monkeypatch.setattr(os, "environ", environment)
    assert main(["list"]) == 0
    assert "JAX_COMPILATION_CACHE_DIR" not in environment
