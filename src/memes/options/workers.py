"""Options of workers, and custom tasks that workers rebuild from their names."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from memes.errors import require
from memes.executors import workers
from memes.executors.remote_evaluation import BLOCK, parallelize
from memes.options.names import is_own, made, task_factory
from memes.task import Task


@dataclass(frozen=True)
class Named:
    """The evaluator of a custom task. Workers receive only the name and the options of the task.

    The task itself is not sent, because it may contain nested functions, which cannot be pickled.
    """

    name: str
    options: tuple[tuple[str, Any], ...]

    def __call__(self, keys: Any, x: Any) -> Any:
        """Evaluate genotypes. Each process creates the task only once."""
        return _made(self).evaluate(keys, x)


@cache
def _made(named: Named) -> Task:
    return made(Task, named.name, task_factory(named.name), **dict(named.options))


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Options of workers that evaluate a Python simulator.

    Attributes:
        workers: Workers that evaluate a task with jit=False: a number of processes, ray, ray:ADDRESS,
            dask:ADDRESS or mpi. Results do not depend on the workers.
        simulator_timeout: Maximum time in seconds for a block of genotypes. If a block takes longer, its
            worker process is replaced. By default, there is no limit.
    """

    workers: str | None = None
    simulator_timeout: float | None = None

    def __post_init__(self) -> None:
        alone = self.simulator_timeout is not None and self.workers is None
        require(not alone, "simulator_timeout needs workers, as in --workers 8")

    def executor(self) -> AbstractContextManager[Executor | None]:
        """Return a context manager that starts the workers, or does nothing if there are no workers."""
        if self.workers is None:
            return nullcontext()
        return workers(self.workers, timeout=self.simulator_timeout)


def on_workers(
    task: Task, name: str, options: Mapping[str, Any], executor: Executor | None, rows: int = BLOCK
) -> Task:
    """Return the task. If there is an executor, the workers of the executor evaluate the task.

    Args:
        task: The task.
        name: Name of the task, from which workers rebuild a custom task.
        options: Options of the task.
        executor: Executor whose workers evaluate the task. If None, the task is returned unchanged.
        rows: Number of genotypes that a worker receives at a time.
    """
    if executor is None:
        return task
    where, _, attribute = name.rpartition(":")
    if where.endswith(".py"):
        name = f"{Path(where).absolute()}:{attribute}"  # simulators may change the current folder
    evaluate = Named(name, tuple(options.items())) if is_own(name) else None
    return parallelize(task, executor, block=rows, evaluate=evaluate)
