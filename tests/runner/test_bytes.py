"""The files of a run do not depend on the clock, the duration of device calls, or interruptions."""

import pytest

import memes
import placements
from folder_contents import contents
from memes.runner import change_log
from memes.store import changes as store

pytestmark = pytest.mark.usefixtures("compiled_once", "no_figures")
FOUR = ("memes", "me", "me-es", "cma-me")
GENERATIONS = 45  # a generation that is not in `change_log.marks`
OTHERS = sorted(set(memes.PRESETS) - set(FOUR))
NAMES = [*FOUR, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)]


@pytest.fixture(scope="module", autouse=True)
def _few_recorded_changes(traced_once):
    """Record only two changes per generation on the device. Most generations have more changes."""
    traced_once.clear()
    with pytest.MonkeyPatch.context() as patch:
        for module in ("device", "change_log"):
            patch.setattr(f"memes.runner.{module}.MOST_CHANGES", 2)
        yield
    traced_once.clear()


def run(name, out, call_seconds=1.0, rows=2**20, generations=GENERATIONS):
    observers = [memes.Checkpoints(every=7), memes.ChangeLog(rows=rows)]
    return memes.run(
        placements.preset(name),
        generations=generations,
        seed=3,
        out=out,
        call_seconds=call_seconds,
        observers=observers,
        progress=False,
    )


def resume(name, out, generations=GENERATIONS):
    return memes.resume(placements.preset(name), out, generations=generations, progress=False)


@pytest.mark.parametrize("name", NAMES)
def test_files_do_not_depend_on_how_long_device_calls_take(name, tmp_path):
    runs = {seconds: run(name, tmp_path / str(seconds), seconds) for seconds in (0.0, 0.02, 1, 5)}
    found = {seconds: contents(run.folder) for seconds, run in runs.items()}
    assert {"changes.bin", "checkpoints/log.bin", "archive.npz"} <= set(found[1])
    for seconds in (0.0, 0.02, 5):
        assert found[seconds].keys() == found[1].keys()
        assert [file for file in found[1] if found[seconds][file] != found[1][file]] == []


@pytest.mark.parametrize("rows", [2**20, 1])
def test_files_do_not_depend_on_kills(rows, tmp_path, killed_at):
    """Each run is killed twice while it writes changes.

    With `rows=1`, the change log is thinned.
    """
    whole = contents(run("me", tmp_path / "whole", rows=rows).folder)
    for kind, at in (("append_changes", 10), ("save_changes", 14)):
        out = tmp_path / f"{kind}-{at}"
        with killed_at(at, store, kind):
            run("me", out, rows=rows)
        with killed_at(3, store, kind, after=True):  # killed again, after the write
            resume("me", out)
        resume("me", out)
        assert contents(out) == whole, (kind, at)


@pytest.mark.parametrize("name", NAMES)
def test_files_of_presets_do_not_depend_on_kills(name, tmp_path, killed_at):
    whole, out = contents(run(name, tmp_path / "whole").folder), tmp_path / "cut"
    with killed_at(4, store, "append_changes"):
        run(name, out)
    resume(name, out)
    assert contents(out) == whole


def test_files_do_not_depend_on_where_a_run_was_stopped_and_extended(tmp_path):
    whole = contents(run("me", tmp_path / "whole").folder)
    run("me", tmp_path / "parts", generations=11)
    for generations in (13, 27, GENERATIONS):
        resume("me", tmp_path / "parts", generations)
    found = contents(tmp_path / "parts")
    depends_on_length = {
        "config.json",
        *(file for file in whole if file.endswith(".npz") and "/" in file),
    }
    assert {file: found[file] for file in whole if file not in depends_on_length} == {
        file: whole[file] for file in whole if file not in depends_on_length
    }


def test_marks_depend_only_on_generations():
    found = list(change_log.marks(0, 2000))
    assert found[:16] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32]
    assert found[-4:] == [1024, 1280, 1536, 1792]
    for g in range(1, 2000):
        assert change_log.mark_before(g) == max(mark for mark in found if mark <= g)
        assert list(change_log.marks(g, g + 37)) == [
            mark for mark in change_log.marks(0, g + 37) if mark > g
        ]
