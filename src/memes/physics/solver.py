"""Computation of MuJoCo's constrained acceleration by Newton's method on the primal problem.

    minimise over a:  1/2 (a - a_free)' M (a - a_free) + sum over edges s(edge(J a - a_ref))

M is the mass matrix, and J is the Jacobian of the constraints. The unconstrained acceleration is a_free,
and the reference acceleration of the constraints is a_ref. A constraint with stiffness D has one or more
edges:

- A contact with friction has two edges of the friction pyramid for each component except the normal
  component. The cost of each edge is s(e) = 1/2 D min(0, e)^2.
- A limit or a frictionless contact has one edge with the cost s(e) = 1/2 D min(0, e)^2.
- Dry friction of a dof with force limit f has one edge with the cost s(e) = c e - 1/2 c^2 / D (Huber),
  where c is D e clipped to [-f, f].

M + J'DJ is as sparse as M (see `tree.py`), so each iteration requires only one sparse factorisation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

from memes.physics import algebra as la
from memes.physics import tree as sparse
from memes.physics.algebra import Condition, Scalar, Value
from memes.physics.constraints import Row, rates
from memes.physics.tree import Flow, Sparse, Tree

# With dry friction, the line search rejects a step that ends too close to the far end of the bracket.
# `FAR_END` is the minimum distance, as a share of the bracket's length.
FAR_END = 1 / 16


class Fidelity(NamedTuple):
    """Numbers of Newton iterations, and of line-search steps per iteration."""

    iterations: int
    line_search: int


class Iterate(NamedTuple):
    """State of the solver.

    Attributes:
        acceleration: The acceleration a.
        residual: The vector M a - force, divided into shares (see `tree.shares`).
        components: The vector J a - a_ref of each constraint.
    """

    acceleration: list[Scalar]
    residual: list[Scalar]
    components: list[list[Scalar]]


def flatten(at: Iterate) -> list[Scalar]:
    """Return all scalars of an iterate as one list."""
    return [*at.acceleration, *at.residual, *(x for u in at.components for x in u)]


def restore(scalars: Sequence[Scalar], like: Iterate) -> Iterate:
    """Restore an iterate from its scalars. The result has the structure of the iterate `like`."""
    each = iter(scalars)
    return Iterate(
        [next(each) for _ in like.acceleration],
        [next(each) for _ in like.residual],
        [[next(each) for _ in u] for u in like.components],
    )


Scalars = Sequence[Scalar]
Body = Callable[[Scalars], Scalars]
Alternative = Callable[[], Sequence[Scalar]]


class ControlFlow(NamedTuple):
    """Loops and branches, as implemented by a backend.

    Attributes:
        repeat: A function `(count, body, start, stacked) -> scalars` that applies the body `count`
            times. `stacked` contains one flag per scalar, which is True if the scalar has one value per
            stacked subtree.
        branch: A function `(condition, then, otherwise) -> scalars` that selects an alternative for each
            robot. If the condition is false, both alternatives give correct results, and `otherwise` is
            cheaper.
    """

    repeat: Callable[[int, Body, Scalars, Sequence[bool]], Scalars]
    branch: Callable[[Condition, Alternative, Alternative], Sequence[Scalar]]


def _write_out(count: int, body: Body, start: Scalars, stacked: Sequence[bool]) -> Scalars:
    """Implement `repeat` by tracing the body `count` times."""
    del stacked
    for _ in range(count):
        start = body(start)
    return start


def always(condition: Condition, then: Alternative, otherwise: Alternative) -> Sequence[Scalar]:
    """Implement `branch` by computing `then`, which is always correct."""
    del condition, otherwise
    return then()


UNROLLED = ControlFlow(_write_out, always)


def constrained(
    tree: Tree,
    mass: Sparse,
    force: Sequence[Scalar],
    rows: list[Row],
    warm: Sequence[Scalar],
    fidelity: Fidelity,
    control: ControlFlow,
) -> tuple[list[Scalar], list[Scalar]]:
    """Return the constrained acceleration, and the constraint force on each degree of freedom."""
    if not rows:
        return sparse.solve(tree, sparse.factor(tree, mass), force), [0.0] * len(force)
    start = _better_start(tree, mass, force, rows, warm)
    shares = [tree.copies > 1] * len(force)

    def improved(scalars: Scalars) -> Scalars:
        return flatten(_newton_step(tree, mass, rows, restore(scalars, start), fidelity.line_search))

    stacked = [*tree.stacked, *shares, *(row.stacked for row in rows for _ in row.reference)]
    found = restore(control.repeat(fidelity.iterations, improved, flatten(start), stacked), start)
    return found.acceleration, _constraint_force(tree, rows, found.components)


def edges(row: Row, u: Sequence[Scalar]) -> list[Scalar]:
    """Return the edges of a constraint, computed from its components."""
    if len(u) == 1:
        return list(u)
    along = [f * x for f, x in zip(row.friction, u[1:], strict=True)]
    return [edge for x in along for edge in (u[0] + x, u[0] - x)]


def _from_edges(row: Row, x: Sequence[Scalar]) -> list[Scalar]:
    """Apply the transpose of the linear function `edges` to x."""
    if len(x) == 1:
        return list(x)
    sums = [a + b for a, b in zip(x[::2], x[1::2], strict=True)]
    sides = zip(row.friction, x[::2], x[1::2], strict=True)
    return [reduce(add, sums), *(f * (a - b) for f, a, b in sides)]


def _pull(row: Row, e: Scalar) -> tuple[Scalar, Scalar]:
    """Return s'(e) and s''(e) of dry friction. s''(e) is D below the force limit, and 0 otherwise."""
    assert row.most is not None
    wanted = row.stiffness * e
    inside = la.less(la.absolute(wanted), row.most)
    return la.clip(wanted, -row.most, row.most), la.where(inside, row.stiffness, 0.0)


