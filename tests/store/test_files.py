"""Folders have one writer at a time, and files are there as a whole or not at all."""

import os
import subprocess
import sys

import pytest

from memes import UsageError
from memes.store.files import intact, only_writer, replace_file


def test_children_of_a_dead_writer_do_not_keep_its_lock(tmp_path):
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
def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, error):
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


def test_whatever_is_wrong_with_a_file_is_one_sentence_that_names_it(tmp_path):
    for error, words in (
        (KeyError("cells"), "is damaged or not what its name says: 'cells'"),
        (ValueError("first\nsecond"), "is damaged or not what its name says: first"),
        (AssertionError(), "is damaged or not what its name says: AssertionError"),
        (FileNotFoundError("x"), "there is no file"),
        (UsageError("a sentence of its own"), "a sentence of its own"),
    ):
        with pytest.raises(UsageError) as raised, intact(tmp_path / "file"):
            raise error
        assert words in str(raised.value)
        assert "\n" not in str(raised.value)
