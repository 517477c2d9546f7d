"""Control tasks from environments with the protocol of Brax and MuJoCo Playground."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes import UsageError
from memes.commands.main import main
from memes.tasks.stepped import Repeated


def keys():
    return jax.random.split(jax.random.key(1), 5)


class State(NamedTuple):
    """A state with the fields of Brax and Playground."""

    data: Any
    obs: Any
    reward: jax.Array
    done: jax.Array


class Walk:
    """A point that moves by the action until its distance from the origin is one."""

    observation_size, action_size = 2, 2

    def __init__(self, named=False):
        self.named = named
        if named:
            self.observation_size = {"state": (2,), "privileged_state": (9,)}

    def shown(self, place):
        return {"state": place, "privileged_state": jnp.zeros(9)} if self.named else place

    def reset(self, key):
        place = jax.random.uniform(key, (2,), minval=-0.1, maxval=0.1)
        return State(place, self.shown(place), jnp.zeros(()), jnp.zeros(()))

    def step(self, state, action):
        place = state.data + 0.2 * action
        over = jnp.abs(place).max() >= 1
        return State(place, self.shown(place), action[0], over.astype(jnp.float32))


class Wrong(Walk):
    observation_size = 5


class Stateless(Walk):
    def reset(self, key):
        return key


def task(env, **about):
    bounds = {"feature_low": (-1.0, -1.0), "feature_high": (1.0, 1.0)}
    return memes.tasks.stepped("walk", env, steps=9, hidden=(4,), **bounds | about)


@pytest.mark.parametrize("named", [False, True])
def test_an_evaluation_is_an_episode(named):
    walk = task(Walk(named))
    x = walk.init(jax.random.key(2), 5) * 3
    found = walk.evaluate(keys(), x)
    for i in range(5):
        state, total, policy = Walk().reset(keys()[i]), 0.0, walk.control.controller.policy
        for _ in range(9):
            state = Walk().step(state, policy(x[i], state.obs[None])[0])
            total += float(state.reward)
            if state.done:
                break
        np.testing.assert_allclose(found.fitness[i], total, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.feature[i], state.data, rtol=1e-4, atol=1e-5)


def test_an_action_is_repeated_until_the_end():
    repeated = task(Repeated(Walk(), 3))
    x = repeated.init(jax.random.key(2), 5) * 3
    found = repeated.evaluate(keys(), x)
    lengths = []
    for i in range(5):
        state, total, policy = Walk().reset(keys()[i]), 0.0, repeated.control.controller.policy
        for step in range(27):
            if step % 3 == 0:
                action = policy(x[i], state.obs[None])[0]
            state = Walk().step(state, action)
            total += float(state.reward)
            if state.done:
                break
        lengths.append(step + 1)
        np.testing.assert_allclose(found.fitness[i], total, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.feature[i], state.data, rtol=1e-4, atol=1e-5)
    assert any(length % 3 for length in lengths)  # some episodes end within a repetition


def test_all_episodes_of_a_deterministic_task_have_the_same_start():
    walk = task(Walk(), uncertain=False)
    starts = walk.control.environment.reset(keys())
    assert (starts.data == starts.data[0]).all()
    assert not walk.uncertain


def test_policy_gradients_can_learn_from_transitions():
    walk = task(Walk())
    x = walk.init(jax.random.key(2), 5) * 3
    found = walk.evaluate_transitions(keys(), x)
    seen = found.transitions
    assert seen.observation.shape == (5, 9, 2)
    np.testing.assert_allclose(jnp.sum(seen.reward * seen.alive, axis=1), found.fitness, rtol=1e-5)
    moved = seen.next_observation - seen.observation
    np.testing.assert_allclose(moved[seen.alive], 0.2 * seen.action[seen.alive], atol=1e-6)
    assert memes.presets.pga_me(walk, batch=4).emitter.transitions


def test_wrong_environments_and_options_are_refused(monkeypatch):
    with pytest.raises(UsageError, match=r"must return 2 numbers, .* got shape \(1,\)"):
        task(Walk(), measure=lambda state: state.data[:1])
    with pytest.raises(UsageError, match="observation_size of task 'walk' is 5, but its observation"):
        task(Wrong())
    with pytest.raises(UsageError, match=r"must have reset, step, .* got one without reset, step, obs"):
        task(None)
    with pytest.raises(UsageError, match="must have obs, reward, done, got one without obs, reward"):
        task(Stateless())
    with pytest.raises(UsageError, match="steps must be at least 1, got 0"):
        memes.tasks.stepped("walk", Walk(), steps=0)
    monkeypatch.setitem(__import__("sys").modules, "mujoco_playground", None)
    missing = r"environment 'CartpoleBalance' needs the extra playground: pip install .*\[playground\]'"
    with pytest.raises(UsageError, match=missing):
        memes.tasks.playground("CartpoleBalance")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # warnings of Brax
def test_an_environment_of_brax(tmp_path):
    pytest.importorskip("brax.envs")
    with pytest.raises(UsageError, match="environment of Brax 'reacer': did you mean 'reacher'"):
        memes.tasks.brax("reacer")
    words = [
        "brax:inverted_pendulum",
        "--pipeline",
        "spring",
        "--steps",
        "3",
        "--hidden",
        "4",
        "--algorithm",
        "me",
        "--batch",
        "4",
    ]
    out = ["--out", str(tmp_path / "run"), "--no-figures-draw", "--reevaluate-samples", "2"]
    assert main(["run", *words, "--generations", "2", *out, "--quiet"]) == 0
    run = memes.load_run(tmp_path / "run")
    assert run.archive.occupied.any()
    assert np.isfinite(run.archive.fitness[run.archive.occupied]).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # warnings of Playground
def test_an_environment_of_playground():
    pytest.importorskip("mujoco_playground")
    with pytest.raises(UsageError, match="environment of Playground 'CartpolBalance': did you mean"):
        memes.tasks.playground("CartpolBalance")
    with pytest.raises(UsageError, match="unknown pipeline 'mjx': did you mean 'jax'"):
        memes.tasks.playground("CartpoleBalance", pipeline="mjx")
    with jax.debug_key_reuse(False):  # Playground uses keys twice
        pole = memes.tasks.playground("CartpoleBalance", pipeline="jax", steps=3, hidden=(4,))
        found = jax.jit(pole.evaluate_transitions)(keys(), pole.init(jax.random.key(0), 5))
    seen = found.transitions
    assert np.isfinite(found.fitness).all()
    np.testing.assert_allclose(jnp.sum(seen.reward * seen.alive, axis=1), found.fitness, rtol=1e-5)
