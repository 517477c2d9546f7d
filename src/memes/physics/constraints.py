"""Contacts, joint limits and joint friction as rows of MuJoCo's soft-constraint problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memes.physics import algebra as la
from memes.physics.algebra import Condition, Matrix, Scalar, Vector
from memes.physics.dynamics import Frames
from memes.physics.model import DOF_SIZE, Contact, DryFriction, Impedance, Joint, Model
from memes.physics.obstacles import Rivals
from memes.physics.surfaces import lowest
from memes.physics.tree import Tree, total

SMALL = 1e-12


class Row(NamedTuple):
    """A constraint: a contact with 1, 3, 4 or 6 components, a joint limit, or dry friction of a dof.

    Attributes:
        jacobian: Maps each dof that affects the constraint to a list. The list contains the velocity of
            each component if this dof has velocity 1 and all other dofs have velocity 0.
        stiffness: The stiffness, called D in `solver.py`, or 0 if the constraint is not active.
        friction: Friction coefficients of a contact, one for each component except the first.
        reference: Negative reference acceleration of each component.
        stacked: Whether this object represents K constraints, one in each of K isomorphic subtrees.
        most: Maximum dry friction of a dof, in both directions. None for contacts and limits, which only
            push.
    """

    jacobian: dict[int, list[Scalar]]
    stiffness: Scalar
    friction: tuple[Scalar, ...]
    reference: list[Scalar]
    stacked: bool
    most: Scalar | None = None


class Touch(NamedTuple):
    """The geometry of a contact.

    `place` is the contact point relative to the origin of the tree. The rows of `frame` are the normal
    and two tangents.
    """

    distance: Scalar
    place: Vector
    frame: Matrix


def usual_rows(
    model: Model,
    tree: Tree,
    frames: Frames,
    contacts: Sequence[Rivals],
    qpos: Sequence[Scalar],
    qvel: Sequence[Scalar],
) -> list[Row]:
    """Return the constraints of contacts, joint limits and dry friction.

    The result includes inactive constraints.
    """
    rows = [contact_row(tree, frames, rivals, qvel) for rivals in contacts]
    for link, stacked in zip(model.links, tree.stacked_link, strict=True):
        for joint in link.joints:
            if joint.limit is not None:
                rows.append(limit_row(joint, qpos, qvel, stacked))
            if joint.dry_friction is not None:
                dofs = range(joint.dof, joint.dof + DOF_SIZE[joint.kind])
                rows += [friction_row(joint.dry_friction, d, qvel[d], stacked) for d in dofs]
    return rows


def contact_row(tree: Tree, frames: Frames, rivals: Rivals, qvel: Sequence[Scalar]) -> Row:
    """Return the constraint of a contact. If `rivals` has several contacts, only the nearest is used."""
    seen = touch(tree, frames, *rivals)
    contact = rivals[0]
    last = tree.last_dof[contact.link]
    jacobian: dict[int, list[Scalar]] = {}
    for d in (last, *tree.ancestors[last]):
        angular, linear = frames.motion[d]
        motion = la.add(linear, la.cross(angular, seen.place))
        turning = seen.frame[: max(contact.dimensions - 3, 0)]
        jacobian[d] = [
            *(la.dot(axis, motion) for axis in seen.frame[: contact.dimensions]),
            *(la.dot(axis, angular) for axis in turning),
        ]
    velocity = rates(jacobian, qvel, contact.dimensions)
    violation = seen.distance - contact.margin
    stiffness, reference = _soft(contact.impedance, violation, velocity, contact.weight)
    return Row(jacobian, stiffness, contact.friction, reference, tree.stacked_link[contact.link])


def limit_row(joint: Joint, qpos: Sequence[Scalar], qvel: Sequence[Scalar], stacked: bool) -> Row:
    """Return the constraint of a joint limit, which acts at the nearer end of the joint's range."""
    assert joint.limit is not None
    limit = joint.limit
    above, below = qpos[joint.qpos] - limit.low, limit.high - qpos[joint.qpos]
    side = la.where(la.less(above, below), 1.0, -1.0)
    violation = la.minimum(above, below) - limit.margin
    velocity = [side * qvel[joint.dof]]
    stiffness, reference = _soft(limit.impedance, violation, velocity, joint.inverse_weight)
    return Row({joint.dof: [side]}, stiffness, (), reference, stacked)


