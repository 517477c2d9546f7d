"""Translation of a compiled MuJoCo model into the data of the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from memes.errors import UsageError
from memes.physics.collision_pairs import contacts_of, impedance_of
from memes.physics.mjcf import (
    AFFINE_BIAS,
    INTEGRATORS,
    MIN_WEIGHT,
    Placed,
    disabled,
    floats,
    matrix,
    name_of,
    pose_of_inertia,
    rotation_of,
)
from memes.physics.model import KINDS, Actuator, DryFriction, Joint, Limit, Link, Model, Point
from memes.physics.refusals import Reasons, note_unsupported


def load(source: mujoco.MjModel | str | Path) -> mujoco.MjModel:
    """Return a compiled model, given a compiled model, a path or an XML string."""
    if isinstance(source, mujoco.MjModel):
        return source
    text = str(source)
    try:
        if text.lstrip().startswith("<"):
            return mujoco.MjModel.from_xml_string(text)
        return mujoco.MjModel.from_xml_path(text)
    except ValueError as error:
        raise UsageError(f"model: MuJoCo cannot compile the model: {error}") from None


def read(m: mujoco.MjModel, *, self_collision: bool = True) -> Model:
    """Translate a compiled model, or raise a `UsageError` that lists its unsupported features.

    If `self_collision` is False, the result omits contacts between moving geoms.
    """
    reasons = Reasons()
    note_unsupported(m, reasons)
    links, link_of, placed = _links(m, reasons)
    contacts = contacts_of(m, link_of, placed, reasons, self_collision=self_collision)
    reasons.finish()
    return Model(
        nq=m.nq,
        nv=m.nv,
        nu=m.nu,
        timestep=float(m.opt.timestep),
        gravity=floats(0.0 * m.opt.gravity if disabled(m, "gravity") else m.opt.gravity),
        integrator=_integrator(m),
        links=links,
        contacts=contacts,
        actuators=tuple(_actuator(m, i) for i in range(m.nu)),
        bodies=tuple(
            Point(name_of(m, "body", b), link_of[b], floats(placed[b].translation))
            for b in range(m.nbody)
        ),
        geoms=_points(m, "geom", m.geom_bodyid, m.geom_pos, link_of, placed),
        sites=_points(m, "site", m.site_bodyid, m.site_pos, link_of, placed),
    )


def _integrator(m: mujoco.MjModel) -> str:
    name = INTEGRATORS[m.opt.integrator]
    return "explicit" if name == "euler" and disabled(m, "eulerdamp") else name


def _points(
    m: mujoco.MjModel,
    kind: str,
    body: np.ndarray,
    position: np.ndarray,
    link_of: list[int],
    placed: list[Placed],
) -> tuple[Point, ...]:
    return tuple(
        Point(
            name_of(m, kind, i),
            link_of[b],
            floats(placed[b].translation + placed[b].rotation @ position[i]),
        )
        for i, b in enumerate(body)
    )


def _links(m: mujoco.MjModel, reasons: Reasons) -> tuple[tuple[Link, ...], list[int], list[Placed]]:
    """Return the links, the link of each body (-1 for the world), and each body's pose in its link."""
    links: list[dict[str, Any]] = []
    link_of = [-1] * m.nbody
    placed = [Placed(np.eye(3), np.zeros(3))] * m.nbody
    for body in range(1, m.nbody):
        carrier = placed[m.body_parentid[body]]
        rotation = carrier.rotation @ rotation_of(m.body_quat[body])
        translation = carrier.translation + carrier.rotation @ m.body_pos[body]
        if m.body_jntnum[body] == 0:
            link_of[body] = link_of[m.body_parentid[body]]
            placed[body] = Placed(rotation, translation)
        else:
            first = m.body_jntadr[body]
            joints = tuple(_joint(m, j, reasons) for j in range(first, first + m.body_jntnum[body]))
            links.append(
                {
                    "parent": link_of[m.body_parentid[body]],
                    "rotation": matrix(rotation),
                    "translation": floats(translation),
                    "joints": joints,
                }
            )
            link_of[body] = len(links) - 1
    bodies = [[b for b in range(m.nbody) if link_of[b] == i] for i in range(len(links))]
    with_inertia = (
        Link(**link, **_inertia(m, own, placed)) for link, own in zip(links, bodies, strict=True)
    )
    return tuple(with_inertia), link_of, placed


