"""Videos of runs, and the times at which they show changes and elites."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

import memes
from boxes import box
from memes.analysis.render import ColourScale
from memes.archive import Changes, add, empty
from memes.commands.main import main
from memes.estimates import Correction
from memes.store.archives import save_correction
from memes.view import archive_video, pictures
from memes.view.drawings import drawer
from memes.view.elite_frames import elite_frames

SHAPES = [(5,), (4, 3), (2, 3, 4), (2, 2, 2, 2), (2,) * 7]


def found(shape, n=12, cells=None):
    """Add one random genotype per generation to an archive. Returns the archive and its changes."""
    k = len(shape)
    archive = empty(cells or memes.cells.grid(box(k), shape), k)
    x, rows = jax.random.uniform(jax.random.key(0), (n, k)), []
    for i in range(n):
        lane, row = jnp.zeros(1, int), x[i : i + 1]
        evaluation = memes.Evaluation(row[:, 0], row)
        archive, (status, *_) = add(archive, row, evaluation, jnp.ones(1, bool), lane=lane, generation=i)
        if int(np.ravel(status)[0]):
            rows.append((i, int(archive.cells.index(row)[0]), 0, float(row[0, 0]), np.asarray(row[0])))
    columns = zip(*rows, strict=True)
    return archive, Changes(*map(np.array, columns))


def corrected(archive, cells):
    """Return a correction with fitness 0.5. `cells` maps the cells of surviving elites to new cells."""
    stored, now = (jnp.array([*each]) for each in (cells, cells.values()))
    kept = {
        name: getattr(archive, name).at[now].set(getattr(archive, name)[stored])
        for name in ("genotypes", "generation", "lane")
    }
    fitness = jnp.full(archive.cells.count, -jnp.inf).at[now].set(0.5)
    return Correction(replace(archive, fitness=fitness, **kept), *3 * [np.zeros(0)], 8)


def video(archive, changes, elites=(), n=10, size=(240, 160), correction=None):
    names = memes.task.numbered(len(archive.cells.low))
    about = {"title": "a $video$", "names": names, "generations": 12, "pictures": n, "size": size}
    about["correction"] = correction
    return list(archive_video.video_frames(archive, changes, elites, **about))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_archives_of_any_dimension_fill(shape):
    shown = video(*found(shape), n=6)
    assert len(shown) == 6
    assert {picture.shape for picture in shown} == {(160, 240, 3)}
    assert (shown[0] != shown[-1]).any()


def test_the_last_picture_shows_the_final_archive():
    archive, changes = found((4, 3))
    standing = archive_video.log.last_per_cell(changes, 12)
    fitness = np.full(12, -np.inf)
    fitness[standing.cell] = standing.fitness
    np.testing.assert_allclose(fitness, archive.fitness, rtol=1e-6)
    last, before = video(archive, changes, n=30)[-1:-3:-1]
    assert np.abs(last.astype(int) - before).max() <= 2  # highlights have faded


def test_long_names_of_features_do_not_cover_the_image():
    archive, _ = found((6, 6, 6, 6))
    elites = [archive_video.EliteClip(cell, [np.zeros((8, 8, 3), np.uint8)]) for cell in range(4)]
    names = [
        f"{foot} foot on the ground (share)" for foot in ("front left", "back left", "back right", "")
    ]
    figure = Figure(figsize=(8.64, 4.32), dpi=100, layout="constrained")
    archive_video._panels(figure, archive, elites, names, ColourScale(), None)
    FigureCanvasAgg(figure).draw()
    axes = [each for part in figure.subfigs for each in part.axes]
    written = [
        label for each in axes for label in (each.xaxis.label, each.yaxis.label) if label.get_text()
    ]
    assert len(written) == 3  # The labels belong to two axes and one colour bar.
    for label in written:
        place = label.get_window_extent()
        assert all(map(figure.bbox.containsx, (place.x0, place.x1))), label.get_text()
        assert not any(place.overlaps(each.get_window_extent()) for each in axes), label.get_text()


@pytest.mark.parametrize(("generations", "pictures"), [(1, 2), (12, 40), (2000, 240), (0, 5)])
def test_moments_increase_from_the_start_to_the_end(generations, pictures):
    moments = archive_video.moments(generations, pictures)
    assert moments.shape == (pictures,)
    assert (np.diff(moments) >= 0).all()
    assert (moments[-1], moments.min() >= min(1, generations)) == (generations, True)


def share(picture, channel):
    """Return the share of pixels with the pure colour of a channel: red (0), green (1) or blue (2)."""
    rest = np.delete(picture.astype(int), channel, axis=-1).max(axis=-1)
    return (picture[..., channel].astype(int) - rest > 200).mean()


def test_an_elite_is_shown_from_its_generation_on_and_its_episode_repeats():
    archive, changes = found((4, 3))
    newest = int(jnp.argmax(archive.generation))
    colours = [np.full((8, 8, 3), shade, np.uint8) for shade in ([255, 0, 0], [0, 0, 255])]
    shown = video(archive, changes, [archive_video.EliteClip(newest, colours)], n=10)
    moments = archive_video.moments(12, 10)

    for i, (picture, done) in enumerate(zip(shown, moments, strict=True)):
        there = done > int(archive.generation[newest])
        assert (share(picture, (0, 2)[i % 2]) > 0.05) == there


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_last_third_shows_the_corrected_archive(shape, monkeypatch):
    archive, changes = found(shape)
    cell = int(np.flatnonzero(archive.occupied)[0])
    shown, titles = [], []
    panels, text = archive_video._panels, archive_video.mathtext

    def recorded(*about):
        show_archive, show_elites = panels(*about)
        return lambda *now: shown.append(now[0].copy()) or show_archive(*now), show_elites

    monkeypatch.setattr(archive_video, "_panels", recorded)
    monkeypatch.setattr(archive_video, "mathtext", lambda each: titles.append(each) or text(each))
    correction = corrected(archive, {cell: cell})
    pictures = video(archive, changes, n=12, correction=correction)
    wanted = np.where(np.arange(archive.cells.count) == cell, 0.5, np.nan)
    for fitness in shown[8:]:
        np.testing.assert_array_equal(fitness, wanted)
    np.testing.assert_array_equal(np.isfinite(shown[7]), archive.occupied)
    filled = f"{1 / archive.cells.count:.0%} of the cells filled"
    assert titles[-4:] == 4 * [f"a $video$, corrected with 8 evaluations per elite: {filled}"]
    assert titles[8].startswith("a $video$, as found: generation 12, ")
    assert len(shown) == len(pictures) == 12
    assert (pictures[7] != pictures[8]).any()


def test_after_the_correction_lost_elites_are_not_shown_and_others_are_in_their_new_cells(monkeypatch):
    archive, changes = found((4, 3))
    lost, moved = map(int, np.flatnonzero(archive.occupied)[:2])
    empty_cell = int(np.flatnonzero(~np.asarray(archive.occupied))[0])
    shades = np.array([[255, 0, 0], [0, 0, 255]], np.uint8)
    elites = [
        archive_video.EliteClip(cell, [np.tile(shade, (8, 8, 1))])
        for cell, shade in zip((lost, moved), shades, strict=True)
    ]
    states, panels = [], archive_video._panels

    def recorded(*about):
        show_archive, show_elites = panels(*about)
        return show_archive, lambda *now: states.append(now[1]) or show_elites(*now)

    monkeypatch.setattr(archive_video, "_panels", recorded)
    correction = corrected(archive, {moved: empty_cell})
    pictures = video(archive, changes, elites, n=12, correction=correction)
    assert [[share(pictures[i], channel) > 0.01 for channel in (0, 2)] for i in (7, 8, 11)] == [
        [True, True], [False, True], [False, True]
    ]  # fmt: skip
    assert [cell for cell, _ in states[7]] == [lost, moved]
    stored = f"fitness {float(archive.fitness[moved]):.3f}"
    assert states[7][1].words.startswith(stored[:-1])
    assert states[-1][0] == (None, "lost")
    assert states[-1][1].cell == empty_cell
    assert float(states[-1][1].words.removeprefix("corrected fitness ")) == 0.5


def test_spread_elites_survive_the_correction_in_their_cells():
    archive, _ = found((4, 3), n=30)
    lost, moved, *kept = map(int, np.flatnonzero(archive.occupied))
    correction = corrected(archive, {cell: cell for cell in kept} | {moved: lost})
    best = kept[1]
    fitness = correction.archive.fitness.at[jnp.array([best, lost])].set(jnp.array([0.6, 0.9]))
    correction = correction._replace(archive=replace(correction.archive, fitness=fitness))
    chosen = archive_video.spread_elites(archive, 99, correction)
    assert chosen[0] == best
    assert set(chosen) == set(kept)
    nothing = correction._replace(archive=empty(archive.cells, archive.genotypes.shape[1]))
    assert archive_video.spread_elites(archive, 4, nothing) == []


def test_spread_elites_are_fit_and_distinct():
    archive, _ = found((4, 3), n=30)
    chosen = archive_video.spread_elites(archive, 3)
    fitness = np.where(archive.occupied, archive.fitness, np.nan)
    assert chosen[0] == int(np.nanargmax(fitness))
    assert (fitness[chosen] >= np.nanmedian(fitness)).all()
    assert len(set(chosen)) == 3
    assert len(archive_video.spread_elites(archive, 99)) == (fitness >= np.nanmedian(fitness)).sum()
    assert archive_video.spread_elites(empty(archive.cells, 2), 4) == []
    assert archive_video.spread_elites(archive, 0) == []


@pytest.fixture(scope="module")
def arm_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "arm"
    words = [
        "--joints",
        "4",
        "--algorithm",
        "me",
        "--batch",
        "8",
        "--resolution",
        "4",
        "4",
        "--generations",
        "9",
    ]
    assert main(["run", "arm", *words, "--no-figures-draw", "--quiet", "--out", str(folder)]) == 0
    return folder


SHORT = ["--seconds", "0.5", "--rate", "10", "--size", "240", "160"]


def test_the_command_writes_a_video(arm_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["video", str(arm_run), "--out", "video.webp", *SHORT]) == 0
    assert capsys.readouterr().out == "video.webp\n"
    with Image.open("video.webp") as found:
        assert (found.n_frames, found.size) == (5, (240, 160))


def test_the_command_shows_the_correction_of_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "--joints 4 --algorithm me --batch 8 --resolution 4 4 --generations 9 --reevaluate-samples 4"
    words += " --fitness-noise 0.1 --feature-noise 0.3 --no-figures-draw --quiet --out run"
    assert main(["run", "noisy-arm", *words.split()]) == 0
    assert main(["video", "run", "--out", "video.gif", *SHORT, "--seconds", "0.6"]) == 0
    with Image.open("video.gif") as shown:
        frames = [np.asarray(shown.seek(i) or shown.convert("RGB")) for i in range(shown.n_frames)]
    assert (frames[3] != frames[4]).any()
    other = memes.load_run("run").correction
    save_correction(Path("run"), other._replace(archive=empty(found((4, 3))[0].cells, 4)))
    assert main(["video", "run", "--out", "video.gif", *SHORT]) == 2


def test_robots_are_shown_next_to_the_archive(tmp_path, monkeypatch):
    try:
        pictures.library()
    except memes.UsageError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    task = ["hexapod", "--scale", "laptop", "--steps", "8", "--algorithm", "me", "--batch", "8"]
    assert (
        main(["run", *task, "--generations", "2", "--no-figures-draw", "--quiet", "--out", "run"]) == 0
    )
    assert main(["video", "run", "--out", "video.gif", *SHORT, "--elites", "2"]) == 0
    assert main(["video", "run", "--out", "alone.gif", *SHORT, "--elites", "0"]) == 0
    with Image.open("video.gif") as beside, Image.open("alone.gif") as alone:
        assert beside.n_frames == 5
        assert (np.asarray(beside.convert("RGB")) != np.asarray(alone.convert("RGB"))).any()


def dark(picture):
    return (picture.max(axis=-1) < 250).mean()


@pytest.mark.parametrize(
    "task",
    [memes.tasks.arm(joints=4), memes.tasks.point_maze(steps=9, hidden=(3,))],
    ids=["arm", "maze"],
)
def test_drawings_of_tasks_without_a_robot_are_rendered(task):
    x = 0.3 * np.ones(task.dim, np.float32)
    drawing = drawer(task)(x, 0)
    rate = 20.0 if drawing.path is None else 1 / drawing.seconds
    seen = list(elite_frames(drawing, task, rate=rate, camera="auto"))
    assert len(seen) == drawing.steps
    assert all(0.005 < dark(picture) < 0.3 for picture in seen)
    assert len(seen) == 1 or (seen[0] != seen[-1]).any()  # the point has moved


def test_drawings_of_a_custom_task_are_next_to_the_archive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    small = "--algorithm me --batch 8 --resolution 4 4 --generations 2 --no-figures-draw --quiet"
    assert main(["run", "mine.py:task", *small.split(), "--out", "run"]) == 0
    videos = {}
    for elites in ("0", "2"):
        words = ["--out", "video.gif", *SHORT, "--elites", elites, "--task", "mine.py:task"]
        assert main(["video", "run", *words]) == 0
        with Image.open("video.gif") as found:
            found.seek(4)
            videos[elites] = np.asarray(found.convert("RGB")).astype(int)
    red = [((video[..., 0] - video[..., 1:].max(axis=-1)) > 150).mean() for video in videos.values()]
    assert red[0] < 0.01 < 0.05 < red[1]


MINE = """
from matplotlib.figure import Figure