def friction_row(friction: DryFriction, dof: int, velocity: Scalar, stacked: bool) -> Row:
    """Return the constraint of dry friction, which reduces the velocity of a degree of freedom."""
    reference = [friction.damping * velocity]
    return Row({dof: [1.0]}, friction.stiffness, (), reference, stacked, friction.most)


def rates(jacobian: dict[int, list[Scalar]], x: Sequence[Scalar], components: int) -> list[Scalar]:
    """Multiply the Jacobian of a constraint by a vector with one entry per degree of freedom."""
    result: list[Scalar] = [0.0] * components
    for d, entries in jacobian.items():
        result = [r + entry * x[d] for r, entry in zip(result, entries, strict=True)]
    return result


def _soft(
    impedance: Impedance, violation: Scalar, velocity: list[Scalar], weight: Scalar
) -> tuple[Scalar, list[Scalar]]:
    """Return `stiffness` and `reference` of a constraint whose first component has this `violation`."""
    r = _impedance(impedance, violation)
    stiffness = la.where(la.less(violation, 0.0), r / ((1.0 - r) * weight), 0.0)
    reference = [impedance.damping * v for v in velocity]
    reference[0] = reference[0] + impedance.stiffness * r * violation
    return stiffness, reference


def _impedance(impedance: Impedance, violation: Scalar) -> Scalar:
    """Return MuJoCo's impedance d(r), which is `low` at the surface and `high` at depth `width`."""
    if impedance.low is impedance.high or _equal(impedance.low, impedance.high):
        return impedance.low
    x = la.minimum(la.absolute(violation) / impedance.width, 1.0)
    if impedance.power == 1:
        y = x
    else:
        p, mid = impedance.power, impedance.middle
        rising = _power(x, p) * (1 / mid ** (p - 1))
        falling = 1.0 - _power(1.0 - x, p) * (1 / (1 - mid) ** (p - 1))
        y = la.where(la.less(x, mid), rising, falling)
    return impedance.low + y * (impedance.high - impedance.low)


def _equal(a: Scalar, b: Scalar) -> bool:
    return isinstance(a, float) and isinstance(b, float) and a == b


def _power(x: Scalar, p: int) -> Scalar:
    result = x
    for _ in range(p - 1):
        result = result * x
    return result


# ---------------------------------------------------------------------------------------- geometry


class Centre(NamedTuple):
    """Position of a ball.

    `origin` is the origin of the ball's tree in the world. `relative` is the vector from this origin to
    the ball.
    """

    relative: Vector
    origin: Vector


def _centre(tree: Tree, frames: Frames, ball: Contact) -> Centre:
    rotation, position = frames.rotation[ball.link], ball.position
    if ball.surface is not None:
        normal = la.apply_transposed(rotation, la.column(ball.frame, 2))
        position = la.add(position, lowest(ball.surface, normal))
    turned = la.apply(rotation, position)
    relative = la.add(frames.position[ball.link], turned)
    return Centre(relative, frames.origin[tree.root_of[ball.link]])


def _offset(contact: Contact, centre: Centre) -> Vector:
    """Return the vector from the centre of the shape to the ball."""
    return la.add(centre.relative, la.subtract(centre.origin, contact.place))


def near_any(tree: Tree, frames: Frames, contacts: Sequence[Rivals]) -> Condition:
    """Return whether each robot is close enough to a static shape for an active contact."""
    copies: Scalar = 0.0
    trunk: Scalar = 0.0
    for contact in (contact for rivals in contacts for contact in rivals):
        flag = la.where(_near(tree, frames, contact), 1.0, 0.0)
        if tree.stacked_link[contact.link]:
            copies = copies + flag
        else:
            trunk = trunk + flag
    return la.less(0.0, trunk + total(tree, copies))


def _near(tree: Tree, frames: Frames, contact: Contact) -> Condition:
    offset = _offset(contact, _centre(tree, frames, contact))
    reach = contact.radius + contact.margin
    if contact.shape == "plane":
        return la.less(la.dot(la.column(contact.frame, 2), offset), 1.001 * reach)
    if contact.shape != "box":
        reach = reach + contact.size[0]
    away = _away(contact, offset)
    return la.less(la.dot(away, away), 1.001 * (reach * reach))  # the factor is a tolerance


