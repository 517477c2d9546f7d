"""Quality-diversity search with many evolution strategies at once (MEMES).

    task = memes.tasks.arm()  # or a custom problem: memes.Task(...)
    algorithm = memes.presets.memes(task)  # memes.PRESETS contains all presets
    run = memes.run(algorithm, generations=2000, out="runs/arm")
    memes.plot.archive(run)  # memes.load_run("runs/arm") loads the run again

The modules of this package contain the parts of algorithms. To keep `import memes` fast, each name is
imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memes import display
from memes.errors import RunError, UsageError
from memes.version import __version__

if TYPE_CHECKING:  # type checkers read this branch; at run time, `__getattr__` imports the names
    from memes import (
        archive,
        cells,
        control,
        emitters,
        history,
        judges,
        metrics,
        objectives,
        physics,
        presets,
        resets,
        selectors,
        strategies,
        tasks,
    )
    from memes.algorithm import Algorithm, Info, State, compose
    from memes.analysis import plot
    from memes.analysis.end_of_run import Figures
    from memes.analysis.task_report import TaskReport, check
    from memes.api import resume, run
    from memes.archive import Archive, Changes, Elite, Status
    from memes.context import Kind
    from memes.estimates import Candidates, reevaluate, resampled
    from memes.executors import workers
    from memes.executors.remote_evaluation import parallelize
    from memes.executors.seeds import seeds_from_keys
    from memes.metrics import archive_loss, qd_score
    from memes.options.from_run import task_from_run
    from memes.presets import PRESETS
    from memes.pytrees import TreeGenotypes
    from memes.resets import Reason
    from memes.runner.change_log import ChangeLog
    from memes.runner.corrections import Corrections
    from memes.runner.loggers import LogFunction, Logger
    from memes.runner.multihost import join_processes
    from memes.runner.observers import Callbacks, Checkpoints, RunContext, Update
    from memes.store.archives import load_archive, save_archive
    from memes.store.changes import load_changes
    from memes.store.folder import Run, load_run
    from memes.store.schema import Provenance, RunConfig, RunOutcome
    from memes.task import Evaluation, Task, noisy, rowwise, uniform
    from memes.tasks import TASKS

__all__ = ["RunError", "UsageError", "__version__"]
__all__ += [
    "TASKS",
    "Evaluation",
    "Task",
    "TreeGenotypes",
    "noisy",
    "resampled",
    "rowwise",
    "tasks",
    "uniform",
]
__all__ += ["TaskReport", "check", "parallelize", "seeds_from_keys", "task_from_run", "workers"]
__all__ += ["PRESETS", "Algorithm", "Candidates", "Info", "State", "compose", "presets"]
__all__ += ["cells", "control", "emitters", "history", "judges", "objectives", "physics", "resets"]
__all__ += ["selectors", "strategies"]
__all__ += ["Archive", "Changes", "Elite", "Kind", "Reason", "Status", "archive", "load_archive"]
__all__ += ["save_archive"]
__all__ += ["archive_loss", "metrics", "qd_score", "reevaluate"]
__all__ += ["Provenance", "Run", "RunConfig", "RunOutcome"]
__all__ += ["join_processes", "load_changes", "load_run", "plot", "resume", "run"]
__all__ += ["Callbacks", "ChangeLog", "Checkpoints", "Corrections", "Figures", "LogFunction", "Logger"]
__all__ += ["RunContext", "Update"]

# The names that are imported when they are first used, grouped by module.
_NAMES = {
    "memes": (
        "archive",
        "cells",
        "control",
        "emitters",
        "history",
        "judges",
        "metrics",
        "objectives",
        "physics",
        "presets",
        "resets",
        "selectors",
        "strategies",
        "tasks",
    ),
    "memes.algorithm": ("Algorithm", "Info", "State", "compose"),
    "memes.analysis": ("plot",),
    "memes.analysis.end_of_run": ("Figures",),
    "memes.analysis.task_report": ("TaskReport", "check"),
    "memes.api": ("resume", "run"),
    "memes.archive": ("Archive", "Changes", "Elite", "Status"),
    "memes.context": ("Kind",),
    "memes.estimates": ("Candidates", "reevaluate", "resampled"),
    "memes.executors": ("workers",),
    "memes.executors.remote_evaluation": ("parallelize",),
    "memes.executors.seeds": ("seeds_from_keys",),
    "memes.pytrees": ("TreeGenotypes",),
    "memes.metrics": ("archive_loss", "qd_score"),
    "memes.options.from_run": ("task_from_run",),
    "memes.presets": ("PRESETS",),
    "memes.resets": ("Reason",),
    "memes.runner.change_log": ("ChangeLog",),
    "memes.runner.corrections": ("Corrections",),
    "memes.runner.loggers": ("LogFunction", "Logger"),
    "memes.runner.multihost": ("join_processes",),
    "memes.runner.observers": ("Callbacks", "Checkpoints", "RunContext", "Update"),
    "memes.store.archives": ("load_archive", "save_archive"),
    "memes.store.changes": ("load_changes",),
    "memes.store.folder": ("Run", "load_run"),
    "memes.store.schema": ("Provenance", "RunConfig", "RunOutcome"),
    "memes.task": ("Evaluation", "Task", "noisy", "rowwise", "uniform"),
    "memes.tasks": ("TASKS",),
}
display.plots = lambda: import_module("memes.analysis.plot")
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'memes' has no attribute '{name}'")
    if _MODULES[name] in ("memes", "memes.analysis"):  # names in these entries refer to modules
        return import_module(f"{_MODULES[name]}.{name}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
