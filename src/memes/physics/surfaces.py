"""Contact points of boxes, cylinders and ellipsoids with a plane.

In MuJoCo, a geom touches a plane at the following points:

- A box touches the plane at its four lower corners.
- An ellipsoid touches the plane at its lowest point.
- A cylinder touches the plane at four points. The first is the lowest point of the lower rim, and the
  second is the corresponding point of the upper rim. The other two are on the lower rim, at 120 degrees
  from its lowest point.
"""

from __future__ import annotations

import math

from memes.physics import algebra as la
from memes.physics.algebra import Scalar, Vector
from memes.physics.model import Surface

UPRIGHT = 1e-30  # squared sine of the tilt below which MuJoCo treats a cylinder as upright
SIDE = math.sqrt(3) / 2
POINTS: dict[str, tuple[tuple[float, float, float], ...]] = {
    "box": ((1.0, 1.0, 1.0), (-1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (-1.0, -1.0, 1.0)),
    "cylinder": ((1.0, 0.0, 1.0), (1.0, 0.0, -1.0), (-0.5, SIDE, 1.0), (-0.5, -SIDE, 1.0)),
    "ellipsoid": ((0.0, 0.0, 0.0),),
}


def lowest(surface: Surface, normal: Vector) -> Vector:
    """Return the contact point relative to the geom's centre.

    The point and the plane's unit `normal` are in the frame of the link.
    """
    find = {"box": _corner, "cylinder": _rim, "ellipsoid": _pole}[surface.kind]
    return la.apply(surface.axes, find(surface, la.apply_transposed(surface.axes, normal)))


def _corner(box: Surface, normal: Vector) -> Vector:
    """Return the lower of two opposite corners."""
    corner = [sign * size for sign, size in zip(box.which, box.size, strict=True)]
    return la.scale(_against(la.dot(normal, corner)), corner)


def _rim(cylinder: Surface, normal: Vector) -> Vector:
    cosine, sine, end = cylinder.which
    radius, half = cylinder.size[:2]
    square = normal[0] * normal[0] + normal[1] * normal[1]
    upright = la.less(square, UPRIGHT)
    length = la.sqrt(la.maximum(square, UPRIGHT))
    x = la.where(upright, 1.0, -normal[0] / length)
    y = la.where(upright, 0.0, -normal[1] / length)
    return [
        radius * (cosine * x - sine * y),
        radius * (sine * x + cosine * y),
        end * half * _against(normal[2]),
    ]


def _pole(ellipsoid: Surface, normal: Vector) -> Vector:
    stretched = [s * n for s, n in zip(ellipsoid.size, normal, strict=True)]
    shrink = -1.0 / la.sqrt(la.dot(stretched, stretched))
    return [shrink * s * x for s, x in zip(ellipsoid.size, stretched, strict=True)]


def _against(x: Scalar) -> Scalar:
    """Return -1 if x is positive, and 1 otherwise."""
    return la.where(la.less(0.0, x), -1.0, 1.0)
