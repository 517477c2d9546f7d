"""Geoms of a model that can touch, and how: contacts and their parameters."""

from __future__ import annotations

import mujoco
import numpy as np

from memes.errors import require
from memes.physics.mjcf import MIN_WEIGHT, Placed, floats, matrix, name_of, rotation_of, shape_name
from memes.physics.model import Contact, Impedance

PLANE, SPHERE, CAPSULE, BOX = 0, 2, 3, 6
SHAPES = {PLANE: "plane", SPHERE: "sphere", CAPSULE: "capsule", BOX: "box"}
MIN_FRICTION = 1e-5  # MuJoCo's mjMINMU


def contacts_of(m: mujoco.MjModel, link_of: list[int], placed: list[Placed]) -> tuple[Contact, ...]:
    """Every contact that a moving geom can make with the static world."""
    contacts: list[Contact] = []
    excluded = {tuple(sorted(divmod(int(s), 1 << 16))) for s in m.exclude_signature}
    for a in range(m.ngeom):
        for b in range(a + 1, m.ngeom):
            bodies = m.geom_bodyid[a], m.geom_bodyid[b]
            moving = [link_of[body] >= 0 for body in bodies]
            collides = (m.geom_contype[a] & m.geom_conaffinity[b]) or (
                m.geom_contype[b] & m.geom_conaffinity[a]
            )
            if not any(moving) or not collides or tuple(sorted(map(int, bodies))) in excluded:
                continue
            welded = m.body_weldid[bodies[0]], m.body_weldid[bodies[1]]
            parents = [m.body_weldid[m.body_parentid[w]] for w in welded]
            if welded[0] == welded[1] or (
                # MuJoCo's parent filter; it does not apply to children of the world.
                (welded[0] == parents[1] and welded[0]) or (welded[1] == parents[0] and welded[1])
            ):
                continue
            names = f"'{name_of(m, 'geom', a)}' and '{name_of(m, 'geom', b)}'"
            require(
                not all(moving),
                f"model lets the moving geoms {names} collide with each other, which is not supported; "
                "set contype, conaffinity or <exclude>",
            )
            moved, static = (a, b) if moving[0] else (b, a)
            contacts += _pair(m, moved, static, link_of, placed)
    return tuple(contacts)


def _pair(
    m: mujoco.MjModel, moving: int, static: int, link_of: list[int], placed: list[Placed]
) -> list[Contact]:
    kinds = int(m.geom_type[moving]), int(m.geom_type[static])
    name = f"{name_of(m, 'geom', moving)} on {name_of(m, 'geom', static)}"
    supported = {(SPHERE, s) for s in SHAPES} | {(CAPSULE, PLANE)}
    require(
        kinds in supported,
        f"model lets geoms collide that are not supported together: {name} "
        f"({shape_name(kinds[0])} against {shape_name(kinds[1])})",
    )
    dimensions, friction, solref, solimp = _mixed(m, moving, static)
    friction = max(friction, MIN_FRICTION)
    require(
        dimensions in (1, 3), f"model uses condim {dimensions} between {name}; 1 and 3 are supported"
    )
    require(not m.geom_gap[moving] and not m.geom_gap[static], f"model uses 'gap' between {name}")
    impedance = impedance_of(m, solref, solimp, f"contact of {name}")
    carrier, ground = placed[m.geom_bodyid[moving]], placed[m.geom_bodyid[static]]
    centre = carrier.translation + carrier.rotation @ m.geom_pos[moving]
    along = (carrier.rotation @ rotation_of(m.geom_quat[moving]))[:, 2]
    radius, half = map(float, m.geom_size[moving, :2])
    frame = ground.rotation @ rotation_of(m.geom_quat[static])
    balls = [centre] if kinds[0] == SPHERE else [centre + half * along, centre - half * along]
    weight = float(m.body_invweight0[m.geom_bodyid[moving], 0])
    if dimensions == 3:
        weight *= (1 + friction**2) * 2 * friction**2 / float(m.opt.impratio)
    return [
        Contact(
            name=name,
            link=link_of[m.geom_bodyid[moving]],
            position=floats(ball),
            radius=radius,
            axis=None if kinds[0] == SPHERE else floats(along),
            shape=SHAPES[kinds[1]],
            place=floats(ground.translation + ground.rotation @ m.geom_pos[static]),
            frame=matrix(frame),
            size=floats(m.geom_size[static]),
            dimensions=dimensions,
            friction=friction,
            margin=float(m.geom_margin[moving] + m.geom_margin[static]),
            weight=max(weight, MIN_WEIGHT),
            impedance=impedance,
        )
        for ball in balls
    ]


def _mixed(m: mujoco.MjModel, a: int, b: int) -> tuple[int, float, np.ndarray, np.ndarray]:
    """The contact parameters of two geoms: of the one with priority, or else mixed."""
    if m.geom_priority[a] != m.geom_priority[b]:
        chosen = a if m.geom_priority[a] > m.geom_priority[b] else b
        friction = float(m.geom_friction[chosen, 0])
        return int(m.geom_condim[chosen]), friction, m.geom_solref[chosen], m.geom_solimp[chosen]
    weights = m.geom_solmix[[a, b]]
    share = 0.5 if weights.sum() < 1e-15 else float(weights[0] / weights.sum())
    solref = m.geom_solref[[a, b]]
    mixed = (
        share * solref[0] + (1 - share) * solref[1] if (solref[:, 0] > 0).all() else solref.min(axis=0)
    )
    return (
        int(max(m.geom_condim[a], m.geom_condim[b])),
        float(max(m.geom_friction[a, 0], m.geom_friction[b, 0])),
        mixed,
        share * m.geom_solimp[a] + (1 - share) * m.geom_solimp[b],
    )


def impedance_of(m: mujoco.MjModel, solref: np.ndarray, solimp: np.ndarray, where: str) -> Impedance:
    """The constraint parameters that solref and solimp stand for; `where` names their owner."""
    low, high, width, middle, power = map(float, solimp)
    low, high = np.clip([low, high], 1e-4, 0.9999)
    middle = float(np.clip(middle, 1e-4, 0.9999))
    power = max(power, 1.0)
    require(power == int(power), f"model uses a 'solimp' with a power that is no whole number: {where}")
    require(
        bool((solref > 0).all() or (solref <= 0).all()),
        f"model uses a 'solref' of which one number is positive and the other is not: {where}",
    )
    if solref[0] > 0:
        time_constant = max(float(solref[0]), 2 * float(m.opt.timestep))
        stiffness = 1 / (high**2 * time_constant**2 * float(solref[1]) ** 2)
        damping = 2 / (high * time_constant)
    else:
        stiffness, damping = -float(solref[0]) / high**2, -float(solref[1]) / high
    if width < 1e-15 or low == high:  # a constant impedance, MuJoCo's special case
        return Impedance(stiffness, damping, 0.5 * (low + high), 0.5 * (low + high), 1.0, 0.5, 1)
    return Impedance(stiffness, damping, float(low), float(high), width, middle, int(power))
