"""Reading a compiled MuJoCo model into what the simulator unrolls, and refusing what it cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np

from memes.errors import UsageError, require
from memes.physics.algebra import Matrix, Scalar, Vector

KINDS = {0: "free", 1: "ball", 2: "slide", 3: "hinge"}
QPOS_SIZE = {"free": 7, "ball": 4, "slide": 1, "hinge": 1}
DOF_SIZE = {"free": 6, "ball": 3, "slide": 1, "hinge": 1}
PLANE, SPHERE, CAPSULE, BOX = 0, 2, 3, 6
EULER, RK4 = int(mujoco.mjtIntegrator.mjINT_EULER), int(mujoco.mjtIntegrator.mjINT_RK4)
MIN_FRICTION, MIN_WEIGHT = 1e-5, 1e-15  # MuJoCo's mjMINMU and mjMINVAL
ON_JOINT = int(mujoco.mjtTrn.mjTRN_JOINT)
FIXED_GAIN, NO_DYNAMICS = int(mujoco.mjtGain.mjGAIN_FIXED), int(mujoco.mjtDyn.mjDYN_NONE)
NO_BIAS, AFFINE_BIAS = int(mujoco.mjtBias.mjBIAS_NONE), int(mujoco.mjtBias.mjBIAS_AFFINE)
SHAPES = {PLANE: "plane", SPHERE: "sphere", CAPSULE: "capsule", BOX: "box"}


class Impedance(NamedTuple):
    """MuJoCo's soft constraint: `stiffness` and `damping` of the reference acceleration, and solimp."""

    stiffness: Scalar
    damping: Scalar
    low: Scalar
    high: Scalar
    width: Scalar
    middle: float
    power: int


class Limit(NamedTuple):
    """A joint's range, kept from `margin` on."""

    low: Scalar
    high: Scalar
    margin: Scalar
    impedance: Impedance


class Joint(NamedTuple):
    """A joint of a link; `qpos` and `dof` are its first indices, `reference` its zero."""

    kind: str
    qpos: int
    dof: int
    position: Vector
    axis: Vector
    reference: Scalar
    stiffness: Scalar
    spring: Scalar
    damping: Scalar
    armature: Scalar
    inverse_weight: Scalar
    limit: Limit | None


class Link(NamedTuple):
    """A moving body, with what is welded to it.

    `rotation` and `translation` place it in its parent's frame (-1 is the world). Its inertia about its
    centre of mass has the `principal` moments along the columns of `axes`.
    """

    parent: int
    rotation: Matrix
    translation: Vector
    joints: tuple[Joint, ...]
    mass: Scalar
    centre: Vector
    principal: Vector
    axes: Matrix


class Contact(NamedTuple):
    """A ball of a link that can touch a static shape.

    The ball has its `position` in the link's frame and a `radius`; the two ends of a capsule are two
    balls, whose `axis` then gives the first tangent. The static shape is described by `place[3]`, the
    columns of `frame` and `size`: a plane by a point and its normal (column 2); a box by its centre and
    half sizes; a capsule or a sphere by its centre, its axis (column 2), its radius and half length.
    """

    name: str
    link: int
    position: Vector
    radius: Scalar
    axis: Vector | None
    shape: str
    place: Vector
    frame: Matrix
    size: Vector
    dimensions: int
    friction: Scalar
    margin: Scalar
    weight: Scalar
    impedance: Impedance


class Actuator(NamedTuple):
    """Force `gear * clip(gain * ctrl + bias[0] + bias[1] * length + bias[2] * velocity)` on a dof."""

    control: int
    qpos: int
    dof: int
    gear: Scalar
    gain: Scalar
    bias: Vector
    control_range: tuple[Scalar, Scalar] | None
    force_range: tuple[Scalar, Scalar] | None


class Point(NamedTuple):
    """A named place on a link (-1: in the world)."""

    name: str
    link: int
    position: Vector


class Model(NamedTuple):
    """All that the dynamics of a model depend on, and the places of its bodies, geoms and sites."""

    nq: int
    nv: int
    nu: int
    timestep: float
    gravity: Vector
    integrator: str
    links: tuple[Link, ...]
    contacts: tuple[Contact, ...]
    actuators: tuple[Actuator, ...]
    bodies: tuple[Point, ...]
    geoms: tuple[Point, ...]
    sites: tuple[Point, ...]


def load(source: mujoco.MjModel | str | Path) -> mujoco.MjModel:
    """A compiled model from a model, a path or an XML string."""
    if isinstance(source, mujoco.MjModel):
        return source
    text = str(source)
    try:
        if text.lstrip().startswith("<"):
            return mujoco.MjModel.from_xml_string(text)
        return mujoco.MjModel.from_xml_path(text)
    except ValueError as error:
        raise UsageError(f"model: MuJoCo cannot compile it: {error}") from None


