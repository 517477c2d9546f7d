"""`memes.run` and `memes.resume`: the loop with the usual observers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, overload

from memes.algorithm import Algorithm
from memes.analysis.observers import Figures, Summaries
from memes.errors import UsageError
from memes.hints import checked
from memes.runner import loop
from memes.runner.observers import Checkpoints, Corrections, Log, Observer, Progress
from memes.store.folder import Run, load_config

# In the order in which they see a run. A checkpoint comes after the correction that it is to know of.
USUAL: tuple[Any, ...] = (Log, Corrections, Checkpoints, Progress, Summaries, Figures)


def with_usual(given: Sequence[Observer], config: Mapping[str, Any] | None = None) -> list[Observer]:
    """The usual observers, each replaced by one of its own type if it is given, and the others.

    Args:
        given: Observers.
        config: What a run has recorded of the settings of the usual ones; None is their defaults.
    """
    own = {type(observer): observer for observer in given if type(observer) in USUAL}
    usual = [own.get(kind) or restored(kind, config or {}) for kind in USUAL]
    return [*usual, *(observer for observer in given if type(observer) not in USUAL)]


def restored(kind: Any, config: Mapping[str, Any]) -> Any:
    """An observer of the kind, with those settings that a run has recorded."""
    names = {f"{kind.prefix}_{field.name}": field.name for field in dataclasses.fields(kind)}
    return kind(**{field: config[name] for name, field in names.items() if name in config})


@overload
def run(
    algorithm: Algorithm, *, generations: int, seed: int = 0, seeds: None = None, **options: Any
) -> Run: ...
@overload
def run(
    algorithm: Algorithm, *, generations: int, seeds: Sequence[int], **options: Any
) -> list[Run]: ...
@wraps(loop.run)
def run(algorithm: Algorithm, *, observers: Sequence[Any] = (), **options: Any) -> Run | list[Run]:
    """Run an algorithm with the usual observers and those that are given."""
    return loop.run(algorithm, observers=with_usual(observers), **options)


@overload
def resume(
    algorithm: Algorithm, path: str | Path, *, seeds: None = None, **options: Any
) -> Run | list[Run]: ...
@overload
def resume(
    algorithm: Algorithm, path: str | Path, *, seeds: Sequence[int], **options: Any
) -> list[Run]: ...
@checked
@wraps(loop.resume)
def resume(
    algorithm: Algorithm, path: str | Path, *, observers: Sequence[Any] = (), **options: Any
) -> Run | list[Run]:
    """Go on with a run, with its usual observers and those that are given."""
    folder = loop.run_folders(path)[0]
    recorded = load_config(folder)
    try:
        chosen = with_usual(observers, recorded)
    except UsageError as error:
        raise UsageError(f"the run in '{folder}' cannot be resumed: {error}") from error
    return loop.resume(algorithm, path, observers=chosen, **options)
