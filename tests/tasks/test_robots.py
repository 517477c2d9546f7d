"""Rewards, features and terminations match a slow reference computation from recorded states.

Robot dynamics are chaotic, so two simulators diverge within tens of steps. Therefore, both computations
use the states of the same rollout.
"""

import os
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from memes import UsageError, physics
from memes.control import rollout
from memes.task import evaluate
from memes.tasks import TASKS
from memes.tasks.robot import episodes_at_once, robot

N, STEPS = 24, 60


@cache
def short_task(name, **options):
    return TASKS[name](steps=STEPS, **options)


@cache
def episodes(name, start=None):
    """Return a task, the outcome of a rollout, and the recorded steps [T, N, ...].

    The weights of the policies are so large that some ants fall.
    """
    task = short_task(name)
    environment, controller, _ = task.control
    engine = environment.engine
    reset = environment.reset
    if start is not None:
        environment = replace(environment, reset=lambda keys: moved(engine, reset(keys), start))
    key, row_key = jax.random.split(jax.random.key(1))
    x = 2 * controller.init(key, N)
    keys = jax.random.split(row_key, N)

    @jax.jit
    def run(keys, x):
        return rollout(
            task.control._replace(environment=environment),
            keys,
            x,
            lambda step: (
                SimpleNamespace(
                    before=engine.qpos(step.before),
                    after=engine.qpos(step.after),
                    observation=step.observation,
                    velocity=engine.qvel(step.before),
                    contacts=engine.contacts(step.after),
                    action=step.action,
                ).__dict__
            ),
        )

    outcome, recorded = run(keys, x)
    found = {name: np.asarray(value, float) for name, value in recorded.items()}
    return task, outcome, SimpleNamespace(**found)


def moved(engine, state, start):
    qpos = engine.qpos(state) + jnp.zeros(engine.model.nq).at[:3].set(jnp.array(start))
    return engine.init(qpos, engine.qvel(state))


def lengths(recorded):
    """Return the length of each episode, which ends when the height of the torso leaves [0.2, 1.0]."""
    found = []
    for i in range(N):
        heights = recorded.after[:, i, 2]
        outside = [t for t, z in enumerate(heights) if not 0.2 <= z <= 1.0]
        found.append(outside[0] + 1 if outside else STEPS)
    return np.array(found)


@pytest.mark.parametrize("name", ["ant", "ant-trap"])
def test_the_reward_of_ants_is_velocity_plus_survival_minus_effort(name):
    _, outcome, recorded = episodes(name)
    expected = lengths(recorded)
    assert (expected < STEPS).any()
    assert (expected > 10).any()
    np.testing.assert_array_equal(outcome.length, expected)
    for i, length in enumerate(expected):
        total = 0.0
        for t in range(length):
            velocity = (recorded.after[t, i, 0] - recorded.before[t, i, 0]) / 0.05
            total += velocity + 1 - 0.5 * np.sum(recorded.action[t, i] ** 2)
        np.testing.assert_allclose(outcome.total[i], total, rtol=1e-4, atol=1e-3)


def touching(model, data, qpos):
    """Return the names of all pairs of geoms that are in contact in MuJoCo."""
    data.qpos[:] = qpos
    mujoco.mj_fwdPosition(model, data)
    return {
        frozenset(mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_GEOM, g) for g in contact.geom)
        for contact in data.contact
        if contact.dist < contact.includemargin
    }


def contacts_of_mujoco(task, recorded, i, steps):
    """Return the contacts of an episode that MuJoCo detects, bool[T, pairs]."""
    engine = task.control.environment.engine
    data = mujoco.MjData(engine.model)
    pairs = [frozenset(name.split(" on ")) for name in engine.contact_names]
    found = [touching(engine.model, data, recorded.after[t, i]) for t in range(steps)]
    return np.array([[pair in there for pair in pairs] for there in found])


def test_the_features_of_the_ant_are_the_contact_shares_of_its_feet():
    task, outcome, recorded = episodes("ant")
    names = task.control.environment.engine.contact_names
    assert names == tuple(
        f"{end}_{side}_foot on floor" for end in ("front", "back") for side in ("left", "right")
    )
    feature = np.asarray(outcome.mean)
    for i in range(N):
        length = int(outcome.length[i])
        expected = contacts_of_mujoco(task, recorded, i, length).mean(axis=0)
        # Rounding may change the sign of a distance near zero. The tolerance allows this in one step per
        # episode.
        np.testing.assert_allclose(feature[i], expected, atol=1.01 / length)
    assert np.ptp(feature) > 0.3


