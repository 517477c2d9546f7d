"""`memes replay`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from memes.archive import Archive
from memes.errors import require
from memes.store.folder import load_run
from memes.view import elites
from memes.view.episodes import Episode, episodes, robot_of, seconds_per_step
from memes.words.rebuild import task_of

DESCRIPTION = """Play an elite of a saved run.

What is drawn are the states that the run's own simulator goes through. Without --video, --sheet or \
--paths the replay is a page in the browser, for this machine only, until Ctrl-C."""

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def _arg(metavar: str, hint: str = "") -> object:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=hint)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to replay, and where to."""

    run: Annotated[tyro.conf.Positional[Path], _arg("RUN")]
    """Folder of the run."""
    cell: Annotated[tuple[int, ...] | None, _arg("INT [INT ...]")] = None
    """The elite of this cell: its index, or its coordinates on the grid."""
    feature: Annotated[tuple[float, ...] | None, _arg("FLOAT [FLOAT ...]")] = None
    """The elite whose feature is nearest to this one."""
    best: Flag = False
    """The fittest elite; the default."""
    random: Flag = False
    """Any elite, another one each time."""
    seed: int = 0
    """Which start, where the task draws it at random."""
    video: Annotated[Path | None, _arg("FILE")] = None
    """Write an .mp4 or a .gif."""
    sheet: Annotated[Path | None, _arg("FILE")] = None
    """Write a .png of a dozen frames over the episode."""
    paths: Annotated[Path | None, _arg("FILE")] = None
    """Write a .png of the ways that the robot takes over the ground from several starts."""
    draws: int = 32
    """From how many starts, for --paths."""
    port: int = 8080
    """Port of the page in the browser, or the next free one."""
    task: Annotated[str | None, _arg("NAME")] = None
    """The task as in 'memes run', for runs of a task of your own: its code is executed."""


def replay(arguments: list[str]) -> None:
    """Play an elite of a saved run."""
    asks_for_help = bool({"-h", "--help"} & set(arguments))
    require(
        asks_for_help or (bool(arguments) and not arguments[0].startswith("-")),
        "RUN is missing: it comes first in 'memes replay RUN [OPTIONS]'",
    )
    settings = tyro.cli(Settings, prog="memes replay", description=DESCRIPTION, args=arguments)
    to_browser = settings.video is None and settings.sheet is None and settings.paths is None
    _check_files(settings)
    run = load_run(settings.run)
    cell = _choose(run.archive, settings)
    task = task_of(run, settings.task)
    model, seconds = robot_of(task).model, seconds_per_step(task)
    _check_tools(settings, to_browser)  # before the episodes, which take their time
    draws = settings.draws if settings.paths else 1
    played = episodes(task, run.archive.genotypes[cell], seed=settings.seed, draws=draws)
    title = f"{Path(run.config['task']).name}, cell {elites.name(run.archive.cells, cell)}"
    print(_described(title, run.archive, cell, played[0], seconds))

    if settings.paths:
        from memes.analysis import plot

        free = model.njnt > 0 and model.jnt_type[0] == 0
        require(bool(free), f"paths: the robot of task '{task.name}' has no free joint to move by")
        ways = [episode.qpos[:, :2] for episode in played]
        figure = plot.paths({title: ways}, map=task.map)
        figure.savefig(settings.paths, dpi=150)
        x = np.array([way[-1, 0] for way in ways])
        print(f"final x over {draws} starts: mean {x.mean():.2f}, from {x.min():.2f} to {x.max():.2f}")
    states = played[0].qpos
    if settings.sheet:
        from memes.view.pictures import sheet_figure

        sheet_figure(model, states, seconds=seconds).savefig(settings.sheet, dpi=100)
    if settings.video:
        from memes.view.pictures import write_video

        write_video(settings.video, model, states, seconds=seconds)
    for file in (settings.paths, settings.sheet, settings.video):
        if file:
            print(file)
    if to_browser:
        from memes.view.browser import play

        play(model, states, seconds=seconds, title=title, port=settings.port)


def _check_files(settings: Settings) -> None:
    for option, file in (("sheet", settings.sheet), ("paths", settings.paths)):
        require(
            file is None or file.suffix.lower() == ".png",
            f"{option} must be a file ending in .png, got '{file}'",
        )
    for file in filter(None, (settings.video, settings.sheet, settings.paths)):
        require(file.parent.is_dir(), f"cannot write '{file}': there is no folder '{file.parent}'")


def _check_tools(settings: Settings, to_browser: bool) -> None:
    if settings.video:
        from memes.view.pictures import check_video

        check_video(settings.video)
    if settings.video or settings.sheet:
        from memes.view.offscreen import library

        library()
    if to_browser:
        from memes.view.browser import check_browser

        check_browser()


def _choose(archive: Archive, settings: Settings) -> int:
    given = [settings.cell is not None, settings.feature is not None, settings.best, settings.random]
    require(sum(given) <= 1, "cell, feature, best and random exclude each other: choose one")
    if settings.cell is not None:
        return elites.at_cell(archive, settings.cell)
    if settings.feature is not None:
        return elites.near_feature(archive, settings.feature)
    if settings.random:
        return int(np.random.default_rng().choice(elites.elites(archive)))
    return elites.fittest(archive)


def _described(title: str, archive: Archive, cell: int, episode: Episode, seconds: float) -> str:
    stored, feature = float(archive.fitness[cell]), np.asarray(archive.feature[cell])
    steps = len(episode.qpos) - 1
    return (
        f"{title}\n"
        f"stored:       fitness {stored:.4g}, feature {_numbers(feature)}\n"
        f"this episode: fitness {episode.fitness:.4g}, feature {_numbers(episode.feature)}, "
        f"{steps} steps, {steps * seconds:.2f} s"
    )


def _numbers(values: Sequence[float] | np.ndarray) -> str:
    return " ".join(f"{value:.3g}" for value in values)
