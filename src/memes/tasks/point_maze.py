"""The point-maze task: a point in a room with an obstacle. Training takes seconds on a CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from memes.control import Environment, control_task, mlp
from memes.task import Map, Task
from memes.tasks.robot import episodes_at_once
from memes.validation import checked

START = (0.1, 0.0)
LOW, HIGH = (0.0, -0.5), (1.0, 0.5)  # Opposite corners of the room.
STRIDE = 0.02  # Longest move along each axis per step.
NOISE = 0.02
# The obstacle is a cup that is open towards the start. The back wall is given by (x, lowest y, highest
# y), and each side wall by (y, lowest x, highest x).
BACK = ((0.6, -0.25, 0.25),)
SIDES = ((-0.25, 0.4, 0.6), (0.25, 0.4, 0.6))


@checked
def point_maze(*, uncertain: bool = False, steps: int = 100, hidden: tuple[int, ...] = (16, 16)) -> Task:
    """Point that moves forward in a room with a cup-shaped obstacle.

    Args:
        uncertain: Whether the point starts at a random position.
        steps: Number of moves per episode.
        hidden: Sizes of the policy's hidden layers.
    """

    def reset(keys: Array) -> Array:
        start = jnp.broadcast_to(jnp.array(START), (keys.shape[0], 2))
        if not uncertain:
            return start
        noise = jax.vmap(lambda key: jax.random.uniform(key, (2,), minval=-NOISE, maxval=NOISE))(keys)
        return start + noise

    environment = Environment(
        observation_size=2,
        action_size=2,
        steps=steps,
        reset=reset,
        observe=lambda place: 2 * (place - jnp.array(LOW)) - 1,
        step=move,
        reward=lambda before, action, after: after[:, 0] - before[:, 0],
        ended=lambda place: jnp.zeros(place.shape[0], bool),
        failed=lambda place: ~jnp.isfinite(place).all(axis=1),
        measure=lambda place: place,
        at_once=episodes_at_once(),
    )
    return control_task(
        "point-maze",
        environment,
        mlp([2, *hidden, 2]),
        fitness=lambda outcome: outcome.total,
        feature=lambda outcome: outcome.last,
        feature_low=LOW,
        feature_high=HIGH,
        min_fitness=LOW[0] - START[0] - NOISE,
        uncertain=uncertain,
        map=Map(
            walls=(
                *(((x, low), (x, high)) for x, low, high in BACK),
                *(((low, y), (high, y)) for y, low, high in SIDES),
            ),
            start=START,
            goal=BACK[0][0],
        ),
        feature_names=("final x", "final y"),
    )


def move(place: Array, action: Array) -> Array:
    """Move `place[n, 2]` by `action[n, 2]`, first along x, then along y. Walls stop the move."""
    x, y = place[:, 0], place[:, 1]
    target = jnp.clip(place + STRIDE * jnp.clip(action, -1, 1), jnp.array(LOW), jnp.array(HIGH))
    x = _slide(x, target[:, 0], y, BACK)
    y = _slide(y, target[:, 1], x, SIDES)
    return jnp.stack([x, y], axis=1)


def _slide(
    here: Array, there: Array, across: Array, walls: tuple[tuple[float, float, float], ...]
) -> Array:
    """Return the positions [n] after a move along one axis. Moves into a wall are cancelled."""
    for wall, low, high in walls:
        crosses = (here - wall) * (there - wall) <= 0
        there = jnp.where(crosses & (across >= low) & (across <= high), here, there)
    return there
