"""The task `robot:FILE`: locomotion of a robot from an MJCF file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.control import control_task, mlp
from memes.errors import at_least, positive, require
from memes.task import Task
from memes.tasks.robot import Backend, Fidelity, ground_joints, robot
from memes.validation import checked

if TYPE_CHECKING:
    from memes.physics import Engine, RobotState


@checked
def locomotion(
    model: str,
    *,
    feet: tuple[str, ...] = (),
    feature: Literal["contact", "position"] = "contact",
    forward: float = 1.0,
    survival: float = 1.0,
    energy: float = 0.5,
    fallen: float = 0.5,
    steps: int = 250,
    control_step: float = 0.05,
    start_noise: float = 0.05,
    reach: float = 5.0,
    hidden: tuple[int, ...] = (64, 64),
    self_collision: bool = True,
    raw_controls: bool = False,
    min_fitness: float | None = None,
    fidelity: Fidelity = "default",
    backend: Backend = "auto",
) -> Task:
    """Forward locomotion of a robot that is defined by an MJCF file. The genotypes are policies.

    The reward of a control step is the sum of a term for forward velocity and a term for survival, minus
    the energy cost. The fitness is the sum of the rewards of an episode. An episode ends when the robot
    falls.

    Args:
        model: MJCF file of the robot.
        feet: Names of the feet. Each name refers to a geom, or to a body with all of its geoms.
        feature: `contact` is the share of control steps in which each foot touches the ground;
            `position` is the final position of the robot.
        forward: Reward per control step for a velocity of 1 m/s. The reward is proportional to the
            velocity of the first body along x.
        survival: Reward per control step, at any velocity.
        energy: Cost per control step for each unit of the mean squared action.
        fallen: A robot has fallen when its first body is lower than this share of the body's initial
            height. With 0, episodes never end early.
        steps: Number of control steps per episode.
        control_step: Duration of an action in seconds.
        start_noise: Maximum random change of each joint's position and velocity at the start. With 0,
            the task is deterministic.
        reach: Bound of the final position along each axis, in metres.
        hidden: Sizes of the policy's hidden layers.
        self_collision: Whether to simulate contacts between moving geoms. The simulator does not support
            such contacts, so models that define them require False. With False, the legs of a robot pass
            through each other.
        raw_controls: Whether actions are used as controls directly. If not, each action is scaled to the
            range of its control.
        min_fitness: Fitness that adds 0 to the QD-score. The default is the fitness of a robot that
            moves backward at 1 m/s with maximum energy.
        fidelity: Accuracy of the contact solver.
        backend: Implementation of the simulator. `auto` selects the fastest available one.
    """
    positive(control_step=control_step, reach=reach)
    at_least(0, fallen=fallen, start_noise=start_noise, energy=energy)
    from memes import physics

    compiled = physics.load(model)
    own = physics.read(compiled, self_collision=self_collision)
    touches = list(dict.fromkeys(contact.name for contact in own.contacts))
    substeps = max(1, round(control_step / compiled.opt.timestep))
    first = int(compiled.jnt_bodyid[0])
    if feature == "contact":
        columns = _columns(compiled, touches, feet)  # reports wrong names before the slow compilation
        low, high = (0.0,) * len(feet), (1.0,) * len(feet)
        names = tuple(f"{foot} on the ground (share)" for foot in feet)
    else:
        axes = _level_axes(compiled)
        require(
            bool(axes),
            f"feature: the base of '{model}' does not move along the ground; use the feature contact",
        )
        low, high = (-reach,) * len(axes), (reach,) * len(axes)
        names = tuple(f"final {'xy'[axis]} (m)" for axis in axes)

    engine = physics.compile(
        compiled, substeps=substeps, fidelity=fidelity, backend=backend, self_collision=self_collision
    )

    def measure(state: RobotState) -> Array:
        if feature == "position":
            return engine.body_positions(state)[:, first, np.array(axes)]
        touching = engine.contacts(state)
        feet_touch = [touching[:, of_foot].any(axis=1) for of_foot in columns]
        return jnp.stack(feet_touch, axis=1).astype(jnp.float32)

    seconds = substeps * float(compiled.opt.timestep)

    def reward(before: RobotState, action: Array, after: RobotState) -> Array:
        x = [engine.body_positions(state)[:, first, 0] for state in (before, after)]
        # Add the columns one by one, because the order of a reduction may depend on the batch size.
        effort = sum(action[:, i] ** 2 for i in range(action.shape[1])) / max(action.shape[1], 1)
        found: Array = forward * (x[1] - x[0]) / seconds + survival - energy * effort
        return found

    environment = robot(
        engine,
        steps=steps,
        reward=reward,
        measure=measure,
        ended=_fallen(engine, first, fallen),
        joint_noise=start_noise,
        raw_controls=raw_controls,
    )
    return control_task(
        Path(model).stem,
        environment,
        mlp([environment.observation_size, *hidden, environment.action_size]),
        fitness=lambda outcome: outcome.total,
        feature=lambda outcome: outcome.mean if feature == "contact" else outcome.last,
        feature_low=low,
        feature_high=high,
        feature_names=names,
        min_fitness=-steps * (forward + energy) if min_fitness is None else min_fitness,
        uncertain=start_noise > 0,
    )


def _columns(model: Any, contacts: Sequence[str], feet: tuple[str, ...]) -> list[np.ndarray]:
    """Return the contacts of each foot, or raise a `UsageError` that lists possible feet."""
    owners = [_owner(model, name.rpartition(" on ")[0]) for name in contacts]
    listed = ", ".join(f"{geom} (body {body})" for geom, body in dict(owners).items())
    require(bool(contacts), "feet: no geom of the model can touch static geoms; add a floor")
    require(
        bool(feet),
        "feet must name geoms, or bodies, of the robot's feet, unless --feature position is given; "
        f"geoms that can touch the ground: {listed}",
    )
    for foot in feet:
        require(
            any(foot in owner for owner in owners),
            f"feet: '{foot}' cannot touch the ground; geoms that can touch it: {listed}",
        )
    return [np.array([i for i, owner in enumerate(owners) if foot in owner]) for foot in feet]


def _owner(model: Any, geom: str) -> tuple[str, str]:
    """Return the names of a geom and of its body. Elements without a name are called "#number"."""
    import mujoco

    index = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, geom)
    body = int(model.geom_bodyid[index if index >= 0 else int(geom.removeprefix("#"))])
    return geom, mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, body) or f"#{body}"


def _level_axes(model: Any) -> list[int]:
    """Return the horizontal axes (0 for x, 1 for y) along which the base of a robot can move."""
    ways = np.abs(np.array([way for _, way in ground_joints(model)]).reshape(-1, 3))
    return [axis for axis in (0, 1) if (ways[:, axis] > 1e-6).any()]


def _fallen(engine: Engine, body: int, share: float) -> Any:
    """Return a function `(state) -> bool[n]` that tests whether robots have fallen.

    A robot has fallen if the body is below `share` times its initial height. If this limit is not
    positive, the result is None instead of a function.
    """
    import mujoco

    data = mujoco.MjData(engine.model)
    if engine.model.nkey:
        mujoco.mj_resetDataKeyframe(engine.model, data, 0)
    mujoco.mj_kinematics(engine.model, data)
    lowest = share * float(data.xpos[body, 2])
    if lowest <= 0:
        return None
    return lambda state: engine.body_positions(state)[:, body, 2] < lowest
