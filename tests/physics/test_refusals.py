"""Models with unsupported elements raise an error whose message names these elements."""

import numpy as np
import pytest

from memes import physics
from memes.errors import UsageError
from memes.physics.reading import read

MODEL = """
<mujoco>
  <option {option}>{flag}</option>
  <worldbody>
    <geom name="floor" type="plane" size="4 4 1" {floor}/>
    <body name="arm" pos="0 0 1" {body}>
      <joint name="elbow" axis="0 1 0" {joint}/>
      <geom name="bone" type="capsule" fromto="0 0 0 0 0 -0.3" size="0.05" contype="0" conaffinity="0"/>
      <geom name="tip" {tip}/>
      <site name="end" pos="0 0 -0.3"/>
      <site name="start"/>
      {inside}
    </body>
    {world}
  </worldbody>
  {rest}
</mujoco>
"""
DEFAULTS = dict.fromkeys(("option", "flag", "floor", "body", "joint", "inside", "world", "rest"), "")
BALL = 'type="sphere" size="0.05" pos="0 0 -0.3" '
DEFAULTS["tip"] = BALL

SILENT = 'contype="0" conaffinity="0"'
PYRAMID = """<asset><mesh name="pyramid" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset>"""
TENDON = '<tendon><spatial name="t"><site site="end"/><site site="start"/></spatial></tendon>'


def child(joint, geom=""):
    return f"<body pos='0 0 -0.5'>{joint}<geom name='child' size='0.1' {geom}/></body>"


# Changes to the model, and words of the resulting error message.
UNSUPPORTED = {
    "equality": (
        {"rest": '<equality><joint joint1="elbow" polycoef="0.1 0 0 0 0"/></equality>'},
        "<equality>",
    ),
    "tendon with a spring": (
        {"rest": TENDON.replace("<spatial", '<spatial stiffness="3"')},
        "'stiffness' of a <tendon>",
    ),
    "tendon with a range": (
        {"rest": TENDON.replace("<spatial", '<spatial range="0 1"')},
        "'range' of a <tendon>",
    ),
    "tendon actuator": (
        {"rest": TENDON + '<actuator><motor name="pull" tendon="t"/></actuator>'},
        "'pull'",
    ),
    "friction of a free joint": (
        {
            "world": f"""<body><joint name="base" type="free" frictionloss="1"/>
              <geom size="1" {SILENT}/></body>"""
        },
        "'base'",
    ),
    "free body under implicitfast": (
        {
            "option": 'integrator="implicitfast"',
            "world": f"""<body><joint name="base" type="free"/>
              <geom type="box" size="1 2 3" {SILENT}/></body>""",
        },
        "'base'",
    ),
    "override of contacts": ({"flag": '<flag override="enable"/>'}, "'override'"),
    "sleep": ({"flag": '<flag sleep="enable"/>'}, "'sleep'"),
    "box on a box": (
        {
            "tip": 'type="box" size="0.1 0.1 0.1"',
            "world": '<geom name="step" type="box" size="1 1 1" pos="5 0 0"/>',
        },
        "a moving box and a static box",
    ),
    "gravcomp": ({"body": 'gravcomp="1"'}, "'gravcomp'"),
    "density": ({"option": 'density="1.2"'}, "'density'"),
    "viscosity": ({"option": 'viscosity="0.1"'}, "'viscosity'"),
    "wind": ({"option": 'wind="1 0 0"'}, "'wind'"),
    "noslip": ({"option": 'noslip_iterations="3"'}, "'noslip_iterations'"),
    "elliptic cone": ({"option": 'cone="elliptic"'}, "elliptic"),
    "implicit integrator": ({"option": 'integrator="implicit"'}, "integrator"),
    "solref of two formats": ({"tip": BALL + 'solref="0.02 -1" priority="1"'}, "'solref'"),
    "power of solimp": ({"tip": BALL + 'solimp="0.9 0.95 0.01 0.5 2.5"'}, "'solimp'"),
    "power of a limit's solimp": (
        {"joint": 'limited="true" range="-1 1" solimplimit="0.9 0.95 0.01 0.5 1.5"'},
        "'elbow'",
    ),
    "wide margin of a limit": ({"joint": 'limited="true" range="-10 10" margin="0.2"'}, "'margin'"),
    "moving geoms that collide": (
        {"world": '<body name="other" pos="1 0 1"><freejoint/><geom name="rock" size="0.1"/></body>'},
        "'tip' and 'rock'",
    ),
    "capsule on box": (
        {
            "tip": 'type="capsule" size="0.1 0.1"',
            "world": '<geom name="step" type="box" size="1 1 1" pos="5 0 0"/>',
        },
        "a moving capsule and a static box",
    ),
    "sphere on ellipsoid": (
        {"world": '<geom name="egg" type="ellipsoid" size="1 1 2" pos="5 0 0"/>'},
        "a moving sphere and a static ellipsoid",
    ),
    "sphere on height field": (
        {
            "world": '<geom name="hills" type="hfield" hfield="hills"/>',
            "rest": '<asset><hfield name="hills" nrow="3" ncol="3" size="1 1 1 1"/></asset>',
        },
        "a moving sphere and a static hfield",
    ),
    "limited ball joint": (
        {"inside": child('<joint name="neck" type="ball" limited="true" range="0 40"/>', SILENT)},
        "'range' on a ball joint ('neck')",
    ),
    "sprung ball joint": (
        {"inside": child('<joint name="neck" type="ball" stiffness="2"/>', SILENT)},
        "'stiffness' on a ball joint ('neck')",
    ),
    "motor on a ball joint": (
        {
            "inside": child('<joint name="neck" type="ball"/>', SILENT),
            "rest": '<actuator><motor name="nod" joint="neck" gear="1 0 0"/></actuator>',
        },
        "'nod'",
    ),
    "motor on a site": ({"rest": '<actuator><motor name="jet" site="end"/></actuator>'}, "'jet'"),
    "muscle": ({"rest": '<actuator><muscle joint="elbow" lengthrange="0 1"/></actuator>'}, "activation"),
    "integrated velocity": (
        {"rest": '<actuator><intvelocity joint="elbow" actrange="-1 1"/></actuator>'},
        "activation",
    ),
    "filtered motor": (
        {"rest": '<actuator><general joint="elbow" dyntype="filter" dynprm="1"/></actuator>'},
        "activation",
    ),
    "damper": (
        {"rest": '<actuator><damper name="drag" joint="elbow" kv="1" ctrlrange="0 1"/></actuator>'},
        "'drag'",
    ),
    "no joints": (
        {"joint": "", "remove": '<joint name="elbow" axis="0 1 0" />'},
        "no joints",
    ),
}


