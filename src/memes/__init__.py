"""Quality-diversity search with many evolution strategies at once (MEMES).

    task = memes.tasks.arm()                    what is optimised; your own is memes.Task(...)
    algorithm = memes.presets.memes(task)       how; memes.PRESETS names them all
    run = memes.run(algorithm, generations=2000, out="runs/arm")
    memes.plot.archive(run)                     and later memes.load_run("runs/arm")

The parts that algorithms are composed of are the modules below. Everything is imported on first use,
so that `import memes` is quick.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memes.errors import RunError as RunError
from memes.errors import UsageError as UsageError
from memes.version import __version__ as __version__

if TYPE_CHECKING:  # the table of contents: `__getattr__` reads it too
    from memes import archive as archive
    from memes import cells as cells
    from memes import control as control
    from memes import emitters as emitters
    from memes import history as history
    from memes import metrics as metrics
    from memes import objectives as objectives
    from memes import physics as physics
    from memes import presets as presets
    from memes import resets as resets
    from memes import selectors as selectors
    from memes import strategies as strategies
    from memes import tasks as tasks
    from memes.algorithm import Algorithm as Algorithm
    from memes.algorithm import Info as Info
    from memes.algorithm import State as State
    from memes.algorithm import compose as compose
    from memes.analysis import plot as plot
    from memes.analysis.observers import Figures as Figures
    from memes.api import resume as resume
    from memes.api import run as run
    from memes.archive import Archive as Archive
    from memes.archive import Changes as Changes
    from memes.archive import Status as Status
    from memes.context import Kind as Kind
    from memes.estimates import reevaluate as reevaluate
    from memes.executors import workers as workers
    from memes.executors.remote_evaluation import parallelize as parallelize
    from memes.executors.seeds import seeds_from_keys as seeds_from_keys
    from memes.metrics import archive_loss as archive_loss
    from memes.metrics import qd_score as qd_score
    from memes.options.from_run import task_from_run as task_from_run
    from memes.presets import PRESETS as PRESETS
    from memes.resets import Reason as Reason
    from memes.runner.change_log import ChangeLog as ChangeLog
    from memes.runner.corrections import Corrections as Corrections
    from memes.runner.loggers import LogFunction as LogFunction
    from memes.runner.loggers import Logger as Logger
    from memes.runner.multihost import join_processes as join_processes
    from memes.runner.observers import Callbacks as Callbacks
    from memes.runner.observers import Checkpoints as Checkpoints
    from memes.runner.observers import RunContext as RunContext
    from memes.runner.observers import Update as Update
    from memes.store.archives import load_archive as load_archive
    from memes.store.archives import save_archive as save_archive
    from memes.store.changes import load_changes as load_changes
    from memes.store.folder import Run as Run
    from memes.store.folder import load_run as load_run
    from memes.task import Evaluation as Evaluation
    from memes.task import Task as Task
    from memes.task import noisy as noisy
    from memes.task import resampled as resampled
    from memes.task import rowwise as rowwise
    from memes.task import uniform as uniform
    from memes.tasks import TASKS as TASKS


def _contents() -> dict[str, str]:
    """The module of each name above."""
    block = next(n for n in ast.parse(Path(__file__).read_text()).body if isinstance(n, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_MODULES = _contents()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'memes' has no attribute '{name}'")
    if _MODULES[name] in ("memes", "memes.analysis"):  # whose names are modules
        return import_module(f"{_MODULES[name]}.{name}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*_MODULES, "RunError", "UsageError", "__version__"})
