"""Tasks by their names, evaluated by workers that make them themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from memes.errors import require
from memes.executors import workers
from memes.spreading import BLOCK, spread
from memes.task import Task
from memes.words.names import is_own, made, task_factory


@dataclass(frozen=True)
class Named:
    """The `evaluate` of a user's task, by name and options: so that anything can go to workers.

    A task in a file may be made of functions within functions, which cannot be pickled.
    """

    name: str
    options: tuple[tuple[str, Any], ...]

    def __call__(self, keys: Any, x: Any) -> Any:
        """Evaluate rows by the task, which is made once in each process."""
        return _made(self).evaluate(keys, x)


@cache
def _made(named: Named) -> Task:
    return made(Task, named.name, task_factory(named.name), **dict(named.options))


@contextmanager
def executor_of(which: str | None, timeout: float | None = None) -> Iterator[Executor | None]:
    """The executor that the flags `--workers` and `--simulator-timeout` ask for; None if none is."""
    require(timeout is None or which is not None, "simulator_timeout needs workers, as in --workers 8")
    if which is None:
        yield None
        return
    with workers(which, timeout=timeout) as executor:
        yield executor


def elsewhere(
    task: Task, name: str, options: Mapping[str, Any], executor: Executor | None, rows: int = BLOCK
) -> Task:
    """The task of that name and options, spread over an executor if there is one."""
    if executor is None:
        return task
    where, _, attribute = name.rpartition(":")
    if where.endswith(".py"):
        name = f"{Path(where).absolute()}:{attribute}"  # a simulator may go elsewhere
    evaluate = Named(name, tuple(options.items())) if is_own(name) else None
    return spread(task, executor, block=rows, evaluate=evaluate)
