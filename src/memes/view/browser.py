"""The page in the browser: the archives of runs, live, and their elites, moving.

It is for this machine only. Its loop has one thread; what a user does waits in a queue for it.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from memes.analysis.nested import is_nested
from memes.cells import Cells
from memes.errors import UsageError, install, require
from memes.store import changes as store
from memes.store.folder import feature_names
from memes.view import colours, layout
from memes.view import words as wording
from memes.view.follow import Follower, Runs

ALL = "all, as a grid of grids"
LOOK = 0.25  # seconds between two looks at the folders
RATE = 40  # turns of the loop in a second
FIELD = 0.6  # of view, up and down, in radians
LATELY = 1 / 40  # of the generations so far are recent


def check_browser() -> None:
    """Raise a `UsageError` unless the page can be served."""
    require(
        importlib.util.find_spec("mjviser") is not None,
        f"a page in the browser needs the extra view: {install('view')}; "
        "'memes replay' with --video FILE.gif or --sheet FILE.png does without",
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
    """Serve the page of some runs until Ctrl-C.

    Args:
        words: Run folders, folders of runs, or patterns; a run may begin there later.
        rebuild: `(run) -> task` of a run; what it refuses is said on the page.
        port: Where to serve, or the next free one.
        chosen: A cell of the first run, whose elite is shown at once.
        seed: From which random start.
        ready: Told the address.
        going: Asked whether to go on.
    """
    runs = Runs(words)
    runs.poll(strict=True)
    check_browser()
    for each in runs:
        if not each.latest.config:
            print(f"there is no run in '{each.latest.folder}' yet: the page waits for it", flush=True)
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
    """The page: its parts, and a turn of its loop."""

    def __init__(self, server: Any, runs: Runs, rebuild: Callable[..., Any]) -> None:
        from memes.view.board import Board
        from memes.view.panel import Panel
        from memes.view.theatre import Theatre

        server.scene.set_up_direction("+z")
        server.gui.configure_theme(dark_mode=True, show_share_button=False, show_logo=False)
        server.initial_camera.fov = FIELD
        aim(server.initial_camera, stages=1)
        self._server, self._runs, self._looked, self._stale = server, runs, 0.0, False
        self.panel = panel = Panel(server.gui)
        self._board = Board(
            server.scene, lambda x, y, key: panel.events.put(("click", (x, y, key), None))
        )
        self._theatre = Theatre(server.scene, panel, rebuild)
        self._layout: tuple[Any, layout.Layout] | None = None
        self._show()

    @property
    def follower(self) -> Follower:
        """That of the run that is shown."""
        named = self._runs.named()
        return named.get(self.panel.run.value) or next(iter(named.values()))

    def close(self) -> None:
        """End what goes on beside the loop."""
        self._theatre.close()

    def start(self, seed: int) -> None:
        """Choose the random start of episodes."""
        self.panel.start.max = max(self.panel.start.max, seed)
        self.panel.start.value = seed

    def turn(self) -> None:
        """Do what there is to do now."""
        try:
            while not self.panel.events.empty():
                self._handle(*self.panel.events.get())
            self._theatre.receive(self.follower)
        except (UsageError, OSError) as error:  # a folder that is gone, for one
            self.panel.elite.content = wording.of_error(error)
        if time.monotonic() - self._looked > LOOK:
            if self._runs.poll():
                self._show()
            self._looked = time.monotonic()
        with self._server.atomic():
            if self._stale:
                self._paint()
            self._theatre.play()

    def _handle(self, name: str, value: Any, client: Any) -> None:
        """Do what a user has asked for."""
        if name == "click":
            x, y, key = value
            self._pick(layout.tile_at(self._placed(), x, y), 1 if key == "shift" else 0)
        elif name == "walk":
            self._walk(layout.STEPS[value])
        elif name == "pause":
            self.panel.playing.value = not self.panel.playing.value
        elif name == "stop comparing":
            self._theatre.compare_no_more()
            self._see(stages=1)
        elif name == "save genotype":
            self._theatre.save_genotype(self.follower, client)
        elif name == "save video":
            self._theatre.save_video(self.follower, client)
        elif name == "random start":
            for slot, cell in enumerate(self._theatre.chosen):
                if cell is not None:
                    self.choose(slot, cell)
        elif name == "generation":
            self.panel.follow.value = value >= self.panel.generation.max
        elif name == "run":
            self._theatre.clear()
        if name in ("run", "over", "column", "follow the run"):
            self._show()
        self._stale = True

    def choose(self, slot: int, cell: int) -> None:
        """Play the elite of a cell on one of the stages."""
        if slot == 1 and self._theatre.chosen[1] is None:
            self._see(stages=2)
        self._theatre.choose(slot, self.follower, cell)
        self._stale = True

    def _see(self, stages: int) -> None:
        """Let everybody see the board and so many stages."""
        for client in self._server.get_clients().values():
            aim(client.camera, stages)

    def _pick(self, tile: int, slot: int) -> None:
        cell = -1 if tile < 0 else int(layout.shown(self._placed(), self._standing().fitness)[tile])
        if cell >= 0:
            self.choose(slot, cell)

    def _walk(self, step: tuple[int, int]) -> None:
        """Go to the next elite in a direction, from the one that is shown or from the fittest."""
        at, fitness = self._placed(), self._standing().fitness
        best, here = layout.shown(at, fitness), self._theatre.chosen[0]
        if here is None:
            if np.isfinite(fitness).any():
                self.choose(0, int(np.argmax(fitness)))
            return
        self._pick(layout.next_tile(at, int(at.of_cell[here]), step, best >= 0), 0)

    # ------------------------------------------------------------------------------------- what is shown

    def _show(self) -> None:
        """Show what the folders hold now."""
        panel, named = self.panel, self._runs.named()
        panel.offer(panel.run, [*named])
        now = self.follower.latest
        panel.about.content = wording.of_run(now)
        panel.lanes.content = wording.of_lanes(now.lanes)
        panel.draw([*named], [each.latest.metrics for each in self._runs])
        if now.cells is not None:
            panel.offer(panel.by, colours.choices(now.correction))
            panel.offer(panel.features, [*spans(now.cells, feature_names(now.config, now.k))])
        last = max(1, now.generations)
        if panel.generation.max != last:
            panel.generation.max = last
        if panel.follow.value or panel.generation.value > last:
            panel.generation.value = last
        self._stale = True

    def _placed(self) -> layout.Layout:
        """The layout of the cells, as the menu says."""
        now = self.follower.latest
        require(now.cells is not None, "there is no archive yet")
        assert now.cells is not None
        found = spans(now.cells, feature_names(now.config, now.k))
        features = found.get(self.panel.features.value, next(iter(found.values())))
        key = (id(now.cells), features)
        if self._layout is None or self._layout[0] != key:
            self._layout = key, layout.of(now.cells, features)
        return self._layout[1]

    def _standing(self) -> colours.Shown:
        """Find what each cell shows after the generation of the slider."""
        now, generations = self.follower.latest, int(self.panel.generation.value)
        assert now.cells is not None
        changes = store.nothing(now.k) if now.changes is None else now.changes
        last = store.standing(changes, generations)
        return colours.of_cells(self.panel.by.value, now.cells.count, last, generations, now.correction)

    def _paint(self) -> None:
        from memes.view.board import Frame

        self._stale = False
        now, by = self.follower.latest, self.panel.by.value
        if now.cells is None:
            return
        at, shown, generations = self._placed(), self._standing(), int(self.panel.generation.value)
        lately = max(1.0, LATELY * generations) if self.panel.lately.value else 0.0
        image = colours.picture(at, shown, by, lately=lately, chosen=tuple(self._theatre.chosen))
        names = feature_names(now.config, now.k)
        low, high = np.asarray(now.cells.low), np.asarray(now.cells.high)
        labels = [names[i] for i in at.features] or [" in ".join(names[i::2]) for i in (0, 1)]
        filled = int(np.isfinite(shown.fitness).sum())
        frame = Frame(
            title=f"{filled} of {now.cells.count} cells after generation {generations}",
            labels=(labels[0], labels[-1] if len(labels) > 1 else ""),
            bounds=tuple((float(low[i]), float(high[i])) for i in at.features),
            by=by,
            limits=colours.limits(by, shown.value),
            aspect=image.shape[0] / image.shape[1],
        )
        self._board.paint(frame, image)


def aim(camera: Any, stages: int) -> None:
    """Turn a camera to the board and the stages beside it."""
    middle, far = (-0.45, 6.0) if stages == 1 else (0.45, 8.6)
    camera.position, camera.look_at = (middle, -far, 1.5), (middle, 0.0, 0.98)


def spans(cells: Cells, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Name the ways to show cells: by the features that span the picture, or none for all at once."""
    k = len(names)
    if k == 1:
        return {names[0]: (0,)}
    nested: dict[str, tuple[int, ...]] = {ALL: ()} if is_nested(cells) else {}
    return nested | {f"{names[i]} by {names[j]}": (i, j) for i, j in combinations(range(k), 2)}
