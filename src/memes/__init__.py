"""Quality-diversity search with many evolution strategies at once (MEMES).

    task = memes.tasks.arm()                    what is optimised; your own is memes.Task(...)
    algorithm = memes.presets.memes(task)       how; memes.PRESETS names them all
    result = memes.run(algorithm, generations=2000, out="runs/arm")
    archive = memes.load_archive("runs/arm")

The parts that algorithms are composed of are the modules below. Everything is imported on first use,
so that `import memes` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memes.errors import RunError as RunError
from memes.errors import UsageError as UsageError
from memes.version import __version__ as __version__

if TYPE_CHECKING:
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
    from memes.archive import Archive as Archive
    from memes.context import Kind as Kind
    from memes.correction import reevaluate as reevaluate
    from memes.metrics import archive_loss as archive_loss
    from memes.presets import PRESETS as PRESETS
    from memes.runner.loop import resume as resume
    from memes.runner.loop import run as run
    from memes.runner.seeds import run_seeds as run_seeds
    from memes.store.folder import Run as Run
    from memes.store.folder import load_archive as load_archive
    from memes.store.folder import load_run as load_run
    from memes.store.folder import save_archive as save_archive
    from memes.task import Evaluation as Evaluation
    from memes.task import Task as Task
    from memes.task import noisy as noisy
    from memes.task import resampled as resampled
    from memes.task import rowwise as rowwise
    from memes.task import seeds_of as seeds_of
    from memes.task import uniform as uniform
    from memes.tasks import TASKS as TASKS

_MODULES = {
    "archive", "cells", "control", "emitters", "history", "metrics", "objectives", "physics", "presets",
    "resets", "selectors", "strategies", "tasks",
}  # fmt: skip
_NAMES = {
    "Algorithm": "algorithm",
    "Info": "algorithm",
    "State": "algorithm",
    "compose": "algorithm",
    "Archive": "archive",
    "Kind": "context",
    "reevaluate": "correction",
    "load_archive": "store.folder",
    "load_run": "store.folder",
    "save_archive": "store.folder",
    "Run": "store.folder",
    "resume": "runner.loop",
    "run": "runner.loop",
    "run_seeds": "runner.seeds",
    "archive_loss": "metrics",
    "PRESETS": "presets",
    "Evaluation": "task",
    "Task": "task",
    "noisy": "task",
    "resampled": "task",
    "rowwise": "task",
    "seeds_of": "task",
    "uniform": "task",
    "TASKS": "tasks",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"memes.{name}")
    if name in _NAMES:
        return getattr(import_module(f"memes.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'memes' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*_MODULES, *_NAMES, "RunError", "UsageError", "__version__"})