def read(m: mujoco.MjModel) -> Model:
    """Translate a compiled model; whatever it uses that is not supported is named and refused."""
    refuse_unsupported(m)
    links, link_of, placed = _links(m)
    return Model(
        nq=m.nq,
        nv=m.nv,
        nu=m.nu,
        timestep=float(m.opt.timestep),
        gravity=_floats(m.opt.gravity),
        integrator="rk4" if m.opt.integrator == RK4 else "euler",
        links=links,
        contacts=_contacts(m, link_of, placed),
        actuators=tuple(_actuator(m, i) for i in range(m.nu)),
        bodies=tuple(
            Point(_name(m, "body", b), link_of[b], _floats(placed[b].translation))
            for b in range(m.nbody)
        ),
        geoms=_points(m, "geom", m.geom_bodyid, m.geom_pos, link_of, placed),
        sites=_points(m, "site", m.site_bodyid, m.site_pos, link_of, placed),
    )


def _points(
    m: mujoco.MjModel,
    kind: str,
    body: np.ndarray,
    position: np.ndarray,
    link_of: list[int],
    placed: list[_Placed],
) -> tuple[Point, ...]:
    return tuple(
        Point(
            _name(m, kind, i),
            link_of[b],
            _floats(placed[b].translation + placed[b].rotation @ position[i]),
        )
        for i, b in enumerate(body)
    )


# ---------------------------------------------------------------------------------------- refusals

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
        name, kind = _name(m, "joint", j), KINDS[m.jnt_type[j]]
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
        name = _name(m, "actuator", i)
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


# ------------------------------------------------------------------------------------------- links


class _Placed(NamedTuple):
    """Where a body sits in the frame of the link (or the world) that carries it."""

    rotation: np.ndarray
    translation: np.ndarray


def _links(m: mujoco.MjModel) -> tuple[tuple[Link, ...], list[int], list[_Placed]]:
    """The links; which one carries each body (-1: the world); and where the body sits in it."""
    links: list[dict[str, Any]] = []
    link_of = [-1] * m.nbody
    placed = [_Placed(np.eye(3), np.zeros(3))] * m.nbody
    for body in range(1, m.nbody):
        carrier = placed[m.body_parentid[body]]
        rotation = carrier.rotation @ _rotation(m.body_quat[body])
        translation = carrier.translation + carrier.rotation @ m.body_pos[body]
        if m.body_jntnum[body] == 0:
            link_of[body] = link_of[m.body_parentid[body]]
            placed[body] = _Placed(rotation, translation)
        else:
            first = m.body_jntadr[body]
            joints = tuple(_joint(m, j) for j in range(first, first + m.body_jntnum[body]))
            links.append(
                {
                    "parent": link_of[m.body_parentid[body]],
                    "rotation": _matrix(rotation),
                    "translation": _floats(translation),
                    "joints": joints,
                }
            )
            link_of[body] = len(links) - 1
    bodies = [[b for b in range(m.nbody) if link_of[b] == i] for i in range(len(links))]
    with_inertia = (
        Link(**link, **_inertia(m, own, placed)) for link, own in zip(links, bodies, strict=True)
    )
    return tuple(with_inertia), link_of, placed


def _joint(m: mujoco.MjModel, j: int) -> Joint:
    dof, qpos = int(m.jnt_dofadr[j]), int(m.jnt_qposadr[j])
    limit = None
    if m.jnt_limited[j]:
        low, high = map(float, m.jnt_range[j])
        impedance = _impedance(m, m.jnt_solref[j], m.jnt_solimp[j], f"joint '{_name(m, 'joint', j)}'")
        limit = Limit(low, high, float(m.jnt_margin[j]), impedance)
    return Joint(
        kind=KINDS[m.jnt_type[j]],
        qpos=qpos,
        dof=dof,
        position=_floats(m.jnt_pos[j]),
        axis=_floats(m.jnt_axis[j]),
        reference=float(m.qpos0[qpos]),
        stiffness=float(m.jnt_stiffness[j]),
        spring=float(m.qpos_spring[qpos]),
        damping=float(m.dof_damping[dof]),
        armature=float(m.dof_armature[dof]),
        inverse_weight=max(float(m.dof_invweight0[dof]), MIN_WEIGHT),
        limit=limit,
    )


def _inertia(m: mujoco.MjModel, bodies: list[int], placed: list[_Placed]) -> dict[str, Any]:
    """Mass, centre and principal inertia of bodies that move as one."""
    mass = m.body_mass[bodies]
    rotations = [placed[b].rotation for b in bodies]
    centres = np.array(
        [p.translation + p.rotation @ m.body_ipos[b] for b, p in ((b, placed[b]) for b in bodies)]
    )
    total = float(mass.sum())
    centre = mass @ centres / total if total > 0 else centres[0]
    inertia = np.zeros((3, 3))
    for b, rotation, own_mass, own_centre in zip(bodies, rotations, mass, centres, strict=True):
        axes = rotation @ _rotation(m.body_iquat[b])
        r = own_centre - centre
        inertia += axes @ np.diag(m.body_inertia[b]) @ axes.T
        inertia += own_mass * (r @ r * np.eye(3) - np.outer(r, r))
    inertia[np.abs(inertia) < 1e-9 * np.abs(inertia).max()] = 0.0
    if np.count_nonzero(inertia - np.diag(np.diag(inertia))) == 0:
        principal, axes = np.diag(inertia), np.eye(3)
    else:
        principal, axes = np.linalg.eigh(inertia)
    return {
        "mass": total,
        "centre": _floats(centre),
        "principal": _floats(principal),
        "axes": _matrix(axes),
    }


