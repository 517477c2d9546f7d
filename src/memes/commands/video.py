"""`memes video`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from jax import Array

from memes.analysis.heat import map_of
from memes.errors import at_least, require
from memes.runner.progress import Reporter
from memes.store.changes import load_changes, within
from memes.store.folder import feature_names, load_run
from memes.task import Task
from memes.view.cameras import Camera, between
from memes.view.elites import at_cell
from memes.view.episodes import player, robot_of, seconds_per_step
from memes.view.film import check_film, check_size, write_film
from memes.view.growth import Elite, film, spread_elites
from memes.view.pictures import frames, library
from memes.words.rebuild import task_of

PANEL = 256  # pixels along each side of the picture of an elite
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
    """Make a film of a saved run: its archive as it fills, with what some elites do beside it.

    Elites of robots move in their own time, from the generation on that found them. Other tasks have the
    archive alone.

    Args:
        run: Folder of the run.
        out: The film, an .mp4, a .gif or a .webp.
        seconds: How long it is.
        elites: How many to show, far from each other and of the fitter half.
        cells: The cells of the elites to show, instead.
        size: Width and height in pixels.
        camera: Where robots are seen from, as in 'memes replay'.
        rate: Pictures a second.
        seed: Which start of the episodes, where the task draws it at random.
        task: The task as in 'memes run', for runs of a task of your own: its code is executed.
    """
    check_film("out", out)
    check_size(size, rate)
    at_least(0, elites=elites)
    require(elites <= MOST_ELITES, f"elites must be at most {MOST_ELITES}, got {elites}")
    pictures = round(seconds * rate) if np.isfinite(seconds) else 0
    good = pictures >= 2 and seconds <= MOST_SECONDS
    require(good, f"seconds must lie in {2 / rate:g} ... {MOST_SECONDS:g}, got {seconds}")
    saved = load_run(run)
    changes = within(load_changes(run), saved.archive.cells.count)
    chosen = spread_elites(saved.archive, elites)
    if cells is not None:
        require(len(cells) <= MOST_ELITES, f"cells must be at most {MOST_ELITES}, got {len(cells)}")
        chosen = [at_cell(saved.archive, [cell]) for cell in cells]
    rebuilt = task_of(saved, task) if chosen else None
    name = Path(saved.config["task"]).name
    with Reporter(show=True) as report:
        played: list[Elite] = []
        if rebuilt is not None and rebuilt.control is not None and rebuilt.control.environment.engine:
            library()
            with report.counting("elite", len(chosen)) as show:
                for cell in chosen:
                    pictures_of = _pictures(rebuilt, saved.archive.genotypes[cell], seed, rate, camera)
                    played.append(Elite(cell, list(islice(pictures_of, pictures))))
                    show(len(played))
        drawn = film(
            saved.archive,
            changes,
            played,
            title=f"{saved.config['algorithm']} on {name}",
            names=feature_names(saved.config, saved.archive.feature.shape[1]),
            generations=saved.generations,
            pictures=pictures,
            size=size,
            place=map_of(saved.config),
        )
        with report.counting("picture", pictures) as show:
            write_film(out, (show(i) or picture for i, picture in enumerate(drawn, 1)), rate=rate)
    print(out)


def _pictures(task: Task, x: Array, seed: int, rate: float, camera: Camera) -> Iterator[np.ndarray]:
    """Draw an episode of a robot, so many pictures a second."""
    (episode,) = player(task)(x, seed)
    model = robot_of(task).model
    states = between(model, episode.qpos, seconds_per_step(task), rate)
    return frames(model, states, width=PANEL, height=PANEL, camera=camera)
