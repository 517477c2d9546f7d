"""The float64 trace agrees with MuJoCo."""

import mujoco
import numpy as np
import pytest

from memes import physics

MODELS = ("ant", "hexapod", "hopper", "ball_arm", "walls", "capsules", "unlike_legs", "shapes")
LIMITED = ("ant", "hexapod", "hopper", "capsules", "unlike_legs")
INTEGRATORS = ("euler", "rk4", "implicitfast")
FREE = ("walls", "capsules")  # the integrator implicitfast does not support free bodies
integrated = pytest.mark.parametrize(
    ("name", "integrator"),
    [(m, i) for m in MODELS for i in INTEGRATORS if not (m in FREE and i == "implicitfast")],
)
N = 300


def worst(a, b):
    """Return the largest error of each row, divided by max(1, the largest entry of the row)."""
    return np.abs(a - b).max(axis=1) / np.maximum(np.abs(b).max(axis=1), 1.0)


def side_by_side(reference):
    return np.concatenate([reference.qpos, reference.qvel], axis=1)


def without_constraints(model):
    model.geom_contype[:] = 0
    model.geom_conaffinity[:] = 0
    model.jnt_limited[:] = 0
    model.dof_frictionloss[:] = 0
    return model


@pytest.mark.parametrize("name", MODELS)
def test_unconstrained_acceleration_agrees_with_mujoco(kit, name):
    model, states = without_constraints(kit.load(name)), kit.states(name, N)
    reference = kit.by_mujoco(model, states)
    assert not reference.contacts.any()
    assert not reference.limits.any()
    assert worst(kit.acceleration(model, states), reference.acceleration).max() < 1e-12


@integrated
def test_unconstrained_step_agrees_with_mujoco(kit, name, integrator):
    model, states = without_constraints(kit.load(name, integrator)), kit.states(name, N)
    engine = physics.compile(model, fidelity=kit.fidelity, backend="numpy")
    reference = side_by_side(kit.by_mujoco(model, states))
    assert worst(kit.after_step(engine, states), reference).max() < 1e-12


@pytest.mark.parametrize("name", sorted({*MODELS} - {"ball_arm", "shapes"}))  # a fixed base; friction
def test_states_out_of_reach_of_contacts_are_unconstrained(kit, name):
    model = kit.load(name)
    states = kit.states(name, N, spread=0.0)
    if name == "ant":
        states.qpos[:, 8::2] = np.radians([50, -50, -50, 50])  # within the range of the ankles
    if name == "hopper":
        states.qpos[:, 3:5] = -1.0
    states.qpos[:, 1 if name == "hopper" else 2] += 10
    if name == "capsules":
        states.qpos[:, 9] += 10
    reference = kit.by_mujoco(model, states)
    assert not reference.contacts.any()
    assert not reference.limits.any()
    assert worst(kit.acceleration(model, states), reference.acceleration).max() < 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_constrained_acceleration_agrees_with_mujoco(kit, name):
    model, states = kit.load(name), kit.states(name, N)
    reference = kit.by_mujoco(model, states)
    assert reference.contacts.sum() > N // 5
    assert reference.limits.sum() > N // 5 or name not in LIMITED
    assert worst(kit.acceleration(model, states), reference.acceleration).max() < 1e-10


@integrated
def test_converged_step_agrees_with_mujoco(kit, name, integrator):
    n = N if integrator == "euler" else N // 3
    model, states = kit.load(name, integrator), kit.states(name, n, seed=1)
    engine = physics.compile(model, fidelity=kit.fidelity, backend="numpy")
    reference = kit.by_mujoco(model, states)
    assert reference.contacts.sum() > n // 5
    assert worst(kit.after_step(engine, states), side_by_side(reference)).max() < 1e-10


@pytest.mark.parametrize("name", ["ant", "hopper"])
def test_several_warm_started_steps_agree_with_mujoco(kit, name):
    model, states = kit.load(name), kit.states(name, 100, seed=2, speed=0.5)
    engine = physics.compile(model, substeps=5, fidelity=kit.fidelity, backend="numpy")
    reference = side_by_side(kit.by_mujoco(model, states, steps=5))
    assert worst(kit.after_step(engine, states), reference).max() < 1e-9


