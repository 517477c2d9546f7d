"""Environments of robots that `memes.physics` simulates."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.control import Environment
from memes.errors import at_least

if TYPE_CHECKING:  # MuJoCo is imported only when it is used
    from memes.physics import Engine, RobotState

Backend = Literal["auto", "xla", "cuda", "native"]
Fidelity = Literal["default", "fast"]


def engine_of(name: str, *, substeps: int, fidelity: Fidelity, backend: Backend) -> Engine:
    """Compile the simulator for one of the robot models in this library."""
    from memes import physics

    file = str(resources.files("memes.tasks") / "models" / f"{name}.xml")
    return physics.compile(file, substeps=substeps, fidelity=fidelity, backend=backend)


def robot(
    engine: Engine,
    *,
    steps: int,
    reward: Callable[[RobotState, Array, RobotState], Array],
    measure: Callable[[RobotState], Array],
    observe: Callable[[RobotState], Array] | None = None,
    ended: Callable[[RobotState], Array] | None = None,
    joint_noise: float = 0.0,
    raw_controls: bool = False,
) -> Environment:
    """Build the environment of a robot.

    Episodes start from the model's first keyframe, or from `qpos0` if there is no keyframe. The base of
    a robot consists of all joints of the first body that have no actuator. Examples are a free joint, or
    the slides and the hinge of a planar robot. An arm on a table has no base.

    Args:
        engine: The compiled model. A control step is one call of its `step`.
        steps: Number of control steps per episode.
        reward: `(before, action[n, nu], after) -> reward[n]`, the reward of a control step.
        measure: `(state) -> [n, m]`, the measurements from which fitness and feature are computed.
        observe: `(state) -> observation[n, o]`. If None, the observation contains all positions and
            velocities, except for the horizontal position of the base.
        ended: `(state) -> bool[n]`, True for episodes that have ended. If None, episodes never end
            early.
        joint_noise: Bound of the uniform noise on the initial position and velocity of each hinge and
            slide. The joints of the base have no noise.
        raw_controls: Whether actions are the controls of the actuators. If not, an action in [-1, 1] is
            scaled to the actuator's `ctrlrange`. For actuators without a range, the action is the
            control.
    """
    at_least(0, joint_noise=joint_noise)
    model = engine.model
    start = np.asarray(model.key_qpos[0] if model.nkey else model.qpos0, np.float32)
    velocity = np.asarray(model.key_qvel[0] if model.nkey else np.zeros(model.nv), np.float32)
    noisy, hidden = _joints(model), _ground(model)
    seen = [i for i in range(model.nq) if i not in hidden]

    def reset(keys: Array) -> RobotState:
        n = keys.shape[0]
        qpos, qvel = jnp.tile(start, (n, 1)), jnp.tile(velocity, (n, 1))
        if joint_noise:
            shape = (2, len(noisy))
            noise = jax.vmap(
                lambda key: jax.random.uniform(key, shape, minval=-joint_noise, maxval=joint_noise)
            )(keys)
            qpos = qpos.at[:, model.jnt_qposadr[noisy]].add(noise[:, 0])
            qvel = qvel.at[:, model.jnt_dofadr[noisy]].add(noise[:, 1])
        return engine.init(qpos, qvel)

    def observe_joints(state: RobotState) -> Array:
        qpos = engine.qpos(state)
        # XLA fuses slices of columns, whereas a gather would be a separate kernel.
        columns = [qpos[:, i : i + 1] for i in seen]
        return jnp.concatenate([*columns, engine.qvel(state)], axis=1)

    def never(state: RobotState) -> Array:
        return jnp.zeros(state.rows.shape[1], bool)

    look = observe or observe_joints
    shape = jax.eval_shape(lambda: look(engine.init(jnp.asarray(start[None]))))
    return Environment(
        observation_size=shape.shape[1],
        action_size=model.nu,
        steps=steps,
        reset=reset,
        observe=look,
        step=engine.step if raw_controls else _scaled(engine),
        reward=reward,
        ended=ended or never,
        failed=lambda state: state.failed,
        measure=measure,
        engine=engine,
        at_once=episodes_at_once(),
    )


def _scaled(engine: Engine) -> Callable[[RobotState, Array], RobotState]:
    """Return a step function that scales actions from [-1, 1] to the control ranges of an engine."""
    model = engine.model
    limited = np.asarray(model.actuator_ctrllimited, bool)
    low, high = np.where(limited[:, None], model.actuator_ctrlrange, [-1.0, 1.0]).T
    middle, half = ((low + high) / 2).astype(np.float32), ((high - low) / 2).astype(np.float32)
    if not middle.any() and (half == 1).all():
        return engine.step
    return lambda state, action: engine.step(state, middle + half * action)


def episodes_at_once() -> int | None:
    """Return how many episodes to roll out at a time, or None for all episodes at once.

    On CPUs, this is the number of policies that fit into the caches of the cores. If policies had to be
    read from memory in every step, rollouts would take 1.5 times as long.
    """
    if jax.default_backend() != "cpu":
        return None
    # A launcher may have assigned only some cores of the machine to this process.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 64 * cores


def _base(model: Any) -> list[int]:
    """Return the joints of the base: all joints of the first body that have no actuator."""
    import mujoco

    moved = model.actuator_trnid[model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT), 0]
    of_first_body = np.flatnonzero(model.jnt_bodyid == model.jnt_bodyid[:1])
    return [int(j) for j in of_first_body if j not in moved]


def _joints(model: Any) -> np.ndarray:
    """Return the hinges and slides of a robot that do not belong to the base."""
    import mujoco

    kinds = [int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)]
    return np.setdiff1d(np.flatnonzero(np.isin(model.jnt_type, kinds)), _base(model))


def _ground(model: Any) -> list[int]:
    """Return the indices of the base's horizontal position in `qpos`."""
    return [place for place, _ in ground_joints(model)]


def ground_joints(model: Any) -> list[tuple[int, tuple[float, float, float]]]:
    """Return the index in `qpos` and the axis of each horizontal coordinate of the base."""
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    found = []
    for j in _base(model):
        kind, place = model.jnt_type[j], int(model.jnt_qposadr[j])
        if kind == int(mujoco.mjtJoint.mjJNT_FREE):
            found += [(place, (1.0, 0.0, 0.0)), (place + 1, (0.0, 1.0, 0.0))]
        level = abs(data.xaxis[j, 2]) < 1e-6
        if kind == int(mujoco.mjtJoint.mjJNT_SLIDE) and level:
            found.append((place, tuple(data.xaxis[j])))
    return found


def footprints(model: Any) -> tuple[tuple[tuple[float, float], ...], ...]:
    """Return the outlines of the static upright boxes of an `MjModel`, as seen from above."""
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    square = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    outlines = []
    for geom in range(model.ngeom):
        axes = data.geom_xmat[geom].reshape(3, 3)
        box = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_BOX
        static = model.body_weldid[model.geom_bodyid[geom]] == 0
        if box and static and np.isclose(abs(axes[2, 2]), 1):
            corners = data.geom_xpos[geom, :2] + square * model.geom_size[geom, :2] @ axes[:2, :2].T
            outlines.append(tuple((float(x), float(y)) for x, y in corners))
    return tuple(outlines)
