"""The simulator reads or rejects all fields of a compiled model, except those listed in this file."""

import ast
import re
from pathlib import Path

import mujoco
import numpy as np
import pytest

from memes import physics
from memes.physics.refusals import MUST_BE_ZERO, OPTIONS_ZERO, Reasons, note_unsupported

# Patterns of fields that the simulator does not need to read, with reasons. A test confirms that
# MuJoCo's step does not depend on the fields in `WITHOUT_FORCE`.
WITHOUT_FORCE = {
    r"(cam|light|mat|tex|skin)_\w+": "only drawn",
    r"(geom|site|tendon)_(rgba|matid)|geom_castshadow|tendon_width": "only drawn",
    r"(body|geom|jnt|dof|site|tendon|actuator|cam|sensor)_user": "user data",
    r"(numeric|text|tuple)_\w+": "user data",
    r"sensor_\w+": "sensors are not computed",
    r"key_\w+": "keyframes; tasks start from their qpos and qvel",
    r"site_(size|type|quat|group|dataid|sameframe)": "sites exert no force; their positions are read",
    r"(geom|jnt|tendon|skin)_group": "groups affect only drawing; those of actuators are read",
    r"(geom|pair)_gap": "contacts in the gap exert no force",
    r"tendon_(length0|lengthspring|range|margin|sol(ref|imp)_(lim|fri))": "only for tendon forces",
    r"actuator_(acc0|length0|lengthrange|cranklength|dynprm|actrange|actlimited|actearly)": (
        "used only by muscles, slider-cranks and actuators with an activation state"
    ),
    r"pair_solreffriction": "used only by elliptic cones, which are refused",
}
OTHERS = {
    r"n[A-Za-z]\w*": "sizes of other fields",
    r"names_map|paths|name_\w+adr|\w+_pathadr|signature|text_data|plugin\w*": "names, files, plugins",
    r"vis|stat": "visualisation and statistics",
    r"(B|D|M|ten_J|flexedge_J)_(colind|rowadr|rownnz|diag)": "how MuJoCo stores matrices",
    r"mapD2M|mapM2D|mapM2M|efm0_\w+|efmC_perm": "how MuJoCo stores matrices",
    r"(bvh|oct)_\w+|\w+_bvh(adr|num)|geom_(aabb|rbound)|body_(margin|contype|conaffinity)": (
        "how pairs of geoms are found"
    ),
    r"(mesh|hfield)_\w+": "contacts of meshes and height fields are refused",
    r"flex_\w+|flexedge_\w+": "a <flex> is refused",
    r"eq_\w+": "active equality constraints are refused",
    r"wrap_\w+|ten_\w+|tendon_(adr|num|type|invweight0|treeid|treenum|actuatorid|plasticadr)": (
        "tendons that exert a force are refused"
    ),
    r"tendon_actfrc(limited|range)": "actuators on tendons are refused",
    r"(body|geom|site)_sameframe|body_(rootid|simple|dofadr|dofnum|geomadr|geomnum)": "derived",
    r"dof_(M0|Madr|bodyid|jntid|parentid|simplenum|treeid|length)|tree_\w+|jnt_actuatorid": "derived",
    r"pair_signature": "the bodies of a pair; its geoms are read",
    r"body_mocapid": "mocap bodies stay where the model puts them",
    r"geom_(dataid|fluid|plugin)|body_plugin|actuator_plugin": (
        "meshes, fluid forces and plugins are refused"
    ),
    r"jnt_(actgravcomp|plasticadr)|flg_(adhesion|gravcomp|surfacevel)": (
        "gravcomp, springyield, adhesion and surfacevel are refused"
    ),
    r"actuator_(actadr|actnum|historyadr|history)": "activation states and delays are refused",
    r"actuator_(ctrladr|outadr)": "each actuator has one control and one output",
}
OPTIONS = {
    r"(noslip|sdf|ccd)_\w+": "noslip, signed distances and general convex shapes are refused",
    r"(ls_)?(iterations|tolerance)|solver|jacobian": "for MuJoCo's solver; this one has `fidelity`",
    r"o_\w+": "used only with the flag 'override', which is refused",
    r"sleep_tolerance": "used only with the flag 'sleep', which is refused",
    r"magnetic": "used only by magnetometers",
}
MODEL = """
<mujoco>
  <size nuser_body="2" nuser_geom="1" nuser_jnt="1"/>
  <custom><numeric name="n" data="1 2 3"/></custom>
  <asset>
    <texture name="t" type="2d" builtin="flat" width="4" height="4"/>
    <material name="m" texture="t" rgba="1 0 0 1"/>
  </asset>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="c" pos="0 -2 1"/>
    <geom name="floor" type="plane" size="4 4 1" material="m"/>
    <body name="arm" pos="0 0 0.55">
      <joint name="elbow" axis="0 1 0" range="-80 80" damping="0.1"/>
      <geom name="tip" size="0.1" pos="0.2 0 -0.45" margin="0.01" gap="0.02"/>
      <site name="end" pos="0 0 -0.3"/>
      <body pos="0.2 0 0"><joint name="wrist" axis="0 1 0"/><geom size="0.1" pos="0.3 0 -0.4"/></body>
    </body>
    <site name="start"/>
  </worldbody>
  <contact><pair geom1="tip" geom2="floor" gap="0.01"/></contact>
  <tendon><spatial name="t"><site site="end"/><site site="start"/></spatial></tendon>
  <actuator><position name="servo" joint="elbow" kp="3" ctrlrange="-1 1"/></actuator>
  <sensor><jointpos joint="elbow"/></sensor>
  <keyframe><key qpos="0.1 0"/></keyframe>
</mujoco>
"""