def test_the_features_of_the_trapped_ant_are_its_final_position():
    task, outcome, recorded = episodes("ant-trap")
    for i, length in enumerate(lengths(recorded)):
        np.testing.assert_allclose(outcome.last[i], recorded.after[length - 1, i, :2], rtol=1e-6)
    place = (recorded.before[..., :2] - [15, 0]) / [15, 8]
    np.testing.assert_allclose(recorded.observation[..., -2:], place, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(recorded.observation[..., :13], recorded.before[..., 2:], rtol=1e-6)
    np.testing.assert_allclose(recorded.observation[..., 13:27], recorded.velocity, rtol=1e-6)
    assert task.control.environment.observation_size == 29


def test_positions_outside_the_map_are_clipped_to_its_border():
    task, outcome, _ = episodes("ant-trap")
    beyond = np.linspace([-40, -30], [60, 30], N, dtype=np.float32)
    _, feature = task.control.score(outcome._replace(last=beyond))
    np.testing.assert_array_equal(feature, np.clip(beyond, task.feature_low, task.feature_high))
    inside = (beyond >= task.feature_low) & (beyond <= task.feature_high)
    assert inside.any()
    assert not inside.all()


# Each initial position is near one wall, so that ants with large actions touch this wall.
@pytest.mark.parametrize("start", [(10.75, 0.0, 0.0), (9.0, 1.75, 0.0), (9.0, -1.75, 0.0)])
def test_walls_stop_the_ant_and_contacts_agree_with_mujoco(start):
    task, outcome, recorded = episodes("ant-trap", start)
    names = task.control.environment.engine.contact_names
    walls = [i for i, name in enumerate(names) if "wall" in name]
    mismatches, checked = 0, 0
    for i in range(N):
        length = int(outcome.length[i])
        expected = contacts_of_mujoco(task, recorded, i, length)
        mismatches += np.sum(recorded.contacts[:length, i] != expected)
        checked += np.sum(expected[:, walls])
    assert checked >= 10, "too few contacts with the wall"
    assert mismatches <= 0.02 * checked
    alive = np.arange(STEPS)[:, None] < np.asarray(outcome.length)
    x, y = recorded.after[..., 0][alive], recorded.after[..., 1][alive]
    # The torso is a ball of radius 0.25. It sinks into a wall by at most 0.1 and never passes through.
    assert (x < 11.5 - 0.15).all()
    assert (np.abs(y) < 2.5 - 0.15).all()


def test_the_fitness_of_the_hexapod_is_the_angle_to_the_tangent_of_its_circle():
    task = short_task("hexapod")
    environment, controller, _ = task.control
    x = controller.init(jax.random.key(3), N)
    engine = environment.engine
    keys = [jax.random.split(jax.random.key(4), N) for _ in range(2)]
    _, path = rollout(task.control, keys[0], x, lambda step: (engine.qpos(step.after), step.action))
    result = evaluate(task, keys[1], x)
    qpos = np.asarray(path[0][-1], float)
    np.testing.assert_allclose(result.feature, qpos[:, :2], rtol=1e-4, atol=1e-5)
    for i in range(N):
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, qpos[i, 3:7])
        forward = rotation.reshape(3, 3)[:2, 0]
        # Compare the heading with the tangent of a circle through the origin and the final position. The
        # circle touches the x axis at the origin, so its centre is on the y axis.
        end = qpos[i, :2]
        centre = np.array([0, end @ end / (2 * end[1])])
        radius = end - centre
        tangent = np.array([-radius[1], radius[0]]) * np.sign(centre[1])
        cosine = forward @ tangent / np.linalg.norm(forward) / np.linalg.norm(tangent)
        np.testing.assert_allclose(result.fitness[i], -np.arccos(np.clip(cosine, -1, 1)), atol=2e-3)


def test_the_genotype_of_the_hexapod_defines_the_motion_of_its_joints():
    controller = short_task("hexapod").control.controller
    x = 1.5 * controller.init(jax.random.key(0), 5)  # some entries exceed the bounds
    for t in (0, 7, 31):
        action = controller.act(controller.parameters(x), jnp.zeros((5, 1)), t)
        for i in range(5):
            clipped = np.clip(np.asarray(x[i]), -1, 1)
            for leg in range(6):
                (a, p), (b, q) = clipped[2 * leg : 2 * leg + 2], clipped[12 + 2 * leg : 14 + 2 * leg]
                hip = a * np.pi / 8 * np.sin(2 * np.pi * t / 25 + p * np.pi)
                knee = b * np.pi / 4 * np.sin(2 * np.pi * t / 25 + q * np.pi)
                expected = [hip, knee, -knee]
                np.testing.assert_allclose(action[i, 3 * leg : 3 * leg + 3], expected, atol=1e-5)


