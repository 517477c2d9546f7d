"""The command `memes replay`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from memes.analysis import plot
from memes.archive import Archive
from memes.errors import require
from memes.options.from_run import task_from_run
from memes.store.folder import load_run
from memes.task import Task
from memes.view import elites
from memes.view.browser import browse
from memes.view.cameras import Camera
from memes.view.pictures import library, sheet_figure, write_video
from memes.view.recordings import Recording, episodes, robot_of, seconds_per_step
from memes.view.video_formats import check_file, check_size, check_video


def replay(
    run: Path,
    *,
    cell: tuple[int, ...] | None = None,
    feature: tuple[float, ...] | None = None,
    best: bool = False,
    random: bool = False,
    seed: int = 0,
    video: Path | None = None,
    size: tuple[int, int] | None = None,
    camera: Camera = "auto",
    rate: float | None = None,
    sheet: Path | None = None,
    paths: Path | None = None,
    draws: int = 32,
    port: int = 8080,
    task: str | None = None,
) -> None:
    """Play an elite of a saved run in its simulator.

    Without --video, --sheet or --paths, the page of 'memes view' shows the elite next to the archive
    until Ctrl-C. The page can only be opened on this machine, with the printed address.

    Args:
        run: Folder of the run.
        cell: Cell of the elite, as an index or as grid coordinates.
        feature: Select the elite whose feature is nearest to this feature.
        best: Select the fittest elite, which is the default.
        random: Select a random elite.
        seed: Seed of the initial state, if the task has random initial states.
        video: Write a video to this file, whose name ends with .mp4, .gif or .webp.
        size: Width and height of the video in pixels.
        camera: Camera for videos and frames. 'follow' moves with the robot. 'wide' shows the whole path
            and all walls from the side, and 'above' shows them from above. 'auto' selects 'wide' if
            there are walls, and 'follow' otherwise.
        rate: Frames per second of the video. By default, there is one frame per simulator state.
        sheet: Write twelve frames of the episode to this .png file.
        paths: Draw the paths of the robot on the ground from several initial states, and write them to
            this .png file.
        draws: Number of initial states for --paths.
        port: Port of the page in the browser. If this port is in use, the next free port is used.
        task: Task as in 'memes run'. Required if the task is custom. The code of the task is executed.
    """
    # Playing the episodes takes time, so problems with files and programs are reported first.
    if video:
        check_video("video", video)
    for option, file in {"sheet": sheet, "paths": paths}.items():
        if file:
            check_file(option, file, ".png")
    check_size(size or (640, 480), rate)
    saved = load_run(run)
    archive = saved.archive
    chosen = elites.choose(archive, cell=cell, feature=feature, best=best, random=random)
    rebuilt = task_from_run(saved, task)
    if not (video or sheet or paths):
        browse([run], lambda _: rebuilt, port=port, chosen=chosen, seed=seed)
        return
    model, seconds = robot_of(rebuilt).model, seconds_per_step(rebuilt)
    if video or sheet:
        library()
    draws = draws if paths and rebuilt.uncertain else 1
    played = episodes(rebuilt, archive.genotypes[chosen], seed=seed, draws=draws)
    title = f"{saved.config.task_label}, cell {elites.name(archive.cells, chosen)}"
    print(_described(title, rebuilt, archive, chosen, played[0]))
    if paths:
        free = model.njnt > 0 and model.jnt_type[0] == 0
        require(bool(free), f"paths: task '{rebuilt.name}' has no robot that moves by a free joint")
        ways = [episode.qpos[:, :2] for episode in played]
        plot.paths({title: ways}, map=rebuilt.map).savefig(paths, dpi=150)
        x = np.array([way[-1, 0] for way in ways])
        print(f"final x of {draws} episodes: mean {x.mean():.2f}, from {x.min():.2f} to {x.max():.2f}")
    states = played[0].qpos
    if sheet:
        sheet_figure(model, states, seconds=seconds, camera=camera).savefig(sheet, dpi=100)
    if video:
        write_video(video, model, states, seconds=seconds, size=size, camera=camera, rate=rate)
    for file in filter(None, (paths, sheet, video)):
        print(file)


def _described(title: str, task: Task, archive: Archive, cell: int, episode: Recording) -> str:
    """Return a table that compares the stored evaluation of an elite with the result of an episode."""
    stored = "stored", archive.fitness[cell], *archive.feature[cell]
    played = "this episode", episode.fitness, *episode.feature
    names = "", "fitness", *task.feature_names
    width, steps = max(map(len, names)), len(episode.qpos) - 1
    length = f"{steps} steps, {steps * seconds_per_step(task):.2f} s"
    lines = (
        " ".join([f"{name:{width}}", *(f"{x if isinstance(x, str) else f'{x:.4g}':>12}" for x in row)])
        for name, *row in zip(names, stored, played, strict=True)
    )
    return "\n".join([f"{title}; {length}", *lines])
