"""`memes view`."""

from __future__ import annotations

from pathlib import Path

from memes.store.folder import Run
from memes.task import Task
from memes.view.browser import browse
from memes.words.options import RunNames
from memes.words.rebuild import task_of


def view(runs: RunNames, /, *, port: int = 8080, task: str | None = None) -> None:
    """Show runs in the browser, also while they go on.

    The page has the archive, which can be clicked on: its elites move beside it. It has the curves and
    the lanes, too. Only the address that is printed opens it, and only on this machine. It ends with
    Ctrl-C, and changes nothing in the folders.

    Args:
        runs: Folders of runs, or of several seeds. A run may begin there later.
        port: Port of the page, or the next free one.
        task: The task as in 'memes run', for runs of a task of your own: its code is executed.
    """

    def rebuild(run: Run) -> Task:
        return task_of(run, task)

    browse([Path(run) for run in runs], rebuild, port=port)
