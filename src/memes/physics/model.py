"""Data structures for a model: links, joints, contacts and actuators."""

from __future__ import annotations

from typing import NamedTuple

from memes.physics.algebra import Matrix, Scalar, Vector

KINDS = {0: "free", 1: "ball", 2: "slide", 3: "hinge"}
QPOS_SIZE = {"free": 7, "ball": 4, "slide": 1, "hinge": 1}
DOF_SIZE = {"free": 6, "ball": 3, "slide": 1, "hinge": 1}


class Impedance(NamedTuple):
    """Parameters of MuJoCo's soft constraints.

    `stiffness` and `damping` define the reference acceleration. The other fields are taken from
    `solimp`.
    """

    stiffness: Scalar
    damping: Scalar
    low: Scalar
    high: Scalar
    width: Scalar
    middle: float
    power: int


class Limit(NamedTuple):
    """The range of a joint. The constraint is active within `margin` of either end of the range."""

    low: Scalar
    high: Scalar
    margin: Scalar
    impedance: Impedance


class DryFriction(NamedTuple):
    """Dry friction of a joint: a soft constraint on each velocity, with the maximum force `most`."""

    most: Scalar
    stiffness: Scalar
    damping: Scalar


class Joint(NamedTuple):
    """A joint of a link.

    `qpos` and `dof` are the joint's first indices in the position vector and in the velocity vector.
    `reference` is the joint's entry in MuJoCo's `qpos0`. The total force of the joint's actuators is
    clipped to `drive_range`.
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
    """A moving body, including the bodies that are welded to it.

    `parent` is the index of the parent link, or -1 for the world. `rotation` and `translation` define
    the pose in the frame of the parent. The inertia about the centre of mass has the `principal` moments
    along the columns of `axes`.
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
    """One contact point between a geom and a plane (see `surfaces.py`).

    Attributes:
        kind: Type of the geom: `box`, `cylinder` or `ellipsoid`.
        size: Half sizes of a box, radius and half length of a cylinder, or semi-axes of an ellipsoid.
        axes: Axes of the geom in the frame of the link, as columns.
        which: Vector that selects the point. For a box, the entries are the signs of the coordinates of
            a corner. For a cylinder, the first two entries are the cosine and sine of the angle from the
            lowest point of the rim. The third entry is 1 for the lower rim or -1 for the upper rim.
    """

    kind: str
    size: Vector
    axes: Matrix
    which: Vector


class Contact(NamedTuple):
    """A possible contact between a moving geom and a static shape.

    A sphere, or one end of a capsule, is treated as a ball. A box, a cylinder or an ellipsoid has a
    `surface` instead.

    Attributes:
        name: Names of the two geoms.
        link: Index of the link.
        position: Centre of the ball, or of the geom with a `surface`, in the frame of the link.
        radius: Radius of the ball, or 0 for a geom with a `surface`.
        axis: Axis of the capsule, which determines the first tangent of the contact. None for other
            geoms.
        surface: Contact point of a box, a cylinder or an ellipsoid. None for other geoms.
        shape: Type of the static shape: `plane`, `sphere`, `capsule` or `box`.
        place: Centre of the static shape, or a point of the plane.
        frame: Axes of the static shape, as columns. Column 2 is the normal of a plane, or the axis of a
            capsule.
        size: Half sizes of a box, radius and half length of a capsule, or radius of a sphere.
        dimensions: Number of components of the contact force: 1, 3, 4 or 6.
        friction: Coefficients for all components except the normal force: two for sliding, one for
            spinning about the normal, and two for rolling.
        margin: Distance between the geom and the shape below which the contact is active.
        weight: Inverse weight of the contact in MuJoCo's constraint problem.
        impedance: Parameters of the soft constraint.
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
    """An actuator of a dof.

    The force is `gear * clip(gain * ctrl + bias[0] + bias[1] * length + bias[2] * velocity)`.
    """

    control: int
    qpos: int
    dof: int
    gear: Scalar
    gain: Scalar
    bias: Vector
    control_range: tuple[Scalar, Scalar] | None
    force_range: tuple[Scalar, Scalar] | None


class Point(NamedTuple):
    """A named point of a link, or of the world if `link` is -1."""

    name: str
    link: int
    position: Vector


class Model(NamedTuple):
    """The data of a model: its dynamics, and the positions of its bodies, geoms and sites.

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
