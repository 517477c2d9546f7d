"""A folder has one writer at a time, and files are either complete or absent."""

import os
import subprocess
import sys

import numpy as np
import pytest

import memes
from memes import UsageError
from memes.archive import empty
from memes.store import files
from memes.store.files import append, only_writer, read_table, reading, replace_file
from memes.store.folder import load_metrics


def test_child_processes_do_not_keep_the_lock_of_a_writer_that_has_ended(tmp_path):
    script = """
import os, pathlib, time
from memes.store.files import only_writer
started, start = os.pipe()
with only_writer(pathlib.Path('.')):
    child = os.fork()
    if child == 0:
        os.write(start, b'!')
        time.sleep(60)
        os._exit(0)
    os.read(started, 1)
try:
    with only_writer(pathlib.Path('.')):
        print('locked again')
finally:
    os.kill(child, 9)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "locked again\n", done.stderr


def test_a_folder_has_one_writer(tmp_path):
    refused = pytest.raises(UsageError, match=rf"another process \({os.getpid()}\) is writing")
    with only_writer(tmp_path), refused, only_writer(tmp_path):
        pass
    with only_writer(tmp_path):
        pass


@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
def test_a_failed_write_keeps_the_old_file(tmp_path, error):
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def write(stream):
        stream.write(b"ne")
        raise error

    with pytest.raises(type(error)):
        replace_file(file, write)
    assert file.read_bytes() == b"old"
    replace_file(file, lambda stream: stream.write(b"new"))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"new")]


def test_damaged_files_give_a_one_line_error_with_their_name(tmp_path):
    for error, words in (
        (KeyError("cells"), "is damaged or has the wrong format: 'cells'"),
        (ValueError("first\nsecond"), "is damaged or has the wrong format: first"),
        (AssertionError(), "is damaged or has the wrong format: AssertionError"),
        (FileNotFoundError("x"), "there is no file"),
        (UsageError("another message"), "another message"),
    ):
        with pytest.raises(UsageError) as raised, reading(tmp_path / "file"):
            raise error
        assert words in str(raised.value)
        assert "\n" not in str(raised.value)


def test_appending_to_a_file_with_hard_links_does_not_change_the_links(tmp_path):
    (tmp_path / "log").write_bytes(b"one two")
    os.link(tmp_path / "log", tmp_path / "other")
    append(tmp_path / "log", b" three", at=3)
    assert (tmp_path / "log").read_bytes() == b"one three"
    assert (tmp_path / "other").read_bytes() == b"one two"
    append(tmp_path / "log", b"!", at=9)
    assert (tmp_path / "log").read_bytes() == b"one three!"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "other"]


WRONG = [None, 3, 1.5, b"bytes", ["a"], "", "a\0b", "x" * 300, "y/" * 3000, "~", "~/runs", "\ud800"]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:9])
def test_invalid_paths_give_a_one_line_error(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    algorithm = memes.presets.me(memes.tasks.arm(joints=3), batch=4)
    calls = [memes.load_run, memes.load_archive, memes.load_changes, load_metrics]
    calls += [memes.plot.archive, memes.plot.curves, memes.plot.compare, memes.task_from_run]
    elites = empty(memes.cells.grid(memes.tasks.arm(joints=3), (2, 2)), 3)
    calls.append(lambda path: memes.save_archive(path, elites))
    calls.append(lambda path: memes.resume(algorithm, path))
    if wrong is not None:
        calls.append(lambda path: memes.run(algorithm, generations=1, out=path, progress=False))
    for call in calls:
        with pytest.raises(UsageError) as raised:
            call(wrong)
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 300
    assert not list(tmp_path.iterdir())


def test_the_size_and_line_length_of_tables_are_limited(tmp_path, monkeypatch):
    file = tmp_path / "table.csv"
    file.write_text("a,b\n1,\n2.5,3\n")
    np.testing.assert_array_equal(read_table(file)["b"], [np.nan, 3])
    monkeypatch.setattr(files, "MOST_NUMBERS", 100)
    for content, words in (
        (",".join(["ab"] * 30_000) + "\n", "a line has more than 65,536 bytes"),
        ("a,b\n" + ",\n" * 1000, "2,000 numbers are too many for a file of 2,004 bytes"),
        ("", "it has no header"),
        ("\n", "it has no header"),
        ("\n1\n", "it has no header"),
        ("a\n\n", "line 2 has 0 fields, not 1"),
        ("a\n" + "1" * 70_000 + "\n", "a line has more than"),
    ):
        file.write_text(content)
        with pytest.raises(UsageError, match=words):
            read_table(file)
