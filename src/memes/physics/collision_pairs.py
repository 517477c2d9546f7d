"""Detection of geom pairs that can touch, and the parameters of their contacts."""

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numpy as np

from memes.physics.mjcf import (
    MIN_WEIGHT,
    Placed,
    disabled,
    floats,
    matrix,
    name_of,
    rotation_of,
    shape_name,
)
from memes.physics.model import Contact, Impedance, Surface
from memes.physics.refusals import Reasons
from memes.physics.surfaces import POINTS

PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX = 0, 2, 3, 4, 5, 6
SHAPES = {PLANE: "plane", SPHERE: "sphere", CAPSULE: "capsule", BOX: "box"}
SURFACES = {ELLIPSOID: "ellipsoid", CYLINDER: "cylinder", BOX: "box"}
SUPPORTED = {(SPHERE, s) for s in SHAPES} | {(moving, PLANE) for moving in (CAPSULE, *SURFACES)}
MIN_FRICTION = 1e-5  # mjMINMU in MuJoCo


class Parameters(NamedTuple):
    """Contact parameters of two geoms.

    `friction` has five coefficients: two for sliding, one for spinning, and two for rolling.
    """

    dimensions: int
    friction: np.ndarray
    solref: np.ndarray
    solimp: np.ndarray
    margin: float


def contacts_of(
    m: mujoco.MjModel,
    link_of: list[int],
    placed: list[Placed],
    reasons: Reasons,
    *,
    self_collision: bool,
) -> tuple[Contact, ...]:
    """Return all possible contacts between moving geoms and the static world."""
    contacts: list[Contact] = []
    if disabled(m, "contact") or disabled(m, "constraint"):
        return ()
    for (a, b), parameters in _pairs(m, link_of).items():
        moving = [link_of[m.geom_bodyid[g]] >= 0 for g in (a, b)]
        if all(moving):
            reasons.unless(
                not self_collision,
                "contacts between moving geoms",
                f"'{name_of(m, 'geom', a)}' and '{name_of(m, 'geom', b)}'",
                option="self_collision=False (--no-self-collision)",
            )
            continue
        moved, static = (a, b) if moving[0] else (b, a)
        contacts += _contacts(m, moved, static, parameters, link_of, placed, reasons)
    return tuple(contacts)


def _pairs(m: mujoco.MjModel, link_of: list[int]) -> dict[tuple[int, int], Parameters]:
    """Return the contact parameters of all pairs of geoms that may touch.

    At least one geom of each pair moves. If the model has a `<pair>` element for two geoms, the
    parameters of this element replace the parameters of the geoms.
    """
    pairs: dict[tuple[int, int], Parameters] = {}
    excluded = {tuple(sorted(divmod(int(s), 1 << 16))) for s in m.exclude_signature}
    moves = [link_of[body] >= 0 for body in m.geom_bodyid]
    for a in range(m.ngeom):
        for b in range(a + 1, m.ngeom):
            if (moves[a] or moves[b]) and _collide(m, a, b, excluded):
                pairs[a, b] = _mixed(m, a, b)
    for p in range(m.npair):
        a, b = sorted((int(m.pair_geom1[p]), int(m.pair_geom2[p])))
        if moves[a] or moves[b]:
            pairs[a, b] = Parameters(
                int(m.pair_dim[p]),
                m.pair_friction[p],
                m.pair_solref[p],
                m.pair_solimp[p],
                float(m.pair_margin[p]),
            )
    return pairs


def _collide(m: mujoco.MjModel, a: int, b: int, excluded: set[tuple[int, ...]]) -> bool:
    """Return True if MuJoCo's filters allow collisions between two geoms."""
    collides = (m.geom_contype[a] & m.geom_conaffinity[b]) or (m.geom_contype[b] & m.geom_conaffinity[a])
    bodies = m.geom_bodyid[a], m.geom_bodyid[b]
    if not collides or tuple(sorted(map(int, bodies))) in excluded:
        return False
    welded = m.body_weldid[bodies[0]], m.body_weldid[bodies[1]]
    if welded[0] == welded[1]:
        return False
    parents = [m.body_weldid[m.body_parentid[w]] for w in welded]
    # The parent filter of MuJoCo does not apply to children of the world.
    related = (welded[0] == parents[1] and welded[0]) or (welded[1] == parents[0] and welded[1])
    return not related or disabled(m, "filterparent")


