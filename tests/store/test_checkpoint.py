"""Loading of damaged or edited checkpoints, and of checkpoints from another run or version."""

import json
import shutil
from dataclasses import fields, make_dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import memes
from memes import UsageError
from memes.runner.device import first_state, keys_of
from memes.store import checkpoint
from memes.store.folder import load_config, save_config
from memes.view.follow import Follower

TASK = memes.tasks.arm(joints=4)
ALGORITHM = memes.presets.me(TASK, memes.cells.grid(TASK, (5, 5)), batch=4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with two checkpoints."""
    observers = [memes.Checkpoints(every=6), memes.Figures(draw=False)]
    out = tmp_path_factory.mktemp("whole") / "run"
    return memes.run(ALGORITHM, generations=12, out=out, observers=observers, progress=False)


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of the run's folder."""
    shutil.copytree(whole.folder, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def checkpoints(whole):
    """A dictionary from the file names of the run's two checkpoints to their contents as bytes."""
    found = {f.name: f.read_bytes() for f in sorted(whole.folder.glob("checkpoints/*.npz"))}
    assert list(found) == ["00000006.npz", "00000012.npz"]
    return found


def loaded(folder, whole, **changed):
    """Load a run from a folder. Returns the run and the messages printed while loading."""
    messages = []
    header = load_config(whole.folder)
    header = header._replace(config=replace(header.config, **changed))
    first = first_state(ALGORITHM)
    found = checkpoint.load(folder, header, lambda n: first(keys_of(0)[0], n), messages.append)
    return found, messages


def first_rows(run, n):
    """Return the run with the records of its first n generations, but with its final state."""
    parts = (
        {name: column[:n] for name, column in columns.items()} for columns in (run.metrics, run.lanes)
    )
    return run._replace(**dict(zip(("metrics", "lanes"), parts, strict=True)))


def rewrite(file: Path, **changed) -> None:
    """Change arrays of a checkpoint so that the checksums in the zip file remain valid."""
    with np.load(file) as data:
        arrays = dict(data)
    np.savez(file, **arrays | changed)


def test_a_checkpoint_contains_the_complete_run(whole):
    found, messages = loaded(whole.folder, whole)
    assert not messages
    jax.tree.map(np.testing.assert_array_equal, found.state, whole.state)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(found.state))
    for part in ("metrics", "lanes"):
        for name, column in getattr(whole, part).items():
            np.testing.assert_array_equal(getattr(found, part)[name], column)
            assert getattr(found, part)[name].dtype == column.dtype


def longer(record):
    """Return a record with an additional first field."""
    names = getattr(record, "_fields", None) or [field.name for field in fields(record)]
    kind = make_dataclass("Longer", ["new", *names])
    jax.tree_util.register_dataclass(kind, data_fields=["new", *names], meta_fields=[])
    return kind(np.arange(3.0), *(getattr(record, name) for name in names))


def test_elites_of_a_live_run_with_additional_fields_are_read(whole, tmp_path):
    """Arrays are found by name, regardless of the number and order of fields."""
    state = longer(whole.state)
    state.archive = longer(state.archive)
    run = whole._replace(folder=tmp_path, state=state)
    checkpoint.save(run, checkpoint.logged(first_rows(run, 0)))
    save_config(tmp_path, whole.header._replace(outcome=None))
    follower = Follower(tmp_path)
    follower.poll(strict=True)
    elites = follower.elites()
    for name in ("genotypes", "fitness", "feature", "generation", "lane"):
        np.testing.assert_array_equal(getattr(elites, name), getattr(whole.archive, name))
    with pytest.raises(UsageError, match="is a checkpoint of another algorithm or task"):
        loaded(tmp_path, whole)


def test_a_folder_without_checkpoints_loads_nothing(tmp_path, whole):
    assert loaded(tmp_path, whole) == (None, [])


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_checkpoint_is_skipped_for_the_previous_one(data, whole, checkpoints, folder):
    older, newest = checkpoints
    good = checkpoints[newest]
    if data.draw(st.booleans()):
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    else:
        place = data.draw(st.integers(0, len(good) - 1))
        bad = good[:place] + bytes([good[place] ^ data.draw(st.integers(1, 255))]) + good[place + 1 :]
    (folder / "checkpoints" / newest).write_bytes(bad)
    found, messages = loaded(folder, whole)
    assert found is not None
    if messages:
        assert newest in messages[0]
        assert found.metrics["generation"][-1] == int(Path(older).stem)
    else:  # the changed byte is never read
        (folder / "checkpoints" / newest).write_bytes(good)
        expected, _ = loaded(folder, whole)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def edited_state(folder, newest):
    rewrite(folder / newest, **{"state.generation": np.zeros(3)})


def edited_log(folder, newest):
    data = bytearray((folder / checkpoint.LOG).read_bytes())
    data[-1] ^= 1
    (folder / checkpoint.LOG).write_bytes(data)


def cut_log(folder, newest):
    data = (folder / checkpoint.LOG).read_bytes()
    (folder / checkpoint.LOG).write_bytes(data[:-1])


def no_log(folder, newest):
    (folder / checkpoint.LOG).unlink()


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (edited_state, "its content differs from what was written"),
        (edited_log, "its content differs from what was written"),
        (cut_log, "log.bin' is damaged or has the wrong format: it has fewer generations"),
        (no_log, ""),
    ],
)
def test_an_edited_checkpoint_is_skipped(whole, checkpoints, folder, edit, sentence):
    older, newest = checkpoints
    edit(folder / "checkpoints", newest)
    if edit is not no_log:
        found, messages = loaded(folder, whole)
        assert found.metrics["generation"][-1] == int(Path(older).stem)
        assert sentence in messages[0]
        assert "; looking for an older checkpoint" in messages[0]
        (folder / "checkpoints" / older).unlink()
    with pytest.raises(UsageError, match=r"no checkpoint in .* can be read"):
        loaded(folder, whole)


