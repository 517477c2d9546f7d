"""The command `memes compare`: tables and figures of many runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from memes.analysis import report
from memes.analysis.groups import group, without_short
from memes.errors import require
from memes.store.find import find
from memes.store.folder import check_free
from memes.store.summary import load_summary


@dataclasses.dataclass(frozen=True)
class Settings:
    """Compare runs: medians over their seeds, tests, and figures for print.

    Runs of a task that differ by nothing but their seeds are put together.
    """

    runs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)"),
    ]
    """Run folders, summary files, folders of either, or patterns such as 'runs/arm-*'."""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("comparison")
    """Folder for the tables and figures; files of an earlier comparison are replaced."""
    short: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Compare runs with less than half of the usual generations of their algorithm too, rather than
    leave them out."""


def compare(arguments: list[str]) -> None:
    """Compare saved runs."""
    settings = tyro.cli(Settings, prog="memes compare", args=arguments)
    require(bool(settings.runs), "RUN is missing: 'memes compare RUN...' needs at least one run")
    check_free(settings.out)
    found = {str(path): load_summary(path) for path in find(settings.runs)}
    runs, left_out = (found, []) if settings.short else without_short(found)
    comparison = report.compare(group(list(runs.values()), list(runs)), left_out)
    console = Console(markup=False, highlight=False)
    report.show(comparison, console)
    drawn = report.write(comparison, settings.out)
    where = f"{settings.out}; begin with {settings.out}/comparison.md"
    console.print(f"tables and {len(drawn)} figures are in {where}")
