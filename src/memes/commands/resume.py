"""`memes resume`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from memes import api
from memes.commands.run import conclude
from memes.errors import require
from memes.runner.loop import run_folders
from memes.words.rebuild import algorithm_of


@dataclass(frozen=True)
class Command:
    """Go on with a run, or with the runs of several seeds, as if they had never stopped.

    Attributes:
        run: The run's folder, or that of several seeds.
        generations: For how many generations in all; None is as many as were asked of the run.
        task: The task as module:name or file.py:name, if it is your own: its code is executed.
        algorithm: The algorithm as module:name or file.py:name, if it is your own.
        quiet: Show no progress.
    """

    run: Annotated[Path, tyro.conf.Positional]
    generations: int | None = None
    task: str | None = None
    algorithm: str | None = None
    quiet: bool = False


def resume(arguments: list[str]) -> int:
    """Go on with a run that was interrupted or killed; returns the exit code."""
    require(bool(arguments), "RUN is missing: 'memes resume RUN' needs a run folder")
    parsed = tyro.cli(Command, prog="memes resume", args=arguments)
    algorithm = algorithm_of(run_folders(parsed.run)[0], parsed.task, parsed.algorithm)
    runs = api.resume(algorithm, parsed.run, generations=parsed.generations, progress=not parsed.quiet)
    found = runs if isinstance(runs, list) else [runs]
    return conclude(found, len(found), parsed.run)