def _contacts(
    m: mujoco.MjModel,
    moving: int,
    static: int,
    parameters: Parameters,
    link_of: list[int],
    placed: list[Placed],
    reasons: Reasons,
) -> list[Contact]:
    kinds = int(m.geom_type[moving]), int(m.geom_type[static])
    name = f"{name_of(m, 'geom', moving)} on {name_of(m, 'geom', static)}"
    dimensions, _, solref, solimp, margin = parameters
    impedance = impedance_of(m, solref, solimp, f"contact of {name}", reasons)
    if kinds not in SUPPORTED:
        shapes = f"a moving {shape_name(kinds[0])} and a static {shape_name(kinds[1])}"
        reasons.unless(False, f"contacts between {shapes}", name)
        return []
    friction = np.maximum(parameters.friction, MIN_FRICTION)
    carrier, ground = placed[m.geom_bodyid[moving]], placed[m.geom_bodyid[static]]
    centre = carrier.translation + carrier.rotation @ m.geom_pos[moving]
    axes = carrier.rotation @ rotation_of(m.geom_quat[moving])
    frame = ground.rotation @ rotation_of(m.geom_quat[static])
    weight = float(m.body_invweight0[m.geom_bodyid[moving], 0])
    if dimensions > 1:
        sliding = float(friction[0])
        weight *= (1 + sliding**2) * 2 * sliding**2 / float(m.opt.impratio)
    contact = Contact(
        name=name,
        link=link_of[m.geom_bodyid[moving]],
        position=floats(centre),
        radius=0.0,
        axis=None,
        surface=None,
        shape=SHAPES[kinds[1]],
        place=floats(ground.translation + ground.rotation @ m.geom_pos[static]),
        frame=matrix(frame),
        size=floats(m.geom_size[static]),
        dimensions=dimensions,
        friction=tuple(map(float, friction[: dimensions - 1])),
        margin=margin,
        weight=max(weight, MIN_WEIGHT),
        impedance=impedance,
    )
    if kinds[0] in SURFACES:
        kind, size = SURFACES[kinds[0]], floats(m.geom_size[moving])
        return [
            contact._replace(surface=Surface(kind, size, matrix(axes), which)) for which in POINTS[kind]
        ]
    radius, half = map(float, m.geom_size[moving, :2])
    if kinds[0] == SPHERE:
        return [contact._replace(radius=radius)]
    along = axes[:, 2]
    ends = centre + half * along, centre - half * along
    return [contact._replace(position=floats(end), radius=radius, axis=floats(along)) for end in ends]


def _mixed(m: mujoco.MjModel, a: int, b: int) -> Parameters:
    """Return the contact parameters of two geoms.

    The geom with the higher priority determines the parameters. If both geoms have the same priority,
    their parameters are mixed.
    """
    margin = float(m.geom_margin[a] + m.geom_margin[b])
    if m.geom_priority[a] != m.geom_priority[b]:
        chosen = a if m.geom_priority[a] > m.geom_priority[b] else b
        dimensions, friction = int(m.geom_condim[chosen]), m.geom_friction[chosen]
        solref, solimp = m.geom_solref[chosen], m.geom_solimp[chosen]
    else:
        weights = m.geom_solmix[[a, b]]
        share = 0.5 if weights.sum() < 1e-15 else float(weights[0] / weights.sum())
        both = m.geom_solref[[a, b]]
        solref = share * both[0] + (1 - share) * both[1] if (both[:, 0] > 0).all() else both.min(axis=0)
        solimp = share * m.geom_solimp[a] + (1 - share) * m.geom_solimp[b]
        dimensions = int(max(m.geom_condim[a], m.geom_condim[b]))
        friction = np.maximum(m.geom_friction[a], m.geom_friction[b])
    return Parameters(dimensions, friction[[0, 0, 1, 2, 2]], solref, solimp, margin)


def impedance_of(
    m: mujoco.MjModel, solref: np.ndarray, solimp: np.ndarray, where: str, reasons: Reasons
) -> Impedance:
    """Return the constraint parameters for `solref` and `solimp`.

    `where` is the name of the model element in error messages.
    """
    low, high, width, middle, power = map(float, solimp)
    low, high = np.clip([low, high], 1e-4, 0.9999)
    middle = float(np.clip(middle, 1e-4, 0.9999))
    power = max(power, 1.0)
    reasons.unless(power == int(power), "a 'solimp' with a power that is not a whole number", where)
    if (solref > 0).any() and (solref <= 0).any():
        reasons.unless(False, "a 'solref' with one positive and one non-positive number", where)
        solref = np.array([0.02, 1.0])  # continue the checks with MuJoCo's default
    if solref[0] > 0:
        safe = 0.0 if disabled(m, "refsafe") else 2 * float(m.opt.timestep)
        time_constant = max(float(solref[0]), safe)
        stiffness = 1 / (high**2 * time_constant**2 * float(solref[1]) ** 2)
        damping = 2 / (high * time_constant)
    else:
        stiffness, damping = -float(solref[0]) / high**2, -float(solref[1]) / high
    if width < 1e-15 or low == high:  # MuJoCo then uses a constant impedance
        return Impedance(stiffness, damping, 0.5 * (low + high), 0.5 * (low + high), 1.0, 0.5, 1)
    return Impedance(stiffness, damping, float(low), float(high), width, middle, int(power))
