"""`memes view`, and the page of `memes run --view`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memes.options.from_run import task_from_run
from memes.store.folder import Run
from memes.task import Task
from memes.view.browser import browse, check_browser

PORT = 8080
SECONDS_TO_END = 5
BESIDE = "from memes.commands.view import beside; beside()"


def view(runs: tuple[str, ...], *, port: int = PORT, task: str | None = None) -> None:
    """Show runs in the browser, also while they go on.

    The page has the archive, which can be clicked on: its elites move beside it. It has the curves and
    the lanes, too. Only the address that is printed opens it, and only on this machine. It ends with
    Ctrl-C, and changes nothing in the folders.

    Args:
        runs: Folders of runs, or patterns such as 'runs/arm-*'. A run may begin there later.
        port: Port of the page, or the next free one.
        task: The task as in 'memes run', for runs of a task of your own: its code is executed.
    """
    browse(runs, rebuilt(task), port=port)


def rebuilt(task: str | None) -> Callable[[Run], Task]:
    """Return what rebuilds the task of a run, perhaps from a name that the user has given."""
    return lambda run: task_from_run(run, task)


@contextmanager
def viewed(out: Path, task: str) -> Iterator[None]:
    """Show a run while it goes on, in a process of its own; then until Ctrl-C, unless it failed."""
    check_browser()
    own = task if ":" in task else ""
    command = [sys.executable, "-P", "-c", BESIDE, str(out), own, str(os.getpid())]
    # Not on the accelerator, which the run needs for itself, and not to be ended by its Ctrl-C.
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    page = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        yield
        if page.poll() is None:
            with suppress(KeyboardInterrupt):
                print("the page stays until Ctrl-C", flush=True)
                page.wait()
    finally:
        page.terminate()
        try:
            page.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:  # busy with an episode, perhaps; it has nothing to save
            page.kill()
            page.wait()


def beside() -> None:
    """Serve the page of a run for the process that runs it, and end with that."""
    folder, task, parent = sys.argv[1:]
    browse([Path(folder)], rebuilt(task or None), port=PORT, going=lambda: os.getppid() == int(parent))
