"""The page in a real browser: Debian's Chromium, which renders without a GPU."""

import io
import json
import re
import shutil
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import numpy as np
import pytest

import memes
from memes import Callbacks
from memes.analysis.render import layout
from memes.commands.main import main
from memes.estimates import Correction
from memes.store.archives import save_correction
from memes.store.sanitize import printable
from memes.view import archive_panel, colours, pictures
from memes.view import browser as pages
from memes.view.follow import Follower
from page_server import eventually, served

pytest.importorskip("viser", reason="the extra 'view' is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium")
FLAGS = "--no-sandbox --use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader"
SIZE = {"width": 900, "height": 460}

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium"),
    pytest.mark.usefixtures("no_figures"),
]

task = memes.tasks.arm(joints=4)
cells = memes.cells.grid(task, (6, 6))
variation = memes.presets.me(task, cells, batch=16)


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def arm_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "arm"
    return memes.run(variation, generations=20, seed=1, out=folder, progress=False).folder


def rebuild_arm(run):
    """Return the arm of these tests. The number of joints cannot be read from the run."""
    assert run.config.task == "arm"
    return task


@dataclass
class Tab:
    """A browser tab with the page, and the addresses that this tab requests."""

    page: object
    requests: list

    def says(self, text, seconds=60.0):
        self.page.get_by_text(text).first.wait_for(timeout=1000 * seconds)

    def text(self):
        return self.page.inner_text("body")

    def pixels(self):
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")).astype(int)

    def scene(self):
        """Return the left edge, top edge, width and height of the scene in pixels."""
        box = self.page.locator("canvas").first.bounding_box()
        return box["x"], box["y"], box["width"], box["height"]

    def place(self, point):
        """Return the pixel at which the initial camera shows a given point of the scene."""
        camera = type("Camera", (), {})()
        left, top, width, height = self.scene()
        pages.aim(camera, 1, width / height)
        ahead = np.subtract(camera.look_at, camera.position)
        ahead = ahead / np.linalg.norm(ahead)
        right = np.cross(ahead, (0, 0, 1))
        right = right / np.linalg.norm(right)
        seen = np.subtract(point, camera.position)
        x, y, z = seen @ right, seen @ np.cross(right, ahead), seen @ ahead
        scale = height / 2 / np.tan(pages.FIELD / 2)
        return left + width / 2 + scale * x / z, top + height / 2 - scale * y / z

    def cell(self, found, tile, aspect=1.0):
        """Return the pixel in the middle of a tile of the archive."""
        left, bottom, width, height = archive_panel.area(aspect)
        x, y = found.centre[tile]
        parts = np.array([left + x * width - 0.5, bottom + y * height - 0.5])
        offset = parts * archive_panel.WIDTH
        return self.place(archive_panel.PLACE + np.array([offset[0], -0.01, offset[1]]))

    def colour(self, place):
        x, y = map(round, place)
        return self.pixels()[y, x]

    def saved(self, button, folder):
        """Press a button that saves a file. Returns the path of the downloaded file."""
        links = self.page.get_by_role("link")
        before = links.count()
        self.page.get_by_text(button).click()
        eventually(lambda: links.count() > before)
        with self.page.expect_download() as download:
            links.last.click()
        file = folder / download.value.suggested_filename
        download.value.save_as(file)
        return file

    def choose(self, label, option):
        """Choose an option of a menu."""
        self.page.get_by_label(label, exact=True).first.click()
        self.page.get_by_role("option", name=option, exact=True).click()


@pytest.fixture
def open_page(chromium):
    contexts = []

    def opened(url):
        context = chromium.new_context(viewport=SIZE, accept_downloads=True)
        contexts.append(context)
        tab = Tab(context.new_page(), [])
        tab.page.on("request", lambda request: tab.requests.append(request.url))
        tab.page.on("websocket", lambda socket: tab.requests.append(socket.url))
        tab.page.goto(url)
        tab.says("QD-score")
        # Close the warning about a missing graphics card.
        tab.page.locator(".mantine-Notification-closeButton").click()
        return tab

    yield opened
    for context in contexts:
        context.close()


def near(colour, wanted, atol=12):
    return np.abs(np.subtract(colour, wanted)).max() <= atol


def final_colours(folder, by="fitness"):
    """Return the layout of a run's cells, their final values, and the colours of their tiles."""
    now = Follower(folder).poll(strict=True)
    last = memes.store.changes.last_per_cell(now.changes, now.generations)
    shown = colours.of_cells(by, now.cells.count, last, now.generations, now.correction)
    found = layout(now.cells, (0, 1), side=pages.SIDE)
    image = colours.picture(found, shown, by)
    x, y = found.centre.T
    rows, columns = ((1 - y) * image.shape[0]).astype(int), (x * image.shape[1]).astype(int)
    return found, shown, image[rows, columns]


