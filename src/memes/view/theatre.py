"""The elites that a user has chosen, one or two, played beside the archive."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from memes.errors import UsageError
from memes.store.folder import Run, feature_names
from memes.task import Task
from memes.view import words
from memes.view.drawings import Draw, Drawing, drawer
from memes.view.film import check_film
from memes.view.follow import Follower
from memes.view.panel import NOTHING, Panel
from memes.view.pictures import write_video
from memes.view.stage import Stage

PLACES = (np.array([0.8, 0.0, 0.1]), np.array([2.6, 0.0, 0.1]))
NAMES = ("A", "B")
REST = 1.0  # seconds between the end of an episode and its next beginning
Rebuild = Callable[[Run], Task]


class Theatre:
    """Two stages. What takes time is done beside the page's loop, one thing after the other.

    Args:
        scene: Of a viser server.
        panel: The controls.
        rebuild: `(run) -> task`; what it refuses is said on the page.
    """

    def __init__(self, scene: Any, panel: Panel, rebuild: Rebuild) -> None:
        self._scene, self._panel, self._rebuild = scene, panel, rebuild
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="replay")
        self._tasks: dict[tuple[Path, str], tuple[Task, Draw]] = {}
        self._stages: dict[tuple[int, int], Stage] = {}
        self._now, self._before, self._step = 0.0, time.perf_counter(), -1
        self.clear()

    def clear(self) -> None:
        """Show nothing."""
        self.chosen: list[int | None] = [None, None]
        self.drawings: list[Drawing | None] = [None, None]
        self._at: list[Stage | None] = [None, None]
        self._waiting: dict[int, Future[tuple[Task, Drawing]]] = {}
        for stage in self._stages.values():
            stage.show(None)
        self._panel.elite.content, self._panel.command.content = NOTHING, ""

    def close(self) -> None:
        """End what goes on beside the loop."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def choose(self, slot: int, follower: Follower, cell: int) -> None:
        """Play the elite of a cell on one of the stages, as soon as it is simulated."""
        self.chosen[slot] = cell
        seed = int(self._panel.start.value)
        self._waiting[slot] = self._thread.submit(self._simulate, follower, cell, seed)
        self._panel.elite.content = f"simulating the elite of cell {cell} ..."

    def compare_no_more(self) -> None:
        """Leave the second stage."""
        self.chosen[1] = self.drawings[1] = None
        self._waiting.pop(1, None)
        if self._at[1] is not None:
            self._at[1].show(None)
            self._at[1] = None

    def _simulate(self, follower: Follower, cell: int, seed: int) -> tuple[Task, Drawing]:
        x, which = follower.genotype(cell), _which(follower)
        if which not in self._tasks:
            task = self._rebuild(follower.as_run())
            self._tasks[which] = task, drawer(task)
        task, draw = self._tasks[which]
        return task, draw(x, seed)

    def receive(self, follower: Follower) -> None:
        """Put on stage what has been simulated."""
        for slot in [slot for slot, each in self._waiting.items() if each.done()]:
            try:
                task, drawing = self._waiting.pop(slot).result()
                stage = self._stage(task, slot)
            except Exception as error:  # a task of the user's own may raise anything
                self._panel.elite.content = words.of_error(error)
                continue
            self.drawings[slot], self._at[slot] = drawing, stage
            stage.show(drawing, f"{NAMES[slot]}: cell {self.chosen[slot]}")
            self._now, self._step = 0.0, -1
            self._tell(follower)

    def _stage(self, task: Task, slot: int) -> Stage:
        engine = None if task.control is None else task.control.environment.engine
        key = (id(task), slot)
        if key not in self._stages:
            model = None if engine is None else engine.model
            name = f"/stage-{len(self._stages)}"
            self._stages[key] = Stage(self._scene, name, PLACES[slot], model)
        return self._stages[key]

    def _tell(self, follower: Follower) -> None:
        """Say in words what is on the stages."""
        archive, now = follower.elites(), follower.latest
        names = feature_names(now.config, archive.feature.shape[1])
        parts, seed = [], int(self._panel.start.value)
        for slot, (cell, drawing) in enumerate(zip(self.chosen, self.drawings, strict=True)):
            if cell is not None:
                about = words.of_elite(archive, cell, now.correction, drawing, names)
                parts.append(f"{NAMES[slot]}: {about}" if self.chosen[1] is not None else about)
        self._panel.elite.content = "\n\n".join(parts)
        if self.chosen[0] is not None:
            self._panel.command.content = f"```\n{words.command(now.folder, self.chosen[0], seed)}\n```"
        shown = [each for each in self.drawings if each is not None]
        last = max([each.seconds * (each.steps - 1) for each in shown], default=0.0)
        self._panel.clock.max = max(last, 0.01)

    def play(self) -> None:
        """Move what is on the stages on, by the time that has passed."""
        passed, self._before = time.perf_counter() - self._before, time.perf_counter()
        shown = [each for each in self.drawings if each is not None and each.steps > 1]
        if not shown:
            return
        panel, last = self._panel, max(each.seconds * (each.steps - 1) for each in shown)
        # A rest at the end; while it does not play, whoever moves the slider decides.
        played = (self._now + passed * float(panel.speed.value)) % (last + REST)
        self._now = played if panel.playing.value else float(panel.clock.value)
        seconds = min(each.seconds for each in shown)
        step = min(round(self._now / seconds), round(last / seconds))
        if step == self._step:
            return
        self._step = step
        for stage, drawing in zip(self._at, self.drawings, strict=True):
            if stage is not None and drawing is not None and drawing.steps > 1:
                stage.move(round(step * seconds / drawing.seconds))
        if panel.playing.value:
            panel.clock.value = min(step * seconds, panel.clock.max)

    # ------------------------------------------------------------------------------------------- saving

    def save_genotype(self, follower: Follower, client: Any) -> None:
        """Send the genotype of the first elite to the browser, as a file of NumPy."""
        if self.chosen[0] is not None:
            file = io.BytesIO()
            np.save(file, np.asarray(follower.genotype(self.chosen[0])))
            client.send_file_download(f"cell-{self.chosen[0]}.npy", file.getvalue())

    def save_video(self, follower: Follower, client: Any) -> None:
        """Send a video of the first elite to the browser, once it is drawn."""
        drawing, cell = self.drawings[0], self.chosen[0]
        if drawing is None or drawing.episode is None:
            self._panel.command.content = "only robots have videos"
            return
        task, _ = self._tasks[_which(follower)]
        self._panel.command.content = "drawing the video ..."
        self._thread.submit(self._film, task, drawing, cell, client)

    def _film(self, task: Task, drawing: Drawing, cell: int | None, client: Any) -> None:
        assert task.control is not None
        assert drawing.episode is not None
        model = task.control.environment.engine.model
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, f"cell-{cell}.mp4")
                try:
                    check_film("video", file)
                except UsageError:
                    file = file.with_suffix(".gif")
                write_video(file, model, drawing.episode.qpos, seconds=drawing.seconds)
                client.send_file_download(file.name, file.read_bytes())
                self._panel.command.content = f"`{file.name}` is drawn"
        except Exception as error:  # which nobody would hear of, beside the loop
            self._panel.command.content = words.of_error(error)


def _which(follower: Follower) -> tuple[Path, str]:
    """Tell a run from others, also from another one in the same folder."""
    return follower.latest.folder, str(follower.latest.config.get("started"))