def test_a_checkpoint_with_a_wrong_name_is_skipped(whole, checkpoints, folder):
    older, newest = checkpoints
    for name in ("00000011.npz", "00000099.npz"):
        (folder / "checkpoints" / newest).rename(folder / "checkpoints" / name)
        newest = name
        found, messages = loaded(folder, whole)
        assert len(found.metrics["generation"]) == int(Path(older).stem)
        assert name in messages[0]


def test_a_run_resumed_before_a_damaged_checkpoint_ends_with_the_same_results(
    whole, checkpoints, folder, tmp_path
):
    """The log rows that belong to the damaged checkpoint are written again."""
    (folder / "checkpoints" / list(checkpoints)[1]).write_text("damaged")
    longer = memes.resume(ALGORITHM, folder, generations=18, progress=False)
    found, messages = loaded(folder, whole, generations=18)
    assert not messages
    for part in ("metrics", "lanes"):
        jax.tree.map(np.testing.assert_array_equal, getattr(found, part), getattr(longer, part))
    for name in set(whole.metrics) - {"seconds"}:
        np.testing.assert_array_equal(longer.metrics[name][:12], whole.metrics[name])


def test_checkpoints_grow_with_the_state_and_not_with_the_log(whole, tmp_path):
    """All checkpoints have equal sizes, and each row of the log is written only once."""
    run = whole._replace(folder=tmp_path)
    logged = checkpoint.logged(first_rows(run, 0))
    sizes = []
    for n in range(1, 13):
        logged = checkpoint.save(first_rows(run, n), logged)
        log = (tmp_path / "checkpoints" / checkpoint.LOG).stat().st_size
        sizes.append(((tmp_path / f"checkpoints/{n:08d}.npz").stat().st_size, log / n))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("other", [{"seed": 8}, {"task": "ant"}, {"options": {}}, {"cells": (2, 2)}])
def test_a_checkpoint_of_another_run_is_refused(whole, other):
    with pytest.raises(UsageError, match=r"00000012\.npz' is a checkpoint of another run"):
        loaded(whole.folder, whole, **other)


def test_a_checkpoint_of_a_changed_algorithm_is_refused(whole):
    """After an update of the library, an algorithm may have the same name but different arrays."""
    first = first_state(replace(ALGORITHM, history=memes.history.FIFO(8)))
    with pytest.raises(UsageError, match="is a checkpoint of another algorithm or task"):
        checkpoint.load(
            whole.folder, load_config(whole.folder), lambda n: first(keys_of(0)[0], n), print
        )


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (9, "format version 9, which is too new for this version of memes"),
        (1, "format version 1, which an older version of memes wrote; continue with that version"),
        (3, "format version 3, which an older version of memes wrote; continue with that version"),
    ],
)
def test_a_checkpoint_of_a_newer_or_older_version_is_refused(folder, version, sentence):
    newest = max((folder / "checkpoints").glob("*.npz"))
    about = {"format_version": version, "identity": "as it was", "digest": "of other things"}
    rewrite(newest, about=np.array(json.dumps(about)))
    with pytest.raises(UsageError, match=sentence) as error:
        memes.resume(ALGORITHM, folder, generations=15, progress=False)
    assert "\n" not in str(error.value)
    assert str(newest) in str(error.value)


