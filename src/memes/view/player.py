"""Playback of the selected elites next to the archive."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from memes.archive import Archive
from memes.errors import UsageError
from memes.store import changes as store
from memes.store.folder import Run
from memes.task import Task
from memes.view import labels
from memes.view.drawings import Draw, Drawing, drawer
from memes.view.follow import Follower, genotype
from memes.view.panel import NOTHING, Panel
from memes.view.pictures import write_video
from memes.view.recordings import engine_of, robot_of
from memes.view.scene import EliteScene
from memes.view.video_formats import check_video

PLACES = (np.array([0.8, 0.0, 0.1]), np.array([2.7, 0.0, 0.1]))
NAMES = ("A", "B")
REST = 1.0  # seconds between the end of an episode and its repetition
Rebuild = Callable[[Run], Task]


class Played(NamedTuple):
    """A simulated elite.

    Attributes:
        task: Task of the run.
        archive: Archive that contains the elite.
        cell: Cell of the elite.
        x: Genotype of the elite, [d].
        drawing: Result of the simulation.
    """

    task: Task
    archive: Archive
    cell: int
    x: Array
    drawing: Drawing


class ElitePlayer:
    """Plays up to two elites, each in a separate scene. One thread computes simulations and videos.

    Args:
        scene: Scene of a viser server.
        panel: Controls of the page.
        rebuild: Function `(run) -> task`, whose error messages are shown on the page.
    """

    def __init__(self, scene: Any, panel: Panel, rebuild: Rebuild) -> None:
        self._scene, self._panel, self._rebuild = scene, panel, rebuild
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="replay")
        self._tasks: dict[tuple[Path, str], tuple[Task, Draw]] = {}
        self._scenes: dict[tuple[int, int], EliteScene] = {}
        self._now, self._before, self._step = 0.0, time.perf_counter(), -1
        self.chosen: list[int | None] = [None, None]
        self._notes = ["", ""]  # notes about the selected elites
        self._played: list[Played | None] = [None, None]
        self._waiting: dict[int, Future[Played]] = {}
        self.clear()

    def clear(self) -> None:
        """Remove all elites from the page."""
        self._leave(0)
        self._leave(1)
        self._panel.elite.content, self._panel.command.content = NOTHING, ""
        self._panel.fit()

    def close(self) -> None:
        """Stop the thread and cancel waiting simulations."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def choose(self, slot: int, follower: Follower, cell: int, note: str = "") -> None:
        """Simulate the elite of a cell, and then show the simulation in one of the scenes."""
        self.chosen[slot], self._notes[slot] = cell, note
        seed = int(self._panel.start.value)
        self._waiting[slot] = self._thread.submit(self._simulate, follower, cell, seed)
        self._panel.elite.content = f"simulating the elite of cell {cell} ..."

    def compare_no_more(self, follower: Follower, generations: int) -> None:
        """Remove the elite from the second scene."""
        self._leave(1)
        self.tell(follower, generations)

    def _leave(self, slot: int) -> None:
        self.chosen[slot] = self._played[slot] = None
        self._waiting.pop(slot, None)
        for (_, of), scene in self._scenes.items():
            if of == slot:
                scene.show(None)

    def _simulate(self, follower: Follower, cell: int, seed: int) -> Played:
        which, archive = _which(follower), follower.elites()
        x = genotype(archive, cell)
        if which not in self._tasks:
            task = self._rebuild(follower.as_run())
            self._tasks[which] = task, drawer(task)
        task, draw = self._tasks[which]
        return Played(task, archive, cell, x, draw(x, seed))

    def receive(self, follower: Follower, generations: int) -> None:
        """Show the elites whose simulations have finished. `tell` explains the arguments."""
        for slot in [slot for slot, each in self._waiting.items() if each.done()]:
            try:
                played = self._waiting.pop(slot).result()
                scene = self._scene_of(played.task, slot)
            except Exception as error:  # a custom task may raise any exception
                self._leave(slot)
                self._panel.elite.content = labels.of_error(error)
                continue
            self._played[slot] = played
            scene.show(played.drawing, f"{NAMES[slot]}: cell {played.cell}")
            self._now, self._step = 0.0, -1
            self.tell(follower, generations)

    def _scene_of(self, task: Task, slot: int) -> EliteScene:
        key = (id(task), slot)
        if key not in self._scenes:
            engine = engine_of(task)
            model = None if engine is None else engine.model
            name = f"/elite-{len(self._scenes)}"
            self._scenes[key] = EliteScene(self._scene, name, PLACES[slot], model)
        return self._scenes[key]

    def tell(self, follower: Follower, generations: int) -> None:
        """Show descriptions of the elites, and the controls that apply to these elites.

        Args:
            follower: Object that reads the run folder.
            generations: Number of generations after which the displayed archive was recorded.
        """
        now, panel, played = follower.latest, self._panel, self._played
        if played[0] is None and played[1] is None:
            return
        changes = (
            store.no_changes(now.k)
            if now.changes is None
            else store.last_per_cell(now.changes, generations)
        )
        shown = dict(zip(changes.cell.tolist(), changes.generation.tolist(), strict=True))
        parts = []
        for name, each, note in zip(NAMES, played, self._notes, strict=True):
            if each is not None:
                holds = None if now.correction is None else follower.holds(each.cell)
                seen = shown.get(each.cell)
                elite = labels.EliteFacts(
                    each.archive, each.cell, now.correction, holds, each.drawing, seen
                )
                about = labels.of_elite(elite, now.names)
                about = f"*{note}*\n\n{about}" if note else about
                parts.append(f"{name}: {about}" if played[1] is not None else about)
        panel.elite.content = "\n\n".join(parts)
        if played[0] is not None:
            command = labels.command(now.folder, played[0].cell, int(panel.start.value))
            panel.command.content = f"```\n{command}\n```"
        moving = self._moving()
        panel.clock.max = max((each.seconds * (each.steps - 1) for _, each in moving), default=1.0)
        panel.fit(
            chosen=played[0] is not None,
            moves=bool(moving),
            robot=any(each.episode is not None for _, each in moving),
            uncertain=any(each is not None and each.task.uncertain for each in played),
            compares=played[1] is not None,
        )

    def _moving(self) -> list[tuple[EliteScene, Drawing]]:
        """Return the scenes and drawings of the moving elites."""
        return [
            (self._scene_of(each.task, slot), each.drawing)
            for slot, each in enumerate(self._played)
            if each is not None and each.drawing.steps > 1
        ]

    def play(self) -> None:
        """Continue the animation by the time that has passed since the last call."""
        passed, self._before = time.perf_counter() - self._before, time.perf_counter()
        moving = self._moving()
        if not moving:
            return
        panel, last = self._panel, max(each.seconds * (each.steps - 1) for _, each in moving)
        # Elites stay in their last state for `REST` seconds. If the animation is paused, the slider sets
        # the time.
        played = (self._now + passed * float(panel.speed.value)) % (last + REST)
        self._now = played if panel.playing.value else float(panel.clock.value)
        seconds = min(each.seconds for _, each in moving)
        step = min(round(self._now / seconds), round(last / seconds))
        if step == self._step:
            return
        self._step = step
        for scene, drawing in moving:
            scene.move(round(step * seconds / drawing.seconds))
        if panel.playing.value:
            panel.clock.value = min(step * seconds, panel.clock.max)

    # ------------------------------------------------------------------------------------------- saving

    def save_genotype(self, client: Any) -> None:
        """Send the genotype of the first elite to the browser as a NumPy file."""
        if (played := self._played[0]) is not None:
            file = io.BytesIO()
            np.save(file, np.asarray(played.x))
            client.send_file_download(f"cell-{played.cell}.npy", file.getvalue())

    def save_video(self, client: Any) -> None:
        """Render a video of the first elite, and send the video to the browser."""
        played = self._played[0]
        if played is None or played.drawing.episode is None:
            self._panel.command.content = "only robots have videos"
            return
        self._panel.command.content = "drawing the video ..."
        self._thread.submit(self._draw_video, played, client)

    def _draw_video(self, played: Played, client: Any) -> None:
        drawing = played.drawing
        assert drawing.episode is not None
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, f"cell-{played.cell}.mp4")
                try:
                    check_video("video", file)
                except UsageError:
                    file = file.with_suffix(".gif")
                model = robot_of(played.task).model
                write_video(file, model, drawing.episode.qpos, seconds=drawing.seconds)
                client.send_file_download(file.name, file.read_bytes())
                self._panel.command.content = f"`{file.name}` has been drawn"
        except Exception as error:  # Python does not print exceptions of this thread
            self._panel.command.content = labels.of_error(error)


def _which(follower: Follower) -> tuple[Path, str]:
    """Identify a run by its folder and its start time, because a new run may use the same folder."""
    return follower.latest.folder, str(follower.latest.started)