def _components(rows: list[Row], x: Sequence[Scalar]) -> list[list[Scalar]]:
    return [rates(row.jacobian, x, len(row.reference)) for row in rows]


def _better_start(
    tree: Tree, mass: Sparse, force: Sequence[Scalar], rows: list[Row], warm: Sequence[Scalar]
) -> Iterate:
    """Return the warm start or the unconstrained acceleration, whichever has the lower cost."""

    def components(x: Sequence[Scalar]) -> list[list[Scalar]]:
        moved = _components(rows, x)
        return [list(la.add(u, row.reference)) for u, row in zip(moved, rows, strict=True)]

    free = sparse.solve(tree, sparse.factor(tree, mass), force)
    residual = la.subtract(sparse.product(tree, mass, warm), sparse.shares(tree, force))
    at_warm, at_free = components(warm), components(free)
    gauss = 0.5 * sparse.inner(tree, la.subtract(warm, free), residual)
    costs = gauss + _cost(tree, rows, at_warm), _cost(tree, rows, at_free)
    better = la.less(costs[0], costs[1])

    def pick(a: Scalar, b: Scalar) -> Scalar:
        return la.where(better, a, b)

    return Iterate(
        [pick(a, b) for a, b in zip(warm, free, strict=True)],
        [pick(r, 0.0) for r in residual],
        [
            [pick(a, b) for a, b in zip(*pair, strict=True)]
            for pair in zip(at_warm, at_free, strict=True)
        ],
    )


def _sum_rows(tree: Tree, rows: list[Row], terms: list[Scalar]) -> Scalar:
    """Return the sum of the terms of all constraints, including all copies of stacked constraints."""
    trunk: Scalar = 0.0
    copies: Scalar = 0.0
    for row, term in zip(rows, terms, strict=True):
        if row.stacked:
            copies = copies + term
        else:
            trunk = trunk + term
    return trunk + sparse.total(tree, copies)


def _cost(tree: Tree, rows: list[Row], components: list[list[Scalar]]) -> Scalar:
    terms = []
    for row, u in zip(rows, components, strict=True):
        if row.most is not None:
            pull, _ = _pull(row, u[0])
            terms.append(pull * u[0] - 0.5 * pull * (pull / row.stiffness))
            continue
        negative = [la.minimum(e, 0.0) for e in edges(row, u)]
        terms.append(0.5 * row.stiffness * la.dot(negative, negative))
    return _sum_rows(tree, rows, terms)


def _constraint_force(tree: Tree, rows: list[Row], components: list[list[Scalar]]) -> list[Scalar]:
    force: dict[int, Scalar] = dict.fromkeys(range(len(tree.ancestors)), 0.0)
    flow = Flow(tree)
    for row, u in zip(rows, components, strict=True):
        if row.most is None:
            push = [-(row.stiffness * la.minimum(e, 0.0)) for e in edges(row, u)]
        else:
            push = [-_pull(row, u[0])[0]]
        _spread(tree, row, _from_edges(row, push), force, flow)
    flow.settle(force)
    return [force[d] for d in range(len(force))]


def _spread(tree: Tree, row: Row, push: list[Scalar], force: dict[int, Scalar], flow: Flow) -> None:
    """Add the force of one constraint, J' push, to the forces on the degrees of freedom."""
    for d, entries in row.jacobian.items():
        crosses = row.stacked and not tree.stacked[d]
        flow.add(force, d, la.dot(entries, push), crosses=crosses)


