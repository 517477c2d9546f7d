import json
import os
import runpy
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.commands import run
from memes.commands.main import main
from memes.control import rollout
from memes.options import command_line
from memes.options.flags import options_of
from memes.options.from_run import algorithm_of, task_from_run
from memes.store.folder import save_config
from memes.store.provenance import describe

QUICK = ["--scale", "laptop", "--joints", "4", "--lanes", "4", "--samples", "8", "--generations", "3"]
LONGER = ["--generations", "9"]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_run_saves_to_a_new_folder_each_time(capsys):
    assert main(["run", "arm", *QUICK]) == 0
    printed = capsys.readouterr()
    assert "saved to runs/arm-memes/seed-0" in printed.out
    assert "compiling arm" in printed.err
    assert "generation 3/3" in printed.err
    assert main(["run", "arm", *QUICK, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    runs = sorted(str(path.relative_to("runs")) for path in Path("runs").glob("*/*"))
    assert runs == ["arm-memes-take-2/seed-0", "arm-memes/seed-0"]
    config = json.loads(Path("runs/arm-memes/seed-0/config.json").read_text())
    assert config["options"]["samples"] == 8
    assert config["options"]["joints"] == 4
    assert config["algorithm"] == "memes"

    assert main(["reevaluate", "runs/arm-memes/seed-0"]) == 0
    assert "task 'arm' is deterministic" in capsys.readouterr().out
    assert not list(Path("runs/arm-memes/seed-0").glob("corrected*"))

    Path("runs/arm-memes/seed-0/figures/archive.png").unlink()
    assert main(["plot", "runs/arm-memes/seed-0"]) == 0
    assert capsys.readouterr().out.split() == [
        "runs/arm-memes/seed-0/figures/archive.png",
        "runs/arm-memes/seed-0/figures/curves.png",
    ]
    assert Path("runs/arm-memes/seed-0/figures/archive.png").exists()


def test_only_slow_operations_are_announced(monkeypatch):
    monkeypatch.setattr(run, "PATIENCE", 0.05)
    announced, event = [], threading.Event()

    def say(sentence):
        announced.append(sentence)
        event.set()

    with run.said_if_slow(say, "building ..."):
        assert event.wait(30)
    with pytest.raises(KeyError), run.said_if_slow(say, "building again ..."):
        raise KeyError
    time.sleep(0.2)
    assert announced == ["building ..."]


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
    for name, option in options_of(memes.PRESETS[preset].build).items():
        assert f"--{name.replace('_', '-')}" in text
        assert option.help, name


def test_scale_then_file_then_flags():
    Path("my.toml").write_text(
        'lanes = 6\nsamples = 10\nresolution = [7, 9]\nscale = "laptop"\nsigma = 1\nout = "there"\n'
        "figures-draw = false\n[memes]\nneighbours = 4\n[me]\nline = 0.3\n"
    )
    # The file selects a scale, and sets `lanes` and (in the section of this algorithm) `neighbours`. The
    # flag overrides `samples`.
    parsed = command_line.parse(["arm", "--config", "my.toml", "--samples", "12"], "memes run")
    assert parsed.task_options == {"joints": 100}
    assert parsed.algorithm_options["lanes"] == 6
    assert parsed.algorithm_options["samples"] == 12
    assert parsed.algorithm_options["neighbours"] == 4
    assert (parsed.choice.resolution, parsed.choice.out) == ((7, 9), Path("there"))
    assert isinstance(parsed.algorithm_options["sigma"], float)
    assert parsed.observing["figures_draw"] is False
    assert parsed.observing["reevaluate_samples"] == 64
    algorithm = parsed.build()
    assert algorithm.emitter.lanes == 6
    assert algorithm.task.dim == 100


def test_paper_is_the_default_scale():
    parsed = command_line.parse(["arm"], "memes run")
    assert parsed.running["generations"] == 2000
    assert parsed.observing["reevaluate_samples"] == 512
    assert parsed.task_options == {"joints": 1000}
    algorithm = parsed.build()
    assert algorithm.batch_size == 32 * 513


def test_a_scale_does_not_change_options_that_define_a_preset():
    arguments = ["arm", "--algorithm", "me-128", "--scale", "laptop"]
    assert command_line.parse(arguments, "memes run").algorithm_options["batch"] == 128
    arguments[2] = "me"
    assert command_line.parse(arguments, "memes run").algorithm_options["batch"] == 2048


def test_a_preset_that_binds_an_option_is_resumed_by_its_name():
    """A run that overrides an option of `me-128` is still named `me-128`."""
    words = ["arm", "--algorithm", "me-128", "--joints", "2", "--batch", "8", "--out", "run"]
    parsed = command_line.parse(words, "memes run")
    algorithm = parsed.build()
    header = describe(algorithm).updated(parsed.recorded())
    assert algorithm.name == header.config.algorithm == "me-128"
    Path("run").mkdir()
    save_config(Path("run"), header)
    assert algorithm_of(Path("run")).name == "me-128"


def test_a_scale_never_increases_an_option():
    arguments = ["arm", "--algorithm", "cma-me", "--scale", "laptop"]
    assert command_line.parse(arguments, "memes run").algorithm_options["batch"] == 128
    arguments[2] = "me-es"
    assert command_line.parse(arguments, "memes run").algorithm_options["samples"] == 128


def test_a_strategy_of_evosax_by_name(capsys):
    assert main(["run", "arm", *QUICK, "--strategy", "sep-cma-es", "--out", "run", "--quiet"]) == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["options"]["strategy"] == "sep-cma-es"


def test_every_setting_is_recorded(capsys):
    assert main(["run", "arm", *QUICK, "--resolution", "7", "8", "--out", "run", "--quiet"]) == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["resolution"] == config["cells"] == [7, 8]
    assert config["options"]["stale_budget"] == 32
    assert config["seeds_together"] == 1  # the option is not given, so its value is computed
    assert (config["reevaluate_samples"], config["checkpoint_every"]) == (64, None)
    assert config["generations_done"] == config["generations"] == 3


def test_centroids_make_a_tessellation():
    parsed = command_line.parse(["arm", "--joints", "2", "--centroids", "30"], "memes run")
    assert parsed.build().cells.count == 30


def test_a_custom_task_by_name():
    Path("mine.py").write_text(
        "import memes\n"
        "def make(*, size: int = 3):\n"
        "    return memes.tasks.arm(joints=size)\n"
        "task = make(size=2)\n"
    )
    for name, joints in [("mine:task", 2), ("mine.py:task", 2), ("mine:make", 3)]:
        assert command_line.parse([name], "memes run").build().task.dim == joints
    assert command_line.parse(["mine:make", "--size", "5"], "memes run").build().task.dim == 5


def test_help_lists_the_options_of_a_custom_task(capsys):
    Path("spelt.py").write_text(
        "from typing import Literal\nimport memes\n"
        "def make(*, kind: Literal['a', 'b'] | None = None, size: int | None = None,\n"
        "         sizes: tuple[int, ...] | None = None, pair: tuple[int, int] = (1, 2), free=3):\n"
        "    return memes.tasks.arm(joints=pair[1])\n"
    )
    with pytest.raises(SystemExit):
        main(["run", "spelt.py:make", "--help"])
    text = capsys.readouterr().out
    for spelt in (
        "--kind {a,b}",
        "--size INT\n",
        "--sizes INT [INT ...]",
        "--pair INT INT",
        "--free INT",
    ):
        assert spelt in text
    words = ["spelt.py:make", "--kind", "b", "--sizes", "3", "4", "--pair", "5", "6"]
    parsed = command_line.parse(words, "memes run")
    expected = {"kind": "b", "size": None, "sizes": (3, 4), "pair": (5, 6), "free": 3}
    assert parsed.task_options == expected
    assert parsed.build().task.dim == 6


WRONG = {
    "unknown command 'rnu': did you mean 'run'?": ["rnu"],
    "unknown command 'hlep': did you mean 'help'?": ["hlep"],
    "TASK is missing": ["run"],
    "TASK is missing: memes run": ["run", "--lanes", "3"],
    "unknown task 'amr': did you mean 'arm'": ["run", "amr"],
    "unknown task 'zzz': choose from arm": ["run", "zzz"],
    "unknown algorithm 'mems': did you mean 'memes'": ["run", "arm", "--algorithm", "mems"],
    "unknown scale 'huge'": ["run", "arm", "--scale", "huge"],
    "samples must be even": ["run", "arm", "--samples", "7"],
    "lanes must be at least 1, got 0": ["run", "arm", "--lanes", "0"],
    "generations must be at least 1": ["run", "arm", "--generations", "0", "--joints", "2"],
    "joints must be at least 1": ["run", "arm", "--joints", "0"],
    "unknown strategy 'cma': did you mean 'cma-es'?": ["run", "arm", "--strategy", "cma"],
    "rank applies only to noise 'low-rank', got 2 with 'gaussian'": ["run", "arm", "--rank", "2"],
    "resolution must have one entry per feature of task 'arm' (2)": ["run", "arm", "--resolution", "5"],
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
    "uses NumPy, 'if' or float() on values that JAX traces": ["run", "mine:with_numpy"],
    "must be a function that returns a Task, got int": ["run", "mine:no_task"],
    "option 'sigma' has the same name as another option": ["run", "mine:clash"],
    "must take keyword-only parameters, got 'size'": ["run", "mine:positional"],
    "must be module:name or file.py:name": ["run", ":task"],
    "unexpected 'all': options begin with --": ["list", "all"],
    "seed must lie in [0, 2^32), got -1": ["run", "arm", *QUICK, "--seed", "-1"],
    "seed must lie in [0, 2^32), got 4294967296": ["run", "arm", *QUICK, "--seed", "4294967296"],
    "resolution must give at most": ["run", "arm", "--resolution", "100000", "100000"],
    "lanes in 'types.toml' must be int, got True": ["run", "arm", "--config", "types.toml"],
    "unknown algorithm '['memes']'": ["run", "arm", "--config", "list.toml"],
    "out must be a folder, but": ["run", "arm", *QUICK, "--out", "typo.toml/below"],
    "feature_low must be below feature_high": ["run", "mine:reversed_bounds"],
    "out must not contain a run yet": ["run", "arm", *QUICK, "--out", "taken"],
    "out must be a folder": ["run", "arm", *QUICK, "--out", "typo.toml"],
    "chunk must be at least 1, got 0": ["run", "arm", *QUICK, "--chunk", "0"],
    "checkpoint_every must be at least 0": ["run", "arm", *QUICK, "--checkpoint-every", "-1"],
    "call_seconds must be at least 0": ["run", "arm", *QUICK, "--call-seconds", "-1"],
    "seeds must be at least 1, got 0": ["run", "arm", *QUICK, "--seeds", "0"],
    "reevaluate_samples must be at least 1": ["run", "arm", "--reevaluate-samples", "0"],
    "config: cannot read 'taken': Is a directory": ["run", "arm", "--config", "taken"],
    "config: 'binary.toml' is not TOML": ["run", "arm", "--config", "binary.toml"],
    "unknown section of 'table.toml' 'run'": ["run", "arm", "--config", "table.toml"],
    "scale in 'scale.toml' must be one of paper, laptop": ["run", "arm", "--config", "scale.toml"],
    "resolution and centroids exclude each": ["run", "arm", "--config", "cvt.toml", "--centroids", "9"],
    "fitness of real numbers, got dtype complex64": ["run", "mine:imaginary"],
    "fitness of real numbers, got dtype <U1": ["run", "mine:written"],
    "init of task 'arm' must return genotypes of shape (4, 3), got (3, 4)": ["run", "mine:turned"],
    "neither a module nor a file": ["run", "./taken:task"],
    "--algorithm must be STR, got nothing": ["run", "arm", "--algorithm"],
    "unexpected 'everything'": ["doctor", "everything"],
    "RUN is missing": ["plot"],
    "RUN is missing: memes resume RUN [OPTIONS]": ["resume"],
    "RUN is missing: memes replay RUN": ["replay", "--best"],
    "RUN: there is no file or folder 'nothing'": ["plot", "nothing"],
    "'nothing' does not contain a run: it": ["resume", "nothing"],
    "'typo.toml' does not contain a run": ["resume", "typo.toml"],
    "'taken/config.json' is damaged": ["resume", "taken"],
    "'done' is finished after 3 generations: extend it with more generations, such as --generations 6": [
        "resume",
        "done",
    ],
    "such as --generations 6; got 2": ["resume", "done", "--generations", "2"],
    "generations must be at least 1, got -1": ["resume", "done", "--generations", "-1"],
    "dim of the run in 'done' is 4, got 3": ["resume", "done", "--task", "mine:arm", *LONGER],
    "task_name of the run in 'done' is arm": ["resume", "done", "--task", "mine:renamed", *LONGER],
    "has a task that is custom code, 'mine.py:task': if you trust it": ["resume", "own", *LONGER],
    "unknown algorithm of the run in 'strange' 'mems'": ["resume", "strange", *LONGER],
    "seed in 'unsown/config.json' must be int, got 'x'": ["resume", "unsown", *LONGER],
    "'future/config.json' has format version 99": ["resume", "future", *LONGER],
    "reseeded/checkpoints/00000003.npz' is a checkpoint of another run": [
        "resume",
        "reseeded",
        *LONGER,
    ],
    "damaged/checkpoints' can be read; remove all of them to start again": [
        "resume",
        "damaged",
        "--quiet",
        *LONGER,
    ],
    "'damaged/lanes.npz' is damaged": ["plot", "done", "damaged"],
    "unknown option '--lanse': did you mean '--lanes'?": ["run", "arm", "--lanse", "3"],
    "--together is called --seeds-per-batch now": ["run", "arm", "--together", "2"],
    "--together is called --seeds-per-batch": ["reproduce", "main", "--together=2"],
    "'old.toml' 'together': it is called 'seeds_per_batch' now": ["run", "arm", "--config", "old.toml"],
    "--pool is an option of cma-me, not of memes": ["run", "arm", "--pool", "3"],
    "--no-offer-samples is an option of memes, memes-all, memes-sampling": [
        *("run", "arm", "--algorithm", "me", "--no-offer-samples"),
    ],
    "key 'pool' of 'others.toml' is an option of cma-me, not of memes; move it": [
        *("run", "arm", "--config", "others.toml"),
    ],
    "--lanes must be INT, got 'many'": ["run", "arm", "--lanes", "many"],
}

FILES = {
    "broken.toml": b"lanes =",
    "typo.toml": b"lanse = 3",
    "old.toml": b"together = 3",
    "others.toml": b"pool = 3",
    "types.toml": b"lanes = true",
    "list.toml": b'algorithm = ["memes"]',
    "binary.toml": bytes(range(256)),
    "table.toml": b"[run]\nlanes = 3",
    "scale.toml": b'scale = "huge"',
    "cvt.toml": b"resolution = [5, 5]",
    "taken/config.json": b"{}",
    "mine.py": b"""
import memes
import numpy as np
from dataclasses import replace
number = 3
arm = memes.tasks.arm(joints=3)
renamed = replace(memes.tasks.arm(joints=4), name="leg")
def task(evaluate, **more): return replace(arm, evaluate=evaluate, **more)
misshapen = task(lambda k, x: (x, x[:, :2]))
transposed = task(lambda k, x: (x[:, 0], x[:, :2].T), jit=False)
listed = task(memes.rowwise(lambda k, x: (x[0], [x[0], x[1]])))
dictionary = task(lambda k, x: {'fitness': x[:, 0], 'feature': x[:, :2]})
with_numpy = task(lambda k, x: (np.sum(np.asarray(x), axis=1), x[:, :2]))
imaginary = task(lambda k, x: (x[:, 0] + 1j, x[:, :2]))
written = task(lambda k, x: (np.full(len(x), "a"), x[:, :2]), jit=False)
turned = replace(arm, dim=3, init=lambda key, n: arm.init(key, n).T)
def no_task(): return 3
def clash(*, sigma=1.0): return arm
def positional(size): return arm
def reversed_bounds(): return replace(arm, feature_low=(2.0, 0.0))
""",
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("done") / "run"
    assert main(["run", "arm", *QUICK, "--quiet", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def surroundings(done):
    """Create files and folders for tests of incorrect usage.

    Returns a function that lists all changes to these files and folders.
    """
    for name, content in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(content)
    edits = {
        "done": {},
        "own": {"task": "mine.py:task"},
        "strange": {"algorithm": "mems"},
        "unsown": {"seed": "x"},
        "future": {"format_version": 99},
        "reseeded": {"seed": 7},
        "damaged": {},
    }
    for name, changed in edits.items():
        shutil.copytree(done, name)
        config = json.loads(Path(name, "config.json").read_text())
        Path(name, "config.json").write_text(json.dumps(config | changed))
    for file in Path("damaged").rglob("*.npz"):
        file.write_bytes(file.read_bytes()[:-50])
    sys.modules.pop("mine", None)

    def contents():
        there = [p for p in Path().rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        return {path: path.read_bytes() for path in there if path.name != ".lock"}

    before = contents()
    return lambda: contents().items() ^ before.items()


@pytest.mark.parametrize(("sentence", "arguments"), WRONG.items(), ids=WRONG)
def test_wrong_use_gives_an_error_and_exit_code_2_and_writes_nothing(
    sentence, arguments, surroundings, capsys
):
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    printed = capsys.readouterr()
    assert code == 2
    assert sentence in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert not surroundings()


ARM = memes.tasks.arm(joints=4)


def small(**options):
    return memes.presets.me(ARM, memes.cells.grid(ARM, (5, 5)), **{"batch": 4} | options)


WRONG_CALLS = {
    "algorithm must be Algorithm, got Task": lambda: memes.run(ARM, generations=2, out="x"),
    "generations must be int or None, got '3'": lambda: memes.run(small(), generations="3", out="x"),
    "generations must be int or None, got True": lambda: memes.run(small(), generations=True, out="x"),
    "seed must be int, got 0.5": lambda: memes.run(small(), generations=2, seed=0.5, out="x"),
    "out must be str or Path or None, got 3": lambda: memes.run(small(), generations=2, out=3),
    "metadata must be dict or None": lambda: memes.run(small(), generations=2, metadata=[1], out="x"),
    "out must not contain a run yet": lambda: memes.run(small(), generations=2, out="done"),
    "unknown argument of run 'about': it is called 'metadata' now": lambda: memes.run(
        small(), generations=2, about={}
    ),
    "unknown argument of run 'together': it is called 'seeds_per_batch'": lambda: memes.run(
        small(), generations=2, seeds=[1, 2], together=2
    ),
    "task must be Task, got 'arm'": lambda: memes.presets.memes("arm"),
    "cells must be Cells or None, got (5, 5)": lambda: memes.presets.memes(ARM, (5, 5)),
    "lanes must be int, got 4.5": lambda: memes.presets.memes(ARM, lanes=4.5),
    "batch must be int, got '4'": lambda: small(batch="4"),
    "explore must be one of fifo, everything, elites": lambda: memes.presets.memes(ARM, explore="all"),
    "provides no transitions": lambda: memes.presets.pga_me(ARM),
    "joints must be int, got 2.5": lambda: memes.tasks.arm(joints=2.5),
    "resolution must be tuple[int, ...] or None": lambda: memes.cells.grid(ARM, (5.5, 5)),
    "dim of task 'arm' must be int, got '4'": lambda: replace(ARM, dim="4"),
    "evaluate of task 'arm' must be a function": lambda: replace(ARM, evaluate="fast"),
    "got [a, 1.0] for feature 0": lambda: replace(ARM, feature_low=("a", 0.0)),
    "fitness must be float, got 'much'": lambda: memes.noisy(ARM, fitness="much"),
    "'done/done' does not contain a run": lambda: memes.load_run("done/done"),
    "there is no file 'nothing.npz'": lambda: memes.load_archive("nothing.npz"),
    "'mine.py' is damaged or has the wrong format": lambda: memes.load_archive("mine.py"),
    "algorithm of the run in 'done' is memes, got me": lambda: memes.resume(
        small(), "done", generations=9
    ),
    "path must be str or Path, got 7": lambda: memes.resume(small(), 7),
    "generations must be int or None, got '9'": lambda: memes.resume(small(), "done", generations="9"),
}


@pytest.mark.parametrize(("sentence", "call"), WRONG_CALLS.items(), ids=WRONG_CALLS)
def test_a_wrong_call_gives_a_one_line_error_and_writes_nothing(sentence, call, surroundings):
    with pytest.raises(memes.UsageError) as refused:
        call()
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not surroundings()


def test_a_task_file_may_import_from_its_folder_and_is_executed_once(capsys):
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
    assert command_line.parse(["sub/own.py:task"], "memes run").build().task.dim == 3
    assert capsys.readouterr().out.count("executed") == 1


def test_a_custom_robot_runs_and_does_not_fall_without_actions(capsys):
    """With zero weights, the robot stands still: both feet touch the ground in over 90% of the steps."""
    task = f"{EXAMPLES / 'custom_robot.py'}:runner"
    options = ["--lanes", "2", "--samples", "4", "--generations", "2", "--hidden", "4"]
    assert main(["run", task, *options, "--reevaluate-samples", "4", "--quiet", "--out", "own"]) == 0
    runner = task_from_run(memes.load_run("own"), task)
    assert runner.uncertain
    keys = jax.random.split(jax.random.key(0), 16)
    outcome, _ = rollout(runner.control, keys, jnp.zeros((16, runner.dim)))
    np.testing.assert_array_equal(outcome.length, 100)
    assert not outcome.failed.any()
    assert np.min(outcome.mean) > 0.9
    assert np.abs(outcome.total).max() < 0.2
    assert "own/figures/archive.png" in capsys.readouterr().out


def test_help_does_not_load_jax():
    code = (
        "import sys; from memes.commands.main import main; main(['--help']); exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_examples_run(example, capfd):
    if example == "episodes.py":  # workers of this example import the file as a module
        quickly = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        words = [sys.executable, "-W", "error", EXAMPLES / example]
        assert subprocess.run(words, env=quickly).returncode == 0, capfd.readouterr().err
    else:
        runpy.run_path(str(EXAMPLES / example), run_name="__main__")
    coverage = float(capfd.readouterr().out.split("coverage ")[-1].rstrip("%\n"))
    assert coverage > 3


def test_doctor_describes_the_machine_and_checks_the_library(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for word in ("jax", "cores", "device 0", "precision", "compiled programs", "extra 'evosax'"):
        assert word in printed
    assert "evolution on the arm: coverage" in printed
    assert "physics against MuJoCo: backend" in printed


def test_doctor_names_failed_checks(capsys, monkeypatch):
    def broken():
        raise ZeroDivisionError("one by nought")

    monkeypatch.setattr("memes.commands.doctor.self_check", lambda: {"arithmetic": broken})
    assert main(["doctor"]) == 1
    captured = capsys.readouterr()
    assert "arithmetic: FAILED: ZeroDivisionError: one by nought" in captured.out
    assert captured.err == "memes: the self-check failed: arithmetic\n"


def test_compiled_programs_are_cached_for_the_user_unless_configured_otherwise(tmp_path, monkeypatch):
    environment = {"XDG_CACHE_HOME": str(tmp_path), "OPENBLAS_NUM_THREADS": "7"}
    monkeypatch.setattr(os, "environ", environment)
    assert main(["list"]) == 0
    assert Path(environment["JAX_COMPILATION_CACHE_DIR"]) == tmp_path / "memes" / "xla"
    assert environment["OPENBLAS_NUM_THREADS"] == "7"
    environment["JAX_COMPILATION_CACHE_DIR"] = "elsewhere"
    assert main(["list"]) == 0
    assert environment["JAX_COMPILATION_CACHE_DIR"] == "elsewhere"


def test_a_home_folder_without_write_access_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    environment = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    monkeypatch.setattr(os, "environ", environment)
    assert main(["list"]) == 0
    assert "JAX_COMPILATION_CACHE_DIR" not in environment


def test_a_default_folder_is_used_by_only_one_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parsed = command_line.parse(["arm", *QUICK], "memes run")
    names = "arm", "memes"
    with (
        run.output_folder(names, parsed, tmp_path) as first,
        run.output_folder(names, parsed, tmp_path) as second,
    ):
        assert (str(first), str(second)) == ("runs/arm-memes/seed-0", "runs/arm-memes-take-2/seed-0")
        (second / "something").touch()
    assert not first.exists()
    assert second.exists()