def written(changes):
    text = MODEL.format(**(DEFAULTS | {k: v for k, v in changes.items() if k != "remove"}))
    return text.replace(changes.get("remove", "<none/>"), "")


def test_the_model_without_changes_is_accepted():
    engine = physics.compile(written({}), backend="numpy")
    assert engine.contact_names == ("tip on floor",)


@pytest.mark.parametrize("element", UNSUPPORTED)
def test_an_unsupported_element_is_named(element):
    changes, words = UNSUPPORTED[element]
    with pytest.raises(UsageError, match=r"^model") as refused:
        physics.compile(written(changes), backend="numpy")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_all_unsupported_elements_are_listed_with_alternatives():
    changes = {
        "option": 'cone="elliptic" density="3"',
        "tip": 'type="mesh" mesh="pyramid"',
        "inside": child('<joint name="neck" type="ball" stiffness="2"/>'),
        "world": """<body name="other" pos="1 0 1"><freejoint/><geom name="rock" size="0.1"/>
            <geom name="stone" size="0.1" pos="1 0 0"/></body>""",
        "rest": PYRAMID + '<equality><weld body1="arm" body2="other"/></equality>',
    }
    with pytest.raises(UsageError) as refused:
        physics.compile(written(changes), backend="numpy")
    for words in (
        "elliptic",
        "density",
        "<equality>",
        "'stiffness' on a ball joint ('neck')",
        "contacts between a moving mesh and a static plane (tip on floor)",
        "contacts between moving geoms (4, such as 'tip' and 'rock'; ",
        "self_collision=False (--no-self-collision) ignores them)",
        "gymnasium:NAME",
        "playground:NAME",
        "brax:NAME",
    ):
        assert words in str(refused.value)
    with pytest.raises(UsageError) as refused:
        physics.compile(written(changes), backend="numpy", self_collision=False)
    assert "moving geoms" not in str(refused.value)
    assert "moving mesh" in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"tip": 'type="cylinder" size="0.1 0.1" contype="0" conaffinity="0"'},
        {"inside": child('<joint axis="1 0 0"/>')},  # Children do not collide with parents.
        {"inside": child("")},  # This child is welded to its parent.
        {
            "world": '<body name="other" pos="1 0 1"><freejoint/><geom name="rock" size="0.1"/></body>',
            "rest": '<contact><exclude body1="arm" body2="other"/></contact>',
        },
        {"rest": '<actuator><motor joint="elbow" ctrllimited="false"/></actuator>'},
        {"rest": "<sensor><jointpos joint='elbow'/></sensor>"},
        {"rest": TENDON},  # a tendon without forces
        {"rest": TENDON.replace("<spatial", '<spatial range="0 1"'), "flag": '<flag limit="disable"/>'},
        {
            "rest": '<equality><joint joint1="elbow"/></equality>',
            "flag": '<flag equality="disable"/>',
        },
        {"rest": '<equality><joint joint1="elbow" active="false"/></equality>'},
        {"tip": 'type="mesh" mesh="pyramid"', "flag": '<flag contact="disable"/>', "rest": PYRAMID},
        {
            "option": 'integrator="implicitfast"',
            "world": f'<body><joint type="free"/><geom size="1" {SILENT}/></body>',
        },
        *(
            {"flag": f'<flag {flag}="disable"/>'}
            for flag in (
                "warmstart",
                "sensor",
                "midphase",
                "autoreset",
                "nativeccd",
                "island",
                "multiccd",
            )
        ),
        *({"flag": f'<flag {flag}="enable"/>'} for flag in ("energy", "fwdinv", "invdiscrete")),
    ],
)
def test_elements_without_effect_are_accepted(changes):
    read(physics.compile(written(changes), backend="numpy").model)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("<mujoco><worldbody></mujoco>", "cannot compile"),
        ("<mujoco><worldbody><body/></worldbody></mujoco>", "no joints"),
        ("<nonsense/>", "cannot compile"),
        ("there/is/no/such/robot.xml", "cannot compile"),
    ],
)
def test_a_model_that_mujoco_cannot_read_is_refused(source, words):
    with pytest.raises(UsageError, match=words):
        physics.compile(source, backend="numpy")