@pytest.mark.parametrize("name", MODELS)
def test_positions_and_contacts_agree_with_mujoco(kit, name):
    model, states = kit.load(name), kit.states(name, N, seed=3)
    engine = physics.compile(model, backend="numpy")
    state = engine.init(states.qpos, states.qvel)
    reference = kit.by_mujoco(model, states)
    for ours, theirs in (
        (engine.body_positions(state), reference.bodies),
        (engine.geom_positions(state), reference.geoms),
        (engine.site_positions(state), reference.sites),
    ):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    pairs = [frozenset(name.split(" on ")) for name in engine.contact_names]
    theirs = [[pair in touching for pair in pairs] for touching in reference.touching]
    np.testing.assert_array_equal(engine.contacts(state), theirs)
    assert set().union(*reference.touching) <= set(pairs)
    assert np.any(theirs, axis=1).sum() > N // 5
    assert not np.all(theirs)


def test_states_are_returned_in_mujocos_order(kit):
    states = kit.states("unlike_legs", 5)
    engine = physics.compile(kit.load("unlike_legs"), backend="numpy")
    state = engine.init(states.qpos, states.qvel)
    np.testing.assert_array_equal(engine.qpos(state), states.qpos)
    np.testing.assert_array_equal(engine.qvel(state), states.qvel)
    assert not engine.qvel(engine.init(states.qpos)).any()


# ------------------------------------------------------------------- one parameter at a time

