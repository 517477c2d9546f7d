"""Obstacles: static shapes that robots rarely touch.

Obstacles form a group if they are so far apart that a ball can touch only one of them at a time.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from memes.physics.algebra import Scalar, Stacked
from memes.physics.model import Contact, Model

# Contacts of one ball share a constraint if at most one of them can be active at a time.
Rivals = tuple[Contact, ...]


def split(model: Model) -> tuple[list[Rivals], list[Rivals]]:
    """Return the contacts with the ground (planes below a robot) and the contacts with obstacles."""
    ground: list[Contact] = []
    walls: list[Contact] = []
    for contact in model.contacts:
        upwards = -np.dot(_vector([row[2] for row in contact.frame]), _vector(model.gravity))
        (ground if contact.shape == "plane" and upwards > 0 else walls).append(contact)
    return _rivals(ground), _rivals(walls)


def _rivals(contacts: list[Contact]) -> list[Rivals]:
    """Divide contacts into groups in which at most one contact can be active at a time."""
    groups: list[list[Contact]] = []
    for contact in contacts:
        for group in groups:
            if all(_exclude(contact, other) for other in group):
                group.append(contact)
                break
        else:
            groups.append([contact])
    return [tuple(group) for group in groups]


def _exclude(a: Contact, b: Contact) -> bool:
    """Return True if two contacts of one ball cannot be active at the same time.

    The shapes must be too far apart for the ball to touch both. Apart from names and shapes, the data of
    both contacts must be equal.
    """
    same_shape = a._replace(name=b.name, shape=b.shape, place=b.place, frame=b.frame, size=b.size)
    return _same(same_shape, b) and _distance(a, b) > 2 * (_largest(a.radius) + _largest(a.margin))


def _distance(a: Contact, b: Contact) -> float:
    """Return a lower bound on the distance between two shapes: their largest gap along several axes."""
    if "plane" in (a.shape, b.shape):
        return 0.0
    between = _vector(a.place) - _vector(b.place)
    axes = [_vector(c) for shape in (a, b) for c in zip(*shape.frame, strict=True)]
    axes += [np.cross(u, v) for u, v in product(axes[:3], axes[3:])] + [between]
    gaps = [
        abs(between @ u) - _half_width(a, u) - _half_width(b, u)
        for u in (axis / np.linalg.norm(axis) for axis in axes if np.linalg.norm(axis) > 1e-9)
    ]
    return max(gaps, default=0.0)


def _half_width(contact: Contact, direction: np.ndarray) -> float:
    """Return half of a shape's extent along a direction. All shapes are symmetric about their centre."""
    along = np.abs(np.array(contact.frame, float).T @ direction)
    size = _vector(contact.size)
    if contact.shape == "box":
        return float(size @ along)
    return float(size[0] + (size[1] * along[2] if contact.shape == "capsule" else 0.0))


def _vector(values: Any) -> np.ndarray:
    return np.array(values, float)


def _largest(x: Scalar) -> float:
    assert not hasattr(x, "of"), "constants only"
    return float(np.max(x.values if isinstance(x, Stacked) else x))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, Stacked) and isinstance(b, Stacked):
        return np.array_equal(a.values, b.values)
    return type(a) is type(b) and bool(a == b)
