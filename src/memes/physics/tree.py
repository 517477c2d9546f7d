"""The tree of degrees of freedom, and linear algebra for matrices with the sparsity of this tree.

Row d of a sparse matrix belongs to the degree of freedom (dof) d. The row has entries only in the
columns of d and of the ancestors of d. The mass matrix M has this form. The Newton matrix M + J'DJ also
has this form, because robots touch only the static world. Matrices are dictionaries `{(dof, ancestor or
itself): scalar}`. Featherstone's L'DL algorithm, with unrolled loops, factorises matrices and solves
linear systems.

Dofs of isomorphic subtrees are stacked, so that one dof represents K copies. All other dofs form the
trunk. Contributions of stacked dofs to the trunk are summed over the copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from memes.physics.algebra import Scalar, Stacked, Value, dot, is_zero
from memes.physics.model import DOF_SIZE, Model

Sparse = dict[tuple[int, int], Scalar]


class Tree(NamedTuple):
    """The tree of dofs and links.

    Attributes:
        ancestors: For each dof, its ancestors in the tree, with the nearest first.
        link_of: For each dof, the link that it moves.
        last_dof: For each link, the last dof that moves it.
        root_of: For each link, the first link of its tree.
        stacked_link: For each link, whether it represents K isomorphic links.
        stacked: For each dof, whether it represents K isomorphic dofs.
        copies: Number of copies, K.
    """

    ancestors: tuple[tuple[int, ...], ...]
    link_of: tuple[int, ...]
    last_dof: tuple[int, ...]
    root_of: tuple[int, ...]
    stacked_link: tuple[bool, ...]
    stacked: tuple[bool, ...]
    copies: int


def tree_of(model: Model, stacked_link: Sequence[bool], copies: int) -> Tree:
    """Return the tree of a model with stacked links."""
    ancestors: list[tuple[int, ...]] = []
    link_of: list[int] = []
    last_dof: list[int] = []
    root_of: list[int] = []
    for i, link in enumerate(model.links):
        chain: tuple[int, ...] = ()
        if link.parent >= 0:
            last = last_dof[link.parent]
            chain = (last, *ancestors[last])
        root_of.append(i if link.parent < 0 else root_of[link.parent])
        for joint in link.joints:
            for dof in range(joint.dof, joint.dof + DOF_SIZE[joint.kind]):
                ancestors.append(chain)
                link_of.append(i)
                chain = (dof, *chain)
        last_dof.append(chain[0])
    return Tree(
        tuple(ancestors),
        tuple(link_of),
        tuple(last_dof),
        tuple(root_of),
        tuple(stacked_link),
        tuple(stacked_link[i] for i in link_of),
        copies,
    )


def total(tree: Tree, x: Scalar) -> Scalar:
    """Return the sum of x over all copies."""
    if tree.copies == 1:
        return x
    if isinstance(x, Value):
        return Value(x.of.total(x.data), x.of)
    return float(np.sum(x.values)) if isinstance(x, Stacked) else tree.copies * x


class Flow:
    """Accumulator for sums towards the root.

    The accumulator collects the contributions of stacked dofs to all other dofs. It then computes only
    one sum over the copies per entry.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._crossing: dict[Any, Scalar] = {}

    def add(self, into: dict[Any, Scalar], key: Any, x: Scalar, *, crosses: bool) -> None:
        """Add x to `into[key]`.

        Set `crosses` if x is a contribution of stacked dofs to another dof. `settle` adds such
        contributions later.
        """
        target = self._crossing if crosses else into
        target[key] = target.get(key, 0.0) + x

    def subtract(self, into: dict[Any, Scalar], key: Any, x: Scalar, *, crosses: bool) -> None:
        """Subtract x from `into[key]`. The argument `crosses` has the same meaning as in `add`."""
        target = self._crossing if crosses else into
        target[key] = target.get(key, 0.0) - x

    def settle(self, into: dict[Any, Scalar]) -> None:
        """Sum the collected contributions over the copies, and add them to `into`."""
        for key, x in self._crossing.items():
            into[key] = into.get(key, 0.0) + total(self._tree, x)
        self._crossing = {}


def _trunk_first(tree: Tree) -> list[int]:
    """Return all degrees of freedom. Stacked degrees of freedom are last."""
    dofs = range(len(tree.ancestors))
    return [d for d in dofs if not tree.stacked[d]] + [d for d in dofs if tree.stacked[d]]


def factor(tree: Tree, matrix: Sparse, flow: Flow | None = None) -> tuple[Sparse, dict[int, Scalar]]:
    """Return L and 1/D, where L'DL is the matrix plus the contributions that `flow` collected."""
    lower: Sparse = dict(matrix)
    inverse: dict[int, Scalar] = {}
    flow, settled = flow or Flow(tree), False
    for k in reversed(_trunk_first(tree)):
        if not tree.stacked[k] and not settled:
            flow.settle(lower)
            settled = True
        inverse[k] = 1.0 / lower[k, k]
        row = {i: lower[k, i] for i in tree.ancestors[k]}
        for i in tree.ancestors[k]:
            if is_zero(row[i]):
                continue
            ratio = row[i] * inverse[k]
            lower[k, i] = ratio
            for j in (i, *tree.ancestors[i]):
                if not is_zero(row[j]):
                    crosses = tree.stacked[k] and not tree.stacked[i]
                    flow.subtract(lower, (i, j), ratio * row[j], crosses=crosses)
    return lower, inverse


def solve(
    tree: Tree,
    factors: tuple[Sparse, dict[int, Scalar]],
    b: Sequence[Scalar],
    flow: Flow | None = None,
) -> list[Scalar]:
    """Add the contributions that `flow` collected to b, and solve L'DL x = b."""
    lower, inverse = factors
    x: dict[int, Scalar] = dict(enumerate(b))
    flow, settled = flow or Flow(tree), False
    order = _trunk_first(tree)
    for k in reversed(order):
        if not tree.stacked[k] and not settled:
            flow.settle(x)
            settled = True
        for i in tree.ancestors[k]:
            crosses = tree.stacked[k] and not tree.stacked[i]
            flow.subtract(x, i, lower[k, i] * x[k], crosses=crosses)
    x = {k: x[k] * inverse[k] for k in x}
    for k in order:
        for i in tree.ancestors[k]:
            x[k] = x[k] - lower[k, i] * x[i]
    return [x[k] for k in range(len(b))]


def product(tree: Tree, matrix: Sparse, x: Sequence[Scalar]) -> list[Scalar]:
    """Multiply a symmetric matrix by x, and return the product in shares (see `shares`)."""
    y: dict[int, Scalar] = dict.fromkeys(range(len(x)), 0.0)
    crossing = dict(y)
    for (i, j), entry in matrix.items():
        y[i] = y[i] + entry * x[j]
        if i != j:
            target = crossing if tree.stacked[i] and not tree.stacked[j] else y
            target[j] = target[j] + entry * x[i]
    return [part + crossing[d] for d, part in enumerate(shares(tree, list(y.values())))]


def shares(tree: Tree, x: Sequence[Scalar]) -> list[Scalar]:
    """Split a vector with one entry per degree of freedom into shares.

    Entries of dofs that are not stacked are divided by the number of copies, so that the sum over all
    copies is the original entry. Entries of stacked dofs do not change.
    """
    return [
        part if stacked else (1 / tree.copies) * part
        for part, stacked in zip(x, tree.stacked, strict=True)
    ]


def inner(tree: Tree, a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    """Compute the inner product of a and b. The vector b is given in shares (see `shares`)."""
    return total(tree, dot(a, b))