def test_only_the_last_two_checkpoints_are_kept(whole, tmp_path):
    run = whole._replace(folder=tmp_path)
    for n in (2, 5, 11):
        checkpoint.save(first_rows(run, n), checkpoint.logged(first_rows(run, 0)))
    found = sorted(file.name for file in (tmp_path / "checkpoints").iterdir())
    assert found == ["00000005.npz", "00000011.npz", checkpoint.LOG]


FOREIGN = ("99.npz", "2024-backup.npz", "00000012 (copy).npz", "00000012.npz.bak", "notes.txt")


def test_files_with_other_names_are_neither_read_nor_removed(folder, whole):
    for name in FOREIGN:
        (folder / "checkpoints" / name).write_text("mine")
    assert loaded(folder, whole)[1] == []
    memes.resume(ALGORITHM, folder, generations=15, progress=False)
    found = {file.name for file in (folder / "checkpoints").iterdir()}
    assert found == {*FOREIGN, "00000012.npz", "00000015.npz", checkpoint.LOG}
    options = {"out": folder, "overwrite": True, "observers": [memes.Figures(draw=False)]}
    memes.run(ALGORITHM, generations=2, progress=False, **options)
    assert {*FOREIGN} < {file.name for file in (folder / "checkpoints").iterdir()}


def test_damaged_checkpoints_do_not_replace_new_ones(folder):
    for name in ("00000012.npz", "00000020.npz", "00000030.npz"):
        (folder / "checkpoints" / name).write_text("damaged")
    memes.resume(ALGORITHM, folder, generations=14, progress=False)
    found = sorted(file.name for file in (folder / "checkpoints").iterdir())
    assert found == ["00000012.npz", "00000014.npz", checkpoint.LOG]


def forged_log(folder, part, name, change):
    """Keep only the last checkpoint, and change a column of its log.

    If `change` is None, the column is removed.
    """
    older, file = sorted(folder.glob("checkpoints/*.npz"))
    older.unlink()
    about, state, parts = checkpoint._read(file)
    column = parts[part].pop(name)
    parts[part] |= {} if change is None else {name: change(column)}
    rows = checkpoint._rows(SimpleNamespace(generations=int(file.stem), **parts), 0)
    (folder / "checkpoints" / checkpoint.LOG).write_bytes(rows.tobytes())
    arrays = {"log": rows[:0], **state}
    digest = checkpoint.hashlib.blake2b(rows.tobytes(), digest_size=16)
    about["digest"] = checkpoint._digest(arrays, digest)
    np.savez(file, about=np.array(json.dumps(about)), **arrays)


@pytest.mark.parametrize(
    ("part", "name", "change", "sentence"),
    [
        ("metrics", "samples", None, "the columns of metrics.csv"),
        ("metrics", "samples", lambda column: column.astype(float), "the columns of metrics.csv"),
        ("metrics", "coverage", lambda column: column.astype(complex), "the columns of metrics.csv"),
        ("metrics", "coverage", lambda column: column[:, None], "the columns of metrics.csv"),
        ("metrics", "generation", lambda column: column[::-1], "one row per generation"),
        ("lanes", "generation", lambda column: column + 1, "one row per generation"),
        ("metrics", "seconds", lambda column: column * np.nan, "seconds that are not finite"),
        ("lanes", "fitness", lambda column: column.astype("U3"), "lanes that are not numbers"),
        ("lanes", "age", lambda column: column[..., None], "differ in their generations or lanes"),
        ("lanes", "kind", None, "kind"),
    ],
)
def test_a_log_with_other_columns_is_skipped(folder, whole, part, name, change, sentence, capsys):
    forged_log(folder, part, name, change)
    with pytest.raises(UsageError, match=r"no checkpoint in .* can be read"):
        memes.resume(ALGORITHM, folder, generations=15)
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_log_with_lanes_of_another_algorithm_is_refused(folder):
    forged_log(folder, "lanes", "feature", lambda column: np.repeat(column, 2, axis=-1))
    with pytest.raises(UsageError, match="belongs to another algorithm or task; start a new run"):
        memes.resume(ALGORITHM, folder, generations=15, progress=False)