# ---------------------------------------------------------------------------------------- contacts


def _contacts(m: mujoco.MjModel, link_of: list[int], placed: list[_Placed]) -> tuple[Contact, ...]:
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
            names = f"'{_name(m, 'geom', a)}' and '{_name(m, 'geom', b)}'"
            require(
                not all(moving),
                f"model lets the moving geoms {names} collide with each other, which is not supported; "
                "set contype, conaffinity or <exclude>",
            )
            moved, static = (a, b) if moving[0] else (b, a)
            contacts += _pair(m, moved, static, link_of, placed)
    return tuple(contacts)


def _pair(
    m: mujoco.MjModel, moving: int, static: int, link_of: list[int], placed: list[_Placed]
) -> list[Contact]:
    kinds = int(m.geom_type[moving]), int(m.geom_type[static])
    name = f"{_name(m, 'geom', moving)} on {_name(m, 'geom', static)}"
    supported = {(SPHERE, s) for s in SHAPES} | {(CAPSULE, PLANE)}
    require(
        kinds in supported,
        f"model lets geoms collide that are not supported together: {name} "
        f"({_shape(kinds[0])} against {_shape(kinds[1])})",
    )
    dimensions, friction, solref, solimp = _mixed(m, moving, static)
    friction = max(friction, MIN_FRICTION)
    require(
        dimensions in (1, 3), f"model uses condim {dimensions} between {name}; 1 and 3 are supported"
    )
    require(not m.geom_gap[moving] and not m.geom_gap[static], f"model uses 'gap' between {name}")
    impedance = _impedance(m, solref, solimp, f"contact of {name}")
    carrier, ground = placed[m.geom_bodyid[moving]], placed[m.geom_bodyid[static]]
    centre = carrier.translation + carrier.rotation @ m.geom_pos[moving]
    along = (carrier.rotation @ _rotation(m.geom_quat[moving]))[:, 2]
    radius, half = map(float, m.geom_size[moving, :2])
    frame = ground.rotation @ _rotation(m.geom_quat[static])
    balls = [centre] if kinds[0] == SPHERE else [centre + half * along, centre - half * along]
    weight = float(m.body_invweight0[m.geom_bodyid[moving], 0])
    if dimensions == 3:
        weight *= (1 + friction**2) * 2 * friction**2 / float(m.opt.impratio)
    return [
        Contact(
            name=name,
            link=link_of[m.geom_bodyid[moving]],
            position=_floats(ball),
            radius=radius,
            axis=None if kinds[0] == SPHERE else _floats(along),
            shape=SHAPES[kinds[1]],
            place=_floats(ground.translation + ground.rotation @ m.geom_pos[static]),
            frame=_matrix(frame),
            size=_floats(m.geom_size[static]),
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


def _impedance(m: mujoco.MjModel, solref: np.ndarray, solimp: np.ndarray, where: str) -> Impedance:
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


# --------------------------------------------------------------------------------------- actuators


def _actuator(m: mujoco.MjModel, i: int) -> Actuator:
    joint = m.actuator_trnid[i, 0]
    affine = m.actuator_biastype[i] == AFFINE_BIAS

    def interval(limited: Any, bounds: np.ndarray) -> tuple[float, float] | None:
        return (float(bounds[0]), float(bounds[1])) if limited else None

    return Actuator(
        control=i,
        qpos=int(m.jnt_qposadr[joint]),
        dof=int(m.jnt_dofadr[joint]),
        gear=float(m.actuator_gear[i, 0]),
        gain=float(m.actuator_gainprm[i, 0]),
        bias=_floats(m.actuator_biasprm[i, :3] if affine else np.zeros(3)),
        control_range=interval(m.actuator_ctrllimited[i], m.actuator_ctrlrange[i]),
        force_range=interval(m.actuator_forcelimited[i], m.actuator_forcerange[i]),
    )


# ----------------------------------------------------------------------------------------- helpers


def _rotation(quaternion: np.ndarray) -> np.ndarray:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quaternion, float))
    return matrix.reshape(3, 3)


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(0.0 if abs(x) < 1e-12 else float(x) for x in values)


def _matrix(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(_floats(row) for row in values)


def _shape(kind: int) -> str:
    return str(mujoco.mjtGeom(kind).name).removeprefix("mjGEOM_").lower()


def _name(m: mujoco.MjModel, kind: str, i: int) -> str:
    objects = {
        "body": mujoco.mjtObj.mjOBJ_BODY,
        "site": mujoco.mjtObj.mjOBJ_SITE,
        "joint": mujoco.mjtObj.mjOBJ_JOINT,
        "geom": mujoco.mjtObj.mjOBJ_GEOM,
        "actuator": mujoco.mjtObj.mjOBJ_ACTUATOR,
    }
    return mujoco.mj_id2name(m, objects[kind], i) or f"#{i}"
