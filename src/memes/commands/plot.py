"""The command `memes plot`."""

from __future__ import annotations

from memes.analysis.end_of_run import save_figures
from memes.store.find import find, readable
from memes.store.folder import load_run
from memes.store.sanitize import printable


def plot(runs: tuple[str, ...]) -> None:
    """Redraw the figures of runs.

    The figures are archive.png, curves.png and, for tasks on a map, positions.png.

    Args:
        runs: Run folders, folders of runs, or patterns such as 'runs/arm-*'.
    """
    places, unfinished = readable(find(runs))
    for note in unfinished:
        print(printable(note))
    # All runs are loaded before the first figure is drawn, so that errors are reported early.
    for run in [load_run(folder) for folder in places]:
        for file in save_figures(run):
            print(printable(str(file)))
