"""Test how commands end if a file is not writable, the output pipe is closed, or a simulator exits."""

import errno
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import memes
from memes.commands.main import main
from memes.options.command_line import parse

pytestmark = pytest.mark.usefixtures("traced_once")
QUICK = ["--algorithm", "me", "--batch", "4", "--generations", "2", "--resolution", "4", "4"]
TASKS = """
import os, sys
from dataclasses import replace
import memes, numpy as np
arm = memes.tasks.noisy_arm(joints=3)
calls = []
def simulator(act, *, after):
    def evaluate(keys, x):
        calls.append(len(x))
        if len(calls) > after:
            act()
        return np.asarray(x)[:, 0], np.asarray(x)[:, :2]
    return replace(arm, jit=False, evaluate=evaluate)
def leave(): sys.exit(0)
def fail(): raise ZeroDivisionError("no licence")
def wander(): os.chdir("/")
leaves_first = simulator(leave, after=0)
leaves_later = simulator(leave, after=1)
fails_first = simulator(fail, after=0)
wanders = simulator(wander, after=1)
wanders_first = simulator(wander, after=0)
untraceable = replace(arm, evaluate=lambda keys, x: x.nothing)
def leaves_when_made(): sys.exit("enough")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in a folder with custom tasks."""
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(TASKS)
    Path("leaving.py").write_text("import sys; sys.exit(0)")
    Path("broken.py").write_text("task =")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run of an uncertain task."""
    folder = tmp_path_factory.mktemp("done") / "run"
    words = ["run", "noisy-arm", "--joints", "3", *QUICK, "--reevaluate-samples", "2", "--quiet"]
    assert main([*words, "--out", str(folder)]) == 0
    return folder


def message(capsys):
    """Return the printed message, and check that it is a single line."""
    printed = capsys.readouterr().err
    assert printed.startswith("memes: ")
    assert printed.count("\n") == 1
    return printed


def start(*words, **streams):
    """Run a command in a separate process."""
    command = [sys.executable, "-m", "memes", *map(str, words)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **streams)


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["list"], ["run", "arm", "--help"]])
def test_a_full_disk_for_the_output_gives_an_error_message(words):
    with open("/dev/full", "w") as full:
        ended = start(*words, stdout=full)
    assert ended.stderr == "memes: cannot read or write the output: No space left on device\n"
    assert ended.returncode == 1


@pytest.mark.parametrize("words", [["--version"], ["list"]])
def test_closed_output_causes_no_message(words):
    reading, writing = os.pipe()
    os.close(reading)
    ended = start(*words, stdout=writing)
    os.close(writing)
    assert ended.stderr == ""
    assert ended.returncode == 1


def test_a_run_continues_if_its_output_is_closed(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "memes", "run", "arm", "--joints", "3", *QUICK]
    subprocess.run([*command, "--out", tmp_path / "run"], stdout=writing, stderr=writing, check=False)
    os.close(writing)
    assert memes.load_run(tmp_path / "run").generations == 2
    assert (tmp_path / "run/figures/archive.png").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize(
    ("command", "file"),
    [
        (["plot"], "figures/archive.png"),
        (["reevaluate", "--samples", "2", "--quiet"], "corrected.npz"),
        (["compare", "--out", "comparison"], "comparison.md"),
    ],
)
def test_a_disk_without_write_access_gives_an_error_message(
    command, file, number, done, here, capsys, monkeypatch
):
    def refuse(descriptor):
        raise OSError(number, os.strerror(number))

    def content():
        there = [path for path in done.rglob("*") if path.is_file() and path.name != ".lock"]
        return {path: path.read_bytes() for path in there}

    before = content()
    monkeypatch.setattr("memes.store.files.os.fsync", refuse)
    assert main([command[0], str(done), *command[1:]]) == 1
    printed = message(capsys)
    assert os.strerror(number) in printed
    assert file in printed
    assert content() == before


@pytest.mark.parametrize(
    ("error", "code", "printed"),
    [
        (MemoryError(), 1, "there is not enough memory"),
        (RecursionError(), 2, "nested too deeply"),
        (OSError(errno.EIO, "Input/output error", "a\x1b[2Jb"), 1, r"write 'a\x1b[2Jb': Input/output"),
        (memes.UsageError("no \x1b[31mred"), 2, r"no \x1b[31mred"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_external_failures_of_a_command_give_an_error_message(error, code, printed, capsys, monkeypatch):
    def end():
        raise error

    monkeypatch.setattr("memes.commands.list.list", end)
    assert main(["list"]) == code
    assert printed in message(capsys)


@pytest.mark.parametrize(
    ("task", "printed"),
    [
        ("own.py:leaves_first", "'me' on task 'noisy-arm' raised SystemExit: 0 ("),
        (
            "own.py:leaves_later",
            "task 'noisy-arm' raised SystemExit: 0 for every genotype of a generation",
        ),
        ("own.py:leaves_when_made", "'own.py:leaves_when_made' raised SystemExit: enough ("),
        ("leaving.py:task", "task 'leaving.py:task' raised SystemExit: 0 ("),
        ("own.py:fails_first", "own.py, line 15)"),
        ("own.py:fails_first", "'me' on task 'noisy-arm' raised ZeroDivisionError: no licence ("),
        ("broken.py:task", "task 'broken.py:task' raised SyntaxError: "),
    ],
)
def test_a_simulator_that_exits_or_fails_gives_an_error_message(task, printed, here, capsys):
    assert main(["run", task, *QUICK, "--quiet", "--out", "run"]) == 1
    assert printed in message(capsys)


@pytest.mark.parametrize(
    ("task", "printed"),
    [
        ("own.py:leaves_first", "task 'own.py:leaves_first' raised SystemExit: 0 ("),
        ("own.py:fails_first", "task 'own.py:fails_first' raised ZeroDivisionError: no licence ("),
        ("own.py:untraceable", "task 'own.py:untraceable' raised AttributeError: "),
    ],
)
def test_a_task_that_cannot_be_checked_gives_an_error_message(task, printed, here, capsys):
    assert main(["check", task, "--genotypes", "4"]) == 1
    assert printed in message(capsys)


def test_a_simulator_may_change_the_current_folder(here, capsys):
    where = Path.cwd()
    words = ["run", "own.py:wanders", *QUICK, "--reevaluate-samples", "2", "--quiet", "--out", "run"]
    assert main(words) == 0
    assert Path.cwd() == Path("/")
    assert memes.load_run(where / "run").generations == 2
    os.chdir(where)
    assert main(["reevaluate", "run", "--samples", "2", "--quiet", "--task", "own.py:wanders"]) == 0
    os.chdir(where)
    words = ["resume", "run", "--generations", "3", "--quiet", "--task", "own.py:wanders"]
    assert main(words) == 0
    assert memes.load_run(where / "run").generations == 3


def test_a_simulator_may_change_the_current_folder_at_its_first_evaluation(here, capsys, monkeypatch):
    where = Path.cwd()
    for out in (["--out", "run"], []):
        os.chdir(where)
        words = ["run", "own.py:wanders_first", *QUICK, "--reevaluate-samples", "2", "--quiet", *out]
        assert main(words) == 0
    assert Path.cwd() == Path("/")
    default = where / "runs/noisy-arm-me/seed-0"
    assert [memes.load_run(each).generations for each in (where / "run", default)] == [2, 2]
    os.chdir(where)
    words = ["--quiet", "--task", "own.py:wanders_first"]
    assert main(["resume", "run", "--generations", "3", *words]) == 0
    assert memes.load_run(where / "run").generations == 3


@pytest.mark.parametrize("name", ["json", "memes", "queue", "my.task"])
def test_a_task_file_may_have_the_name_of_a_module(name, here):
    """A task file may have the name of a module that is imported before or after the task file."""
    before = dict(sys.modules)
    sys.modules.pop("queue", None)
    Path(f"{name}.py").write_text("import memes\ntask = memes.tasks.arm(joints=3)")
    assert parse([f"{name}.py:task"], "memes run").build().task.dim == 3
    assert parse([f"{name}.py:task"], "memes run").build().task.dim == 3
    for _ in range(2):
        sys.path.remove(str(Path.cwd()))
    assert "tasks" not in vars(importlib.import_module("queue"))
    for module in ("json", "memes"):
        assert sys.modules[module] is before[module]
    sys.modules.update(before)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["run", "builtins:int"], "must be a Task or a function that returns one, got type"),
        (["run", "arm", "--algorithm", "builtins:dict"], "that returns an Algorithm, got type"),
        (["run", "arm", "--config", "deep.toml"], "config: 'deep.toml' is nested too deeply"),
        (["run", "arm", "--config", "dotted.toml"], "config: 'dotted.toml' is nested too deeply"),
        (["run", "arm", "--config", "large.toml"], "config: 'large.toml' has more than 65,536 bytes"),
    ],
)
def test_wrong_names_and_files_give_an_error_message(words, printed, here, capsys):
    Path("deep.toml").write_text("lanes = " + "[" * 60_000)
    Path("dotted.toml").write_text("lanes" + ".a" * 30_000 + " = 1")
    Path("large.toml").write_text("#" * 2**17)
    assert main(words) == 2
    assert printed in message(capsys)


def test_resume_mentions_changes_of_code_and_device(here, capsys):
    Path("task.py").write_text("import memes\ntask = memes.tasks.arm(joints=3)")
    assert main(["run", "task.py:task", *QUICK, "--out", "run"]) == 0
    resume = ["resume", "run", "--task", "task.py:task", "--generations"]
    capsys.readouterr()
    assert main([*resume, "3"]) == 0
    printed = capsys.readouterr().err
    assert "changed" not in printed
    assert "results may differ" not in printed
    Path("task.py").write_text("import memes\n# better\ntask = memes.tasks.arm(joints=3)")
    config = json.loads(Path("run/config.json").read_text())
    config["versions"]["jax"], config["device"] = "0.1.2", "abacus"
    Path("run/config.json").write_text(json.dumps(config))
    assert main([*resume, "4"]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "the code of 'task.py:task' has changed since the run began" in printed
    assert (
        "the run began with device abacus, jax 0.1.2, and continues with device cpu: cpu, jax" in printed
    )
    assert main([*resume, "5", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    config = json.loads(Path("run/config.json").read_text())
    summary = json.loads(Path("run/summary.json").read_text())
    for device in (config["device"], summary["about"]["device"]):
        assert device.split(", shared by")[0] == "abacus, then cpu: cpu"  # tests share the device


@pytest.mark.parametrize(
    ("variables", "printed"),
    [
        ({"JAX_PLATFORMS": "cuda"}, "JAX_PLATFORMS=cuda: "),
        ({"JAX_DISABLE_JIT": "1"}, "JAX_DISABLE_JIT=1: memes does not run with it"),
        ({"JAX_DEBUG_NANS": "true"}, "JAX_DEBUG_NANS=true: memes does not run with it"),
        ({"JAX_ENABLE_X64": "maybe"}, "JAX_ENABLE_X64=maybe: "),
        ({"JAX_NUM_CPU_DEVICES": "abc"}, "JAX_NUM_CPU_DEVICES=abc: "),
        ({"SLURM_STEP_NUM_TASKS": "abc"}, "SLURM_STEP_NUM_TASKS must be a whole number, got 'abc'"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_unsupported_environment_variables_give_an_error_message(variables, printed, tmp_path):
    words = ["run", "arm", *QUICK, "--quiet", "--out", str(tmp_path / "run")]
    if variables == {"JAX_PLATFORMS": "cuda"} and jax.default_backend() == "gpu":
        pytest.skip("this machine has a GPU")
    ended = start(*words, env=os.environ | variables)
    assert ended.stderr.startswith(f"memes: {printed}")
    assert ended.stderr.count("\n") == 1
    assert ended.returncode == 2


@pytest.mark.parametrize("platform", ["cuda", "abacus"])
def test_a_missing_platform_is_not_reported_as_damage_of_a_file(platform, done):
    if platform == "cuda" and jax.default_backend() == "gpu":
        pytest.skip("this machine has a GPU")
    words = ["export", str(done), "--to", "csv"]
    ended = start(*words, env=os.environ | {"JAX_PLATFORMS": platform})
    assert ended.stderr.startswith(f"memes: JAX_PLATFORMS={platform}: ")
    assert ended.stderr.count("\n") == 1
    assert ended.returncode == 2


def test_help_works_in_a_terminal_of_one_column(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1")
    with pytest.raises(SystemExit) as ended:
        main(["plot", "--help"])
    assert ended.value.code == 0
    assert "usage: memes plot" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error(closed, tmp_path):
    command = f"{sys.executable} -m memes list {closed}"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "arm", "--out", ""], ["run", "arm", "--algorithm", ""], ["run", ""], ["resume", ""],
        ["plot", ""], ["compare", ""], ["export", "", "--to", "csv"], ["reevaluate", ""],
        ["export", "run", "--to", "csv", "--out", ""], ["compare", "run", "--out="],
        ["reproduce", "local", "--out", ""], ["run", "arm", "--config", "empty.toml"],
    ],
)  # fmt: skip
def test_empty_arguments_are_refused(words, here, capsys):
    Path("empty.toml").write_text('out = ""')
    before = sorted(Path().rglob("*"))
    assert main(words) == 2
    message(capsys)
    assert sorted(Path().rglob("*")) == before
