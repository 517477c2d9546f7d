"""Simulators on the host, which may raise exceptions."""

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
    """Move callbacks to Python, if there are any, out of compiled programs; see `on_host`."""
    if algorithm.emitter.transitions:  # which only compiled tasks provide
        return algorithm
    return replace(algorithm, task=on_host(algorithm.task))


def on_host(task: Task) -> Task:
    """Turn a task with a callback to Python into one with `jit=False`; return other tasks unchanged.

    A callback that raises ends the whole compiled program that contains it. So only the evaluation is
    compiled with it, and `surviving` can repeat that for fewer genotypes.
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
    """Return the names of all operations, including those inside loops, branches and functions."""

    def is_jaxpr(value: Any) -> bool:
        return hasattr(getattr(value, "jaxpr", value), "eqns")

    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(value):
                yield from _primitives(getattr(value, "jaxpr", value))


def surviving(task: Task, say: Callable[[str], None], rows: int) -> Task:
    """Handle exceptions of a host simulator by evaluating each half of the genotypes again.

    Genotypes for which it raises each time evaluate to NaN; `say` prints the first exception. If it
    raises for all `rows` evaluations of a generation, which may be split into batches, the run ends.
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
    """An evaluator of a simulator that may raise exceptions; see `surviving`.

    Attributes:
        task: The task of the simulator.
        function: Its evaluator.
        losses: The failures so far.
    """

    task: Task
    function: Evaluator
    losses: _Losses

    def __call__(self, keys: Array, x: np.ndarray) -> Any:
        """Evaluate genotypes; those that fail become NaN."""
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
    """The failures of a simulator: the last exception, and the number of consecutive failures."""

    task: Task
    say: Callable[[str], None]
    rows: int
    last: BaseException | None = None
    in_a_row: int = 0

    def count(self, parts: list[Part], failure: BaseException | None) -> None:
        """Count the failures of a batch.

        Raise a `RunError` if all evaluations of a generation failed.
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
    """Suppress the tracebacks that JAX logs for callbacks; the exceptions are printed once."""
    logger = logging.getLogger("jax._src.callback")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
