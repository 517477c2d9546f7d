"""Obstacles share a constraint if a ball can touch only one at a time. This does not change results."""

import mujoco
import numpy as np
import pytest

from memes import physics
from memes.physics import obstacles
from memes.physics.obstacles import split
from memes.physics.reading import read
from memes.physics.stacking import stacked, unstacked

BALL = """
<mujoco>
  <worldbody>
    {statics}
    <body pos="0 0 1">
      <freejoint/>
      <geom name="ball" size="{radius}" conaffinity="0" margin="{margin}"/>
    </body>
  </worldbody>
</mujoco>
"""
FLOOR = '<geom name="floor" type="plane" size="9 9 1"/>'


def box(name, pos, size="0.5 0.5 0.5", more=""):
    return f'<geom name="{name}" type="box" pos="{pos}" size="{size}" {more}/>'


def groups(*statics, radius=0.25, margin=0.0):
    text = BALL.format(statics="".join(statics), radius=radius, margin=margin)
    usual, walls = split(read(mujoco.MjModel.from_xml_string(text)))

    def named(found):
        return [[contact.name.removeprefix("ball on ") for contact in rivals] for rivals in found]

    return named(usual), named(walls)


def test_the_floor_has_a_separate_constraint():
    assert groups(FLOOR, box("a", "3 0 0")) == ([["floor"]], [["a"]])
    side = '<geom name="side" type="plane" pos="2 0 0" zaxis="-1 0 0" size="9 9 1"/>'
    assert groups(FLOOR, side) == ([["floor"]], [["side"]])


@pytest.mark.parametrize(
    ("other", "apart"),
    [
        (box("b", "1.51 0 0"), True),
        (box("b", "1.49 0 0"), False),
        (box("b", "1.3 0 0", more='euler="0 0 45"'), False),
        (box("b", "1.8 0 0", more='euler="0 0 45"'), True),
        ('<geom name="b" type="sphere" pos="1.21 0 0" size="0.2"/>', True),
        ('<geom name="b" type="sphere" pos="1.19 0 0" size="0.2"/>', False),
        ('<geom name="b" type="capsule" pos="1.11 0 0" size="0.1 2"/>', True),
        ('<geom name="b" type="capsule" pos="2 0 0" euler="0 90 0" size="0.1 2"/>', False),
        (box("b", "3 0 0", more='friction="2"'), False),  # a constraint has only one friction
    ],
)
def test_obstacles_share_a_constraint_if_a_ball_cannot_touch_both(other, apart):
    assert groups(box("a", "0 0 0"), other)[1] == ([["a", "b"]] if apart else [["a"], ["b"]])


def test_a_margin_enlarges_the_ball():
    gap = box("a", "0 0 0"), box("b", "1.51 0 0")
    assert groups(*gap, radius=0.25, margin=0.0)[1] == [["a", "b"]]
    assert groups(*gap, radius=0.25, margin=0.01)[1] == [["a"], ["b"]]


@pytest.mark.parametrize("fold", [stacked, unstacked])
def test_the_trap_has_two_constraints_per_ball_for_three_walls(kit, fold):
    usual, walls = split(fold(read(kit.load("ant_trap"))).model)
    assert all(len(rivals) == 1 and rivals[0].shape == "plane" for rivals in usual)
    balls = {rivals[0].name.split(" on ")[0] for rivals in walls}
    assert len(walls) == 2 * len(balls)
    assert sorted(map(len, walls)) == [1] * len(balls) + [2] * len(balls)


def test_shared_constraints_give_the_same_step_as_separate_ones(kit, monkeypatch):
    model = kit.load("ant_trap")
    states = kit.states("ant_trap", 200)
    engine = physics.compile(model, fidelity=kit.fidelity, backend="numpy")
    touching = engine.contacts(engine.init(states.qpos, states.qvel))
    names = np.array(engine.contact_names)
    at_wall = [
        touching[:, np.char.endswith(names, f"{w}_wall")].any(1) for w in ("back", "left", "right")
    ]
    assert (np.sum(at_wall, axis=0) == 2).sum() > 20  # these balls are in a corner
    together = kit.after_step(engine, states)
    monkeypatch.setattr(obstacles, "_rivals", lambda contacts: [(contact,) for contact in contacts])
    alone = kit.after_step(engine, states)
    np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-9)
    reference = kit.by_mujoco(model, states)
    expected = np.concatenate([reference.qpos, reference.qvel], axis=1)
    error = np.abs(together - expected).max(axis=1) / np.maximum(1, np.abs(expected).max(axis=1))
    assert error.max() < 1e-10
