"""Checks for unsupported features of a model. A single error message lists all unsupported features."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from memes.errors import UsageError, require
from memes.physics.mjcf import (
    AFFINE_BIAS,
    FIXED_GAIN,
    INTEGRATORS,
    NO_BIAS,
    NO_DYNAMICS,
    ON_JOINT,
    SIMPLE_INPUTS,
    disabled,
    name_of,
)
from memes.physics.model import KINDS

# Counts and arrays of the model that must be zero, and the elements of MJCF that make them non-zero.
MUST_BE_ZERO = {
    "nflex": "<flex>",
    "nplugin": "plugins",
    "na": "actuators with an activation state",
    "dof_dampingpoly": "polynomial joint 'damping'",
    "jnt_stiffnesspoly": "polynomial joint 'stiffness'",
    "jnt_springyield": "joint 'springyield'",
    "body_gravcomp": "body 'gravcomp'",
    "geom_adhesion": "geom 'adhesion'",
    "pair_adhesion": "'adhesion' of a contact <pair>",
    "geom_surfacevel": "geom 'surfacevel'",
    "actuator_armature": "actuator 'armature'",
    "actuator_damping": "actuator 'damping'",
    "actuator_dampingpoly": "polynomial actuator 'damping'",
    "actuator_delay": "actuator 'delay'",
    # A tendon without these properties exerts no force, unless an actuator drives it.
    "tendon_stiffness": "'stiffness' of a <tendon>",
    "tendon_stiffnesspoly": "polynomial 'stiffness' of a <tendon>",
    "tendon_damping": "'damping' of a <tendon>",
    "tendon_dampingpoly": "polynomial 'damping' of a <tendon>",
    "tendon_springyield": "'springyield' of a <tendon>",
    "tendon_limited": "'range' of a <tendon>",
    "tendon_frictionloss": "'frictionloss' of a <tendon>",
    "tendon_armature": "'armature' of a <tendon>",
}
OPTIONS_ZERO = {
    "density": "'density' of the medium",
    "viscosity": "'viscosity' of the medium",
    "wind": "'wind'",
    "noslip_iterations": "'noslip_iterations'",
    "cone": "elliptic friction cones",
}
# `OBEYED` lists MuJoCo's flags that the simulator supports. `WITHOUT_EFFECT` explains why other flags
# have no effect in the simulator.
OBEYED = (
    "constraint",
    "equality",
    "frictionloss",
    "limit",
    "contact",
    "spring",
    "damper",
    "gravity",
    "clampctrl",
    "filterparent",
    "actuation",
    "refsafe",
    "eulerdamp",
)
WITHOUT_EFFECT = {
    "warmstart": "it affects only where the solver starts",
    "sensor": "sensors are not computed",
    "midphase": "it affects only how pairs of geoms are found",
    "autoreset": "robots that become non-finite are frozen",
    "nativeccd": "collisions of general convex shapes are refused",
    "multiccd": "collisions of general convex shapes are refused",
    "island": "it affects only how the solver divides its problem",
    "energy": "energies are not computed",
    "fwdinv": "it compares forward with inverse dynamics",
    "invdiscrete": "it concerns inverse dynamics",
}
# A model may use one of these unsupported features if it sets a flag that disables the feature.
_UNLESS_DISABLED = {
    "tendon_limited": ("constraint", "limit"),
    "tendon_frictionloss": ("constraint", "frictionloss"),
    "tendon_stiffness": ("spring",),
    "tendon_damping": ("damper",),
}
ADAPTERS = (
    "MuJoCo itself simulates such models, in environments of Gymnasium (task gymnasium:NAME), "
    "Playground (playground:NAME) and Brax (brax:NAME)"
)


class Reasons:
    """The unsupported features of a model, with the elements that use them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[str]] = {}

    def unless(self, condition: Any, what: str, where: str = "", option: str = "") -> None:
        """Record the unsupported feature `what` of the element `where`, unless the condition is true.

        `option` is a setting that makes the simulator ignore the feature.
        """
        if not condition:
            self._found.setdefault((what, option), []).append(where)

    def finish(self) -> None:
        """Raise a `UsageError` that lists all recorded features, if there are any."""
        if self._found:
            kinds = "; ".join(_kind(*key, where) for key, where in self._found.items())
            raise UsageError(f"model uses features that are not supported: {kinds}. {ADAPTERS}")


def _kind(what: str, option: str, where: list[str]) -> str:
    notes = [f"{len(where)}, such as {where[0]}" if len(where) > 1 else where[0]] if where[0] else []
    if option:
        notes.append(f"{option} ignores them")
    return f"{what} ({'; '.join(notes)})" if notes else what