def touch(tree: Tree, frames: Frames, *rivals: Contact) -> Touch:
    """Return the contact of a ball with the nearest of the given static shapes."""
    ball = rivals[0]
    centre = _centre(tree, frames, ball)
    distance, normal = _gap(ball, _offset(ball, centre))
    for rival in rivals[1:]:
        other, turned = _gap(rival, _offset(rival, centre))
        nearer = la.less(other, distance)
        distance = la.where(nearer, other, distance)
        normal = [la.where(nearer, a, b) for a, b in zip(turned, normal, strict=True)]
    place = la.subtract(centre.relative, la.scale(ball.radius + 0.5 * distance, normal))
    along = None if ball.axis is None else la.apply(frames.rotation[ball.link], ball.axis)
    return Touch(distance, place, _frame(normal, along))


def _gap(contact: Contact, offset: Vector) -> tuple[Scalar, Vector]:
    """Return the distance between a ball and a shape, and the normal of the shape at the contact."""
    if contact.shape == "plane":
        normal = la.column(contact.frame, 2)
        return la.dot(normal, offset) - contact.radius, normal
    if contact.shape == "box":
        return _gap_to_box(contact, offset)
    away = _away(contact, offset)
    length = la.sqrt(la.maximum(la.dot(away, away), SMALL))
    return length - contact.size[0] - contact.radius, la.scale(1.0 / length, away)


def _away(contact: Contact, offset: Vector) -> Vector:
    """Return a vector from a static shape to the centre of a ball.

    For a sphere, the vector starts at the centre. For a capsule, it starts at the nearest point of the
    axis. For a box, it starts at the nearest point of the box, and is in the frame of the box.
    """
    if contact.shape == "box":
        local = la.apply_transposed(contact.frame, offset)
        nearest = [la.clip(x, -s, s) for x, s in zip(local, contact.size, strict=True)]
        return la.subtract(local, nearest)
    if contact.shape == "capsule":
        axis, half = la.column(contact.frame, 2), contact.size[1]
        along = la.clip(la.dot(axis, offset), -half, half)
        return la.subtract(offset, la.scale(along, axis))
    return offset


def _gap_to_box(contact: Contact, offset: Vector) -> tuple[Scalar, Vector]:
    """Return the distance from a box to a ball, and the normal of the box at the contact.

    The centre of the ball may be inside the box.
    """
    local = la.apply_transposed(contact.frame, offset)
    away = _away(contact, offset)
    square = la.dot(away, away)
    length = la.sqrt(la.maximum(square, SMALL))

    # If the centre is inside the box, the nearest face pushes the ball out.
    depth = [s - la.absolute(x) for x, s in zip(local, contact.size, strict=True)]
    least = la.minimum(la.minimum(depth[0], depth[1]), depth[2])
    face: list[Scalar] = []
    taken: Scalar = 0.0
    for x, d in zip(local, depth, strict=True):
        first = la.where(la.less(least, d), 0.0, 1.0) * (1.0 - taken)  # 1 for the first nearest face
        taken = taken + first
        face.append(first * la.where(la.less(x, 0.0), -1.0, 1.0))
    inside = la.less(square, SMALL)
    normal: Vector = [la.where(inside, f, x / length) for f, x in zip(face, away, strict=True)]
    return la.where(inside, -least, length) - contact.radius, la.apply(contact.frame, normal)


def _frame(normal: Vector, along: Vector | None) -> Matrix:
    """Return the normal and two tangents, as in MuJoCo.

    The first tangent is the part of `along` that is orthogonal to the normal. By default, `along` is the
    y axis. If the normal is close to the y axis, the default is the z axis.
    """
    if along is None:
        flat = la.less(la.absolute(normal[1]), 0.5)
        along = [0.0, la.where(flat, 1.0, 0.0), la.where(flat, 0.0, 1.0)]
    tangent = la.subtract(along, la.scale(la.dot(normal, along), normal))
    length = la.sqrt(la.maximum(la.dot(tangent, tangent), SMALL))
    tangent = la.scale(1.0 / length, tangent)
    return [normal, tangent, la.cross(normal, tangent)]
