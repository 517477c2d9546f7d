"""The command `memes compare`: tables and figures of many runs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from memes.analysis import comparisons, report, tables
from memes.analysis.groups import Groups, all_labels, group
from memes.analysis.style import looks, save, styled
from memes.errors import require
from memes.store.folder import check_free
from memes.store.summary import find, load


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


def compare(arguments: list[str]) -> None:
    """Compare saved runs."""
    settings = tyro.cli(Settings, prog="memes compare", args=arguments)
    require(bool(settings.runs), "RUN is missing: 'memes compare RUN...' needs at least one run")
    folder = settings.out
    check_free(folder)
    found = find(settings.runs)
    groups = group([load(path) for path in found], [str(path) for path in found])
    console = Console(markup=False, highlight=False)
    rows = tables.all_tables(groups)
    for table in report.shown(groups, rows):
        report.print_table(console, table)
    for note in report.notes(groups):
        console.print(note)
    drawn = write(groups, rows, folder)
    console.print(f"tables and {len(drawn)} figures are in {folder}; begin with {folder}/comparison.md")


def write(groups: Groups, rows: Mapping[str, list[tables.Row]], folder: Path) -> list[Path]:
    """Write the tables, the figures, and a page of both into a folder; the PNG files of the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table_rows in rows.items():
        report.write_csv(folder / f"{name}.csv", table_rows)
    drawn = draw(groups, folder)
    (folder / "comparison.md").write_text(report.page(groups, rows, [file.stem for file in drawn]))
    return drawn


def draw(groups: Groups, folder: Path) -> list[Path]:
    """Draw every figure that there is something to show in, each as PNG and PDF; the PNG files."""
    found = looks(all_labels(groups))
    with styled():
        figures = {
            "scores": comparisons.scores_figure(groups, found),
            "losses": comparisons.losses_figure(groups, found),
            "convergence-generations": comparisons.convergence_figure(groups, found, "generation"),
            "convergence-evaluations": comparisons.convergence_figure(groups, found, "evaluations"),
            "convergence-corrected": comparisons.corrected_figure(groups, found),
            "steps": comparisons.steps_figure(groups, found),
        }
        for task, labels in groups.items():
            name = "".join(c if c.isalnum() else "-" for c in Path(task).name)
            figures[f"archives-{name}"] = comparisons.archives_figure(task, labels)
        for pattern in [*figures, "archives-*"]:  # of an earlier comparison
            for old in itertools.chain(folder.glob(f"{pattern}.png"), folder.glob(f"{pattern}.pdf")):
                old.unlink()
        return [save(figure, folder / f"{name}.x")[0] for name, figure in figures.items() if figure]