def test_the_page_colours_cells_and_replays_the_clicked_elite(arm_run, open_page):
    found, shown, tiles = final_colours(arm_run)
    occupied = np.isfinite(shown.fitness)
    with served(arm_run, rebuild=rebuild_arm) as url:
        tab = open_page(url)
        tab.says("on arm, seed 1: generation 20 of 20, finished")
        assert tab.page.title() == "memes"
        tab.page.get_by_label("highlight recent changes").click()
        tile = int(np.argmax(shown.fitness))
        eventually(lambda: near(tab.colour(tab.cell(found, tile)), tiles[tile]))
        picture = tab.pixels()
        for each in range(len(tiles)):
            x, y = map(round, tab.cell(found, each))
            assert near(picture[y, x], tiles[each]), each

        _, _, by_lane = final_colours(arm_run, "generation")
        tab.choose("colour by", "generation")
        eventually(lambda: near(tab.colour(tab.cell(found, tile)), by_lane[tile]))

        tab.page.mouse.click(*tab.cell(found, tile))
        tab.says(f"{tile} ({tile // 6} {tile % 6})")
        tab.says(f"memes replay {arm_run} --cell {tile}")
        stored = f"{shown.fitness[tile]:.4g}"
        assert tab.text().count(stored) >= 2  # the replay has the stored fitness
        before = tab.pixels()

        tab.page.keyboard.press("ArrowLeft")
        tab.page.keyboard.press("ArrowDown")
        eventually(lambda: f"--cell {tile}" not in tab.text())
        eventually(lambda: (tab.pixels() != before).any())

        empty = int(np.flatnonzero(~occupied)[0])
        apart = np.linalg.norm(found.centre - found.centre[empty], axis=1)
        tab.page.mouse.click(*tab.cell(found, empty))
        tab.says("this cell is empty: the nearest elite is in cell")
        chosen = int(re.search(r"nearest elite is in cell (\d+)", tab.text())[1])
        assert apart[chosen] == pytest.approx(apart[occupied].min())

        other = int(np.flatnonzero(occupied)[0])
        tab.page.keyboard.down("Shift")
        tab.page.mouse.click(*tab.cell(found, other))
        tab.page.keyboard.up("Shift")
        tab.says(f"{other} ({other // 6} {other % 6})")

        with tab.page.expect_download() as download:
            tab.page.get_by_text("save genotype").click()
            tab.page.get_by_role("link").first.click()
        assert np.load(download.value.path()).shape == (4,)

        # The page requests data only from this machine.
        assert {
            urlsplit(each).netloc for each in tab.requests if not each.startswith(("data:", "blob:"))
        } == {urlsplit(url).netloc}


def test_the_robot_moves_until_it_is_paused(ant_run, open_page):
    with served(ant_run) as url:
        tab = open_page(url)
        features = tab.page.get_by_label("features", exact=True).first
        eventually(lambda: features.input_value() == archive_panel.ALL)
        tab.page.keyboard.press("ArrowUp")  # selects the fittest elite
        tab.says("memes replay", seconds=90)
        left, top, width, height = map(int, tab.scene())
        stage = (slice(top, top + height), slice(left + int(0.62 * width), left + width))
        first = tab.pixels()[stage]
        eventually(lambda: (np.abs(tab.pixels()[stage] - first).max(axis=-1) > 40).sum() > 100)
        tab.page.keyboard.press("Space")
        eventually(lambda: not tab.page.get_by_label("play", exact=True).is_checked())

        before = tab.pixels()
        features.click()
        tab.page.get_by_role("option").nth(3).click()
        eventually(lambda: (tab.pixels() != before).any(axis=-1).mean() > 0.02)


@dataclass(frozen=True)
class WaitForPage:
    """An observer that waits until the page shows the current generation."""

    tabs: list
    open: object

    def watch(self, context):
        def on_update(update):
            if not self.tabs:
                self.tabs.append(self.open())
            self.tabs[0].says(f"generation {update.run.generations} of 9, running")

        return Callbacks(due=lambda generation: generation % 3 == 0, on_update=on_update)


def test_a_run_is_followed_before_its_start_and_after_its_removal(tmp_path, open_page):
    folder = tmp_path / "run"
    with served(folder, rebuild=rebuild_arm) as url:
        watching = WaitForPage([], lambda: open_page(url))
        options = {"generations": 9, "out": folder, "progress": False, "observers": [watching]}
        memes.run(variation, seed=2, **options)
        (tab,) = watching.tabs
        tab.says("generation 9 of 9, finished")
        shutil.rmtree(folder)
        tab.says("is gone")
        tab.page.keyboard.press("ArrowUp")
        tab.says("neither an archive nor a checkpoint")
        tab.page.reload()
        tab.says("is gone")
        memes.run(variation, seed=4, **options | {"observers": []})
        tab.says("seed 4: generation 9 of 9, finished")
        again = open_page(url)
        again.says("seed 4: generation 9 of 9, finished")


def test_curves_and_lanes_of_several_runs_are_shown(arm_run, ant_run, open_page):
    with served(arm_run, ant_run, rebuild=rebuild_arm) as url:
        tab = open_page(url)
        tab.page.get_by_role("tab", name="curves").click()
        eventually(lambda: tab.page.locator(".uplot").count() == 3)
        tab.says("runs", seconds=5)
        tab.choose("column", "mean_fitness")
        tab.page.get_by_role("tab", name="lanes").click()
        tab.says("has no lanes that continue")
        tab.page.get_by_label("run", exact=True).first.click()
        tab.page.get_by_role("option").nth(1).click()
        tab.says("MEMES on ant")
        tab.says("novelty")


