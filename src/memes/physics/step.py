"""One timestep of a model, as a function of scalars that all backends can trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from memes.physics import algebra as la
from memes.physics import dynamics, solver
from memes.physics import tree as sparse
from memes.physics.algebra import Scalar
from memes.physics.constraints import Row, contact_row, near_any, usual_rows
from memes.physics.model import QPOS_SIZE, Joint, Model
from memes.physics.obstacles import split
from memes.physics.solver import ControlFlow, Fidelity, Scalars
from memes.physics.tree import Sparse, Tree


class Phase(NamedTuple):
    """Position, velocity, and the acceleration from which the solver starts."""

    qpos: list[Scalar]
    qvel: list[Scalar]
    warm: list[Scalar]


class Forward(NamedTuple):
    """Mass matrix, forces and acceleration in a state. Angular parts of free joints use world axes."""

    mass: Sparse
    force: list[Scalar]
    constraint: list[Scalar]
    acceleration: list[Scalar]


def step(
    model: Model,
    tree: Tree,
    phase: Phase,
    ctrl: Sequence[Scalar],
    fidelity: Fidelity,
    control: ControlFlow,
) -> Phase:
    """Advance a state by one timestep with the integrator of the model."""
    advance = _rk4 if model.integrator == "rk4" else _euler
    return advance(model, tree, phase, ctrl, fidelity, control)


def forward(
    model: Model,
    tree: Tree,
    phase: Phase,
    ctrl: Sequence[Scalar],
    fidelity: Fidelity,
    control: ControlFlow,
) -> Forward:
    """Compute the mass matrix, the forces and the constrained acceleration."""
    frames = dynamics.kinematics(model, phase.qpos)
    qvel = rotate_free(model, phase, phase.qvel, la.apply)
    own = dynamics.inertias(model, frames)
    mass = dynamics.mass_matrix(model, tree, frames, own)
    bias = dynamics.bias_force(model, tree, frames, own, qvel)
    applied = dynamics.applied_force(model, phase.qpos, qvel, ctrl)
    force = list(la.subtract(applied, bias))
    usual, walls = split(model)
    rows = usual_rows(model, tree, frames, usual, phase.qpos, qvel)

    def solved(rows: list[Row]) -> list[Scalar]:
        found, push = solver.constrained(tree, mass, force, rows, phase.warm, fidelity, control)
        return [*found, *push]

    def among_walls() -> list[Scalar]:
        return solved(rows + [contact_row(tree, frames, rivals, qvel) for rivals in walls])

    if walls:
        near = near_any(tree, frames, walls)
        solution = list(control.branch(near, among_walls, lambda: solved(rows)))
    else:
        solution = solved(rows)
    return Forward(mass, force, solution[model.nv :], solution[: model.nv])


def _euler(
    model: Model,
    tree: Tree,
    phase: Phase,
    ctrl: Sequence[Scalar],
    fidelity: Fidelity,
    control: ControlFlow,
) -> Phase:
    """Take a step of the semi-implicit Euler method with implicit damping, as MuJoCo does."""
    now = forward(model, tree, phase, ctrl, fidelity, control)
    acceleration = now.acceleration
    damping = dynamics.implicit_damping(model, phase.qpos, phase.qvel, ctrl)
    if damping:
        mass = dict(now.mass)
        for d, amount in damping.items():
            mass[d, d] = mass[d, d] + model.timestep * amount
        total = la.add(now.force, now.constraint)
        acceleration = sparse.solve(tree, sparse.factor(tree, mass), total)
    local = rotate_free(model, phase, acceleration, la.apply_transposed)
    qvel = [v + model.timestep * a for v, a in zip(phase.qvel, local, strict=True)]
    qpos = integrate_position(model, phase.qpos, qvel, model.timestep)
    return Phase(qpos, qvel, now.acceleration)


def _rk4(
    model: Model,
    tree: Tree,
    phase: Phase,
    ctrl: Sequence[Scalar],
    fidelity: Fidelity,
    control: ControlFlow,
) -> Phase:
    """Take a step of the fourth-order Runge-Kutta-Munthe-Kaas method.

    Rotations are integrated in their tangent space. A loop computes the four stages, so that the program
    contains the code of only one stage. The state of a stage consists of a position, a velocity and the
    rotation since the start of the timestep. The weights of the stages are proportional to 1, 2, 2, 1.
    """
    dt, nq, nv = model.timestep, model.nq, model.nv

    def stage(scalars: Scalars) -> Scalars:
        number, rest = scalars[0], list(scalars[1:])
        qpos, rest = rest[:nq], rest[nq:]
        qvel, turned, warm, velocities, accelerations = (rest[i * nv : (i + 1) * nv] for i in range(5))
        at = Phase(qpos, qvel, warm)
        now = forward(model, tree, at, ctrl, fidelity, control)
        change = rotate_free(model, at, now.acceleration, la.apply_transposed)
        rate = _pull_back(model, qvel, turned)
        outer = la.where(la.less(number, 0.5), 1.0, la.where(la.less(number, 2.5), 0.0, 1.0))
        weight = 1 / 3 - 1 / 6 * outer
        h = la.where(la.less(number, 1.5), 0.5 * dt, dt)
        return [
            number + 1.0,
            *integrate_position(model, phase.qpos, rate, h),
            *(v + h * a for v, a in zip(phase.qvel, change, strict=True)),
            *la.scale(h, rate),
            *now.acceleration,
            *(total + weight * v for total, v in zip(velocities, rate, strict=True)),
            *(total + weight * a for total, a in zip(accelerations, change, strict=True)),
        ]

    zeros: list[Scalar] = [0.0] * nv
    shares = list(tree.stacked)
    flags = [False, *_stacked_positions(model, tree), *5 * shares]
    start = [0.0, *phase.qpos, *phase.qvel, *zeros, *phase.warm, *zeros, *zeros]
    _, *found = control.repeat(4, stage, start, flags)
    warm, velocity, change = (list(found[nq + i * nv : nq + (i + 1) * nv]) for i in (2, 3, 4))
    qvel = [v + dt * a for v, a in zip(phase.qvel, change, strict=True)]
    return Phase(integrate_position(model, phase.qpos, velocity, dt), qvel, warm)


def _stacked_positions(model: Model, tree: Tree) -> list[bool]:
    """Return one flag per entry of qpos, which is True if the entry is stacked."""
    flags = [False] * model.nq
    for joint in _joints(model):
        for k in range(QPOS_SIZE[joint.kind]):
            flags[joint.qpos + k] = tree.stacked[joint.dof]
    return flags


def _pull_back(model: Model, qvel: Sequence[Scalar], turned: Sequence[Scalar]) -> list[Scalar]:
    """Convert angular velocities to rates of change of the rotation vector `turned`.

    The conversion is the inverse derivative of the exponential map.
    """
    pulled = list(qvel)
    for joint in _joints(model):
        if joint.kind not in ("free", "ball"):
            continue
        d = joint.dof + (3 if joint.kind == "free" else 0)
        turn, velocity = turned[d : d + 3], qvel[d : d + 3]
        square = la.dot(turn, turn)
        once = la.cross(turn, velocity)
        twice = la.scale(_series(INVERSE_DEXP, square), la.cross(turn, once))
        pulled[d : d + 3] = la.add(velocity, la.add(la.scale(0.5, once), twice))
    return pulled


def _joints(model: Model) -> list[Joint]:
    return [joint for link in model.links for joint in link.joints]


def rotate_free(model: Model, phase: Phase, x: Sequence[Scalar], turn) -> list[Scalar]:  # type: ignore[no-untyped-def]
    """Convert the angular part of each free joint between body axes and world axes.

    `turn` is `apply` for conversion to world axes, and `apply_transposed` for conversion to body axes.
    States contain the angular parts in body axes, but the dynamics use world axes.
    """
    turned = list(x)
    for joint in _joints(model):
        if joint.kind == "free":
            rotation = la.rotation_of_quaternion(phase.qpos[joint.qpos + 3 : joint.qpos + 7])
            turned[joint.dof + 3 : joint.dof + 6] = turn(rotation, turned[joint.dof + 3 : joint.dof + 6])
    return turned


def integrate_position(
    model: Model, qpos: Sequence[Scalar], qvel: Sequence[Scalar], dt: Scalar
) -> list[Scalar]:
    """Return the positions after motion at a constant velocity for a time dt."""
    moved = list(qpos)
    for joint in _joints(model):
        q, d = joint.qpos, joint.dof
        if joint.kind in ("slide", "hinge"):
            moved[q] = qpos[q] + dt * qvel[d]
            continue
        if joint.kind == "free":
            for k in range(3):
                moved[q + k] = qpos[q + k] + dt * qvel[d + k]
            q, d = q + 3, d + 3
        moved[q : q + 4] = _turn(qpos[q : q + 4], qvel[d : d + 3], dt)
    return moved


def _turn(quaternion: Sequence[Scalar], velocity: Sequence[Scalar], dt: Scalar) -> list[Scalar]:
    """Rotate a unit quaternion by an angular velocity in body axes, and normalise it."""
    half = la.scale(0.5 * dt, velocity)
    square = la.dot(half, half)
    turn = [_series(COS, square), *la.scale(_series(SINC, square), half)]
    product = la.quaternion_product(quaternion, turn)
    inverse = 1.0 / la.sqrt(la.dot(product, product))
    return [x * inverse for x in product]


# (1 - x/2 cot(x/2)) / x^2 as a series in x^2.
INVERSE_DEXP = [1 / 12, 1 / 720, 1 / 30240, 1 / 1209600, 1 / 47900160, 691 / 1307674368000]
# cos(x) and sin(x) / x as series in x^2. If a body rotates by at most half a turn per
# timestep, the only errors are rounding errors.
COS = [(-1) ** k / math.factorial(2 * k) for k in range(10)]
SINC = [(-1) ** k / math.factorial(2 * k + 1) for k in range(10)]


def _series(coefficients: Sequence[float], x: Scalar) -> Scalar:
    """Evaluate a polynomial by Horner's rule."""
    total: Scalar = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = coefficient + x * total
    return total
