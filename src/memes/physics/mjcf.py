"""Helper functions for reading a compiled MuJoCo model."""

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numpy as np

INTEGRATORS = {
    int(mujoco.mjtIntegrator.mjINT_EULER): "euler",
    int(mujoco.mjtIntegrator.mjINT_RK4): "rk4",
    int(mujoco.mjtIntegrator.mjINT_IMPLICITFAST): "implicitfast",
}
SAME_POSE = int(mujoco.mjtSameFrame.mjSAMEFRAME_BODY)
SAME_ROTATION = (SAME_POSE, int(mujoco.mjtSameFrame.mjSAMEFRAME_BODYROT))
MIN_WEIGHT = 1e-15  # This is the constant mjMINVAL of MuJoCo.
# These two types of transmission are equivalent for slide joints and hinge joints.
ON_JOINT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
FIXED_GAIN, NO_DYNAMICS = int(mujoco.mjtGain.mjGAIN_FIXED), int(mujoco.mjtDyn.mjDYN_NONE)
SIMPLE_INPUTS = (0, int(mujoco.mjtCtrlInput.mjINPUT_POS), int(mujoco.mjtCtrlInput.mjINPUT_VEL))
NO_BIAS, AFFINE_BIAS = int(mujoco.mjtBias.mjBIAS_NONE), int(mujoco.mjtBias.mjBIAS_AFFINE)


def disabled(m: mujoco.MjModel, feature: str) -> bool:
    """Return True if a flag of the model disables a feature."""
    return bool(m.opt.disableflags & int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{feature.upper()}")))


class Placed(NamedTuple):
    """Pose of a body in the frame of its link, or in the world frame if the body is static."""

    rotation: np.ndarray
    translation: np.ndarray


def rotation_of(quaternion: np.ndarray) -> np.ndarray:
    """Return the rotation matrix [3, 3] of a quaternion."""
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quaternion, float))
    return matrix.reshape(3, 3)


def pose_of_inertia(m: mujoco.MjModel, body: int) -> Placed:
    """Return the pose of a body's inertial frame in the frame of the body.

    If the pose is close to the identity, MuJoCo uses the identity (`body_sameframe`).
    """
    same = m.body_sameframe[body]
    rotation = np.eye(3) if same in SAME_ROTATION else rotation_of(m.body_iquat[body])
    return Placed(rotation, np.zeros(3) if same == SAME_POSE else m.body_ipos[body])


def floats(values: np.ndarray) -> tuple[float, ...]:
    """Convert values to Python floats, and replace values below 1e-12 in magnitude by 0."""
    return tuple(0.0 if abs(x) < 1e-12 else float(x) for x in values)


def matrix(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Convert a matrix to rows of Python floats."""
    return tuple(floats(row) for row in values)


def shape_name(kind: int) -> str:
    """Return MuJoCo's name for a type of geom."""
    return str(mujoco.mjtGeom(kind).name).removeprefix("mjGEOM_").lower()


def name_of(m: mujoco.MjModel, kind: str, i: int) -> str:
    """Return the name of an element, or "#" followed by its index if it has no name."""
    objects = {
        "body": mujoco.mjtObj.mjOBJ_BODY,
        "site": mujoco.mjtObj.mjOBJ_SITE,
        "joint": mujoco.mjtObj.mjOBJ_JOINT,
        "geom": mujoco.mjtObj.mjOBJ_GEOM,
        "actuator": mujoco.mjtObj.mjOBJ_ACTUATOR,
    }
    return mujoco.mj_id2name(m, objects[kind], i) or f"#{i}"
