"""The change log of a run contains every change of a cell, even if the process is killed."""

import dataclasses
from functools import cache

import jax
import numpy as np
import pytest

import memes
from memes import ChangeLog, Checkpoints
from memes.archive import Changes
from memes.runner import device
from memes.store import changes as store

pytestmark = pytest.mark.usefixtures("compiled_once", "no_figures")

task = memes.tasks.arm(joints=4)
cells = memes.cells.grid(task, (6, 6))
multi_es = memes.presets.memes(task, cells, lanes=4, samples=8, stale_budget=2, fifo_size=64)
variation = memes.presets.me(task, cells, batch=16)
QUIET = {"seed": 3, "progress": False}


def assert_same(one, other):
    for name, a, b in zip(Changes._fields, one, other, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


def step_by_step(algorithm, generations):
    """Find all changes by comparing the archives of successive generations."""
    return store.up_to_generation(forty_steps(algorithm.name), generations)


@cache
def forty_steps(name):
    algorithm = {"memes": multi_es, "me": variation}[name]
    first, key = device.keys_of(3)
    state, rows = jax.jit(algorithm.init, static_argnums=1)(first, 40), []
    step = jax.jit(algorithm.step)
    for g in range(40):
        before = state.archive
        state, _ = step(jax.random.fold_in(key, g), state)
        for cell in np.flatnonzero(np.asarray(state.archive.fitness) != np.asarray(before.fitness)):
            found = (getattr(state.archive, name)[cell] for name in ("lane", "fitness", "feature"))
            rows.append((g, cell, *map(np.asarray, found)))
    return Changes(*map(np.array, zip(*rows, strict=True)))


@pytest.mark.parametrize("algorithm", [multi_es, variation], ids=["memes", "me"])
def test_every_change_is_recorded(algorithm, tmp_path):
    run = memes.run(algorithm, generations=40, out=tmp_path, **QUIET)
    found, expected = memes.load_changes(tmp_path), step_by_step(algorithm, 40)
    assert len(found.cell) > np.asarray(run.archive.occupied).sum() > 10
    assert_same(found, expected)


def test_the_last_change_of_each_cell_is_its_elite(tmp_path):
    runs = memes.run(variation, generations=20, seeds=[1, 2], out=tmp_path, progress=False)
    for run in runs:
        last = store.last_per_cell(memes.load_changes(run.folder), 20)
        occupied = np.flatnonzero(np.asarray(run.archive.occupied))
        order = np.argsort(last.cell)
        np.testing.assert_array_equal(last.cell[order], occupied)
        for name in ("generation", "lane", "fitness", "feature"):
            archived = np.asarray(getattr(run.archive, name))[occupied]
            np.testing.assert_array_equal(getattr(last, name)[order], archived, err_msg=name)


@pytest.mark.usefixtures("traced_anew")
def test_changes_that_the_device_does_not_record_are_found_in_the_archive(tmp_path, monkeypatch):
    """Several changes of a cell in one device call are recorded as one change, with the final state."""
    for module in ("device", "change_log"):
        monkeypatch.setattr(f"memes.runner.{module}.MOST_CHANGES", 2)
    run = memes.run(variation, generations=40, out=tmp_path, **QUIET)
    found, every = memes.load_changes(tmp_path), step_by_step(variation, 40)
    assert_same(store.last_per_cell(found, 40), store.last_per_cell(every, 40))
    assert np.asarray(run.archive.occupied).sum() < len(found.cell) < len(every.cell)
    known = {(g, c) for g, c in zip(*every[:2], strict=True)}
    assert all(pair in known for pair in zip(*found[:2], strict=True))


@pytest.mark.parametrize("spoil", ["nothing", "remove", "damage", "append", "thin", "other"])
def test_a_resumed_run_continues_its_change_log(spoil, tmp_path):
    every = {"observers": [Checkpoints(every=4)], "progress": False}
    memes.run(variation, generations=8, seed=3, out=tmp_path / "run", **every)
    file, after = tmp_path / "run" / store.NAME, store.load_changes(tmp_path / "run")
    if spoil == "remove":
        file.unlink()
    elif spoil == "damage":
        file.write_bytes(b"nonsense")
    elif spoil == "append":  # add a row, as if the run was killed before the next checkpoint
        later = store.select(after, [-1])._replace(generation=np.array([9]), cell=np.array([0]))
        store.append_changes(tmp_path / "run", later, file.stat().st_size)
    elif spoil == "other":
        store.save_changes(tmp_path / "run", after._replace(feature=np.tile(after.feature, 2)))
    elif spoil == "thin":
        store.save_changes(tmp_path / "run", store.thinned(after, 8))
    memes.resume(variation, tmp_path / "run", generations=16, **every)
    whole = step_by_step(variation, 16)
    found = store.load_changes(tmp_path / "run")
    assert_same(store.last_per_cell(found, 16), store.last_per_cell(whole, 16))
    assert_same(store.select(found, found.generation >= 8), store.select(whole, whole.generation >= 8))
    if spoil in ("nothing", "append"):
        assert_same(found, whole)


def test_the_change_log_is_bounded_and_can_be_disabled(tmp_path):
    memes.run(variation, generations=40, out=tmp_path / "few", observers=[ChangeLog(rows=1)], **QUIET)
    few, whole = store.load_changes(tmp_path / "few"), step_by_step(variation, 40)
    assert len(few.cell) <= 2 * cells.count < len(whole.cell)
    assert_same(store.last_per_cell(few, 40), store.last_per_cell(whole, 40))
    memes.run(variation, generations=2, out=tmp_path / "none", observers=[ChangeLog(rows=0)], **QUIET)
    assert not (tmp_path / "none" / store.NAME).exists()


def test_a_wrong_bound_is_refused():
    with pytest.raises(memes.UsageError, match="changes_rows must be at least 0, got -1"):
        dataclasses.replace(ChangeLog(), rows=-1)
