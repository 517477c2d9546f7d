"""`memes plot`."""

from __future__ import annotations

from memes.errors import require


def plot(arguments: list[str]) -> None:
    """Draw the figures of runs again: archive.png, curves.png, and positions.png on a map.

    RUN is a run folder, a folder of such folders, or a pattern such as 'runs/arm-*'.
    """
    require(bool(arguments), "RUN is missing: 'memes plot RUN...' needs at least one run folder")
    from memes.analysis.figures import save_figures
    from memes.store.find import find
    from memes.store.folder import load_run

    # All are looked at before the first is drawn.
    for run in [load_run(folder) for folder in find(arguments)]:
        for file in save_figures(run):
            print(file)