def _newton_step(tree: Tree, mass: Sparse, rows: list[Row], at: Iterate, line_search: int) -> Iterate:
    hessian: Sparse = dict(mass)
    force: dict[int, Scalar] = dict.fromkeys(range(len(tree.ancestors)), 0.0)
    into_hessian, into_force = Flow(tree), Flow(tree)
    for row, u in zip(rows, at.components, strict=True):
        sides = edges(row, u)
        if row.most is None:
            active = [la.where(la.less(e, 0.0), row.stiffness, 0.0) for e in sides]
            push = [-(d * e) for d, e in zip(active, sides, strict=True)]
        else:
            pull, curve = _pull(row, u[0])
            active, push = [curve], [-pull]
        _spread(tree, row, _from_edges(row, push), force, into_force)
        curved = _curvature(row, active)
        dofs = list(row.jacobian)  # from the deepest dof to the root
        for n, d in enumerate(dofs):
            for k in dofs[n:]:
                crosses = row.stacked and not tree.stacked[d]
                entry = la.dot(row.jacobian[d], curved[k])
                into_hessian.add(hessian, (d, k), entry, crosses=crosses)
    for d, r in enumerate(at.residual):
        into_force.subtract(force, d, r, crosses=not tree.stacked[d])
    factors = sparse.factor(tree, hessian, into_hessian)
    direction = sparse.solve(tree, factors, list(force.values()), into_force)
    mass_times = sparse.product(tree, mass, direction)
    moved = _components(rows, direction)
    length = _line_search(tree, rows, at, direction, mass_times, moved, line_search)

    def along(x: Sequence[Scalar], dx: Sequence[Scalar]) -> list[Scalar]:
        return [a + length * b for a, b in zip(x, dx, strict=True)]

    return Iterate(
        along(at.acceleration, direction),
        along(at.residual, mass_times),
        [along(u, du) for u, du in zip(at.components, moved, strict=True)],
    )


def _curvature(row: Row, active: list[Scalar]) -> dict[int, list[Scalar]]:
    """Return E' diag(active) E j for each Jacobian column j. The matrix E maps components to edges."""
    if len(active) == 1:
        return {d: [active[0] * entries[0]] for d, entries in row.jacobian.items()}
    first, second = active[::2], active[1::2]
    sums = [a + b for a, b in zip(first, second, strict=True)]
    normal = reduce(add, sums)
    mixed = [f * (a - b) for f, a, b in zip(row.friction, first, second, strict=True)]
    own = [(f * f) * x for f, x in zip(row.friction, sums, strict=True)]
    return {
        d: [
            normal * c[0] + la.dot(mixed, c[1:]),
            *(m * c[0] + o * x for m, o, x in zip(mixed, own, c[1:], strict=True)),
        ]
        for d, c in row.jacobian.items()
    }


def _line_search(
    tree: Tree,
    rows: list[Row],
    at: Iterate,
    direction: Sequence[Scalar],
    mass_times: Sequence[Scalar],
    moved: list[list[Scalar]],
    steps: int,
) -> Scalar:
    """Find the step length with Newton's method, within a shrinking bracket."""
    if steps == 0:
        return 1.0
    kinks = any(row.most is not None for row in rows)
    slope = sparse.inner(tree, direction, at.residual)
    curve = sparse.inner(tree, direction, mass_times)
    lines = [
        [(e, de, row.stiffness * de) for e, de in zip(edges(row, u), edges(row, du), strict=True)]
        for row, u, du in zip(rows, at.components, moved, strict=True)
    ]
    assert isinstance(slope, Value)
    one = Value(slope.data * 0.0 + 1.0, slope.of)
    length: Scalar = one
    low: Scalar = Value(slope.data * 0.0, slope.of)
    high: Scalar = 4.0 * one
    for _ in range(steps):
        first, second = [], []
        for row, line in zip(rows, lines, strict=True):
            gradient: Scalar = 0.0
            curvature: Scalar = 0.0
            for e, de, weighted in line:
                here = e + length * de
                if row.most is not None:
                    pull, curve_here = _pull(row, here)
                    gradient, curvature = pull * de, (curve_here * de) * de
                    continue
                active = la.where(la.less(here, 0.0), weighted, 0.0)
                gradient = gradient + active * here
                curvature = curvature + active * de
            first.append(gradient)
            second.append(curvature)
        gradient = slope + length * curve + _sum_rows(tree, rows, first)
        curvature = curve + _sum_rows(tree, rows, second)
        downhill = la.less(gradient, 0.0)
        low, high = la.where(downhill, length, low), la.where(downhill, high, length)
        newton = length - gradient / la.maximum(curvature, 1e-12)
        if kinks:
            # Steps to the far end of the bracket are rejected. Otherwise, steps could alternate between
            # both ends.
            beyond = la.where(downhill, newton - high, low - newton)
            keep = la.less(beyond, FAR_END * (low - high))
        else:
            # Near the minimum, rounding errors may put the step slightly outside the bracket.
            keep = la.less(la.maximum(low - newton, newton - high), 1e-5)
        length = la.where(keep, newton, 0.5 * (low + high))
    return length