@pytest.mark.long
def test_buttons_save_the_selected_elite_and_the_command_replays_it(
    ant_run, open_page, tmp_path, capsys
):
    from PIL import Image

    try:
        pictures.library()
    except memes.UsageError as error:
        pytest.skip(str(error))
    archive = memes.load_archive(ant_run)
    cell = int(np.argmax(archive.fitness))
    with served(ant_run) as url:
        tab = open_page(url)
        assert not tab.page.get_by_text("save video").is_visible()  # nothing is selected yet
        tab.page.keyboard.press("ArrowUp")
        tab.says(f"memes replay {ant_run} --cell {cell}", seconds=90)
        assert not tab.page.get_by_text("stop comparing").is_visible()
        saved = np.load(tab.saved("save genotype", tmp_path))
        np.testing.assert_array_equal(saved, archive.genotypes[cell])
        video = tab.saved("save video", tmp_path)
        assert video.name in (f"cell-{cell}.mp4", f"cell-{cell}.gif")
        if video.suffix == ".gif":
            with Image.open(video) as video_file:
                assert video_file.n_frames == 21
        else:
            assert video.read_bytes()[4:8] == b"ftyp"
        tab.says(f"{video.name} has been drawn")
        printed = tab.page.locator("table").first.inner_text()
    words = ["replay", str(ant_run), "--cell", str(cell), "--sheet", str(tmp_path / "sheet.png")]
    assert main(words) == 0
    fitness = next(row for row in capsys.readouterr().out.splitlines() if row.startswith("fitness"))
    assert set(fitness.split()[1:]) <= set(printed.split())  # the simulator replays the same episode


@pytest.mark.long
def test_with_corrected_colours_clicks_replay_elites_of_the_corrected_archive(
    arm_run, open_page, tmp_path
):
    folder = shutil.copytree(arm_run, tmp_path / "run")
    archive = memes.load_archive(folder)
    stored = int(np.argmax(archive.fitness))
    holds = next(c for c in (7, 8) if c != stored)
    kept = memes.archive.empty(archive.cells, 4)
    moved = {name: getattr(kept, name).at[holds].set(getattr(archive, name)[stored])
             for name in ("genotypes", "feature", "generation", "lane")}  # fmt: skip
    kept = replace(kept, **moved, fitness=kept.fitness.at[holds].set(0.125))
    alone = np.array([stored], np.int32), np.zeros(1, np.float32), np.zeros((1, 2), np.float32)
    save_correction(folder, Correction(kept, *alone, 8))
    found, _, tiles = final_colours(folder, colours.CORRECTED)
    assert not near(tiles[holds], tiles[stored])  # the stored cell is empty now
    with served(folder, rebuild=rebuild_arm) as url:
        tab = open_page(url)
        tab.choose("colour by", colours.CORRECTED)
        eventually(
            lambda: all(near(tab.colour(tab.cell(found, each)), tiles[each]) for each in (holds, stored))
        )
        x, y = map(round, tab.cell(found, holds))
        around = (slice(y - 25, y + 25), slice(x - 25, x + 25))
        before = tab.pixels()[around]
        tab.page.mouse.click(x, y)
        tab.says(f"memes replay {folder} --cell {stored}")
        tab.says(f"after re-evaluation in cell {holds}")
        tab.says("0.125")
        eventually(lambda: (tab.pixels()[around] - before)[..., 0].max() > 50)  # the cell's outline


SCRIPT = "<img src=x onerror=document.title='taken'>"
NAMES = (
    SCRIPT,
    f"`{SCRIPT}`",
    "{document.title='taken'}",
    "$x^$",
    "a" * 400,
    "\x1b[31m",
    "![](http://a.example)",
)


@pytest.mark.long
def test_names_in_a_folder_are_not_executed(arm_run, open_page, tmp_path):
    folder = shutil.copytree(arm_run, tmp_path / SCRIPT)
    config = json.loads((folder / "config.json").read_text())
    with served(folder, f"nothing `{SCRIPT}`", rebuild=lambda run: task) as url:
        tab = open_page(url)
        for i, name in enumerate(NAMES):
            about = {"algorithm": name, "feature_names": [name, f"{name} "], "started": str(i)}
            (folder / "config.json").write_text(json.dumps(config | about))
            eventually(lambda name=name: printable(name)[:20] in tab.text())
            tab.page.keyboard.press("ArrowUp")
            tab.says("lane")
        tab.page.get_by_role("tab", name="curves").click()
        tab.page.get_by_label("run", exact=True).first.click()
        tab.page.get_by_role("option").nth(1).click()
        tab.says("waiting for a run")
        assert tab.page.title() != "taken"
        requested = {
            urlsplit(each).netloc for each in tab.requests if not each.startswith(("data:", "blob:"))
        }
        assert requested == {urlsplit(url).netloc}