# A body with a hinged foot slides above a floor. The XML attributes of each element are parameters.
SMALL = """
<mujoco>
  <option {option}>{flag}</option>
  <worldbody>
    <geom name="floor" type="plane" size="4 4 1" {floor}/>
    <body pos="0 0 0.3">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 0 1"/>
      <geom type="box" size="0.1 0.1 0.05" contype="0" conaffinity="0"/>
      <body>
        <joint name="hip" axis="0.3 1 0" limited="true" range="-20 30" {joint}/>
        <geom type="capsule" fromto="0 0 0 0.1 0 -0.2" size="0.03" contype="0" conaffinity="0"/>
        <geom name="foot" type="sphere" pos="0.1 0 -0.2" size="0.05" {foot}/>
      </body>
    </body>
  </worldbody>
  <actuator>{actuator}</actuator>
  {rest}
</mujoco>
"""
MOTOR = '<motor joint="hip" {}/>'
PARAMETERS = {
    "solref, slow": {"foot": 'solref="0.1 0.7"'},
    "solref, faster than two timesteps": {"foot": 'solref="0.001 1" solmix="1e6"'},
    "solref, negative": {"foot": 'solref="-300 -10"'},
    "solref, negative on both": {"foot": 'solref="-300 -10"', "floor": 'solref="-200 -30"'},
    "solref, no damping": {"foot": 'solref="-300 0"'},
    "solref of a limit": {"joint": 'solreflimit="0.05 0.8"'},
    "solref of a limit, negative": {"joint": 'solreflimit="-400 -20"'},
    "solimp": {"foot": 'solimp="0.3 0.7 0.05"'},
    "solimp, width": {"foot": 'solimp="0.3 0.95 0.2"'},
    "solimp, no width": {"foot": 'solimp="0.3 0.7 0" solmix="1e12"'},
    "solimp, constant": {"foot": 'solimp="0.6 0.6 0.02"', "floor": 'solimp="0.6 0.6 0.02"'},
    "solimp, falling": {"foot": 'solimp="0.95 0.3 0.05"'},
    "solimp, beyond its bounds": {"foot": 'solimp="0 1 0.05"', "floor": 'solimp="0 1 0.05"'},
    "solimp, midpoint": {"foot": 'solimp="0.3 0.95 0.2 0.2"'},
    "solimp, power": {
        "foot": 'solimp="0.3 0.95 0.2 0.3 4"',
        "floor": 'solimp="0.3 0.95 0.2 0.3 4"',
    },
    "solimp, power one": {
        "foot": 'solimp="0.3 0.95 0.2 0.3 1"',
        "floor": 'solimp="0.3 0.95 0.2 0.3 1"',
    },
    "solimp of a limit": {"joint": 'solimplimit="0.2 0.8 0.3 0.4 3"'},
    "margin": {"foot": 'margin="0.05"'},
    "margin on both": {"foot": 'margin="0.05"', "floor": 'margin="0.03"'},
    "margin of a limit": {"joint": 'margin="0.1"'},
    "friction": {"foot": 'friction="0.2"', "floor": 'friction="0.1"'},
    "friction, the greater of two": {"foot": 'friction="0.2"', "floor": 'friction="3"'},
    "priority of the foot": {"foot": 'priority="1" friction="0.3" solref="0.05 1" condim="1"'},
    "priority of the floor": {
        "floor": 'priority="1" friction="0.3" solref="0.05 1" solimp="0.5 0.6 0.1"'
    },
    "solmix": {"foot": 'solmix="3" solref="0.1 1" solimp="0.3 0.7 0.1"'},
    "solmix, none": {"foot": 'solmix="0" solref="0.1 1"', "floor": 'solmix="0"'},
    "impratio": {"option": 'impratio="5"'},
    "condim 1": {"foot": 'condim="1"', "floor": 'condim="1"'},
    "gear": {"actuator": MOTOR.format('gear="-7"')},
    "ctrlrange": {"actuator": MOTOR.format('gear="5" ctrllimited="true" ctrlrange="-0.5 0.2"')},
    "forcerange": {"actuator": MOTOR.format('gear="5" forcelimited="true" forcerange="-0.3 0.6"')},
    "position servo": {"actuator": '<position joint="hip" kp="20" kv="0.5" gear="2"/>'},
    "velocity servo": {"actuator": '<velocity joint="hip" kv="2" gear="3"/>'},
    "general actuator": {
        "actuator": '<general joint="hip" gainprm="3" biastype="affine" biasprm="0.5 -4 -0.2"/>'
    },
    "two actuators on a joint": {"actuator": MOTOR.format('gear="4"') + MOTOR.format('gear="2"')},
    "damping": {"joint": 'damping="2"'},
    "armature": {"joint": 'armature="0.3"'},
    "stiffness": {"joint": 'stiffness="8"'},
    "springref": {"joint": 'stiffness="8" springref="25"'},
    "ref": {"joint": 'ref="15"'},
    "friction loss": {"joint": 'frictionloss="0.8"'},
    "friction loss, soft": {
        "joint": 'frictionloss="20" solreffriction="0.1 1" solimpfriction="0.3 0.8 0.1"'
    },
    "friction loss, negative solref": {
        "joint": 'frictionloss="2" solreffriction="-40 -3" solimpfriction="0.3 0.3 0.1"'
    },
    "actuatorfrcrange": {
        "joint": 'actuatorfrclimited="true" actuatorfrcrange="-0.4 0.7"',
        "actuator": MOTOR.format('gear="5"'),
    },
    "implicitfast": {"option": 'integrator="implicitfast"', "joint": 'damping="3"'},
    "implicitfast with servos": {
        "option": 'integrator="implicitfast"',
        "actuator": '<position joint="hip" kp="20" kv="3" gear="2"/><velocity joint="hip" kv="2"/>',
    },
    "implicitfast with a servo at its limits": {
        "option": 'integrator="implicitfast"',
        "actuator": '<position joint="hip" kp="9" kv="3" forcelimited="true" forcerange="-3 3"/>',
    },
    "implicitfast with a drive at its limits": {
        "option": 'integrator="implicitfast"',
        "joint": 'actuatorfrclimited="true" actuatorfrcrange="-3 3" damping="0.3"',
        "actuator": '<position joint="hip" kp="9" kv="3"/>',
    },
    "motor in the parent's frame": {"actuator": '<motor jointinparent="hip" gear="4"/>'},
    "condim 4": {"foot": 'condim="4" friction="0.8 0.05 0.02"'},
    "condim 4 of one": {"floor": 'condim="4" friction="0.2 0.05 0.02"'},
    "condim 6": {"foot": 'condim="6" friction="0.8 0.05 0.02"'},
    "condim 6 with impratio": {
        "foot": 'condim="6" friction="0.8 0.05 0.02"',
        "option": 'impratio="3"',
    },
    "margin and gap": {"foot": 'margin="0.05" gap="0.03"', "floor": 'margin="0.02" gap="0.01"'},
    "pair": {
        "rest": """<contact><pair geom1="floor" geom2="foot" condim="6" friction="0.9 0.3 0.05 0.04 0.02"
          solref="0.05 1" solimp="0.5 0.8 0.1" margin="0.05" gap="0.02"/></contact>"""
    },
    "pair of geoms that do not collide otherwise": {
        "foot": 'contype="0" conaffinity="0"',
        "rest": '<contact><pair geom1="foot" geom2="floor" friction="0.4 0.4 1 1 1"/></contact>',
    },
    **{
        f"{flag} disabled": {"flag": f'<flag {flag}="disable"/>', **changes}
        for flag, changes in {
            "gravity": {},
            "spring": {"joint": 'stiffness="20"'},
            "damper": {"joint": 'damping="3"'},
            "eulerdamp": {"joint": 'damping="3"'},
            "frictionloss": {"joint": 'frictionloss="0.8"'},
            "clampctrl": {"actuator": MOTOR.format('ctrllimited="true" ctrlrange="-0.5 0.2"')},
            "actuation": {"actuator": MOTOR.format('gear="5"')},
            "refsafe": {"foot": 'solref="0.001 1" solmix="1e6"'},
        }.items()
    },
    "damper and spring disabled": {
        "flag": '<flag spring="disable" damper="disable"/>',
        "joint": 'stiffness="20" damping="3"',
    },
    "group of actuators disabled": {
        "option": 'actuatorgroupdisable="2"',
        "actuator": MOTOR.format('group="2" gear="5"') + MOTOR.format('group="1"'),
    },
    "gravity": {"option": 'gravity="3 2 -5"'},
    "no gravity": {"option": 'gravity="0 0 0"'},
    "timestep": {"option": 'timestep="0.011"'},
    "tilted floor": {"floor": 'zaxis="0.3 -0.2 1"'},
    "vertical floor": {"floor": 'zaxis="-0.2 -1 0.1"'},
}


