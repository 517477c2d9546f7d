"""Episodes of one genotype, with the states of the task's simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.control.rollouts import Step, rollout
from memes.errors import at_least, require
from memes.task import PRECISION, Task


class Recording(NamedTuple):
    """One episode, with its states and its evaluation.

    Attributes:
        qpos: Positions from start to end: [T + 1, nq] for robots, and [T + 1, 2] for points on a map.
        fitness: Fitness; NaN if the simulator failed.
        feature: Feature, [k]; NaN if the simulator failed.
    """

    qpos: np.ndarray
    fitness: float
    feature: np.ndarray


def engine_of(task: Task) -> Any:
    """Return the simulator of a task with a robot, or None for any other task."""
    return None if task.control is None else task.control.environment.engine


def robot_of(task: Task) -> Any:
    """Return the simulator of a task with a robot, or raise a `UsageError` for any other task."""
    engine = engine_of(task)
    require(engine is not None, f"task '{task.name}' has no robot to replay")
    return engine


def seconds_per_step(task: Task) -> float:
    """Return the time between two recorded states."""
    engine = robot_of(task)
    return float(engine.substeps * engine.model.opt.timestep)


def episodes(task: Task, x: Array, *, seed: int = 0, draws: int = 1) -> list[Recording]:
    """Play the genotype `x[d]` from several starts, and return one episode per start.

    Args:
        task: The task.
        x: Genotype, [d].
        seed: Seed of the starts, if the task draws them at random.
        draws: Number of starts. A larger number adds starts and leaves the existing starts unchanged.
    """
    return player(task, draws)(x, seed)


def player(task: Task, draws: int = 1) -> Callable[[Array, int], list[Recording]]:
    """Return a function `(x[d], seed) -> recordings`. It is compiled on its first call."""
    at_least(1, draws=draws)
    control = task.control
    assert control is not None
    environment = control.environment
    engine = environment.engine
    place: Callable[[Any], Array] = environment.measure if engine is None else engine.qpos

    def record(step: Step) -> tuple[Array, Array]:
        return place(step.before), place(step.after)

    def play(key: Array, x: Array) -> Any:
        keys = jax.vmap(lambda draw: jax.random.fold_in(key, draw))(jnp.arange(draws))
        with jax.default_matmul_precision(PRECISION):
            outcome, recorded = rollout(control, keys, jnp.tile(x, (draws, 1)), record)
        return outcome.length, control.score(outcome), recorded

    options = None if engine is None else engine.compiler_options
    compiled = jax.jit(play, compiler_options=options)

    def episodes(x: Array, seed: int) -> list[Recording]:
        require(0 <= seed < 2**32, f"seed must lie in [0, 2^32), got {seed}")
        played = jax.device_get(compiled(jax.random.key(seed), x))
        length, (fitness, feature), (before, after) = played
        states = np.concatenate([before[:1], after])
        return [
            Recording(states[: length[i] + 1, i], float(fitness[i]), feature[i]) for i in range(draws)
        ]

    return episodes
