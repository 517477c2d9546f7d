"""Simulators on the host, which may raise."""

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
    """With callbacks to Python, if there are any, outside of what is compiled; see `on_host`."""
    if algorithm.emitter.transitions:  # which only compiled tasks yield
        return algorithm
    return replace(algorithm, task=on_host(algorithm.task))


def on_host(task: Task) -> Task:
    """A task that calls back to Python from JAX, as one with `jit=False`; any other as it is.

    A callback that raises ends the whole program that was compiled around it. So no more is compiled
    around it than the evaluation, which `surviving` can try again for fewer rows.
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
    """The names of all operations, also of those inside of loops, branches and functions."""

    def is_jaxpr(value: Any) -> bool:
        return hasattr(getattr(value, "jaxpr", value), "eqns")

    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(value):
                yield from _primitives(getattr(value, "jaxpr", value))


def surviving(task: Task, say: Callable[[str], None], rows: int) -> Task:
    """Let a host simulator raise: it is tried again for each half of the rows, and `say` hears of it.

    So rows for which it raises again and again are found: they evaluate to NaN. A simulator that raises
    for all `rows` of a generation, which it may get in several batches, is broken, and ends the run.
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
    """An evaluator of a simulator that may raise; see `surviving`.

    Attributes:
        task: The task of the simulator.
        function: Its evaluator.
        losses: What it lost so far.
    """

    task: Task
    function: Evaluator
    losses: _Losses

    def __call__(self, keys: Array, x: np.ndarray) -> Any:
        """Evaluate rows, NaN for those that are lost."""
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
    """The failures of a simulator: the last one, and how many rows in a row were lost."""

    task: Task
    say: Callable[[str], None]
    rows: int
    last: BaseException | None = None
    in_a_row: int = 0

    def count(self, parts: list[Part], failure: BaseException | None) -> None:
        """Count the rows lost in one batch; raise a `RunError` if those of a whole generation are."""
        if failure is not None:
            if self.last is None:
                self.say(
                    f"task '{self.task.name}' raised {in_a_line(failure)}; rows for which it does so "
                    "again are left out and counted as NaN"
                )
            self.last = failure
        lost = all(result is None for _, result in parts)
        self.in_a_row = self.in_a_row + sum(n for n, _ in parts) if lost else 0
        if self.last is not None and self.in_a_row >= self.rows:
            raise RunError(
                f"task '{self.task.name}' raised {in_a_line(self.last)} for every row of a generation"
            ) from self.last


@contextmanager
def _quiet_callbacks() -> Iterator[None]:
    """JAX logs a traceback for every callback that raises; here they are said once, in a sentence."""
    logger = logging.getLogger("jax._src.callback")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
