"""Commands that cannot write, whose output nobody reads, or whose simulator wants to leave."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import memes
from memes.commands.main import main

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
def leaves_when_made(): sys.exit("enough")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to work in, with tasks of one's own."""
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


def sentence(capsys):
    """The one sentence that was said."""
    said = capsys.readouterr().err
    assert said.startswith("memes: ")
    assert said.count("\n") == 1
    return said


def start(*words, **streams):
    """Run a command as a process."""
    command = [sys.executable, "-m", "memes.commands.main", *map(str, words)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **streams)


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["list"], ["run", "arm", "--help"]])
def test_a_full_disk_under_the_output_is_one_sentence(words):
    with open("/dev/full", "w") as full:
        ended = start(*words, stdout=full)
    assert ended.stderr == "memes: cannot read or write the output: No space left on device\n"
    assert ended.returncode == 1


@pytest.mark.parametrize("words", [["--version"], ["list"]])
def test_output_that_nobody_reads_is_one_sentence(words):
    reading, writing = os.pipe()
    os.close(reading)
    ended = start(*words, stdout=writing)
    os.close(writing)
    assert ended.stderr == "memes: nobody reads the output any more\n"
    assert ended.returncode == 1


def test_a_run_goes_on_where_nobody_reads_its_progress(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "memes.commands.main", "run", "arm", "--joints", "3", *QUICK]
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
def test_a_disk_that_cannot_be_written_is_one_sentence(
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
    said = sentence(capsys)
    assert os.strerror(number) in said
    assert file in said
    assert content() == before


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError(), 1, "there is not enough memory"),
        (RecursionError(), 2, "nested too deeply"),
        (OSError(errno.EIO, "Input/output error", "a\x1b[2Jb"), 1, r"write 'a\x1b[2Jb': Input/output"),
        (memes.UsageError("no \x1b[31mred"), 2, r"no \x1b[31mred"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_whatever_ends_a_command_from_outside_is_one_sentence(error, code, said, capsys, monkeypatch):
    def end():
        raise error

    monkeypatch.setattr("memes.commands.list.list", end)
    assert main(["list"]) == code
    assert said in sentence(capsys)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("own.py:leaves_first", "'me' on task 'noisy-arm' raised SystemExit: 0 ("),
        ("own.py:leaves_later", "task 'noisy-arm' raised SystemExit: 0 for every row of a generation"),
        ("own.py:leaves_when_made", "'own.py:leaves_when_made' raised SystemExit: enough ("),
        ("leaving.py:task", "task 'leaving.py:task' raised SystemExit: 0 ("),
        ("own.py:fails_first", "own.py, line 15)"),
        ("own.py:fails_first", "'me' on task 'noisy-arm' raised ZeroDivisionError: no licence ("),
        ("broken.py:task", "task 'broken.py:task' raised SyntaxError: "),
    ],
)
def test_a_simulator_that_leaves_or_fails_at_once_is_one_sentence(task, said, here, capsys):
    assert main(["run", task, *QUICK, "--quiet", "--out", "run"]) == 1
    assert said in sentence(capsys)


def test_a_simulator_may_go_elsewhere(here, capsys):
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
