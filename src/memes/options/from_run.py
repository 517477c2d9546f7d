"""Tasks and algorithms of saved runs, rebuilt from their `config.json`.

Custom code that is named in a run folder is never executed automatically. Instead, the user must name
the custom task or algorithm again.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from memes.algorithm import Algorithm
from memes.errors import UsageError, known, require
from memes.executors.remote_evaluation import BLOCK
from memes.options.flags import Options, options_of
from memes.options.names import algorithm_factory, cells_of, is_own, made, task_factory
from memes.options.workers import on_workers
from memes.presets import PRESETS
from memes.store.folder import Run, load_config
from memes.store.schema import RunConfig
from memes.task import Task
from memes.tasks import TASKS
from memes.validation import checked, described, fits


@checked
def task_from_run(run: Run, name: str | None = None, executor: Executor | None = None) -> Task:
    """Rebuild the task of a saved run from its name and options.

    Args:
        run: The run.
        name: Name of the task as in `memes run`. Required for custom tasks, and if the run does not
            record the name.
        executor: Executor that evaluates the task. By default, this process evaluates it.
    """
    # This machine may not have the device that the original backend needs, so the backend is `auto`.
    task = _rebuilt_task(run.folder, run.config, name, executor, backend="auto")
    size, k = run.archive.genotypes.shape[1], run.archive.feature.shape[1]
    require(
        (task.dim, task.feature_dim) == (size, k),
        f"the run in '{run.folder}' has genotypes of {size} entries and {k} features, but task "
        f"'{name or task.name}' has {task.dim} and {task.feature_dim}",
    )
    return task


def algorithm_of(
    path: Path,
    task: str | None = None,
    algorithm: str | None = None,
    executor: Executor | None = None,
) -> Algorithm:
    """Rebuild the algorithm of a run that was started on the command line.

    Args:
        path: Folder of the run.
        task: Name of the task, as in `task_from_run`.
        algorithm: Name of the algorithm as in `memes run`. Required for custom algorithms.
        executor: Executor that evaluates the task. By default, this process evaluates it.
    """
    config = load_config(path).config
    rebuilt = _rebuilt_task(path, config, task, executor)
    recorded = _recorded_name(path, config, "algorithm", algorithm)
    if algorithm is None:
        known(f"algorithm of the run in '{path}'", recorded, PRESETS)
    make = algorithm_factory(algorithm or recorded)
    values, missing = _recorded_options(path, config, options_of(make))
    require(not missing, f"the run in '{path}' does not record its {missing}")
    centroids = config.centroids
    resolution = config.cells if centroids is None else None
    _check_recorded(path, "centroids", centroids, int | None)
    _check_recorded(path, "cells", resolution, tuple[int, ...] | None)
    assert not isinstance(resolution, int)
    with _recorded_in(path):
        cells = cells_of(rebuilt, resolution, centroids)
        found = made(Algorithm, recorded, make, rebuilt, cells, **values)
    return replace(found, name=recorded, options=found.options or values)


def _rebuilt_task(
    path: Path | None,
    config: RunConfig,
    name: str | None,
    executor: Executor | None = None,
    **replaced: Any,
) -> Task:
    recorded = _recorded_name(path, config, "task", name)
    again = "--task module:name or --task file.py:name"
    require(
        name is not None or recorded in TASKS,
        f"the run in '{path}' has a task '{recorded}' that was made in Python: name the task "
        f"with {again}",
    )
    make = task_factory(name or recorded)
    values, missing = _recorded_options(path, config, options_of(make), **replaced)
    # Runs that were started in Python record only the options of the algorithm.
    require(
        name is not None or not missing,
        f"the run in '{path}' does not record {missing} of its task '{recorded}': "
        f"name a task with these options with {again}",
    )
    with _recorded_in(path):
        found, rows = made(Task, name or recorded, make, **values), config.worker_rows or BLOCK
        _check_recorded(path, "worker_rows", rows, int)
        return on_workers(found, name or recorded, values, executor, rows)


def _recorded_name(path: Path | None, config: RunConfig, what: str, given: str | None) -> str:
    """Return a recorded name. Raise a `UsageError` if it is custom code and `given` is None."""
    recorded: str = getattr(config, what)
    kind = "a task" if what == "task" else "an algorithm"
    whose = "is custom code" if is_own(recorded) else "reads other files or packages"
    require(
        given is not None or ":" not in recorded,
        f"the run in '{path}' has {kind} that {whose}, '{recorded}': if you trust it, name it with "
        f"--{what} {recorded}",
    )
    return recorded


@contextmanager
def _recorded_in(path: Path | None) -> Iterator[None]:
    """Within the context, add the folder of the run to the message of each `UsageError`."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"the run in '{path}' cannot be rebuilt: {error}") from error


def _recorded_options(
    path: Path | None, config: RunConfig, options: Options, **replaced: Any
) -> tuple[dict[str, Any], str]:
    """Return the recorded values of the options, and the names of options that are not recorded.

    Values in `replaced` override recorded values.
    """
    recorded = config.known_options
    values = {name: (recorded | replaced)[name] for name in options if name in recorded}
    for name, value in values.items():
        _check_recorded(path, name, value, options[name].hint)
    missing = " and ".join(name for name in options if name not in values)
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}, missing


def _check_recorded(path: Path | None, name: str, value: Any, hint: Any) -> None:
    """Raise a `UsageError` if a recorded value does not have the type of its option."""
    sane = not isinstance(value, int) or abs(value) < 2**31
    require(
        fits(value, hint) and sane,
        f"{name} of the run in '{path}' must be {described(hint)}, got {value!r}",
    )