def test_the_servos_of_the_hexapod_have_the_order_of_the_controller():
    model = short_task("hexapod").control.environment.engine.model
    names = [model.joint(int(model.actuator_trnid[u, 0])).name for u in range(model.nu)]
    assert [name.rpartition("_")[2] for name in names] == ["hip", "knee", "ankle"] * 6


@pytest.mark.parametrize("name", ["ant", "ant-trap"])
def test_only_joints_of_uncertain_tasks_start_with_noise(name):
    keys = jax.random.split(jax.random.key(0), 200)
    for uncertain in (True, False):
        task = short_task(name, uncertain=uncertain)
        environment = task.control.environment
        engine, state = environment.engine, environment.reset(keys)
        qpos = np.asarray(engine.qpos(state)) - engine.model.key_qpos[0]
        qvel = np.asarray(engine.qvel(state))
        assert task.uncertain == uncertain
        assert np.abs(qpos[:, :7]).max() < 1e-6
        assert not qvel[:, :6].any()
        for joints in (qpos[:, 7:], qvel[:, 6:]):
            assert np.abs(joints).max() <= 0.1 + 1e-6
            assert np.abs(joints).max() > (0.095 if uncertain else -1)
            assert np.ptp(joints, axis=0).min() > (0.15 if uncertain else -1)


TORSO = """
  <mujoco><default><geom contype="0" conaffinity="0"/></default><worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="torso">
      {root}
      <geom size="0.1"/>
      <body pos="0.1 0 0"><joint axis="0 1 0" name="hip"/><geom size="0.1" pos="0.1 0 0"/></body>
    </body>
  </worldbody><actuator><motor joint="hip"/>{motor}</actuator></mujoco>"""
PLANAR = """<joint type="slide" axis="{first}"/><joint type="slide" axis="{second}"/>
  <joint name="pitch" axis="0 1 0"/>"""


# Parameters of each case:
# - root: joints between the robot and the world
# - motor: actuator of these joints
# - hidden: entries of qpos that policies do not observe
# - base: entries of qpos without noise
@pytest.mark.parametrize(
    ("root", "motor", "hidden", "base"),
    [
        ("<freejoint/>", "", [0, 1], [0, 1, 2, 3, 4, 5, 6]),
        (PLANAR.format(first="1 0 0", second="0 0 1"), "", [0], [0, 1, 2]),
        (PLANAR.format(first="0 0 1", second="0.6 0.8 0"), "", [1], [0, 1, 2]),
        ('<joint name="turn" axis="0 0 1"/>', '<motor joint="turn"/>', [], []),
        ('<joint name="cart" type="slide" axis="1 0 0"/>', '<motor joint="cart"/>', [], []),
        ('<joint type="ball"/>', "", [], [0, 1, 2, 3]),
    ],
    ids=["free", "planar", "planar, other axes", "arm", "cart", "ball"],
)
def test_the_base_consists_of_the_first_joints_without_actuators(root, motor, hidden, base):
    engine = physics.compile(TORSO.format(root=root, motor=motor), backend="xla")
    environment = robot(engine, steps=1, reward=None, measure=None, joint_noise=0.1)
    nq, nv = engine.model.nq, engine.model.nv
    assert environment.observation_size == nq + nv - len(hidden)
    state = environment.reset(jax.random.split(jax.random.key(0), 50))
    qpos, qvel = np.asarray(engine.qpos(state)), np.asarray(engine.qvel(state))
    seen = np.concatenate([np.delete(qpos, hidden, axis=1), qvel], axis=1)
    np.testing.assert_array_equal(environment.observe(state), seen)
    np.testing.assert_array_equal(np.flatnonzero(np.ptp(qpos, axis=0) == 0), base)
    assert np.sum(np.ptp(qvel, axis=0) > 0) == nq - len(base)


