"""Simulating isomorphic subtrees as one stacked tree does not change the results."""

import mujoco
import numpy as np
import pytest

from memes import physics
from memes.physics.backends import numpy_backend
from memes.physics.reading import read
from memes.physics.stacking import stacked, unstacked

COPIES = {"ant": 4, "hexapod": 6, "unlike_legs": 3}

# A free body with two or more legs. Each leg has a hinge and a foot.
LEGS = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="4 4 1"/>
    <body pos="0 0 0.4">
      <freejoint/>
      <geom type="sphere" size="0.1" conaffinity="0"/>
      {legs}
    </body>
  </worldbody>
  <actuator>{actuators}</actuator>
</mujoco>
"""


def leg(i, x, joint="", foot="", below=""):
    return f"""
      <body pos="{x} 0 0">
        <joint name="hip_{i}" axis="0 1 {x}" {joint}/>
        <geom name="foot_{i}" type="sphere" size="0.05" pos="{x} 0 -0.3" conaffinity="0" {foot}/>
        {below}
      </body>"""


def legs(*parts, actuators=""):
    return mujoco.MjModel.from_xml_string(LEGS.format(legs="".join(parts), actuators=actuators))


def motors(*names, options=""):
    return "".join(f'<motor joint="hip_{name}" {options}/>' for name in names)


def advanced(folded, states, fidelity, substeps=2):
    """Return qpos and qvel after `substeps` steps, [N, nq + nv]. The columns are in MuJoCo's order."""
    layout = folded.layout
    n = len(states.qpos)

    def rows(slots, columns):
        return columns.T[[i for slot in slots for i in slot]]

    before = np.concatenate(
        [rows(layout.qpos, states.qpos), rows(layout.dofs, states.qvel), np.zeros_like(states.qvel.T)]
    )
    advance = numpy_backend(folded, fidelity, substeps)
    after, flags = advance(before, np.zeros(n), states.ctrl)
    assert not flags.any()
    found = np.empty((n, states.qpos.shape[1] + states.qvel.shape[1]))
    nq = states.qpos.shape[1]
    order = [i for slot in layout.qpos for i in slot] + [nq + i for slot in layout.dofs for i in slot]
    found[:, order] = after[: len(order)].T
    return found


def assert_stacked_equals_unstacked(model, states, fidelity):
    own = read(model)
    alone, together = (advanced(f(own), states, fidelity) for f in (unstacked, stacked))
    error = np.abs(alone - together).max(axis=1) / np.maximum(1, np.abs(alone).max(axis=1))
    assert error.max() < 1e-12


@pytest.mark.parametrize(
    ("name", "copies", "integrator"),
    [
        *((name, k, i) for name, k in COPIES.items() for i in ("euler", "rk4")),
        ("shapes", 2, "implicitfast"),
    ],
)
def test_stacked_equals_unstacked(kit, name, copies, integrator):
    model = kit.load(name, integrator)
    assert stacked(read(model)).tree.copies == copies
    assert unstacked(read(model)).tree.copies == 1
    states = kit.states(name, 100)
    assert kit.by_mujoco(model, states).contacts.sum() > 20
    assert_stacked_equals_unstacked(model, states, kit.fidelity)


def test_families_of_equal_size_are_stacked_and_other_parts_are_not(kit):
    model = kit.load("unlike_legs")
    folded = stacked(read(model))
    hinge = {
        name: int(model.joint(name).dofadr[0])
        for name in ("leg_1", "leg_2", "leg_3", "arm_1", "arm_2", "arm_3", "tail_swing", "tail_lift")
    }
    dofs = set(folded.layout.dofs)
    assert (hinge["leg_1"], hinge["leg_2"], hinge["leg_3"]) in dofs
    assert (hinge["arm_1"], hinge["arm_2"], hinge["arm_3"]) in dofs
    assert {(hinge["tail_swing"],), (hinge["tail_lift"],)} <= dofs
    assert len(folded.model.links) == 4


@pytest.mark.parametrize("name", ["ant", "hexapod", "unlike_legs", "hopper", "capsules"])
def test_layout_contains_every_index_once(kit, name):
    model = kit.load(name)
    for fold in (stacked, unstacked):
        layout = fold(read(model)).layout
        for slots, size in (
            (layout.qpos, model.nq),
            (layout.dofs, model.nv),
            (layout.controls, model.nu),
        ):
            assert sorted(i for slot in slots for i in slot) == list(range(size))


