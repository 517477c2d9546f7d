"""The browser page, which shows moving elites and the current archives of runs.

The page can only be opened on this machine. One thread runs the loop of the page, which handles queued
user actions.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from memes.analysis import render
from memes.cells import Cells
from memes.errors import UsageError, install, require
from memes.store import changes as store
from memes.store.folder import holds_run
from memes.store.sanitize import printable
from memes.view import colours, elites, labels
from memes.view.archive_panel import ArchivePanel, Frame, spans
from memes.view.follow import Follower
from memes.view.panel import Panel
from memes.view.player import ElitePlayer
from memes.view.runs import Runs

log = logging.getLogger(__name__)
LOOK = 0.25  # Seconds between two polls of the folders.
RATE = 40  # Iterations of the loop per second.
SLOWER = 4  # Minimum time between two polls, as a multiple of the duration of a poll.
FIELD = 0.6  # Vertical field of view in radians.
EYES, NEAREST = 1.35, 4.6  # Height and minimum distance of the camera.
SIGHT = (-2.75, 2.0, 3.9)  # Left end of the view; right end for one elite; right end for two elites.
LATELY = 1 / 40  # Share of the past generations whose changes are highlighted.
SIDE = 600  # Longer side of the image of the archive, in pixels.


def check_browser() -> None:
    """Raise a `UsageError` if the packages for the page are not installed."""
    require(
        importlib.util.find_spec("viser") is not None,
        f"a page in the browser needs the extra view: {install('view')}",
    )


def browse(
    words: Sequence[str | Path],
    rebuild: Callable[..., Any],
    *,
    port: int,
    chosen: int | None = None,
    seed: int = 0,
    ready: Callable[[str], object] = lambda url: print(f"showing at {url} until Ctrl-C", flush=True),
    going: Callable[[], bool] = lambda: True,
) -> None:
    """Serve a page that shows some runs, until Ctrl-C is pressed.

    Args:
        words: Run folders, folders of runs, or patterns. A folder may still be empty if its run begins
            later.
        rebuild: Function `(run) -> task`, whose error messages are shown on the page.
        port: Port of the server. If it is in use, the next free port is used.
        chosen: Cell in the archive of the first run. Its elite is shown at the start. If None, no elite
            is shown.
        seed: Number that selects the random start of episodes.
        ready: Function that is called with the address of the page when the page is ready.
        going: Function that is called repeatedly. If it returns False, the page closes.
    """
    runs = Runs(words)
    runs.poll(strict=True)
    check_browser()
    for each in runs:
        if not holds_run(each.latest.folder):
            folder = printable(str(each.latest.folder))
            print(f"there is no run in '{folder}' yet: the page waits for it", flush=True)
    from memes.view.server import free_arrow_keys, page

    with page(title="memes", port=port) as (server, url), suppress(KeyboardInterrupt):
        free_arrow_keys(server)
        shown = Page(server, runs, rebuild)
        if chosen is not None:
            shown.start(seed)
            shown.choose(0, chosen)
        ready(url)
        try:
            while going():
                shown.turn()
                time.sleep(1 / RATE)
        finally:
            shown.close()


class Page:
    """The page, which consists of the controls, the archive and the elites."""

    def __init__(self, server: Any, runs: Runs, rebuild: Callable[..., Any]) -> None:
        self.panel = panel = Panel(server.gui)
        server.scene.set_up_direction("+z")
        server.gui.configure_theme(dark_mode=True, show_share_button=False, show_logo=False)
        server.initial_camera.fov = FIELD
        aim(server.initial_camera)
        server.on_client_connect(self._welcome)
        self._server, self._runs, self._due, self._stale = server, runs, 0.0, False
        self._logged: set[str] = set()  # messages of exceptions, each of which is logged once
        self._archive = ArchivePanel(
            server.scene, lambda *click: panel.events.put(("click", click, None))
        )
        self._player = ElitePlayer(server.scene, panel, rebuild)
        self._layout: tuple[Cells, tuple[int, ...], render.TileLayout] | None = None
        self._show()

    @property
    def follower(self) -> Follower:
        """The `Follower` that reads the displayed run."""
        named = self._runs.named()
        return named.get(self.panel.run.value) or next(iter(named.values()))

    def close(self) -> None:
        """Stop the simulations of elites."""
        self._player.close()

    def start(self, seed: int) -> None:
        """Set the number that selects the random start of episodes."""
        self.panel.start.max = max(self.panel.start.max, seed)
        self.panel.start.value = seed

    def _welcome(self, client: Any) -> None:
        """Aim the camera of a new user now and whenever the window is resized."""
        sizes: list[tuple[int, int]] = []

        def seen(camera: Any) -> None:
            size = camera.image_width, camera.image_height
            if sizes[-1:] != [size]:
                sizes[:] = [size]
                self.panel.events.put(("look", None, client))

        client.camera.on_update(seen)
        seen(client.camera)

    def turn(self) -> None:
        """Handle events, poll the folders and move the elites."""
        start = time.monotonic()
        looks = start > self._due
        while not self.panel.events.empty():
            with self._surviving():
                self._handle(*self.panel.events.get())
        with self._surviving():
            self._player.receive(self.follower, self._after())
            if looks and self._runs.poll(self.follower):
                self._show()
            with self._server.atomic():
                if self._stale:
                    self._paint()
                self._player.play()
        if looks:  # long runs are polled less often, because reading them takes longer
            self._due = start + max(LOOK, SLOWER * (time.monotonic() - start))

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Show exceptions on the page. Log each one once, except `UsageError` and `OSError`."""
        try:
            yield
        except Exception as error:
            sentence = labels.of_error(error)
            self.panel.elite.content = sentence
            if not isinstance(error, (UsageError, OSError)) and sentence not in self._logged:
                self._logged.add(sentence)
                frame = traceback.extract_tb(error.__traceback__)[-1]
                log.error("the page continues after %s (%s:%s)", sentence, frame.filename, frame.lineno)

    def _handle(self, name: str, value: Any, client: Any) -> None:
        """Handle an action of a user."""
        if name == "click":
            x, y, key = value
            self._pick(self._placed().at(x, y), 1 if key == "shift" else 0)
        elif name == "walk":
            self._walk(render.STEPS[value])
        elif name == "pause":
            self.panel.playing.value = not self.panel.playing.value
        elif name == "look":
            self._see(client)
        elif name == "stop comparing":
            self._player.compare_no_more(self.follower, self._after())
            self._see(*self._server.get_clients().values())
        elif name == "save genotype":
            self._player.save_genotype(client)
        elif name == "save video":
            self._player.save_video(client)
        elif name == "random start":
            for slot, cell in enumerate(self._player.chosen):
                if cell is not None:
                    self.choose(slot, cell)
        elif name == "generation":
            self.panel.follow.value = value >= self.panel.generation.max
        elif name == "run":
            self._player.clear()
            self._runs.poll(self.follower)
        if name in ("run", "over", "column", "follow the run"):
            self._show()
        if name in ("generation", "follow the run", "colour by"):
            self._player.tell(self.follower, self._after())
        self._stale = True

    def choose(self, slot: int, cell: int, note: str = "") -> None:
        """Play the elite of a cell in one of the two scenes, and show a note about the elite."""
        more = slot == 1 and self._player.chosen[1] is None
        self._player.choose(slot, self.follower, cell, note)
        if more:
            self._see(*self._server.get_clients().values())
        self._stale = True

    def _see(self, *clients: Any) -> None:
        """Aim the cameras of the given users at the archive and at all scenes that show an elite."""
        for camera in (client.camera for client in clients):
            aspect = camera.image_width / max(1, camera.image_height)
            aim(camera, 1 if self._player.chosen[1] is None else 2, float(np.clip(aspect, 0.5, 4)))

    def _pick(self, tile: int, slot: int) -> None:
        """Play the elite that a tile shows, or the nearest elite if the tile is empty."""
        at, fitness = self._placed(), self._shown_cells().fitness
        occupied = np.flatnonzero(np.isfinite(fitness))
        if tile == render.BETWEEN or not occupied.size:
            return
        cell, note = int(at.fittest(fitness)[tile]), ""
        if cell < 0:
            cells = self.follower.latest.cells
            assert cells is not None
            cell = render.nearest(at, cells, tile, occupied)
            note = f"this cell is empty: the nearest elite is in cell {elites.name(cells, cell)}"
        if self.panel.by.value == colours.CORRECTED:
            stored = int(self.follower.origins()[cell])
            require(stored >= 0, f"the elite that cell {cell} has after re-evaluation is not stored")
            cell = stored
        self.choose(slot, cell, note)

    def _marked(self) -> tuple[int | None, ...]:
        """Return the chosen elites' cells in the displayed archive, with None for missing elites."""
        chosen = self._player.chosen
        if self.panel.by.value != colours.CORRECTED:
            return tuple(chosen)
        return tuple(None if cell is None else self.follower.holds(cell) for cell in chosen)

    def _walk(self, step: tuple[int, int]) -> None:
        """Select the next elite in the given direction, or the fittest elite if none is selected."""
        at, fitness, here = self._placed(), self._shown_cells().fitness, self._marked()[0]
        if here is not None:
            self._pick(at.step(int(at.of_cell[here]), step, at.fittest(fitness) >= 0), 0)
        elif np.isfinite(fitness).any():
            self._pick(int(at.of_cell[np.argmax(fitness)]), 0)

    # --------------------------------------------------------------------------------------- drawing

    def _show(self) -> None:
        """Show the current content of the folders."""
        panel, named = self.panel, self._runs.named()
        panel.offer(panel.run, [*named])
        now = self.follower.latest
        panel.about.content = labels.of_run(now)
        panel.lanes.content = labels.of_lanes(now.lanes)
        panel.draw([*named], [each.latest.metrics for each in self._runs])
        if now.cells is not None:
            panel.offer(panel.by, colours.choices(now.correction))
            panel.offer(panel.features, [*spans(now.cells, now.names)])
        last = max(1, now.generations)
        if panel.generation.max != last:
            panel.generation.max = last
        if panel.follow.value or panel.generation.value > last:
            panel.generation.value = last
        self._stale = True

    def _placed(self) -> render.TileLayout:
        """Return the layout of the cells for the features selected in the menu."""
        now = self.follower.latest
        require(now.cells is not None, "there is no archive yet")
        assert now.cells is not None
        found = spans(now.cells, now.names)
        features = found.get(self.panel.features.value, next(iter(found.values())))
        if self._layout is None or self._layout[0] is not now.cells or self._layout[1] != features:
            at = render.layout(
                now.cells, features, place=now.header and now.header.config.map, side=SIDE
            )
            self._layout = now.cells, features, at
        return self._layout[2]

    def _after(self) -> int:
        """Return the number of generations after which the displayed archive was recorded."""
        if self.panel.by.value in colours.AT_THE_END:
            return self.follower.latest.generations
        return int(self.panel.generation.value)

    def _shown_cells(self) -> colours.Shown:
        """Return the colour value, the fitness and the age of each cell after `_after()` generations."""
        now, generations = self.follower.latest, self._after()
        assert now.cells is not None
        changes = store.no_changes(now.k) if now.changes is None else now.changes
        last = store.last_per_cell(changes, generations)
        return colours.of_cells(self.panel.by.value, now.cells.count, last, generations, now.correction)

    def _paint(self) -> None:
        self._stale = False
        now, by = self.follower.latest, self.panel.by.value
        if now.cells is None:
            return
        at, shown, generations = self._placed(), self._shown_cells(), self._after()
        lately = max(1.0, LATELY * generations) if self.panel.lately.value else 0.0
        image = colours.picture(at, shown, by, lately=lately, chosen=self._marked())
        names = now.names
        filled = int(np.isfinite(shown.fitness).sum())
        when = "re-evaluation" if by == colours.CORRECTED else f"generation {generations}"
        title = f"{filled} of {now.cells.count} cells after {when}"
        self._archive.paint(title, Frame(at, names, by, colours.scale(at, shown, by)), now.cells, image)


def aim(camera: Any, scenes: int = 1, aspect: float = 1.25) -> None:
    """Aim a camera at the archive and the scenes.

    The camera looks straight at the archive, so that the image of the archive is not distorted.

    Args:
        camera: Camera of viser.
        scenes: Number of scenes to show.
        aspect: Ratio of width to height of the window.
    """
    left, right = SIGHT[0], SIGHT[scenes]
    far = max(NEAREST, (right - left) / 2 / (aspect * math.tan(FIELD / 2)))
    middle = (left + right) / 2
    camera.position, camera.look_at = (middle, -far, EYES), (middle, 0.0, EYES)