def test_a_path_and_its_text_give_the_same_model(tmp_path):
    path = tmp_path / "arm.xml"
    path.write_text(written({}))
    for source in (path, str(path), path.read_text()):
        assert physics.compile(source, backend="numpy").model.nv == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "metal"}, "backend must be .* got 'metal'"),
        ({"fidelity": "high"}, "fidelity must be .* got 'high'"),
        ({"fidelity": physics.Fidelity(3, 2)}, "at least 4 iterations.* got 3"),
        ({"substeps": 0}, "substeps must be at least 1, got 0"),
    ],
)
def test_a_wrong_option_is_refused(options, words):
    with pytest.raises(UsageError, match=words):
        physics.compile(written({}), **({"backend": "numpy"} | options))


@pytest.fixture(scope="module")
def engine(kit):
    return physics.compile(kit.load("hopper"), backend="numpy")


@pytest.mark.parametrize("shape", [(5,), (5, 7), (6,), (1, 5, 6), (0,)])
def test_qpos_of_a_wrong_shape_is_refused(engine, shape):
    with pytest.raises(UsageError, match=r"qpos must have shape \(N, 6\), got"):
        engine.init(np.zeros(shape))


@pytest.mark.parametrize("shape", [(6,), (5, 7), (4, 6), (1, 5, 6)])
def test_qvel_of_a_wrong_shape_is_refused(engine, shape):
    with pytest.raises(UsageError, match=r"qvel must have shape \(5, 6\), got"):
        engine.init(np.zeros((5, 6)), np.zeros(shape))


@pytest.mark.parametrize("shape", [(3,), (5, 2), (4, 3), (1, 5, 3)])
def test_ctrl_of_a_wrong_shape_is_refused(engine, shape):
    with pytest.raises(UsageError, match=r"ctrl must have shape \(5, 3\), got"):
        engine.step(engine.init(np.zeros((5, 6))), np.zeros(shape))
