"""The ant tasks: a four-legged robot that runs forward, with or without a trap in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import jax.numpy as jnp
from jax import Array

from memes.control import control_task, mlp
from memes.task import Map, Task
from memes.tasks.robot import Backend, Fidelity, engine_of, footprints, robot
from memes.validation import checked

if TYPE_CHECKING:
    from memes.physics import Engine, RobotState

SUBSTEPS = 5  # Number of simulation steps (0.01 s each) per control step.
HEIGHT = (0.2, 1.0)  # The episode ends when the torso's height leaves this range.
NOISE = 0.1
PASSED = 13.0  # A torso with a larger x has passed the trap, which ends at x = 12.5.
ARENA_LOW, ARENA_HIGH = (0.0, -8.0), (30.0, 8.0)  # Bounds of the final position of the torso.

# Names of the feet of an ant that runs along x. In the model, the ant faces along y, as in Brax.
FEET = ("front left", "back left", "back right", "front right")


@checked
def ant(
    *,
    uncertain: bool = True,
    steps: int = 250,
    hidden: tuple[int, ...] = (64, 64),
    weights: Literal["float32", "bfloat16"] = "float32",
    fidelity: Fidelity = "fast",
    backend: Backend = "auto",
) -> Task:
    """Four-legged robot that runs forward in many gaits.

    Args:
        uncertain: Whether the joints start from random positions and velocities.
        steps: Number of control steps per episode (0.05 s each).
        hidden: Sizes of the policy's hidden layers.
        weights: Data type of the policy weights during a rollout.
        fidelity: Accuracy of the contact solver.
        backend: Implementation of the simulator. `auto` selects the fastest available one.
    """
    engine = engine_of("ant", substeps=SUBSTEPS, fidelity=fidelity, backend=backend)
    environment = robot(
        engine,
        steps=steps,
        reward=forward_reward(engine),
        ended=fallen(engine),
        measure=lambda state: engine.contacts(state).astype(jnp.float32),  # feet on the floor
        joint_noise=NOISE * uncertain,
    )
    return control_task(
        "ant",
        environment,
        mlp([environment.observation_size, *hidden, environment.action_size], weights=weights),
        fitness=lambda outcome: outcome.total,
        feature=lambda outcome: outcome.mean,
        feature_low=(0.0,) * 4,
        feature_high=(1.0,) * 4,
        min_fitness=-3.24 * steps,
        uncertain=uncertain,
        resolution=(6,) * 4,
        feature_names=tuple(f"{foot} foot on the ground (share)" for foot in FEET),
    )


@checked
def ant_trap(
    *,
    uncertain: bool = True,
    steps: int = 250,
    hidden: tuple[int, ...] = (64, 64),
    weights: Literal["float32", "bfloat16"] = "float32",
    fidelity: Fidelity = "fast",
    backend: Backend = "auto",
) -> Task:
    """Four-legged robot that runs forward, with a trap in its way.

    Args:
        uncertain: Whether the joints start from random positions and velocities.
        steps: Number of control steps per episode (0.05 s each).
        hidden: Sizes of the policy's hidden layers.
        weights: Data type of the policy weights during a rollout.
        fidelity: Accuracy of the contact solver.
        backend: Implementation of the simulator. `auto` selects the fastest available one.
    """
    engine = engine_of("ant_trap", substeps=SUBSTEPS, fidelity=fidelity, backend=backend)

    def observe(state: RobotState) -> Array:
        qpos = engine.qpos(state)
        place = (qpos[:, :2] - jnp.array([15.0, 0.0])) / jnp.array([15.0, 8.0])
        return jnp.concatenate([qpos[:, 2:], engine.qvel(state), place], axis=1)

    environment = robot(
        engine,
        steps=steps,
        observe=observe,
        reward=forward_reward(engine),
        ended=fallen(engine),
        measure=lambda state: engine.qpos(state)[:, :2],
        joint_noise=NOISE * uncertain,
    )
    return control_task(
        "ant-trap",
        environment,
        mlp([environment.observation_size, *hidden, environment.action_size], weights=weights),
        fitness=lambda outcome: outcome.total,
        # The feature is clipped, because otherwise novelty would reward robots that leave the map.
        feature=lambda outcome: jnp.clip(outcome.last, jnp.array(ARENA_LOW), jnp.array(ARENA_HIGH)),
        feature_low=ARENA_LOW,
        feature_high=ARENA_HIGH,
        min_fitness=-3.38 * steps,
        uncertain=uncertain,
        map=Map(walls=footprints(engine.model), goal=PASSED),
        feature_names=("final x (m)", "final y (m)"),
    )


def forward_reward(engine: Engine):  # type: ignore[no-untyped-def]
    """Return the reward function.

    The reward is the velocity along x, plus 1 for survival, minus half of the squared norm of the
    action.
    """
    seconds = float(engine.substeps * engine.model.opt.timestep)

    def reward(before: RobotState, action: Array, after: RobotState) -> Array:
        velocity = (engine.qpos(after)[:, 0] - engine.qpos(before)[:, 0]) / seconds
        # Columns are added one by one, because the order of the sums in a reduction may depend on the
        # batch size.
        effort: Array = sum(action[:, i] ** 2 for i in range(action.shape[1]))  # type: ignore[assignment]
        return velocity + 1.0 - 0.5 * effort

    return reward


def fallen(engine: Engine):  # type: ignore[no-untyped-def]
    """Return a function that detects whether the torso of a robot is too low or too high."""

    def ended(state: RobotState) -> Array:
        height = engine.qpos(state)[:, 2]
        return (height < HEIGHT[0]) | (height > HEIGHT[1])

    return ended
