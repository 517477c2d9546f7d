"""Features of a model that are not supported: named, and refused."""

from __future__ import annotations

import mujoco
import numpy as np

from memes.errors import require
from memes.physics.mjcf import (
    AFFINE_BIAS,
    EULER,
    FIXED_GAIN,
    NO_BIAS,
    NO_DYNAMICS,
    ON_JOINT,
    RK4,
    name_of,
)
from memes.physics.model import KINDS

# Counts and arrays that must be zero, with the element that makes them something else.
_MUST_BE_ZERO = {
    "neq": "<equality> constraints",
    "ntendon": "<tendon>",
    "npair": "explicit contact <pair>",
    "nflex": "<flex>",
    "nmocap": "mocap bodies",
    "nplugin": "plugins",
    "na": "actuators with an activation state",
    "dof_frictionloss": "joint 'frictionloss'",
    "dof_dampingpoly": "polynomial joint 'damping'",
    "jnt_stiffnesspoly": "polynomial joint 'stiffness'",
    "jnt_actfrclimited": "joint 'actuatorfrcrange'",
    "jnt_actgravcomp": "joint 'actuatorgravcomp'",
    "body_gravcomp": "body 'gravcomp'",
    "geom_adhesion": "geom 'adhesion'",
    "geom_surfacevel": "geom 'surfacevel'",
    "actuator_armature": "actuator 'armature'",
    "actuator_damping": "actuator 'damping'",
    "actuator_dampingpoly": "polynomial actuator 'damping'",
    "actuator_delay": "actuator 'delay'",
    "jnt_springyield": "joint 'springyield'",
}
_OPTIONS_ZERO = {
    "density": "'density' of the medium",
    "viscosity": "'viscosity' of the medium",
    "wind": "'wind'",
    "noslip_iterations": "'noslip_iterations'",
    "disableflags": "disabled features (<flag>)",
    "enableflags": "enabled features (<flag>)",
    "disableactuator": "'actuatorgroupdisable'",
    "cone": "elliptic friction cones",
}


def refuse_unsupported(m: mujoco.MjModel) -> None:
    """Raise a `UsageError` that names the first thing in the model that the simulator cannot do."""
    for holder, table in ((m, _MUST_BE_ZERO), (m.opt, _OPTIONS_ZERO)):
        for attribute, element in table.items():
            used = bool(np.any(np.asarray(getattr(holder, attribute, 0))))
            require(not used, f"model uses {element}, which is not supported")
    require(m.opt.integrator in (EULER, RK4), "model uses an integrator other than Euler and RK4")
    require(m.nv > 0, "model has no joints")
    for j in range(m.njnt):
        name, kind = name_of(m, "joint", j), KINDS[m.jnt_type[j]]
        simple = kind in ("slide", "hinge")
        require(
            simple or not m.jnt_limited[j],
            f"model uses 'range' on the {kind} joint '{name}', which is not supported",
        )
        require(
            simple or not m.jnt_stiffness[j],
            f"model uses 'stiffness' on the {kind} joint '{name}', which is not supported",
        )
        if m.jnt_limited[j]:
            low, high = m.jnt_range[j]
            require(
                high - low > 2 * m.jnt_margin[j],
                f"model uses a 'margin' wider than half of the range of joint '{name}'",
            )
        body = m.jnt_bodyid[j]
        require(
            kind != "free" or (m.body_jntnum[body] == 1 and m.body_parentid[body] == 0),
            f"model has the free joint '{name}' beside other joints or below another body",
        )
    for i in range(m.nu):
        name = name_of(m, "actuator", i)
        require(
            m.actuator_trntype[i] == ON_JOINT
            and KINDS[m.jnt_type[m.actuator_trnid[i, 0]]] in ("slide", "hinge"),
            f"model has the actuator '{name}' on something other than a slide or hinge joint",
        )
        require(
            m.actuator_gaintype[i] == FIXED_GAIN
            and m.actuator_dyntype[i] == NO_DYNAMICS
            and m.actuator_biastype[i] in (NO_BIAS, AFFINE_BIAS),
            f"model has the actuator '{name}', which is no motor, position or velocity servo",
        )
        require(
            getattr(m, "actuator_ctrlnum", np.ones(m.nu))[i] == 1,
            f"model has the actuator '{name}' with more than one control",
        )
