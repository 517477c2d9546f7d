"""The figures of a run folder."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from memes.analysis import plot
from memes.store.folder import Run


def draw(run: Run) -> dict[str, Figure]:
    """Draw the figures of a run, by name: its archive, its curves, and positions where it has a map."""
    figures = {"archive": plot.archive(run), "curves": plot.curves(run)}
    if run.config.get("map") is not None:
        figures["positions"] = plot.positions(run)
    return figures


def save_figures(run: Run) -> list[Path]:
    """Write the figures of a run into `figures/` of its folder, if it has one; returns the files."""
    if run.folder is None:
        return []
    folder = run.folder / "figures"
    folder.mkdir(exist_ok=True)
    files = {folder / f"{name}.png": figure for name, figure in draw(run).items()}
    for file, figure in files.items():
        figure.savefig(file, dpi=150)
    return list(files)