def note_unsupported(m: mujoco.MjModel, reasons: Reasons) -> None:
    """Record all unsupported features of the model, except for unsupported collisions."""
    require(m.nv > 0, "model has no joints")
    for attribute, element in MUST_BE_ZERO.items():
        off = any(disabled(m, flag) for flag in _UNLESS_DISABLED.get(attribute, ()))
        reasons.unless(off or not np.any(getattr(m, attribute)), element)
    for attribute, element in OPTIONS_ZERO.items():
        reasons.unless(not np.any(getattr(m.opt, attribute)), element)
    reasons.unless(
        m.opt.integrator in INTEGRATORS, "an integrator other than Euler, RK4 and implicitfast"
    )
    _note_flags(m, reasons)
    off = disabled(m, "equality") or disabled(m, "constraint")
    reasons.unless(off or not np.any(m.eq_active0), "<equality> constraints")
    for j in range(m.njnt):
        _note_joint(m, j, reasons)
    for i in range(m.nactuator):
        _note_actuator(m, i, reasons)


def _note_flags(m: mujoco.MjModel, reasons: Reasons) -> None:
    known = {*OBEYED, *WITHOUT_EFFECT}
    for word, given, flags in (
        ("disabled", m.opt.disableflags, mujoco.mjtDisableBit),
        ("enabled", m.opt.enableflags, mujoco.mjtEnableBit),
    ):
        for name, bit in flags.__members__.items():
            flag = name.partition("_")[2].lower()  # empty for the flag count
            used = flag and given & int(bit)
            reasons.unless(not used or flag in known, f"the {word} flag '{flag}'")


def _note_joint(m: mujoco.MjModel, j: int, reasons: Reasons) -> None:
    name, kind = f"'{name_of(m, 'joint', j)}'", KINDS[m.jnt_type[j]]
    simple = kind in ("slide", "hinge")
    reasons.unless(simple or not m.jnt_limited[j], f"'range' on a {kind} joint", name)
    reasons.unless(simple or not m.jnt_stiffness[j], f"'stiffness' on a {kind} joint", name)
    dry = kind == "free" and m.dof_frictionloss[m.jnt_dofadr[j]] > 0
    reasons.unless(not dry, "'frictionloss' of a free joint", name)
    if m.jnt_limited[j]:
        low, high = m.jnt_range[j]
        narrow = high - low <= 2 * m.jnt_margin[j]
        reasons.unless(not narrow, "a 'margin' wider than half of a joint's range", name)
    body = m.jnt_bodyid[j]
    reasons.unless(
        kind != "free" or not _turns_implicitly(m, body),
        "a free body with uneven inertia and no other joints, with the integrator implicitfast",
        name,
    )
    alone = m.body_jntnum[body] == 1 and m.body_parentid[body] == 0
    reasons.unless(kind != "free" or alone, "a free joint with other joints or below another body", name)


def _turns_implicitly(m: mujoco.MjModel, body: int) -> bool:
    """Return True if MuJoCo's `implicitfast` treats the gyroscopic force of a free body implicitly."""
    single = m.tree_dofnum[m.body_treeid[body]] == 6
    ball = np.ptp(m.body_inertia[body]) == 0 and not m.body_ipos[body].any()
    even = ball and m.body_subtreemass[body] == m.body_mass[body]
    return bool(INTEGRATORS.get(m.opt.integrator) == "implicitfast" and single and not even)


def _note_actuator(m: mujoco.MjModel, i: int, reasons: Reasons) -> None:
    name = f"'{name_of(m, 'actuator', i)}'"
    on_joint = m.actuator_trntype[i] in ON_JOINT
    on_simple = on_joint and KINDS[m.jnt_type[m.actuator_trnid[i, 0]]] in ("slide", "hinge")
    reasons.unless(on_simple, "an actuator on something other than a slide or hinge joint", name)
    servo = (
        m.actuator_gaintype[i] == FIXED_GAIN
        and m.actuator_dyntype[i] == NO_DYNAMICS
        and m.actuator_biastype[i] in (NO_BIAS, AFFINE_BIAS)
    )
    reasons.unless(servo, "an actuator that is not a motor, position or velocity servo", name)
    single = m.actuator_ctrlnum[i] == 1 and m.actuator_outnum[i] == 1
    reasons.unless(single, "an actuator without exactly one control and one output", name)
    simple = m.actuator_ctrlspec[i] in SIMPLE_INPUTS
    reasons.unless(simple, "an actuator whose control is not a force, position or velocity", name)
