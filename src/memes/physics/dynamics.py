"""Rigid-body dynamics of a model: kinematics, mass matrix, and forces.

All loops over links are unrolled. Spatial vectors are pairs (angular, linear) in world axes, relative to
the origin of their tree. The origin of a tree moves with its root, so that float32 stays accurate far
from the origin of the world. The dynamics do not depend on uniform motion of the origin (Galilean
invariance).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from memes.physics import algebra as la
from memes.physics.algebra import IDENTITY, ZERO, Matrix, Scalar, Vector
from memes.physics.model import DOF_SIZE, Actuator, Joint, Link, Model
from memes.physics.tree import Flow, Sparse, Tree

Spatial = tuple[Vector, Vector]
SYMMETRIC = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


class Frames(NamedTuple):
    """Positions and motions of links.

    Attributes:
        rotation: Rotation matrix of each link.
        position: Position of each link, relative to the origin of its tree.
        origin: For each root link, the origin of its tree in the world.
        motion: For each dof, the spatial velocity that a unit velocity of the dof causes.
    """

    rotation: list[Matrix]
    position: list[Vector]
    origin: dict[int, Vector]
    motion: dict[int, Spatial]


def kinematics(model: Model, qpos: Sequence[Scalar]) -> Frames:
    """Compute the frames of all links."""
    frames = Frames([], [], {}, {})
    for i, link in enumerate(model.links):
        if link.parent < 0:
            rotation, position = link.rotation, ZERO
            frames.origin[i] = link.translation
        else:
            carrier = frames.rotation[link.parent]
            rotation = la.multiply(carrier, link.rotation)
            position = la.add(frames.position[link.parent], la.apply(carrier, link.translation))
        for joint, leads in _with_leading_slides(link):
            q, d = joint.qpos, joint.dof
            if joint.kind == "free":
                frames.origin[i] = qpos[q : q + 3]
                rotation = la.rotation_of_quaternion(qpos[q + 3 : q + 7])
                for k in range(3):
                    frames.motion[d + k] = (ZERO, IDENTITY[k])
                    frames.motion[d + 3 + k] = (IDENTITY[k], ZERO)
            elif joint.kind == "slide":
                axis = la.apply(rotation, joint.axis)
                shift = la.scale(qpos[q] - joint.reference, axis)
                if leads:
                    frames.origin[i] = la.add(frames.origin[i], shift)
                else:
                    position = la.add(position, shift)
                frames.motion[d] = (ZERO, axis)
            else:
                anchor = la.add(position, la.apply(rotation, joint.position))
                if joint.kind == "hinge":
                    axes = [la.apply(rotation, joint.axis)]
                    turn = la.rotation_about(joint.axis, qpos[q] - joint.reference)
                    rotation = la.multiply(rotation, turn)
                else:
                    turn = la.rotation_of_quaternion(qpos[q : q + 4])
                    rotation = la.multiply(rotation, turn)
                    axes = [la.column(rotation, k) for k in range(3)]
                position = la.subtract(anchor, la.apply(rotation, joint.position))
                for k, axis in enumerate(axes):
                    frames.motion[d + k] = (axis, la.cross(anchor, axis))
        frames.rotation.append(rotation)
        frames.position.append(position)
    return frames


def _with_leading_slides(link: Link) -> list[tuple[Joint, bool]]:
    """Return the joints of a link, each with a flag that marks the leading slide joints of a root link.

    The leading slide joints of a link are the slide joints before its first joint of another kind.
    """
    leads = link.parent < 0
    joints = []
    for joint in link.joints:
        leads = leads and joint.kind == "slide"
        joints.append((joint, leads))
    return joints


class Inertia(NamedTuple):
    """Spatial inertia about the origin of the tree.

    `moment` is the mass times the centre of mass. `rotational` contains the entries xx, yy, zz, xy, xz
    and yz of the rotational inertia.
    """

    mass: Scalar
    moment: Vector
    rotational: Vector


def inertias(model: Model, frames: Frames) -> list[Inertia]:
    """Return the spatial inertias of all links."""
    found = []
    for link, rotation, position in zip(model.links, frames.rotation, frames.position, strict=True):
        centre = la.add(position, la.apply(rotation, link.centre))
        axes = la.multiply(rotation, link.axes)
        base, others = _base_moment(link.principal)
        rotational: list[Scalar] = [base, base, base, 0.0, 0.0, 0.0]
        for k in others:
            u = la.column(axes, k)
            excess = la.scale(link.principal[k] - base, u)
            rotational = [x + excess[a] * u[b] for x, (a, b) in zip(rotational, SYMMETRIC, strict=True)]
        moment = la.scale(link.mass, centre)
        square = [moment[k] * centre[k] for k in range(3)]
        for k in range(3):
            rotational[k] = rotational[k] + (square[(k + 1) % 3] + square[(k + 2) % 3])
        for n, (a, b) in enumerate(SYMMETRIC[3:]):
            rotational[3 + n] = rotational[3 + n] - moment[a] * centre[b]
        found.append(Inertia(link.mass, moment, rotational))
    return found


def _base_moment(principal: Vector) -> tuple[Scalar, list[int]]:
    """Return the most frequent principal moment of inertia, and the axes with a different moment.

    The inertia is this moment times the identity, plus a rank-one term for each returned axis. A capsule
    has one such axis, and a sphere has none.
    """

    def equal(a: Scalar, b: Scalar) -> bool:
        difference = a - b
        largest = max((abs(x) for x in principal if isinstance(x, float)), default=0.0)
        return isinstance(difference, float) and abs(difference) <= 1e-7 * largest

    twins = [sum(equal(a, b) for b in principal) for a in principal]
    base = twins.index(max(twins))
    return principal[base], [
        k for k in range(3) if k != base and not equal(principal[k], principal[base])
    ]


def _times(inertia: Inertia, motion: Spatial) -> Spatial:
    """Multiply an inertia by a spatial velocity, which gives a spatial momentum."""
    angular, linear = motion
    xx, yy, zz, xy, xz, yz = inertia.rotational
    moment = la.apply([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], angular)
    return (
        la.add(moment, la.cross(inertia.moment, linear)),
        la.subtract(la.scale(inertia.mass, linear), la.cross(inertia.moment, angular)),
    )


def _pair(a: Spatial, b: Spatial) -> Scalar:
    return la.dot(a[0], b[0]) + la.dot(a[1], b[1])


def mass_matrix(model: Model, tree: Tree, frames: Frames, own: list[Inertia]) -> Sparse:
    """Compute the joint-space inertia by the composite-rigid-body algorithm."""
    composite = [{"m": i.mass, **_indexed("h", i.moment), **_indexed("i", i.rotational)} for i in own]
    for k, parent, flow in _inwards(model, tree):
        crosses = tree.stacked_link[k] and not tree.stacked_link[parent]
        for name, x in composite[k].items():
            flow.add(composite[parent], name, x, crosses=crosses)
        flow.settle(composite[parent])
    matrix: Sparse = {}
    armature = {
        d: joint.armature
        for link in model.links
        for joint in link.joints
        for d in range(joint.dof, joint.dof + DOF_SIZE[joint.kind])
    }
    for d, ancestors in enumerate(tree.ancestors):
        c = composite[tree.link_of[d]]
        whole = Inertia(c["m"], [c[f"h{k}"] for k in range(3)], [c[f"i{k}"] for k in range(6)])
        momentum = _times(whole, frames.motion[d])
        for k in (d, *ancestors):
            matrix[d, k] = _pair(frames.motion[k], momentum)
        matrix[d, d] = matrix[d, d] + armature[d]
    return matrix


def bias_force(
    model: Model, tree: Tree, frames: Frames, own: list[Inertia], qvel: Sequence[Scalar]
) -> list[Scalar]:
    """Compute Coriolis, centrifugal and gravity forces by the recursive Newton-Euler algorithm."""
    velocity: list[Spatial] = []
    acceleration: list[Spatial] = []
    force: list[dict[str, Scalar]] = []
    for i, link in enumerate(model.links):
        if link.parent < 0:
            v: Spatial = (ZERO, ZERO)
            a: Spatial = (ZERO, [-g for g in model.gravity])
        else:
            v, a = velocity[link.parent], acceleration[link.parent]
        for joint, leads in _with_leading_slides(link):
            if leads:
                continue  # the slide only moves the origin, which does not affect the dynamics
            first = joint.dof
            if joint.kind == "free":
                v = (qvel[first + 3 : first + 6], ZERO)
                continue
            moves = [
                (la.scale(qvel[d], frames.motion[d][0]), la.scale(qvel[d], frames.motion[d][1]))
                for d in range(first, first + DOF_SIZE[joint.kind])
            ]
            own_motion = moves[0]
            for move in moves[1:]:
                own_motion = (la.add(own_motion[0], move[0]), la.add(own_motion[1], move[1]))
            change = _cross_motion(v, own_motion)
            a = (la.add(a[0], change[0]), la.add(a[1], change[1]))
            v = (la.add(v[0], own_motion[0]), la.add(v[1], own_motion[1]))
        velocity.append(v)
        acceleration.append(a)
        moment, push = _times(own[i], a)
        momentum = _times(own[i], v)
        moment = la.add(moment, la.add(la.cross(v[0], momentum[0]), la.cross(v[1], momentum[1])))
        push = la.add(push, la.cross(v[0], momentum[1]))
        force.append({**_indexed("n", moment), **_indexed("f", push)})
    for k, parent, flow in _inwards(model, tree):
        crosses = tree.stacked_link[k] and not tree.stacked_link[parent]
        for name, x in force[k].items():
            flow.add(force[parent], name, x, crosses=crosses)
        flow.settle(force[parent])
    bias = []
    for d, i in enumerate(tree.link_of):
        f = force[i]
        bias.append(
            _pair(frames.motion[d], ([f[f"n{k}"] for k in range(3)], [f[f"f{k}"] for k in range(3)]))
        )
    return bias


def _cross_motion(v: Spatial, s: Spatial) -> Spatial:
    return la.cross(v[0], s[0]), la.add(la.cross(v[0], s[1]), la.cross(v[1], s[0]))


def _inwards(model: Model, tree: Tree) -> list[tuple[int, int, Flow]]:
    """Return `(link, parent, accumulator)` for each link with a parent, from the leaves to the root."""
    return [
        (k, model.links[k].parent, Flow(tree))
        for k in range(len(model.links) - 1, -1, -1)
        if model.links[k].parent >= 0
    ]


def _indexed(name: str, values: Sequence[Scalar]) -> dict[str, Scalar]:
    return {f"{name}{k}": x for k, x in enumerate(values)}


def applied_force(
    model: Model, qpos: Sequence[Scalar], qvel: Sequence[Scalar], ctrl: Sequence[Scalar]
) -> list[Scalar]:
    """Compute the forces of actuators, springs and dampers."""
    force: list[Scalar] = [0.0] * len(qvel)
    for link in model.links:
        for joint in link.joints:
            for d in range(joint.dof, joint.dof + DOF_SIZE[joint.kind]):
                force[d] = force[d] - joint.damping * qvel[d]
            if not la.is_zero(joint.stiffness):
                stretch = qpos[joint.qpos] - joint.spring
                force[joint.dof] = force[joint.dof] - joint.stiffness * stretch
    ranges = _drive_ranges(model)
    sums: dict[int, Scalar] = dict.fromkeys(ranges, 0.0)
    for d, drive in _drives(model, qpos, qvel, ctrl):
        if d in ranges:
            sums[d] = sums[d] + drive
        else:
            force[d] = force[d] + drive
    for d, interval in ranges.items():
        force[d] = force[d] + la.clip(sums[d], *interval)
    return force


def _drives(
    model: Model, qpos: Sequence[Scalar], qvel: Sequence[Scalar], ctrl: Sequence[Scalar]
) -> Iterator[tuple[int, Scalar]]:
    """Yield the degree of freedom of each actuator, and the force that the actuator exerts on it."""
    for actuator in model.actuators:
        pull = _pull(actuator, qpos, qvel, ctrl)
        if actuator.force_range:
            pull = la.clip(pull, *actuator.force_range)
        yield actuator.dof, actuator.gear * pull


def _drive_ranges(model: Model) -> dict[int, tuple[Scalar, Scalar]]:
    """Return the range of the total actuator force, for each degree of freedom that has such a range."""
    joints = [joint for link in model.links for joint in link.joints]
    return {joint.dof: joint.drive_range for joint in joints if joint.drive_range is not None}


def _pull(
    actuator: Actuator, qpos: Sequence[Scalar], qvel: Sequence[Scalar], ctrl: Sequence[Scalar]
) -> Scalar:
    """Return the force of an actuator before it is clipped to its range."""
    control = ctrl[actuator.control]
    if actuator.control_range:
        control = la.clip(control, *actuator.control_range)
    length = actuator.gear * qpos[actuator.qpos]
    speed = actuator.gear * qvel[actuator.dof]
    constant, per_length, per_speed = actuator.bias
    return actuator.gain * control + constant + per_length * length + per_speed * speed


def implicit_damping(
    model: Model, qpos: Sequence[Scalar], qvel: Sequence[Scalar], ctrl: Sequence[Scalar]
) -> dict[int, Scalar]:
    """Return the damping that the integrator treats implicitly, for each degree of freedom.

    The damping is the negative derivative of the force with respect to the velocity. `euler` uses the
    damping of joints. `implicitfast` also uses the damping of actuators whose force is within its range.
    """
    damping: dict[int, Scalar] = {}
    if model.integrator not in ("euler", "implicitfast"):
        return damping
    for link in model.links:
        for joint in link.joints:
            if not la.is_zero(joint.damping):
                damping |= dict.fromkeys(
                    range(joint.dof, joint.dof + DOF_SIZE[joint.kind]), joint.damping
                )
    if model.integrator == "implicitfast":
        ranges = _drive_ranges(model)
        sums: dict[int, Scalar] = dict.fromkeys(ranges, 0.0)
        for d, drive in _drives(model, qpos, qvel, ctrl):
            sums[d] = sums.get(d, 0.0) + drive
        for actuator in model.actuators:
            amount = -(actuator.gear * actuator.gear * actuator.bias[2])
            if la.is_zero(amount):
                continue
            if actuator.force_range:
                pull = _pull(actuator, qpos, qvel, ctrl)
                amount = _if_within(actuator.force_range, pull, amount)
            if actuator.dof in ranges:
                amount = _if_within(ranges[actuator.dof], sums[actuator.dof], amount)
            damping[actuator.dof] = damping.get(actuator.dof, 0.0) + amount
    return damping


def _if_within(interval: tuple[Scalar, Scalar], x: Scalar, amount: Scalar) -> Scalar:
    inside = la.where(la.less(x, interval[1]), amount, 0.0)
    return la.where(la.less(interval[0], x), inside, 0.0)