TOE = '<geom size="0.05" pos="0 0 -0.1" conaffinity="0"/>'
ALIKE = {
    "equal legs": legs(leg(1, 0.1), leg(2, -0.1)),
    "other masses and lengths": legs(leg(1, 0.1, foot='mass="2"'), leg(2, -0.3)),
    "other damping": legs(leg(1, 0.1, 'damping="1"'), leg(2, -0.1, 'damping="2"')),
    "other stiffness": legs(leg(1, 0.1, 'stiffness="1"'), leg(2, -0.1, 'stiffness="2" springref="9"')),
    "other ranges": legs(
        leg(1, 0.1, 'limited="true" range="-5 5"'),
        leg(2, -0.1, 'limited="true" range="-2 9" margin="0.01"'),
    ),
    "other friction": legs(leg(1, 0.1, foot='friction="2"'), leg(2, -0.1)),
    "other margin and solref": legs(
        leg(1, 0.1, foot='margin="0.02" solref="0.05 1"'), leg(2, -0.1, foot='solref="-200 -10"')
    ),
    "other solimp": legs(
        leg(1, 0.1, foot='solimp="0.5 0.8 0.1"'), leg(2, -0.1, foot='solimp="0.9 0.7 0.02"')
    ),
    "other gears": legs(
        leg(1, 0.1),
        leg(2, -0.1),
        actuators=motors(1, options='gear="3"') + motors(2, options='gear="5"'),
    ),
    "motor and servo": legs(
        leg(1, 0.1), leg(2, -0.1), actuators=motors(1) + '<position joint="hip_2" kp="3"/>'
    ),
    "two motors each": legs(leg(1, 0.1), leg(2, -0.1), actuators=motors(2, 1, 1, 2, options='gear="3"')),
    "a ball joint below": legs(
        leg(1, 0.1, below=f'<body><joint type="ball" damping="0.1"/>{TOE}</body>'),
        leg(2, -0.1, below=f'<body><joint type="ball" damping="0.3"/>{TOE}</body>'),
    ),
}
UNLIKE = {
    "another kind of joint": legs(leg(1, 0.1), leg(2, -0.1, 'type="slide"')),
    "a limit": legs(leg(1, 0.1, 'limited="true" range="-9 9"'), leg(2, -0.1)),
    "a power of solimp": legs(
        leg(1, 0.1, 'limited="true" range="-9 9" solimplimit="0.9 0.95 0.01 0.5 3"'),
        leg(2, -0.1, 'limited="true" range="-9 9"'),
    ),
    "a foot that does not touch": legs(leg(1, 0.1), leg(2, -0.1, foot='contype="0"')),
    "a second foot": legs(
        leg(1, 0.1), leg(2, -0.1, below='<geom size="0.05" pos="0.1 0 -0.2" conaffinity="0"/>')
    ),
    "a foot that is a capsule": legs(
        leg(1, 0.1),
        leg(2, -0.1, foot='contype="0"', below='<geom type="capsule" size="0.05 0.1" conaffinity="0"/>'),
    ),
    "a motor": legs(leg(1, 0.1), leg(2, -0.1), actuators=motors(1)),
    "a range of the control": legs(
        leg(1, 0.1),
        leg(2, -0.1),
        actuators=motors(1) + motors(2, options='ctrllimited="true" ctrlrange="-1 1"'),
    ),
    "another joint below": legs(
        leg(1, 0.1),
        leg(2, -0.1, below=f"<body><joint/>{TOE}</body>"),
    ),
    "a second motor": legs(leg(1, 0.1), leg(2, -0.1), actuators=motors(1, 1, 2)),
    "a range of the first of two motors": legs(
        leg(1, 0.1),
        leg(2, -0.1),
        actuators=motors(1, options='ctrllimited="true" ctrlrange="-1 1"') + motors(1, 2, 2),
    ),
}


@pytest.mark.parametrize("difference", ALIKE)
def test_legs_that_differ_in_constants_are_stacked(kit, difference):
    model = ALIKE[difference]
    assert stacked(read(model)).tree.copies == 2
    states = kit.random_states(model, 100, heights=(slice(2, 3), [0.1], [0.6]))
    assert_stacked_equals_unstacked(model, states, kit.fidelity)


@pytest.mark.parametrize("difference", UNLIKE)
def test_legs_that_differ_in_structure_are_not_stacked(kit, difference):
    model = kit.exact(UNLIKE[difference])
    engine = physics.compile(model, fidelity=kit.fidelity, backend="numpy")
    assert engine.copies == 1
    states = kit.random_states(model, 50, heights=(slice(2, 3), [0.1], [0.6]))
    reference = kit.by_mujoco(model, states)
    after = np.concatenate([reference.qpos, reference.qvel], axis=1)
    error = np.abs(kit.after_step(engine, states) - after).max(axis=1)
    assert (error / np.maximum(1, np.abs(after).max(axis=1))).max() < 1e-10


def test_children_of_the_world_are_not_stacked():
    leg = '<body><joint/><geom size="0.1" contype="0"/></body>'
    text = f"<mujoco><worldbody>{leg}{leg}</worldbody></mujoco>"
    assert stacked(read(mujoco.MjModel.from_xml_string(text))).tree.copies == 1
