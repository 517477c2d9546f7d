"""Evaluation of tasks with a Python simulator on the workers of an executor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from memes.control.rollouts import no_transitions
from memes.errors import RunError, UsageError, at_least, in_a_line, place_of, require
from memes.executors.blocks import Part, by_halves, in_worker
from memes.executors.processes import WorkerDied
from memes.executors.seeds import key_words
from memes.task import Evaluated, Evaluation, Evaluator, Task, as_evaluation, lost, slices
from memes.validation import checked

BLOCK = 32  # evaluations


@checked
def parallelize(
    task: Task,
    executor: Executor | Callable[[], Executor],
    *,
    block: int = BLOCK,
    evaluate: Evaluator | None = None,
) -> Task:
    """Return a task whose genotypes are evaluated on the workers of an executor.

    Workers get blocks of a fixed number of genotypes, and results are returned in order. Therefore,
    results do not depend on the number of workers. Workers must be able to import `evaluate`.
    The keys are passed to `evaluate` as NumPy arrays, which `seeds_from_keys` accepts.

    If the worker of a block is lost, the block is evaluated again. If a worker is lost a second time,
    each genotype of the block is evaluated separately. If the worker of a single genotype is lost, the
    result of this genotype is NaN.

    Args:
        task: The task, which must have `jit=False`.
        executor: An executor with the interface of `concurrent.futures`, such as `memes.workers(8)`, or
            a function that makes an executor. The function is called again if the executor breaks.
        block: Number of genotypes that a worker gets at a time.
        evaluate: The function that workers call. If None, workers call the task's `evaluate`.

    Returns:
        The task with an evaluator that uses the workers.
    """
    require(
        not task.jit, f"task '{task.name}' is compiled by JAX; only tasks with jit=False can use workers"
    )
    at_least(1, block=block)
    by = partial(RemoteEvaluator, task, executors=_Executors(executor), block=block)
    learning = task.evaluate_transitions if evaluate is None else None
    return replace(
        task,
        evaluate=by(function=evaluate or task.evaluate),
        evaluate_transitions=learning and by(function=learning),
    )


@dataclass(frozen=True)
class RemoteEvaluator:
    """An evaluator that uses workers, as described in `parallelize`.

    Attributes:
        task: The original task.
        function: The function that workers call.
        executors: The executor. If a function that makes executors was given, the function is called
            again to replace a broken executor.
        block: Number of genotypes that a worker gets at a time.
    """

    task: Task
    function: Evaluator
    executors: _Executors
    block: int

    def __call__(self, keys: Array, x: np.ndarray) -> Any:
        """Evaluate genotypes, with NaN for lost evaluations.

        If all evaluations are lost, raise the exception of a worker.
        """
        parts, failure = self.attempt(keys, x)
        if failure is not None and all(result is None for _, result in parts):
            raise raised_by(self.task, failure) from failure
        return joined(self.task, parts)

    def __str__(self) -> str:
        executor = self.executors.now
        named = type(executor).__str__ is not object.__str__
        return str(executor) if named else f"workers of {type(executor).__name__}"

    def attempt(self, keys: Array, x: np.ndarray) -> tuple[list[Part], BaseException | None]:
        """Evaluate genotypes on the workers, with the same return values as `by_halves`."""
        words, blocks = key_words(keys), slices(len(x), self.block)
        x = np.asarray(x)
        found: dict[int, list[Part]] = {}  # maps the start of each block to the parts of the block
        failure: BaseException | None = None

        def lost(waiting: list[slice]) -> list[slice]:
            """Evaluate blocks, and return the blocks whose worker was lost."""
            nonlocal failure
            futures = [self._hand_in(words[block], x[block]) for block in waiting]
            try:
                for block, future in zip(waiting, futures, strict=True):
                    try:
                        found[block.start], raised = future.result()
                    except UsageError:
                        raise
                    except Exception as error:
                        raised = error
                    failure = raised or failure
            finally:
                for future in futures:
                    future.cancel()
            return [block for block in waiting if block.start not in found]

        def again(blocks: list[slice]) -> list[slice]:
            # If the executor breaks, all blocks fail, and the block that caused the failure is unknown.
            # The blocks are then evaluated one by one.
            broken = isinstance(failure, BrokenExecutor)
            some = [[block] for block in blocks] if broken else [blocks]
            return [block for each in some for block in lost(each)]

        twice = again(lost(blocks))
        # Evaluate each genotype of the remaining blocks separately. If no block has succeeded so far,
        # begin with one block. If a worker is lost for every genotype in this block, the simulator is
        # considered broken, and the other blocks are recorded as lost.
        while twice:
            n = len(twice) if found else 1
            rows = [slice(row, row + 1) for block in twice[:n] for row in range(len(x))[block]]
            gone = again(rows)
            hopeless, twice = not found, twice[n:]
            found |= {row.start: [(1, None)] for row in gone}
            if hopeless:
                found |= {block.start: [(len(x[block]), None)] for block in twice}
                break
        parts = [self._checked(part) for start in sorted(found) for part in found[start]]
        return parts, failure

    def _hand_in(self, words: np.ndarray, x: np.ndarray) -> Future[Any]:
        return self.executors.submit(in_worker, self.function, words, x)

    def _checked(self, part: Part) -> Part:
        n, result = part
        return n, None if result is None else jax.device_get(as_evaluation(self.task, n, result))


def raised_by(task: Task, failure: BaseException) -> BaseException:
    """Return the exception to raise if a simulator failed for all genotypes.

    This is the exception of the simulator, or a `RunError` if workers were lost.
    """
    if not isinstance(failure, (WorkerDied, TimeoutError, BrokenExecutor)) or place_of(failure):
        return failure
    return RunError(f"task '{task.name}' raised {in_a_line(failure)} for every genotype that was tried")


def attempting(
    function: Evaluator, in_place: Evaluator
) -> Callable[[Any, Any], tuple[list[Part], BaseException | None]]:
    """Return a function that evaluates genotypes as `by_halves` does.

    The function uses workers if `function` is a `RemoteEvaluator`. Otherwise, it calls `in_place`.
    """
    return function.attempt if isinstance(function, RemoteEvaluator) else partial(by_halves, in_place)


class _Executors:
    """An executor. If a function that makes executors is given, a broken executor is replaced."""

    def __init__(self, given: Executor | Callable[[], Executor]) -> None:
        self._make = None if isinstance(given, Executor) else given
        self.now = given if isinstance(given, Executor) else given()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        try:
            return self.now.submit(function, *arguments)
        except BrokenExecutor as error:
            if self._make is None:
                lost: Future[Any] = Future()
                lost.set_exception(error)
                return lost
            self.now.shutdown(wait=False)
            self.now = self._make()
            return self.now.submit(function, *arguments)


def joined(task: Task, parts: list[Part]) -> Evaluated:
    """Join the parts of a batch into one result, with NaN for lost evaluations."""
    known: Evaluation | None = next((result for _, result in parts if result is not None), None)
    control = None if known is None or known.transitions is None else task.control

    def missing(n: int) -> Evaluation:
        nan = lost(task, n, known and known.extras)
        return nan if control is None else nan._replace(transitions=no_transitions(control, n))

    found = [missing(n) if result is None else result for n, result in parts]
    whole: Evaluation = jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)
    plain = not whole.extras and whole.transitions is None
    return (whole.fitness, whole.feature) if plain else whole
