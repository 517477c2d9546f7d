"""Trajectories of many robots over many steps agree with MuJoCo."""

from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
from mujoco import rollout

ROBOTS, STEPS, SUBSTEPS = 256, 50, 5
few_or_all = pytest.mark.parametrize("robots", [64, pytest.param(ROBOTS, marks=pytest.mark.long)])


@pytest.fixture(scope="module")
def start(kit):
    """Initial positions of standing ants with slightly different joint angles, qpos[N, nq]."""
    model = kit.load("ant")
    qpos = np.tile(model.qpos0, (ROBOTS, 1))
    qpos[:, 8::2] = np.radians([50, -50, -50, 50])
    qpos[:, 7:] += np.random.default_rng(0).uniform(-0.1, 0.1, (ROBOTS, 8))
    return qpos


def random_actions(seed, robots):
    return np.random.default_rng(seed).uniform(-1, 1, (STEPS, robots, 8)).astype(np.float32)


def followed(ants, qpos, actions):
    """Simulate ants. Return their positions qpos[T, N, nq], foot contacts, failures and final state."""
    state, seen = ants.engine.init(qpos), []
    for action in actions:
        state = ants.step(state, action)
        seen.append(ants.seen(state))
    path, contacts = map(np.array, zip(*seen, strict=True))
    return SimpleNamespace(qpos=path, contacts=contacts, failed=np.asarray(state.failed), state=state)


def followed_by_mujoco(model, qpos, actions):
    """Return the positions that MuJoCo computes for all control steps, qpos[T, N, nq]."""
    kind = mujoco.mjtState.mjSTATE_FULLPHYSICS
    data, initial = mujoco.MjData(model), []
    for row in qpos:
        mujoco.mj_resetData(model, data)
        data.qpos[:] = row
        initial.append(np.empty(mujoco.mj_stateSize(model, kind)))
        mujoco.mj_getState(model, data, initial[-1], kind)
    control = np.repeat(actions, SUBSTEPS, axis=0).transpose(1, 0, 2)
    threads = [mujoco.MjData(model) for _ in range(2)]
    visited, _ = rollout.rollout(model, threads, np.array(initial), control.astype(float))
    return visited[:, SUBSTEPS - 1 :: SUBSTEPS, 1 : 1 + model.nq].transpose(1, 0, 2)


def ks_distance(a, b):
    """Return the Kolmogorov-Smirnov distance between two samples."""
    grid = np.sort(np.concatenate([a, b]))
    below = (np.searchsorted(np.sort(x), grid, side="right") / len(x) for x in (a, b))
    return np.abs(np.subtract(*below)).max()


@few_or_all
def test_ants_survive_bang_bang_control(fast_ants, start, robots):
    path = followed(fast_ants, start[:robots], np.sign(random_actions(1, robots)))
    assert not path.failed.any()
    assert np.isfinite(path.state.rows).all()
    height = path.qpos[..., 2]
    assert height.max() < 7.0  # In MuJoCo, these ants jump 5.2 m high.
    assert height.min() > -1.0  # Only the feet collide with the ground.
    np.testing.assert_allclose(np.linalg.norm(path.qpos[..., 3:7], axis=-1), 1.0, atol=1e-5)
    speed = np.abs(np.asarray(fast_ants.engine.qvel(path.state))).max()
    assert speed < 100
    assert 0 < path.contacts.mean() < 1


@few_or_all
def test_ants_without_control_come_to_rest_where_they_do_in_mujoco(kit, fast_ants, start, robots):
    idle = np.zeros((2 * STEPS, robots, 8), np.float32)
    path = followed(fast_ants, start[:robots], idle)
    theirs = followed_by_mujoco(kit.load("ant"), start[:16], idle[:, :16])
    error = np.abs(path.qpos[-1, :16] - theirs[-1]).max(axis=1)
    assert np.median(error) < 1e-3
    assert path.contacts[-1].all(axis=1).mean() > 0.9


@few_or_all
def test_the_first_steps_agree_with_mujoco(kit, fast_ants, start, robots):
    actions = random_actions(2, robots)[:3]
    ours = followed(fast_ants, start[:robots], actions).qpos
    theirs = followed_by_mujoco(kit.load("ant"), start[:robots], actions)
    error = np.abs(ours - theirs).max(axis=(0, 2))
    assert np.median(error) < 1e-5
    assert np.quantile(error, 0.9) < 1e-2


@pytest.mark.long
def test_final_positions_are_distributed_as_in_mujoco(kit, fast_ants, start):
    model, actions = kit.load("ant"), random_actions(3, ROBOTS)
    nudge = 1e-6 * np.random.default_rng(4).normal(size=start.shape)
    ours = followed(fast_ants, start, actions).qpos
    theirs = followed_by_mujoco(model, start, actions)
    nudged = followed_by_mujoco(model, start + nudge, actions)
    measures = {
        "distance": lambda path: np.linalg.norm(path[-1, :, :2] - path[0, :, :2], axis=1),
        "x": lambda path: path[-1, :, 0],
        "y": lambda path: path[-1, :, 1],
        "height": lambda path: path[-1, :, 2],
        "mean height": lambda path: path[..., 2].mean(axis=0),
        "upright": lambda path: 1 - 2 * (path[-1, :, 4:6] ** 2).sum(axis=1),
    }
    for name, measure in measures.items():
        mine, reference, yardstick = map(measure, (ours, theirs, nudged))
        assert ks_distance(mine, reference) < 1.5 * ks_distance(yardstick, reference) + 0.04, name
        spread = reference.std() / np.sqrt(ROBOTS)
        assert abs(mine.mean() - reference.mean()) < 3 * spread, name
        assert abs(mine.std() / reference.std() - 1) < 0.15, name
    # The distance of the library from MuJoCo is compared with the distance between two simulations of
    # MuJoCo whose initial positions differ slightly.
    divergence = [np.median(np.abs(path - theirs).max(axis=2), axis=1) for path in (ours, nudged)]
    assert (divergence[0] < 10 * divergence[1] + 1e-4).all()
