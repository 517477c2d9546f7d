"""Episodes of one genotype, with the states that the task's own simulator went through."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.errors import at_least, require
from memes.rollouts import Step, rollout
from memes.task import PRECISION, Task


class Episode(NamedTuple):
    """One episode: `qpos[T + 1, nq]`, from the start until its end, and its evaluation.

    `fitness` is a number and `feature[k]`; NaN where the simulator failed.
    """

    qpos: np.ndarray
    fitness: float
    feature: np.ndarray


def robot_of(task: Task) -> Any:
    """Find the simulator of a task with a robot; a `UsageError` for tasks without one."""
    engine = None if task.control is None else task.control.environment.engine
    require(engine is not None, f"task '{task.name}' has no robot to replay")
    return engine


def seconds_per_step(task: Task) -> float:
    """Compute the time between two recorded states."""
    engine = robot_of(task)
    return float(engine.substeps * engine.model.opt.timestep)


def episodes(task: Task, x: Array, *, seed: int = 0, draws: int = 1) -> list[Episode]:
    """Play the genotype `x[d]` from so many starts; those of `draws=1` are the first of any more.

    The seed says which starts, where the task draws them.
    """
    require(0 <= seed < 2**32, f"seed must lie in [0, 2^32), got {seed}")
    at_least(1, draws=draws)
    engine, control = robot_of(task), task.control
    assert control is not None

    def record(step: Step) -> tuple[Array, Array]:
        return engine.qpos(step.before), engine.qpos(step.after)

    def play(key: Array, x: Array) -> Any:
        keys = jax.vmap(lambda draw: jax.random.fold_in(key, draw))(jnp.arange(draws))
        with jax.default_matmul_precision(PRECISION):
            outcome, recorded = rollout(control, keys, jnp.tile(x, (draws, 1)), record)
        return outcome.length, control.score(outcome), recorded

    played = jax.jit(play, compiler_options=engine.compiler_options)(jax.random.key(seed), x)
    length, (fitness, feature), (before, after) = jax.device_get(played)
    states = np.concatenate([before[:1], after])
    return [Episode(states[: length[i] + 1, i], float(fitness[i]), feature[i]) for i in range(draws)]