def test_actions_are_scaled_to_the_range_of_each_control():
    motors = """<position joint="neck" kp="3" ctrlrange="-0.5 2"/>
      <motor joint="turn" ctrlrange="-3 3" gear="0.1"/>"""
    root = '<joint name="turn" axis="0 0 1"/><joint name="neck" axis="0 1 0"/>'
    engine = physics.compile(TORSO.format(root=root, motor=motors), backend="xla")
    keys, action = jax.random.split(jax.random.key(0), 1), jnp.array([[0.7, -0.2, 1.0]])
    for raw, ctrl in ((False, [[0.7, 0.5, 3.0]]), (True, action)):
        environment = robot(engine, steps=1, reward=None, measure=None, raw_controls=raw)
        state = environment.reset(keys)
        np.testing.assert_allclose(
            environment.step(state, action).rows, engine.step(state, jnp.array(ctrl)).rows, atol=1e-6
        )


@pytest.mark.parametrize("name", ["ant", "ant-trap", "hexapod"])
def test_actions_of_built_in_robots_are_controls(name):
    environment = short_task(name).control.environment
    assert environment.step == environment.engine.step


def test_a_robot_starts_in_its_keyframe():
    key = '<keyframe><key qpos="1 2 3 0.5" qvel="4 5 6 7"/></keyframe></mujoco>'
    root = PLANAR.format(first="1 0 0", second="0 0 1")
    engine = physics.compile(TORSO.format(root=root, motor="").replace("</mujoco>", key), backend="xla")
    state = robot(engine, steps=1, reward=None, measure=None).reset(
        jax.random.split(jax.random.key(0), 2)
    )
    np.testing.assert_allclose(engine.qpos(state), [[1, 2, 3, 0.5]] * 2)
    np.testing.assert_allclose(engine.qvel(state), [[4, 5, 6, 7]] * 2)


def test_the_number_of_concurrent_episodes_depends_on_the_available_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 4, 5}, raising=False)
    assert episodes_at_once() == 3 * 64
    monkeypatch.delattr(os, "sched_getaffinity")  # some systems do not have this function
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert episodes_at_once() == 2 * 64


def test_noise_is_not_negative():
    engine = short_task("hexapod").control.environment.engine
    with pytest.raises(UsageError, match="joint_noise"):
        robot(engine, steps=1, reward=None, measure=None, joint_noise=-0.1)


@cache
def compiled(name, **options):
    task = short_task(name, **options)
    return task, jax.jit(lambda keys, x: evaluate(task, keys, x))


@pytest.mark.parametrize("name", ["ant", "hexapod"])
def test_rows_do_not_depend_on_the_order_or_size_of_the_batch(name):
    task, run = compiled(name)
    x = task.init(jax.random.key(0), N)

    def keys():  # Each use needs new keys, because a key may be used only once.
        return jax.random.split(jax.random.key(1), N)

    whole = run(keys(), x)
    order = np.random.default_rng(0).permutation(N)
    shuffled = run(keys()[order], x[order])
    few = run(keys()[:5], x[:5])
    for all_rows, permuted, part in zip(whole[:2], shuffled[:2], few[:2], strict=True):
        np.testing.assert_array_equal(permuted, np.asarray(all_rows)[order])
        np.testing.assert_array_equal(part, all_rows[:5])
    again = run(keys(), x)
    np.testing.assert_array_equal(again.fitness, whole.fitness)


def test_equal_genotypes_have_equal_fitness_only_in_the_deterministic_version():
    for uncertain in (False, True):
        task, run = compiled("ant", uncertain=uncertain)
        x = jnp.repeat(task.init(jax.random.key(0), 2), 6, axis=0)
        fitness = np.asarray(run(jax.random.split(jax.random.key(1), 12), x).fitness)
        distinct = [np.unique(fitness[:6]).size, np.unique(fitness[6:]).size]
        assert distinct == ([6, 6] if uncertain else [1, 1])


def test_dimensions_and_declarations_of_the_tasks():
    ant, trap, hexapod = (short_task(name) for name in ("ant", "ant-trap", "hexapod"))
    assert (ant.dim, trap.dim, hexapod.dim) == (6472, 6600, 24)
    assert (ant.feature_dim, trap.feature_dim, hexapod.feature_dim) == (4, 2, 2)
    assert ant.resolution == (6, 6, 6, 6)
    np.testing.assert_allclose([ant.min_fitness, trap.min_fitness], [-3.24 * STEPS, -3.38 * STEPS])
    assert not hexapod.uncertain
    assert ant.uncertain
    assert trap.uncertain


@pytest.mark.parametrize("name", ["ant", "ant-trap", "hexapod"])
def test_wrong_options_are_named(name):
    with pytest.raises(UsageError, match="steps"):
        TASKS[name](steps=0)
    with pytest.raises(UsageError, match="fidelity"):
        TASKS[name](fidelity="best")
