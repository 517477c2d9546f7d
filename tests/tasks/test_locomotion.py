"""`robot:FILE`: rewards, features and terminations agree with MuJoCo's kinematics for any robot."""

from pathlib import Path

import jax
import mujoco
import numpy as np
import pytest

import memes
from memes import UsageError
from memes.commands.main import main

RUNNER = str(Path(__file__).parents[2] / "examples" / "runner.xml")
FEET = ("back_foot", "front_shin")  # a geom and a body
WEIGHTS = {"forward": 2.0, "survival": 0.3, "energy": 0.7, "fallen": 0.6}
N, STEPS = 5, 16


def touching(model, data, foot):
    """Return whether a geom, or any geom of a body, touches the floor."""
    names = {
        mujoco.mj_id2name(model, kind, i)
        for contact in data.contact
        if contact.dist < 0
        for geom in contact.geom
        for kind, i in (
            (mujoco.mjtObj.mjOBJ_GEOM, geom),
            (mujoco.mjtObj.mjOBJ_BODY, model.geom_bodyid[geom]),
        )
    }
    return foot in names


def test_rewards_features_and_ends_agree_with_the_positions_of_the_robot():
    task = memes.tasks.locomotion(RUNNER, feet=FEET, steps=STEPS, backend="xla", **WEIGHTS)
    environment = task.control.environment
    engine, model = environment.engine, environment.engine.model
    assert engine.substeps == 5  # of 0.01 s each
    data, start = mujoco.MjData(model), mujoco.MjData(model)
    mujoco.mj_kinematics(model, start)
    advance = jax.jit(
        lambda state, action: (
            after := environment.step(state, action),
            environment.reward(state, action, after),
            environment.measure(after),
            environment.ended(after),
        ),
        compiler_options=engine.compiler_options,
    )
    state, seen = environment.reset(jax.random.split(jax.random.key(0), N)), []
    rng = np.random.default_rng(0)
    before = np.asarray(engine.qpos(state), float)[:, 0]
    for _ in range(STEPS):
        action = rng.uniform(-1, 1, (N, model.nu)).astype(np.float32)
        state, reward, feet, ended = advance(state, action)
        qpos = np.asarray(engine.qpos(state), float)
        for i in range(N):
            data.qpos[:] = qpos[i]
            mujoco.mj_fwdPosition(model, data)
            speed = (data.xpos[1, 0] - before[i]) / 0.05
            expected = 2.0 * speed + 0.3 - 0.7 * np.mean(action[i] ** 2)
            np.testing.assert_allclose(reward[i], expected, rtol=1e-3, atol=1e-3)
            assert ended[i] == (data.xpos[1, 2] < 0.6 * start.xpos[1, 2])
            seen.append([touching(model, data, foot) for foot in FEET] == list(np.asarray(feet[i]) > 0))
            before[i] = data.xpos[1, 0]
    assert np.mean(seen) > 0.97  # rounding may change the sign of a distance near zero
    assert task.feature_names == tuple(f"{foot} on the ground (share)" for foot in FEET)
    assert task.min_fitness == -STEPS * 2.7


def test_the_position_has_the_directions_in_which_the_first_body_moves():
    task = memes.tasks.locomotion(RUNNER, feature="position", reach=3.0, backend="xla", start_noise=0.0)
    assert (task.feature_names, task.feature_high) == (("final x (m)",), (3.0,))
    assert not task.uncertain
    environment = task.control.environment
    qpos = np.tile(environment.engine.model.qpos0, (2, 1))
    qpos[1, 0] += 1.5
    place = environment.measure(environment.engine.init(qpos))
    np.testing.assert_allclose(place, [[0.0], [1.5]], atol=1e-6)


def test_without_feet_the_geoms_are_listed(capsys, tmp_path):
    out = ["--out", str(tmp_path / "run")]
    assert main(["run", f"robot:{RUNNER}", *out]) == 2
    error = capsys.readouterr().err
    assert "feet must name geoms, or bodies" in error
    assert "back_foot (body back_shin), front_foot (body front_shin)" in error
    assert main(["run", f"robot:{RUNNER}", "--feet", "back_foot", "nose", *out]) == 2
    assert "'nose' cannot touch the ground" in capsys.readouterr().err
    assert main(["run", "robot:no_such_robot.xml", *out]) == 2
    assert "no_such_robot.xml" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_robot_without_a_base_has_no_final_position_and_without_a_ground_no_feet(tmp_path):
    file = tmp_path / "arm.xml"
    file.write_text(
        '<mujoco><worldbody><body><joint name="a"/><geom size="0.1"/></body></worldbody>'
        '<actuator><motor joint="a"/></actuator></mujoco>'
    )
    with pytest.raises(UsageError, match="does not move along the ground"):
        memes.tasks.locomotion(str(file), feature="position")
    with pytest.raises(UsageError, match="no geom of the model can touch static geoms"):
        memes.tasks.locomotion(str(file), feet=("a",))
