"""The command `memes video`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np

from memes.errors import at_least, require
from memes.options.from_run import task_from_run
from memes.presets import display_name
from memes.runner.progress import Reporter
from memes.store.changes import load_changes, within
from memes.store.folder import load_run
from memes.view.archive_video import EliteClip, spread_elites, video_frames
from memes.view.cameras import Camera
from memes.view.drawings import drawer
from memes.view.elite_frames import elite_frames
from memes.view.elites import at_cell
from memes.view.pictures import library
from memes.view.recordings import engine_of
from memes.view.video_formats import check_size, check_video, write_frames

MOST_SECONDS, MOST_ELITES = 600.0, 12


def video(
    run: Path,
    *,
    out: Path,
    seconds: float = 12.0,
    elites: int = 4,
    cells: tuple[int, ...] | None = None,
    size: tuple[int, int] = (1080, 540),
    camera: Camera = "follow",
    rate: float = 20.0,
    seed: int = 0,
    task: str | None = None,
) -> None:
    """Make a video that shows how the archive of a saved run fills up, next to selected elites.

    Elites are drawn as on the page of 'memes view'. Each elite appears in the generation in which it was
    found. Robots and points move in real time. If the elites of a task cannot be drawn, the video shows
    only the archive. If the archive was corrected, the last third of the video shows the corrected
    archive and the corrected fitness of the elites.

    Args:
        run: Folder of the run.
        out: File for the video, whose name ends with .mp4, .gif or .webp.
        seconds: Length of the video in seconds.
        elites: Number of elites to show. The video shows elites from the fitter half of the archive
            whose features are far from each other. If the archive was corrected, these elites survive
            re-evaluation in their cells.
        cells: Cells of the elites to show. By default, the elites are chosen automatically.
        size: Width and height in pixels.
        camera: Camera for robots, as in 'memes replay'.
        rate: Frames per second.
        seed: Seed of the initial states, if the task has random initial states.
        task: Task as in 'memes run'. Required if the task is custom. The code of the task is executed.
    """
    check_video("out", out)
    check_size(size, rate)
    at_least(0, elites=elites)
    require(elites <= MOST_ELITES, f"elites must be at most {MOST_ELITES}, got {elites}")
    pictures = round(seconds * rate) if np.isfinite(seconds) else 0
    good = pictures >= 2 and seconds <= MOST_SECONDS
    require(good, f"seconds must lie in {2 / rate:g} ... {MOST_SECONDS:g}, got {seconds}")
    saved = load_run(run)
    name = display_name(saved.config.algorithm_label, saved.config.options)
    changes = within(load_changes(run), saved.archive.cells.count)
    correction = saved.correction
    same = correction is None or correction.archive.cells.count == saved.archive.cells.count
    require(same, f"'{run / 'corrected.npz'}' belongs to another archive")
    chosen = spread_elites(saved.archive, elites, correction)
    if cells is not None:
        require(len(cells) <= MOST_ELITES, f"cells: at most {MOST_ELITES} are allowed, got {len(cells)}")
        chosen = [at_cell(saved.archive, [cell]) for cell in cells]
    with Reporter(show=True) as report:
        played: list[EliteClip] = []
        if chosen:
            rebuilt = task_from_run(saved, task)
            if engine_of(rebuilt) is not None:
                library()
            draw = drawer(rebuilt)
            with report.counting("elite", len(chosen)) as show:
                for i, cell in enumerate(chosen, 1):
                    drawing = draw(saved.archive.genotypes[cell], seed)
                    seen = elite_frames(drawing, rebuilt, rate=rate, camera=camera)
                    played.append(EliteClip(cell, list(islice(seen, pictures))))
                    show(i)
        drawn = video_frames(
            saved.archive,
            changes,
            [elite for elite in played if elite.pictures],
            title=f"{name} on {saved.config.task_label}",
            names=saved.config.names(saved.archive.feature.shape[1]),
            generations=saved.generations,
            pictures=pictures,
            size=size,
            place=saved.config.map,
            correction=correction,
        )
        with report.counting("picture", pictures) as show:
            write_frames(out, (show(i) or picture for i, picture in enumerate(drawn, 1)), rate=rate)
    print(out)