import memes

task = memes.Task(
    name="red",
    dim=2,
    feature_low=(0.0, 0.0),
    feature_high=(1.0, 1.0),
    init=memes.uniform(2, 0.0, 1.0),
    evaluate=memes.rowwise(lambda key, x: (x.sum(), x)),
    draw=lambda x: Figure(figsize=(1, 1), facecolor="red"),
)
"""

WRONG = {
    "out must be a file ending in .mp4, .gif or .webp, got 'video.avi'": ["--out", "video.avi"],
    "seconds must lie in 0.2 ... 600, got 1e+300": ["--out", "video.gif", *SHORT, "--seconds", "1e300"],
    "seconds must lie in 0.2 ... 600, got nan": ["--out", "video.gif", *SHORT, "--seconds", "nan"],
    "elites must be at most 12, got 13": ["--out", "video.gif", "--elites", "13"],
    "size must be two even numbers": ["--out", "video.gif", "--size", "3", "4"],
    "cell must lie in 0 ... 15, got 99": ["--out", "video.gif", "--cells", "99"],
    "there is no folder 'nowhere'": ["--out", "nowhere/video.gif"],
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_wrong_use_gives_a_one_line_error(sentence, arm_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["video", str(arm_run), *WRONG[sentence]]) == 2
    printed = capsys.readouterr().err
    assert sentence in printed
    assert printed.count("\n") == 1
    assert not list(Path().iterdir())


def test_a_run_without_a_change_log_gives_an_error_message(arm_run, tmp_path, monkeypatch, capsys):
    import shutil

    monkeypatch.chdir(tmp_path)
    shutil.copytree(arm_run, "run")
    Path("run/changes.bin").unlink()
    assert main(["video", "run", "--out", "video.gif"]) == 2
    assert "run/changes.bin" in capsys.readouterr().err
