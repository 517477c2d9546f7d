"""Test how the page follows run folders, and test the text and curves of the page."""

import dataclasses
import json
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import memes
from memes import Checkpoints, UsageError
from memes.cells import CVT
from memes.estimates import Correction
from memes.store import changes as store
from memes.store.archives import load_correction, save_correction
from memes.view import curves, elites, labels
from memes.view.drawings import drawer, upright
from memes.view.follow import Follower, genotype
from memes.view.runs import Runs

pytestmark = pytest.mark.usefixtures("no_figures")

OLD = Path(__file__).parents[1] / "data/run-0.1"
task = memes.tasks.arm(joints=4)
algorithm = memes.presets.memes(
    task, memes.cells.grid(task, (5, 4)), lanes=2, samples=4, stale_budget=1, fifo_size=8
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "<b>`$"  # a name with characters that need escaping
    return memes.run(
        algorithm, generations=8, out=folder, progress=False, observers=[Checkpoints(every=8)]
    )


def copied(run, tmp_path, *left_out):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    for name in left_out:
        (folder / name).unlink()
    return folder


def test_a_finished_run_is_read_completely(run):
    now = Follower(run.folder).poll(strict=True)
    np.testing.assert_allclose(now.metrics["qd_score"], run.metrics["qd_score"], rtol=1e-8)
    assert now.generations == 8
    assert now.cells.shape == (5, 4)
    assert now.lanes["age"].shape == (8, 2)
    assert now.k == 2
    np.testing.assert_array_equal(now.changes.cell, store.load_changes(run.folder).cell)


def test_lanes_and_genotypes_of_a_live_run_come_from_the_last_checkpoint(run, tmp_path):
    folder = copied(run, tmp_path, "lanes.npz")
    config = json.loads((folder / "config.json").read_text())
    del config["finished"]
    (folder / "config.json").write_text(json.dumps(config))  # as for a run that is resumed
    (folder / "archive.npz").write_bytes(b"older")
    follower = Follower(folder)
    now = follower.poll(strict=True)
    for name, column in run.lanes.items():
        np.testing.assert_array_equal(now.lanes[name], column)
    np.testing.assert_array_equal(follower.elites().genotypes, run.archive.genotypes)
    np.testing.assert_array_equal(follower.elites().generation, run.archive.generation)
    filled, empty = int(np.argmax(run.archive.fitness)), int(np.argmin(run.archive.fitness))
    np.testing.assert_array_equal(genotype(follower.elites(), filled), run.archive.genotypes[filled])
    with pytest.raises(UsageError, match=f"cell {empty} is newer than the last checkpoint"):
        genotype(follower.elites(), empty)


def test_the_cells_of_a_tessellation_are_read_from_the_first_checkpoint(tmp_path):
    cells = memes.cells.cvt(jax.random.key(0), task, 6, points=50, iterations=1)
    small = memes.presets.me(task, cells, batch=4)
    run = memes.run(small, generations=2, out=tmp_path / "a", progress=False)
    folder = copied(run, tmp_path, "archive.npz", "lanes.npz")
    now = Follower(folder).poll(strict=True)
    assert isinstance(now.cells, CVT)
    np.testing.assert_array_equal(now.cells.centroids, cells.centroids)
    shutil.rmtree(folder / "checkpoints")
    assert Follower(folder).poll(strict=True).cells is None


def test_an_older_run_without_changes_shows_its_archive():
    now = Follower(OLD).poll(strict=True)
    archive = memes.load_archive(OLD)
    last = store.last_per_cell(now.changes, 10**6)
    np.testing.assert_array_equal(np.sort(last.cell), np.flatnonzero(np.asarray(archive.occupied)))
    assert now.correction is not None


def test_only_new_data_are_read(run, tmp_path):
    folder = copied(run, tmp_path)
    follower = Follower(folder)
    first = follower.poll(strict=True)
    assert follower.poll() is first
    size = (folder / store.NAME).stat().st_size
    more = store.select(first.changes, [-1])._replace(generation=np.array([8]))
    store.append_changes(folder, more, size)
    assert len(follower.poll().changes.cell) == len(first.changes.cell) + 1


def test_a_damaged_or_removed_folder_keeps_the_last_data_and_gives_a_message(run, tmp_path):
    folder = copied(run, tmp_path)
    follower = Follower(folder)
    first = follower.poll(strict=True)
    (folder / "metrics.csv").write_text("generation\n1\n")
    damaged = follower.poll()
    assert "metrics.csv' is damaged" in damaged.trouble
    assert damaged.metrics is first.metrics
    with pytest.raises(UsageError, match="is damaged"):
        follower.poll(strict=True)
    shutil.rmtree(folder)
    assert "is gone" in follower.poll().trouble
    shutil.copytree(run.folder, folder)
    assert follower.poll().trouble == ""
    assert follower.latest.generations == 8


def test_a_new_run_in_the_same_folder_replaces_the_old_one(run, tmp_path):
    folder = copied(run, tmp_path)
    follower = Follower(folder)
    follower.poll(strict=True)
    config = json.loads((folder / "config.json").read_text())
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | {"started": "later", "seed": 5}))
    now = follower.poll()
    assert (now.header.config.seed, now.generations, now.changes) == (5, 0, None)