def _joint(m: mujoco.MjModel, j: int, reasons: Reasons) -> Joint:
    dof, qpos = int(m.jnt_dofadr[j]), int(m.jnt_qposadr[j])
    unconstrained = disabled(m, "constraint")
    weight = max(float(m.dof_invweight0[dof]), MIN_WEIGHT)
    where = f"joint '{name_of(m, 'joint', j)}'"
    limit = dry_friction = None
    if m.jnt_limited[j] and not (unconstrained or disabled(m, "limit")):
        low, high = map(float, m.jnt_range[j])
        impedance = impedance_of(m, m.jnt_solref[j], m.jnt_solimp[j], where, reasons)
        limit = Limit(low, high, float(m.jnt_margin[j]), impedance)
    if m.dof_frictionloss[dof] > 0 and not (unconstrained or disabled(m, "frictionloss")):
        soft = impedance_of(m, m.dof_solref[dof], m.dof_solimp[dof], where, reasons)
        stiffness = soft.low / ((1.0 - soft.low) * weight)
        dry_friction = DryFriction(float(m.dof_frictionloss[dof]), stiffness, soft.damping)
    return Joint(
        kind=KINDS[m.jnt_type[j]],
        qpos=qpos,
        dof=dof,
        position=floats(m.jnt_pos[j]),
        axis=floats(m.jnt_axis[j]),
        reference=float(m.qpos0[qpos]),
        stiffness=0.0 if disabled(m, "spring") else float(m.jnt_stiffness[j]),
        spring=float(m.qpos_spring[qpos]),
        damping=0.0 if disabled(m, "damper") else float(m.dof_damping[dof]),
        armature=float(m.dof_armature[dof]),
        inverse_weight=weight,
        limit=limit,
        dry_friction=dry_friction,
        drive_range=_interval(m.jnt_actfrclimited[j], m.jnt_actfrcrange[j]),
    )


def _inertia(m: mujoco.MjModel, bodies: list[int], placed: list[Placed]) -> dict[str, Any]:
    """Return the mass, the centre of mass and the principal inertia of a group of welded bodies."""
    mass = m.body_mass[bodies]
    poses = [(placed[b], pose_of_inertia(m, b)) for b in bodies]
    rotations = [body.rotation @ inner.rotation for body, inner in poses]
    centres = np.array([body.translation + body.rotation @ inner.translation for body, inner in poses])
    total = float(mass.sum())
    centre = mass @ centres / total if total > 0 else centres[0]
    inertia = np.zeros((3, 3))
    for b, own_mass, own_centre, axes in zip(bodies, mass, centres, rotations, strict=True):
        r = own_centre - centre
        inertia += axes @ np.diag(m.body_inertia[b]) @ axes.T
        inertia += own_mass * (r @ r * np.eye(3) - np.outer(r, r))
    inertia[np.abs(inertia) < 1e-12 * np.abs(inertia).max()] = 0.0
    if np.count_nonzero(inertia - np.diag(np.diag(inertia))) == 0:
        principal, axes = np.diag(inertia), np.eye(3)
    else:
        principal, axes = np.linalg.eigh(inertia)
    return {
        "mass": total,
        "centre": floats(centre),
        "principal": floats(principal),
        "axes": matrix(axes),
    }


def _actuator(m: mujoco.MjModel, i: int) -> Actuator:
    joint = m.actuator_trnid[i, 0]
    affine = m.actuator_biastype[i] == AFFINE_BIAS
    group = int(m.actuator_group[i])
    off = disabled(m, "actuation") or (0 <= group <= 30 and m.opt.disableactuator & (1 << group))
    clipped = m.actuator_ctrllimited[i] and not disabled(m, "clampctrl")
    return Actuator(
        control=i,
        qpos=int(m.jnt_qposadr[joint]),
        dof=int(m.jnt_dofadr[joint]),
        gear=float(m.actuator_gear[i, 0]),
        gain=0.0 if off else float(m.actuator_gainprm[i, 0]),
        bias=floats(m.actuator_biasprm[i, :3] if affine and not off else np.zeros(3)),
        control_range=_interval(clipped, m.actuator_ctrlrange[i]),
        force_range=_interval(m.actuator_forcelimited[i] and not off, m.actuator_forcerange[i]),
    )


def _interval(limited: Any, bounds: np.ndarray) -> tuple[float, float] | None:
    return (float(bounds[0]), float(bounds[1])) if limited else None
