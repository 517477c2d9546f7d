"""A model as plain data: links, joints, contacts and actuators."""

from __future__ import annotations

from typing import NamedTuple

from memes.physics.algebra import Matrix, Scalar, Vector

KINDS = {0: "free", 1: "ball", 2: "slide", 3: "hinge"}
QPOS_SIZE = {"free": 7, "ball": 4, "slide": 1, "hinge": 1}
DOF_SIZE = {"free": 6, "ball": 3, "slide": 1, "hinge": 1}


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
    """The range of a joint; the constraint is active within `margin` of its ends."""

    low: Scalar
    high: Scalar
    margin: Scalar
    impedance: Impedance


class DryFriction(NamedTuple):
    """Friction loss of each dof of a joint: a soft constraint on velocity with force at most `most`."""

    most: Scalar
    stiffness: Scalar
    damping: Scalar


class Joint(NamedTuple):
    """A joint of a link; `qpos` and `dof` are its first indices, `reference` its zero.

    Its actuators together exert a force within `drive_range`.
    """

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
    dry_friction: DryFriction | None
    drive_range: tuple[Scalar, Scalar] | None


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


class Surface(NamedTuple):
    """One of the points of a geom that can be lowest above a plane (`surfaces.py`).

    Attributes:
        kind: `box`, `cylinder` or `ellipsoid`.
        size: Half sizes of the box, radius and half length of the cylinder, or the half axes.
        axes: The geom's axes in the link's frame, as columns.
        which: For a box, the signs of a corner; for a cylinder, the cosine and sine of the point's angle
            from the lowest one, and 1 at the lower end or -1 at the upper one.
    """

    kind: str
    size: Vector
    axes: Matrix
    which: Vector


class Contact(NamedTuple):
    """A ball of a link that can touch a static shape.

    The ball has its `position` in the link's frame and a `radius`; the two ends of a capsule are two
    balls, whose `axis` then gives the first tangent. A geom with a `surface` is a ball of radius 0 for
    each of its lowest points, and `position` is its centre. The static shape is described by `place[3]`,
    the columns of `frame` and `size`: a plane by a point and its normal (column 2); a box by its centre
    and half sizes; a capsule or a sphere by its centre, its axis (column 2), its radius and half length.
    `friction` has a coefficient for each direction but the normal: two for sliding, one for spinning
    about the normal, two for rolling.
    """

    name: str
    link: int
    position: Vector
    radius: Scalar
    axis: Vector | None
    surface: Surface | None
    shape: str
    place: Vector
    frame: Matrix
    size: Vector
    dimensions: int
    friction: tuple[Scalar, ...]
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
    """A named point on a link (-1: in the world)."""

    name: str
    link: int
    position: Vector


class Model(NamedTuple):
    """All data that affect the dynamics of a model, and the positions of bodies, geoms and sites.

    `integrator` is `euler`, `explicit` (Euler without implicit damping), `implicitfast` or `rk4`.
    """

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