@pytest.mark.parametrize(
    "changed",
    [{"cells": [0, 3]}, {"cells": [10**6] * 2}, {"feature_low": [2.0, 2.0]}, {"feature_low": [0.0]}],
    ids=str,
)
def test_an_impossible_grid_is_refused(changed, run, tmp_path):
    folder = copied(run, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changed))
    with pytest.raises(UsageError, match=r"do not describe a grid"):
        Follower(folder).poll(strict=True)


@pytest.mark.parametrize("word", ["later", "late*", "later/seed-*"])
def test_runs_that_start_later_are_found(word, run, tmp_path, monkeypatch):
    monkeypatch.setattr("memes.view.runs.SEARCH", 0.0)
    runs = Runs([str(tmp_path / word)])
    runs.poll(strict=True)
    assert "waiting for a run" in labels.of_run(next(iter(runs)).latest)
    for seed in (1, 0):
        shutil.copytree(run.folder, tmp_path / f"later/seed-{seed}")
    assert runs.poll()
    assert [name.split("/")[-1] for name in runs.named()] == ["seed-0", "seed-1"]
    assert not runs.poll()


def test_only_the_chosen_run_is_read_completely(run, tmp_path):
    for seed in range(3):
        shutil.copytree(run.folder, tmp_path / f"seed-{seed}")
    runs = Runs([tmp_path])
    runs.poll(strict=True)
    first, second, third = runs
    assert first.latest.changes is not None
    for each in (second, third):
        assert (each.latest.generations, each.latest.changes, each.latest.lanes) == (8, None, {})
    assert runs.poll(second)
    assert second.latest.changes is not None
    assert not runs.poll(second)


@pytest.mark.parametrize("forged", ["another archive", "cells that are none"])
def test_a_correction_of_another_archive_is_refused(forged, run, tmp_path):
    folder, other = copied(run, tmp_path), load_correction(OLD)
    if forged != "another archive":
        none = np.zeros(2, np.float32), np.zeros((2, 2), np.float32)
        other = Correction(run.archive, np.array([-9, 10**6]), *none, 8)
    save_correction(folder, other)
    with pytest.raises(UsageError, match=r"corrected\.npz' belongs to another archive"):
        Follower(folder).poll(strict=True)


def test_a_removed_correction_is_not_shown(tmp_path):
    folder = shutil.copytree(OLD, tmp_path / "run")
    follower = Follower(folder)
    assert follower.poll(strict=True).correction is not None
    (folder / "corrected.npz").unlink()  # a run that is resumed removes this file
    assert follower.poll().correction is None


# --------------------------------------------------------------------------------------------- texts


def test_the_text_of_a_run_shows_its_progress_and_escapes_its_names(run):
    now = Follower(run.folder).poll(strict=True)
    config = dataclasses.replace(now.header.config, algorithm="<script>", task="[a](b)")
    text = labels.of_run(now._replace(header=now.header._replace(config=config)))
    assert "&lt;script&gt;" in text
    assert "\\[a\\](b)" in text
    assert "generation 8 of 8, finished" in text
    assert f"coverage **{run.metrics['coverage'][-1]:.1%}**" in text
    assert "running" in labels.of_run(now._replace(header=now.header._replace(outcome=None)))


def test_lanes_are_shown_in_a_table(run):
    rows = labels.of_lanes(run.lanes).splitlines()[-2:]
    for i, row in enumerate(rows):
        _, lane, climbs, age, stale, resets, fitness, _ = (each.strip() for each in row.split("|"))
        assert climbs == ("fitness" if run.lanes["kind"][-1, i] == 0 else "novelty")
        assert (int(lane), int(age)) == (run.lanes["lane"][-1, i], run.lanes["age"][-1, i])
        assert int(stale) == run.lanes["stale"][-1, i]
        assert int(resets) == (run.lanes["reset"][:, i] > 0).sum()
        assert float(fitness) == pytest.approx(float(run.lanes["fitness"][-1, i]), rel=1e-3)
    assert "first checkpoint" in labels.of_lanes({})


def corrected(archive, moves):
    """Return a correction that moves elites to the cells in `moves` and sets their fitness to 0.25."""
    kept, stored, now = memes.archive.empty(archive.cells, 4), list(moves), list(moves.values())
    kept = replace(
        kept,
        **{name: getattr(kept, name).at[jnp.array(now)].set(getattr(archive, name)[jnp.array(stored)])
           for name in ("genotypes", "generation", "lane")},
        fitness=kept.fitness.at[jnp.array(now)].set(0.25),
    )  # fmt: skip
    none = np.zeros(0)
    return Correction(kept, none, none, none, 8)


