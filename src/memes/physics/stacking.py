"""Stacking of isomorphic subtrees, such as the legs of an ant.

The model keeps only one of K sibling subtrees with equal structure. The constants of this subtree become
`Stacked`, and its run-time values get a leading axis of size K. The code of the subtrees becomes K times
shorter, so that XLA compiles it in reasonable time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from memes.physics.algebra import stack
from memes.physics.model import DOF_SIZE, QPOS_SIZE, Actuator, Contact, Joint, Link, Model
from memes.physics.tree import Tree, tree_of

Slots = tuple[tuple[int, ...], ...]


class Layout(NamedTuple):
    """Indices of scalars in MuJoCo's vectors. Stacked scalars have K indices, and others have one."""

    qpos: Slots
    dofs: Slots
    controls: Slots


class StackedModel(NamedTuple):
    """A model with stacked subtrees, its tree, and the indices of its scalars."""

    model: Model
    tree: Tree
    layout: Layout


def unstacked(model: Model) -> StackedModel:
    """Return the model without stacked subtrees."""
    return _assemble(model, [[i] for i in range(len(model.links))], 1)


def stacked(model: Model) -> StackedModel:
    """Return the model with its isomorphic subtrees stacked."""
    copies, families = _families(model)
    folded = {link: family for family in families for link in family[0]}
    hidden = {link for family in families for copy in family[1:] for link in copy}
    groups = []
    for i in range(len(model.links)):
        if i in folded:
            family = folded[i]
            place = family[0].index(i)
            groups.append([copy[place] for copy in family])
        elif i not in hidden:
            groups.append([i])
    return _assemble(model, groups, copies)


def _families(model: Model) -> tuple[int, list[list[list[int]]]]:
    """Return the number of copies K, and all families of K subtrees.

    A family consists of isomorphic sibling subtrees. A subtree is a list of links. K is chosen so that
    as many dofs as possible are stacked.
    """
    children: dict[int, list[int]] = defaultdict(list)
    for i, link in enumerate(model.links):
        children[link.parent].append(i)

    def subtree(root: int) -> list[int]:
        return [root, *(link for child in children[root] for link in subtree(child))]

    def families_below(parent: int) -> list[list[list[int]]]:
        alike: dict[Any, list[int]] = defaultdict(list)
        for child in children[parent]:
            alike[_structure(model, children, child)].append(child)
        found = []
        for roots in alike.values():
            if len(roots) > 1 and parent >= 0:
                found.append([subtree(root) for root in roots])
            else:
                found += [family for root in roots for family in families_below(root)]
        return found

    by_size: dict[int, list[list[list[int]]]] = defaultdict(list)
    for family in families_below(-1):
        by_size[len(family)].append(family)
    if not by_size:
        return 1, []

    def dofs(copies: int) -> int:
        links = [link for family in by_size[copies] for link in family[0]]
        return copies * sum(DOF_SIZE[j.kind] for i in links for j in model.links[i].joints)

    best = max(by_size, key=dofs)
    return best, by_size[best]


def _structure(model: Model, children: dict[int, list[int]], link: int) -> Any:
    """Return the structure of a subtree. Subtrees can be stacked if their structures are equal.

    The structure contains all data except the values of constants.
    """
    actuators: dict[int, list[Actuator]] = defaultdict(list)
    for actuator in model.actuators:
        actuators[actuator.dof].append(actuator)

    def of_joint(joint: Joint) -> Any:
        limit = joint.limit and (joint.limit.impedance.power, joint.limit.impedance.middle)
        driven = tuple(
            (drive.control_range is None, drive.force_range is None) for drive in actuators[joint.dof]
        )
        springy = joint.stiffness == 0, joint.damping == 0
        rest = joint.dry_friction is None, joint.drive_range is None
        return joint.kind, limit, driven, springy, rest

    def of_contact(contact: Contact) -> Any:
        shape = contact.shape, contact.place, contact.frame, contact.size, contact.dimensions
        impedance = contact.impedance
        constant = impedance.low == impedance.high
        moving = contact.axis is None, contact.surface and contact.surface.kind
        return shape, moving, impedance.power, impedance.middle, constant

    return (
        tuple(of_joint(joint) for joint in model.links[link].joints),
        tuple(of_contact(c) for c in model.contacts if c.link == link),
        tuple(_structure(model, children, child) for child in children[link]),
    )


def _assemble(model: Model, groups: list[list[int]], copies: int) -> StackedModel:
    """Return a model in which link i represents the links `groups[i]`."""
    place = {group[0]: i for i, group in enumerate(groups)}
    links: list[Link] = []
    qpos: list[tuple[int, ...]] = []
    dofs: list[tuple[int, ...]] = []
    # Maps the first dof of a joint in `model` to the joint's first position and dof in the new model.
    of_joint: dict[int, tuple[int, int]] = {}
    for group in groups:
        merged = _merge([model.links[i]._replace(parent=0, joints=()) for i in group])
        joints = []
        for same in zip(*(model.links[i].joints for i in group), strict=True):
            of_joint[same[0].dof] = len(qpos), len(dofs)
            moved = [joint._replace(qpos=len(qpos), dof=len(dofs)) for joint in same]
            joints.append(_merge(moved))
            qpos += [tuple(j.qpos + k for j in same) for k in range(QPOS_SIZE[same[0].kind])]
            dofs += [tuple(j.dof + k for j in same) for k in range(DOF_SIZE[same[0].kind])]
        parent = model.links[group[0]].parent
        links.append(merged._replace(parent=place.get(parent, -1), joints=tuple(joints)))

    contacts = []
    for group in groups:
        each = [[c for c in model.contacts if c.link == link] for link in group]
        for same_contacts in zip(*each, strict=True):
            moved_contacts = [c._replace(link=place[group[0]], name="") for c in same_contacts]
            contacts.append(_merge(moved_contacts)._replace(name=same_contacts[0].name))

    actuators: list[Actuator] = []
    controls: list[tuple[int, ...]] = []
    by_dof = defaultdict(list)
    for actuator in model.actuators:
        by_dof[actuator.dof].append(actuator)
    for q, d in of_joint.values():
        for same_actuators in zip(*(by_dof[k] for k in dofs[d]), strict=True):
            moved_actuators = [a._replace(control=len(controls), qpos=q, dof=d) for a in same_actuators]
            actuators.append(_merge(moved_actuators))
            controls.append(tuple(a.control for a in same_actuators))

    new = model._replace(
        nq=len(qpos),
        nv=len(dofs),
        nu=len(controls),
        links=tuple(links),
        contacts=tuple(contacts),
        actuators=tuple(actuators),
    )
    tree = tree_of(new, [len(group) > 1 for group in groups], copies)
    return StackedModel(new, tree, Layout(tuple(qpos), tuple(dofs), tuple(controls)))


def _merge(parts: list[Any]) -> Any:
    """Merge K structures of equal form. Their floats are stacked, and all other data must be equal."""
    first = parts[0]
    if len(parts) == 1 or first is None or isinstance(first, (str, int)):
        return first
    if isinstance(first, float):
        return stack(np.array(parts))
    merged = [_merge(list(same)) for same in zip(*parts, strict=True)]
    return type(first)(*merged) if hasattr(first, "_fields") else tuple(merged)
