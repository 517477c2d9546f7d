"""The task and the algorithm of a saved run, rebuilt from what its `config.json` says."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memes.algorithm import Algorithm
from memes.commands.options import cells_of, options_of, task_factory
from memes.errors import UsageError, known, require
from memes.hints import described, fits
from memes.presets import PRESETS
from memes.store.folder import Run, load_config
from memes.task import Task
from memes.tasks import TASKS


def task_of(run: Run, name: str | None = None) -> Task:
    """The task of a saved run, rebuilt from its name and options, for whatever runs simulators here.

    Reading a run folder executes no code that the folder names: a task of the user's own has to be
    named again.

    Args:
        run: The run.
        name: The task as in `memes run`, where it is not one of the library's, or where the run does
            not say which it was.
    """
    # The run's backend may need a device that is not here.
    task = _rebuild_task(run.folder, run.config, name, backend="auto")
    size, k = run.archive.genotypes.shape[1], run.archive.feature.shape[1]
    require(
        (task.dim, task.feature_dim) == (size, k),
        f"the run in '{run.folder}' has genotypes of {size} entries and {k} features, but task "
        f"'{name or task.name}' has {task.dim} and {task.feature_dim}",
    )
    return task


def algorithm_of(path: Path, name: str | None = None) -> Algorithm:
    """The algorithm of a run that the command line made, rebuilt from its `config.json`.

    Args:
        path: The run's folder.
        name: The task, as in `task_of`.
    """
    config = load_config(path)
    task = _rebuild_task(path, config, name)
    algorithm = known(f"algorithm of the run in '{path}'", config.get("algorithm"), PRESETS)
    preset = PRESETS[algorithm].build
    hints = typing.get_type_hints(options_of(preset, ""))
    options = _recorded_options(path, config, hints)
    missing = [option for option in hints if option not in options]
    require(not missing, f"the run in '{path}' does not say which {' and '.join(missing)} it has")
    centroids = config.get("centroids")
    resolution = config.get("cells") if centroids is None else None
    _check_recorded(path, "centroids", centroids, int | None)
    _check_recorded(path, "cells", resolution, tuple[int, ...] | None)
    with _recorded_in(path):
        return preset(task, cells_of(task, resolution, centroids), **options)._replace(name=algorithm)


@contextmanager
def _recorded_in(path: Path) -> Iterator[None]:
    """Let a `UsageError` say that what is wrong is what a run recorded."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"the run in '{path}' cannot be rebuilt: {error}") from error


def _recorded_options(path: Path, config: dict[str, Any], hints: dict[str, Any]) -> dict[str, Any]:
    """Those of the recorded options that the hints name, as their types."""
    recorded = config.get("options") or {}
    require(isinstance(recorded, dict), f"options of the run in '{path}' must be a table")
    options = {option: recorded[option] for option in hints if option in recorded}
    for option, value in options.items():
        _check_recorded(path, option, value, hints[option])
    return {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}


def _check_recorded(path: Path, name: str, value: Any, hint: Any) -> None:
    """Raise a `UsageError` unless what a run's `config.json` says can be what the option was."""
    sane = not isinstance(value, int) or abs(value) < 2**31
    require(
        fits(value, hint) and sane,
        f"{name} of the run in '{path}' must be {described(hint)}, got {value!r}",
    )


def _rebuild_task(path: Path, config: dict[str, Any], name: str | None, **replaced: Any) -> Task:
    recorded = str(config.get("task"))
    if name is None:
        require(
            ":" not in recorded,
            f"the run in '{path}' is of a task of its own, '{recorded}': if you trust that code, "
            f"name it with --task {recorded}",
        )
        require(
            recorded in TASKS,
            f"the run in '{path}' is of a task '{recorded}' that was made in Python: name the task "
            "with --task module:name or --task file.py:name",
        )
    make = task_factory(name or recorded)
    hints = typing.get_type_hints(options_of(make, ""))
    values = _recorded_options(path, config, hints)
    missing = [option for option in hints if option not in values]
    # A run made in Python records the algorithm's options alone; the task's may have been anything.
    require(
        name is not None or not missing,
        f"the run in '{path}' does not say which {' and '.join(missing)} its task '{recorded}' had: "
        "name a task that has them with --task module:name or --task file.py:name",
    )
    values |= {option: value for option, value in replaced.items() if option in values}
    with _recorded_in(path):
        task = make(**values)
    require(
        isinstance(task, Task),
        f"task '{name or recorded}' must be a function that returns a Task, got {type(task).__name__}",
    )
    return task