def test_an_elite_is_compared_with_its_correction_and_its_replay(run):
    cell = int(np.argmax(run.archive.fitness))
    correction = corrected(run.archive, {cell: 7})
    drawing = drawer(task)(run.archive.genotypes[cell], 0)
    elite = labels.EliteFacts(
        run.archive, cell, correction, 7, drawing, int(run.archive.generation[cell])
    )
    text = labels.of_elite(elite, ["x", "y"]).replace(labels.SPACE, "")
    stored = f"{float(run.archive.fitness[cell]):.4g}"
    assert f"| fitness | {stored} | 0.25 | {stored} |" in text  # the arm is deterministic
    assert "after re-evaluation in cell **7 (1 3)**" in text
    assert "not saved" not in text
    x = f"{float(run.archive.feature[cell, 0]):.4g}"
    assert f"| x | {x} | 0 | {x} |" in text
    lost = labels.of_elite(elite._replace(holds=None, drawing=None, shown=99), ["x", "y"])
    assert f"| fitness | {stored} | lost |" in lost.replace(labels.SPACE, "")
    assert "the colour shows the elite of generation 100, which is not saved" in lost


def test_origins_gives_the_stored_cells_of_corrected_elites(run):
    one, other, third = (int(cell) for cell in np.argsort(np.asarray(run.archive.fitness))[-3:])
    correction = corrected(run.archive, {one: other, other: third})
    wanted = np.full(run.archive.cells.count, -1)
    wanted[[other, third]] = one, other
    np.testing.assert_array_equal(elites.origins(run.archive, correction.archive), wanted)
    gone = replace(run.archive, generation=run.archive.generation.at[one].add(1))  # has a new elite
    assert elites.origins(gone, correction.archive)[other] == -1


def test_the_command_is_quoted_for_a_shell():
    assert labels.command(Path("runs/a b"), 3, 0) == "memes replay 'runs/a b' --cell 3"
    assert labels.command(Path("a\nb"), 3, 2) == "memes replay 'a\\nb' --cell 3 --seed 2"


# -------------------------------------------------------------------------------------------- curves


def test_curves_of_runs_of_different_lengths_share_an_axis():
    long = {"generation": np.arange(1.0, 1001), "coverage": np.linspace(0, 1, 1000)}
    short = {"generation": np.arange(1.0, 11), "coverage": np.full(10, 0.5)}
    x, one, other, none = curves.table([long, short, {}], "coverage", "generation")
    assert (x[0], x[-1], len(x)) == (1, 1000, curves.POINTS)
    np.testing.assert_allclose(one, (x - 1) / 999, atol=1e-9)
    assert np.array_equal(np.isfinite(other), x <= 10)
    assert np.isnan(none).all()
    assert curves.columns([short, long]) == ["generation", "coverage"]
    assert len({each["stroke"] for each in curves.series(map(str, range(30)), "x")[1:]}) == 30


# ------------------------------------------------------------------------------------------ drawings


def test_the_drawing_of_the_arm_ends_at_its_feature():
    x = jnp.array([0.3, 0.6, 0.5, 0.9])
    drawing = drawer(task)(x, 0)
    posture, reach = drawing.lines
    np.testing.assert_allclose(posture[-1, [0, 2]], drawing.feature, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(np.diff(posture, axis=0), axis=1), 1 / 8, atol=1e-6)
    assert np.abs(reach[:, [0, 2]] - 0.5).max() == pytest.approx(0.5)


def test_the_path_of_a_point_leads_from_the_start_to_its_feature():
    maze = memes.tasks.point_maze(steps=5, hidden=(3,))
    drawing = drawer(maze)(jnp.ones(maze.dim), 0)
    assert drawing.steps == 6
    np.testing.assert_allclose(drawing.path[0, [0, 2]], maze.map.start, atol=1e-6)
    np.testing.assert_allclose(drawing.path[-1, [0, 2]], drawing.feature, atol=1e-6)
    assert len(drawing.lines) == 2 + len(maze.map.walls)


def drawn_by(draw):
    return drawer(dataclasses.replace(task, draw=draw))(jnp.zeros(4), 0)


def test_a_task_may_draw_lines_or_a_figure():
    figure = Figure(figsize=(2, 1), dpi=50)
    assert drawn_by(lambda x: figure).picture.shape == (50, 100, 3)
    (line,) = drawn_by(lambda x: [[(0, 1), (2, 3)]]).lines
    np.testing.assert_array_equal(line, [[0, 0, 1], [2, 0, 3]])
    assert drawn_by(None).lines == ()


@pytest.mark.parametrize(
    "wrong", [3, [], [[1, 2]], [[(0, np.nan)]], [np.zeros((2, 4))], "line"], ids=str
)
def test_invalid_drawings_of_a_task_are_refused(wrong):
    with pytest.raises(UsageError, match=r"draw of task 'arm'"):
        drawn_by(lambda x: wrong)


def test_lines_with_two_coordinates_are_drawn_upright():
    np.testing.assert_array_equal(upright([(1, 2)]), [[1, 0, 2]])
    np.testing.assert_array_equal(upright([(1, 2, 3)]), [[1, 2, 3]])
