"""Tasks with an ordinary Python simulator, spread over the workers of an executor."""

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

BLOCK = 32  # rows


@checked
def parallelize(
    task: Task,
    executor: Executor | Callable[[], Executor],
    *,
    block: int = BLOCK,
    evaluate: Evaluator | None = None,
) -> Task:
    """Evaluate a task with `jit=False` on the workers of an executor.

    Rows go to workers in blocks of a fixed size and come back in order: results do not depend on how
    many workers there are. `evaluate` gets the keys as NumPy arrays, which `seeds_from_keys` accepts,
    and must be a function that workers can import. A block whose worker is lost is tried once again,
    and then row by row: rows whose worker is lost again evaluate to NaN.

    Args:
        task: The task.
        executor: Anything with the interface of `concurrent.futures`, such as `memes.workers(8)`; or a
            function that makes one, which is called again when the executor breaks.
        block: Rows that a worker gets at a time.
        evaluate: The function that workers call, where it is not the task's own.
    """
    require(
        not task.jit, f"task '{task.name}' is compiled by JAX: only those with jit=False have workers"
    )
    at_least(1, block=block)
    by = partial(Spread, task, executors=_Executors(executor), block=block)
    learning = task.evaluate_transitions if evaluate is None else None
    return replace(
        task,
        evaluate=by(function=evaluate or task.evaluate),
        evaluate_transitions=learning and by(function=learning),
    )


@dataclass(frozen=True)
class Spread:
    """An evaluator on workers; see `parallelize`.

    Attributes:
        task: The task as it was.
        function: The function that workers call.
        executors: Where they are.
        block: Rows that a worker gets at a time.
    """

    task: Task
    function: Evaluator
    executors: _Executors
    block: int

    def __call__(self, keys: Array, x: np.ndarray) -> Any:
        """Evaluate rows, NaN for those that are lost; raises what a worker raised if all are."""
        parts, failure = self.attempt(keys, x)
        if failure is not None and all(result is None for _, result in parts):
            raise raised_by(self.task, failure) from failure
        return joined(self.task, parts)

    def __str__(self) -> str:
        executor = self.executors.now
        named = type(executor).__str__ is not object.__str__
        return str(executor) if named else f"workers of {type(executor).__name__}"

    def attempt(self, keys: Array, x: np.ndarray) -> tuple[list[Part], BaseException | None]:
        """Evaluate as `by_halves` does: some rows may be lost."""
        words, blocks = key_words(keys), slices(len(x), self.block)
        x = np.asarray(x)
        found: dict[int, list[Part]] = {}  # by the first row of a block
        failure: BaseException | None = None

        def lost(waiting: list[slice]) -> list[slice]:
            """Have blocks evaluated; returns those whose worker was lost."""
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
            # If one lost worker breaks them all, nobody knows whose rows it was: they go one by one.
            broken = isinstance(failure, BrokenExecutor)
            some = [[block] for block in blocks] if broken else [blocks]
            return [block for each in some for block in lost(each)]

        twice = again(lost(blocks))
        # Row by row; if no row of all is found in the first of these blocks, the simulator is broken.
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
    """The exception for a simulator that failed for every row: its own, or one of its worker's."""
    if not isinstance(failure, (WorkerDied, TimeoutError, BrokenExecutor)) or place_of(failure):
        return failure
    return RunError(f"task '{task.name}' raised {in_a_line(failure)} for every row that was tried")


def attempting(
    function: Evaluator, in_place: Evaluator
) -> Callable[[Any, Any], tuple[list[Part], BaseException | None]]:
    """How rows are evaluated of which some may be lost: on the function's workers, or `in_place`."""
    return function.attempt if isinstance(function, Spread) else partial(by_halves, in_place)


class _Executors:
    """An executor; or one after the other, each until it breaks, where it is known how to make them."""

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
    """Join all parts, which were checked, into what an `evaluate` returns; NaN where rows were lost."""
    known: Evaluation | None = next((result for _, result in parts if result is not None), None)
    control = None if known is None or known.transitions is None else task.control

    def missing(n: int) -> Evaluation:
        nan = lost(task, n, known and known.extras)
        return nan if control is None else nan._replace(transitions=no_transitions(control, n))

    found = [missing(n) if result is None else result for n, result in parts]
    whole: Evaluation = jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)
    plain = not whole.extras and whole.transitions is None
    return (whole.fitness, whole.feature) if plain else whole