@pytest.fixture
def model():
    return mujoco.MjModel.from_xml_string(MODEL)


def fields(given):
    names = [name for name in dir(given) if not name.startswith("_")]
    return [name for name in names if not callable(getattr(given, name))]


def read_fields():
    """Return the fields of a model `m` and of `m.opt` that occur in the source of the simulator."""
    found = {"m": {*MUST_BE_ZERO}, "opt": {*OPTIONS_ZERO}}
    for file in Path(physics.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                owner = ast.unparse(node.value)
                if owner in ("m", "m.opt"):
                    found[owner.removeprefix("m.")].add(node.attr)
    return found


def unexplained(names, patterns):
    return [name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)]


def test_every_field_of_a_model_is_read_or_has_a_reason(model):
    unread = set(fields(model)) - read_fields()["m"]
    assert unexplained(sorted(unread), [*WITHOUT_FORCE, *OTHERS]) == []


def test_every_field_of_the_options_is_read_or_has_a_reason(model):
    unread = set(fields(model.opt)) - read_fields()["opt"]
    assert unexplained(sorted(unread), OPTIONS) == []


def test_every_reason_applies_to_an_existing_unread_field(model):
    for given, read, patterns in (
        (model, "m", [*WITHOUT_FORCE, *OTHERS]),
        (model.opt, "opt", OPTIONS),
    ):
        unread = set(fields(given)) - read_fields()[read]
        for pattern in patterns:
            for alternative in top_alternatives(pattern):
                assert any(re.fullmatch(alternative, name) for name in unread), alternative


def top_alternatives(pattern):
    """Split a regular expression at the `|` outside parentheses."""
    depth, parts = 0, [""]
    for letter in pattern:
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def after_steps(model):
    data = mujoco.MjData(model)
    data.qvel[:] = 1.0
    for _ in range(100):
        data.ctrl[:] = 0.5
        mujoco.mj_step(model, data)
    assert data.nefc  # the arm touches the ground
    return np.concatenate([data.qpos, data.qvel])


def test_fields_without_force_do_not_change_a_step_of_mujoco(model):
    expected, changed = after_steps(model), []
    for name in fields(model):
        values = getattr(model, name)
        if (
            isinstance(values, np.ndarray)
            and values.size
            and values.dtype.kind == "f"
            and any(re.fullmatch(pattern, name) for pattern in WITHOUT_FORCE)
        ):
            kept = values.copy()
            values += 0.3
            np.testing.assert_array_equal(after_steps(model), expected, err_msg=name)
            values[:] = kept
            changed.append(name)
    assert len(changed) > 30


@pytest.mark.parametrize("name", [name for name in MUST_BE_ZERO if "_" in name])
def test_fields_that_must_be_zero_are_refused_by_name(model, name):
    getattr(model, name)[:] = 1
    assert any(MUST_BE_ZERO[name] == what for what, _ in noted(model))


@pytest.mark.parametrize("name", OPTIONS_ZERO)
def test_options_that_must_be_zero_are_refused_by_name(model, name):
    if isinstance(values := getattr(model.opt, name), np.ndarray):
        values[:] = 1
    else:
        setattr(model.opt, name, 1)
    assert any(OPTIONS_ZERO[name] == what for what, _ in noted(model))


def noted(model):
    reasons = Reasons()
    note_unsupported(model, reasons)
    return reasons._found
