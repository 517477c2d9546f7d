"""Handling of simulators that run on the host and may raise exceptions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from memes.algorithm import Algorithm
from memes.errors import RunError, in_a_line
from memes.executors.blocks import Part
from memes.executors.remote_evaluation import attempting, joined
from memes.task import Evaluation, Evaluator, Task, as_evaluation, evaluate, initial

CALLBACKS = {"pure_callback", "io_callback"}


def callbacks_outside(algorithm: Algorithm) -> Algorithm:
    """Apply `on_host` to the task of an algorithm."""
    if algorithm.emitter.transitions:  # only compiled tasks provide transitions
        return algorithm
    return replace(algorithm, task=on_host(algorithm.task))


def on_host(task: Task) -> Task:
    """Set `jit=False` for a task that calls back into Python.

    An exception in a callback aborts the whole compiled program. The evaluation is therefore compiled
    separately, so that `surviving` can repeat the evaluation with fewer genotypes. Tasks without
    callbacks are returned unchanged.
    """
    if not task.jit or not CALLBACKS.intersection(_primitives(_traced(task))):
        return task
    return replace(task, jit=False, evaluate=jax.jit(lambda keys, x: evaluate(task, keys, x)))


def _traced(task: Task) -> Any:
    def probe(key: Array) -> Evaluation:
        init_key, rows_key = jax.random.split(key)
        return evaluate(task, jax.random.split(rows_key, 2), initial(task, init_key, 2))

    return jax.make_jaxpr(probe)(jax.eval_shape(lambda: jax.random.key(0))).jaxpr


def _primitives(jaxpr: Any) -> Iterator[str]:
    """Yield the names of the operations of a JAX program, and of the programs nested in it."""

    def is_jaxpr(value: Any) -> bool:
        return hasattr(getattr(value, "jaxpr", value), "eqns")

    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(value):
                yield from _primitives(getattr(value, "jaxpr", value))


def surviving(task: Task, say: Callable[[str], None], rows: int) -> Task:
    """Return a task that handles exceptions of its simulator on the host.

    If the evaluation of a batch raises an exception, the batch is split in half, and both halves are
    evaluated again. This is repeated down to single genotypes. If the evaluation of a single genotype
    raises an exception, the result is NaN. The first exception is printed with `say`. If all
    evaluations of a generation fail, the run ends. `rows` is the number of evaluations per generation.
    """
    by = partial(Surviving, task, losses=_Losses(task, say, rows))
    learning = task.evaluate_transitions
    return replace(
        task,
        evaluate=by(function=task.evaluate),
        evaluate_transitions=learning and by(function=learning),
    )


@dataclass(frozen=True)
class Surviving:
    """An evaluator that handles exceptions of a simulator, as described in `surviving`.

    Attributes:
        task: The task of the simulator.
        function: The evaluator of the simulator.
        losses: The number of consecutive failed evaluations, and the last exception.
    """

    task: Task
    function: Evaluator
    losses: _Losses

    def __call__(self, keys: Array, x: np.ndarray) -> Any:
        """Evaluate genotypes. If the evaluation of a genotype fails, its result is NaN."""
        attempt = attempting(self.function, self._in_place)
        with _quiet_callbacks():
            parts, failure = attempt(keys, x)
        self.losses.count(parts, failure)
        return joined(self.task, parts)

    def _in_place(self, keys: Array, x: np.ndarray) -> Evaluation:
        found = as_evaluation(self.task, len(x), self.function(keys, x))
        local: Evaluation = jax.device_get(found)
        return local


@dataclass
class _Losses:
    """The last exception of a simulator, and the number of consecutive failed evaluations."""

    task: Task
    say: Callable[[str], None]
    rows: int
    last: BaseException | None = None
    in_a_row: int = 0

    def count(self, parts: list[Part], failure: BaseException | None) -> None:
        """Count the failures of a batch.

        Raises:
            RunError: If all evaluations of a generation failed.
        """
        if failure is not None:
            if self.last is None:
                self.say(
                    f"task '{self.task.name}' raised {in_a_line(failure)}; evaluations that fail "
                    "again are left out and counted as NaN"
                )
            self.last = failure
        lost = all(result is None for _, result in parts)
        self.in_a_row = self.in_a_row + sum(n for n, _ in parts) if lost else 0
        if self.last is not None and self.in_a_row >= self.rows:
            raised = f"task '{self.task.name}' raised {in_a_line(self.last)}"
            raise RunError(f"{raised} for every genotype of a generation") from self.last


@contextmanager
def _quiet_callbacks() -> Iterator[None]:
    """Suppress the tracebacks that JAX logs for callbacks, because `_Losses` prints the exceptions."""
    logger = logging.getLogger("jax._src.callback")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
