"""Environments of robots, simulated by `memes.physics` from an MJCF model."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.tasks.control import Environment

if TYPE_CHECKING:  # MuJoCo is imported by those who use it
    from memes.physics import Engine, State

Backend = Literal["auto", "xla", "pallas", "native"]
Fidelity = Literal["default", "fast"]


def engine_of(name: str, *, substeps: int, fidelity: Fidelity, backend: Backend) -> Engine:
    """The simulator of a model that comes with the library."""
    from memes import physics

    file = str(resources.files("memes.tasks") / "models" / f"{name}.xml")
    return physics.compile(file, substeps=substeps, fidelity=fidelity, backend=backend)


def robot(
    engine: Engine,
    *,
    steps: int,
    reward: Callable[[State, Array, State], Array],
    measure: Callable[[State], Array],
    observe: Callable[[State], Array] | None = None,
    ended: Callable[[State], Array] | None = None,
    joint_noise: float = 0.0,
) -> Environment:
    """The environment of a robot that starts from the model's first keyframe, or else from `qpos0`.

    Args:
        engine: The compiled model; one `step` of it is a control step.
        steps: Control steps in an episode.
        reward: `(before, action[n, nu], after) -> reward[n]`.
        measure: `(state) -> [n, m]`, what fitness and feature are made of.
        observe: `(state) -> observation[n, o]`; None is everything but the base's x and y.
        ended: `(state) -> bool[n]`; None never ends an episode early.
        joint_noise: The start's joint positions and velocities are each moved by U(-joint_noise,
            joint_noise); the base is not.
    """
    model = engine.model
    start = jnp.asarray(model.key_qpos[0] if model.nkey else model.qpos0, jnp.float32)
    # Joints of the base, which are not noisy: a free joint, where there is one.
    base_q, base_v = (7, 6) if model.njnt and model.jnt_type[0] == 0 else (0, 0)

    def reset(keys: Array) -> State:
        n = keys.shape[0]
        qpos, qvel = jnp.tile(start, (n, 1)), jnp.zeros((n, model.nv))
        if joint_noise:
            joints = model.nv - base_v
            noise = jax.vmap(
                lambda key: jax.random.uniform(key, (2, joints), minval=-joint_noise, maxval=joint_noise)
            )(keys)
            qpos, qvel = qpos.at[:, base_q:].add(noise[:, 0]), qvel.at[:, base_v:].add(noise[:, 1])
        return engine.init(qpos, qvel)

    def observe_joints(state: State) -> Array:
        return jnp.concatenate([engine.qpos(state)[:, 2:], engine.qvel(state)], axis=1)

    def never(state: State) -> Array:
        return jnp.zeros(state.rows.shape[1], bool)

    look = observe or observe_joints
    shape = jax.eval_shape(lambda: look(engine.init(start[None])))
    return Environment(
        observation_size=shape.shape[1],
        action_size=model.nu,
        steps=steps,
        reset=reset,
        observe=look,
        step=engine.step,
        reward=reward,
        ended=ended or never,
        failed=lambda state: state.failed,
        measure=measure,
        engine=engine,
    )


def footprints(model: Any) -> tuple[tuple[tuple[float, float], ...], ...]:
    """The outlines, seen from above, of the upright boxes of an `MjModel` that do not move."""
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
