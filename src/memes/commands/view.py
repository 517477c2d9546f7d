"""The command `memes view`, and the page of `memes run --view`."""

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
    """Show runs in the browser, including runs in progress.

    The page shows the archive, the curves and the lanes. Click on a cell to see its elite. The page can
    only be opened on this machine, with the printed address. Ctrl-C ends the command. The run folders
    are not changed.

    Args:
        runs: Folders of runs, or patterns such as 'runs/arm-*'. A folder may be empty until its run
            starts.
        port: Port of the page. If this port is in use, the next free port is used.
        task: Task as in 'memes run'. Required to play elites if the task is custom. The code of the task
            is executed.
    """
    browse(runs, rebuilt(task), port=port)


def rebuilt(task: str | None) -> Callable[[Run], Task]:
    """Return a function that rebuilds the task of a run. If the task is custom, `task` is its name."""
    return lambda run: task_from_run(run, task)


@contextmanager
def viewed(out: Path, task: str) -> Iterator[None]:
    """Serve the page of a run in a separate process during the run.

    After a successful run, the page is served until Ctrl-C.
    """
    check_browser()
    own = task if ":" in task else ""
    command = [sys.executable, "-P", "-c", BESIDE, str(out), own, str(os.getpid())]
    # The page uses the CPU, because the run needs the accelerator. The process has a separate session,
    # so that Ctrl-C stops only the run.
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
        except subprocess.TimeoutExpired:  # the page may be busy with an episode; killing it is safe
            page.kill()
            page.wait()


def beside() -> None:
    """Serve the page of a run until the parent process ends. The parent process computes the run."""
    folder, task, parent = sys.argv[1:]
    browse([Path(folder)], rebuilt(task or None), port=PORT, going=lambda: os.getppid() == int(parent))