def small(kit, changes):
    parts = dict.fromkeys(("option", "flag", "floor", "joint", "foot", "rest"), "")
    parts |= {"actuator": MOTOR.format("")}
    return kit.exact(mujoco.MjModel.from_xml_string(SMALL.format(**(parts | changes))))


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_parameter_has_the_same_effect_as_in_mujoco(kit, parameter):
    model = small(kit, PARAMETERS[parameter])
    states = kit.random_states(model, 100, heights=(slice(1, 2), [-0.3], [0.2]), spread=0.5)
    reference = kit.by_mujoco(model, states)
    assert reference.contacts.sum() > 20
    assert reference.limits.sum() > 20
    engine = physics.compile(model, fidelity=kit.fidelity, backend="numpy")
    assert worst(kit.after_step(engine, states), side_by_side(reference)).max() < 1e-10

    flags = "flag" in PARAMETERS[parameter]
    plain = small(kit, {**PARAMETERS[parameter], "flag": ""} if flags else {})
    if plain.nu == model.nu:  # check that the parameter changes the step
        default = kit.by_mujoco(plain, states)
        assert np.abs(default.qvel - reference.qvel).max() > 1e-6


# ------------------------------------------------------------------------------- special cases

TOE = '<geom pos="0 0 -0.1" size="0.05" conaffinity="0"/>'
SPECIAL = {
    "a distance that never changes": """
      <geom type="plane" size="4 4 1"/>
      <body pos="0 0 0.09"><joint axis="0 0 1"/><geom type="sphere" size="0.1"/>
        <geom type="box" size="0.1 0.2 0.1" contype="0" conaffinity="0"/></body>""",
    "a body that slides along the floor": """
      <geom type="plane" size="4 4 1"/>
      <body pos="0 0 0.09"><joint type="slide" axis="1 0 0"/><geom type="sphere" size="0.1"/></body>""",
    "no friction": """
      <geom type="plane" size="4 4 1" friction="0"/>
      <body pos="0 0 0.1"><freejoint/><geom type="sphere" size="0.2" friction="0"/>
        <geom type="box" size="0.1 0.2 0.1" contype="0" conaffinity="0"/></body>""",
    "no friction under one of two feet": """
      <geom type="plane" size="4 4 1" friction="0"/>
      <body pos="0 0 0.3"><freejoint/><geom size="0.1" contype="0" conaffinity="0"/>
        <body pos="0.1 0 0"><joint axis="0 1 0"/>
          <geom pos="0 0 -0.2" size="0.1" conaffinity="0" friction="0"/></body>
        <body pos="-0.1 0 0"><joint axis="0 1 0"/>
          <geom pos="0 0 -0.2" size="0.1" conaffinity="0"/></body>
      </body>""",
    "a damped free joint": """
      <geom type="plane" size="4 4 1"/>
      <body pos="0 0 0.1"><joint type="free" damping="2" armature="0.3"/><geom type="sphere" size="0.2"/>
        <geom type="box" size="0.1 0.2 0.1" contype="0" conaffinity="0"/></body>""",
    "friction of every dof of a ball joint": """
      <geom type="plane" size="4 4 1"/>
      <body pos="0 0 0.3"><joint type="ball" frictionloss="0.2"/>
        <geom type="box" size="0.1 0.2 0.1" pos="0.1 0 0" contype="0" conaffinity="0"/>
        <geom size="0.1" pos="0.1 0 -0.25"/></body>""",
    **{
        f"small products of inertia in the {name}": f"""
      <geom type="plane" size="4 4 1"/>
      <body pos="0 0 0.2"><freejoint/>
        <inertial pos="0 0 0" mass="1" fullinertia="{moments} {products}"/>
        <geom size="0.1" pos="0.1 0.2 -0.1"/><geom size="0.1" pos="-0.1 0.1 -0.1"/></body>"""
        for name, moments, products in (
            ("frame of the body", "1 1 0.001", "0 5e-8 4e-8"),  # MuJoCo rounds its rotation to 0
            ("order of other axes", "0.001 1 1", "5e-10 4e-10 0"),
        )
    },
    "parents that collide with their children": """
      <geom type="plane" size="4 4 1"/>
      <body pos="0 0 0.1"><freejoint/><geom size="0.1"/><geom size="0.1" pos="0.3 0.1 0"/></body>""",
    "a mocap body as an obstacle": """
      <body mocap="true" pos="0.2 0 0"><geom type="box" size="0.2 0.3 0.2"/></body>
      <body pos="0 0 0.2"><freejoint/><geom size="0.15"/><geom size="0.1" pos="0.3 0.1 0"/></body>""",
    "a tendon without forces": """
      <geom type="plane" size="4 4 1"/>
      <body pos="0 0 0.1"><joint name="a" axis="0 1 0"/><geom type="capsule" size="0.1 0.2"/></body>
      </worldbody><tendon><fixed><joint joint="a" coef="2"/></fixed></tendon><worldbody>""",
    **{
        f"a {shape} on the floor": f"""
      <geom type="plane" size="4 4 1" friction="0.7 0.1 0.05" zaxis="0.1 0.2 1"/>
      <body pos="0.1 0.2 0.25"><freejoint/>
        <geom type="{shape}" size="{size}" pos="0.03 0.05 0" euler="20 30 50" condim="4"/>
        <body pos="0 0.1 0"><joint axis="1 0.2 0"/>
          <geom type="{shape}" size="0.05 0.08 0.1" pos="0 0.2 0" conaffinity="0"/></body>
      </body>"""
        for shape, size in {
            "box": "0.1 0.2 0.15",
            "cylinder": "0.15 0.2",
            "ellipsoid": "0.2 0.3 0.25",
        }.items()
    },
    "a cylinder that stands and slides": """
      <geom type="plane" size="4 4 1"/>
      <body pos="0 0 0.19"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
        <geom type="cylinder" size="0.1 0.2"/></body>""",
    "a box that slides": """
      <geom type="plane" size="4 4 1"/>
      <body pos="0 0 0.19"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
        <geom type="box" size="0.1 0.2 0.2"/></body>""",
    "copies within copies": f"""
      <geom type="plane" size="4 4 1"/>
      <body pos="0 0 0.2"><freejoint/><geom size="0.1" conaffinity="0"/>
        <body pos="0.1 0 0"><joint axis="0 1 0"/><geom size="0.05" conaffinity="0"/>
          <body pos="0 0.1 0"><joint axis="1 0 0"/>{TOE}</body>
          <body pos="0 -0.1 0"><joint axis="1 0 0"/>{TOE}</body>
        </body>
        <body pos="-0.1 0 0"><joint axis="0 1 0"/><geom size="0.05" conaffinity="0"/>
          <body pos="0 0.1 0"><joint axis="1 0 0"/>{TOE}</body>
          <body pos="0 -0.1 0"><joint axis="1 0 0"/>{TOE}</body>
        </body>
      </body>""",
}


@pytest.mark.parametrize("case", SPECIAL)
def test_special_case_agrees_with_mujoco(kit, case):
    text = f"<mujoco><worldbody>{SPECIAL[case]}</worldbody></mujoco>"
    model = kit.exact(mujoco.MjModel.from_xml_string(text))
    states = kit.random_states(model, 100, spread=0.2)
    reference = kit.by_mujoco(model, states)
    assert reference.contacts.sum() > 20
    engine = physics.compile(model, fidelity=kit.fidelity, backend="numpy")
    state = engine.init(states.qpos, states.qvel)
    np.testing.assert_array_equal(engine.contacts(state).any(axis=1), reference.contacts)
    assert worst(kit.after_step(engine, states), side_by_side(reference)).max() < 1e-10
