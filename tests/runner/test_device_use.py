"""Runs count other processes on the same device, and record the count in their summary."""

import subprocess
import sys

import pytest

import memes
from memes.runner import device_use
from memes.runner.device_use import announced, count
from memes.store.summary import load_summary

pytestmark = pytest.mark.usefixtures("no_figures")

OTHER = """
import sys
from pathlib import Path
from memes.runner.device_use import announced
with announced(Path(sys.argv[1])):
    print("here", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """Start another process that is registered as a user of the device in the folder `device`."""
    place = tmp_path / "device"
    command = [sys.executable, "-c", OTHER, str(place)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    yield place, process
    process.kill()
    process.communicate()


def test_processes_are_counted_while_they_live(other):
    place, process = other
    assert count(place) == 1
    with announced(place), announced(place):  # two runs of this process
        assert count(place) == 2
        process.kill()
        process.communicate()
        assert count(place) == 1
    assert list(place.iterdir()) == []


def test_only_files_with_the_id_of_a_process_are_counted_and_removed(tmp_path):
    for name in ("mine", "1-notes", "12345"):
        (tmp_path / name).touch()
    assert count(tmp_path) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1-notes", "mine"]


def test_a_run_that_shares_its_device_records_it(other, tmp_path, monkeypatch):
    place, process = other
    monkeypatch.setattr(device_use, "place_of", lambda device: place)
    task = memes.tasks.arm(joints=3)
    options = {"generations": 2, "progress": False}
    algorithm = memes.presets.me(task, memes.cells.grid(task, (3, 3)), batch=4)
    memes.run(algorithm, out=tmp_path / "shared", **options)
    process.kill()
    process.communicate()
    memes.run(algorithm, out=tmp_path / "alone", **options)
    shared, alone = (load_summary(tmp_path / name).about for name in ("shared", "alone"))
    assert (shared.processes_on_device, alone.processes_on_device) == (2, 1)
    assert shared.device == f"{alone.device}, shared by 2 processes"
    assert all(about.commit and about.when and about.versions for about in (shared, alone))
