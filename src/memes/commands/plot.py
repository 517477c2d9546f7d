"""`memes plot`."""

from __future__ import annotations

from memes.analysis.end_of_run import save_figures
from memes.store.find import find, readable
from memes.store.folder import load_run
from memes.store.sanitize import printable


def plot(runs: tuple[str, ...]) -> None:
    """Draw the figures of runs again: archive.png, curves.png, and positions.png on a map.

    Args:
        runs: Run folders, folders of them, or patterns such as 'runs/arm-*'.
    """
    places, unfinished = readable(find(runs))
    for note in unfinished:
        print(printable(note))
    # All are looked at before the first is drawn.
    for run in [load_run(folder) for folder in places]:
        for file in save_figures(run):
            print(printable(str(file)))
