"""Environments of Gymnasium as tasks."""

import jax
import numpy as np
import pytest

import memes
from memes import UsageError
from memes.commands.main import main
from memes.control.episodes import act, action_of, layers_of

gymnasium = pytest.importorskip("gymnasium")
KEYS = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(3), 6)))


def rows(task, n=6):
    return np.asarray(task.init(jax.random.key(2), n), np.float32)


def replayed(name, task, key, x):
    """Replay an episode with one environment and one policy.

    Returns the total reward and the mean observation.
    """
    environment, policy = (
        gymnasium.make(name, max_episode_steps=30),
        memes.control.mlp(task.evaluate.sizes).policy,
    )
    seen, _ = environment.reset(seed=int(memes.seeds_from_keys(key)))
    rewards, places, over = [], [], False
    while not over:
        output = np.asarray(policy(x, seen[None]))[0]
        discrete = isinstance(environment.action_space, gymnasium.spaces.Discrete)
        taken = output.argmax() if discrete else output * environment.action_space.high
        seen, reward, ended, truncated, _ = environment.step(taken)
        rewards.append(reward)
        places.append(seen)
        over = ended or truncated
    return sum(rewards), np.mean(places, axis=0)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_an_evaluation_is_an_episode(name):
    task = memes.tasks.gymnasium(name, hidden=(8,), steps=30, observed=(0, 2))
    x = rows(task)
    fitness, feature = task.evaluate(KEYS, x)
    total, mean = replayed(name, task, KEYS[0], x[0])
    np.testing.assert_allclose(fitness[0], total, rtol=1e-3)
    np.testing.assert_allclose(feature[0], mean[[0, 2]], rtol=1e-3)
    in_jax = task.evaluate(jax.random.wrap_key_data(KEYS), jax.numpy.asarray(x))
    np.testing.assert_array_equal(in_jax[0], fitness)


def test_policies_agree_with_those_of_control_tasks():
    policy = memes.control.mlp([3, 5, 4, 2])
    x = np.asarray(policy.init(jax.random.key(0), 7))
    seen = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    found = act(layers_of((3, 5, 4, 2), x), seen)
    expected = policy.act(policy.parameters(x), seen, 0)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_actions_are_mapped_to_their_space():
    spaces = gymnasium.spaces
    box = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))
    np.testing.assert_allclose(action_of(box)(np.array([-1.0, 0.5])), [-2.0, 7.5])
    assert action_of(spaces.Discrete(3, start=-1))(np.array([0.1, 0.2, 0.9])) == 1
    several = spaces.MultiDiscrete([2, 3])
    np.testing.assert_array_equal(action_of(several)(np.array([0.0, 1.0, 0.3, 0.2, 0.1])), [1, 0])
    free = spaces.Box(-np.inf, np.inf, (1, 2))
    np.testing.assert_allclose(action_of(free)(np.array([0.5, -1.0])), [[0.5, -1.0]])
    for space in (box, several, free):
        assert space.contains(action_of(space)(np.linspace(-1, 1, 5 if space is several else 2)))


class Persistent(gymnasium.Env):
    """An environment that keeps a part of its state across resets, like Box2D environments."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(np.array([0.0], np.float32), np.array([4.0], np.float32))
    wear = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1)
        return np.array([self.place, 0.0], np.float32), {}

    def step(self, action):
        self.wear += float(action[0])
        self.place += float(action[0]) - 1e-3 * self.wear
        return np.array([self.place, 1.0], np.float32), self.place, False, False, {}


def test_environments_that_are_not_repeatable_are_created_for_each_episode():
    gymnasium.register("Persistent-v0", Persistent, max_episode_steps=10)
    try:
        found = {}
        for fresh in (None, True, False):
            task = memes.tasks.gymnasium("Persistent-v0", hidden=(4,), fresh=fresh)
            x = rows(task)
            found[fresh] = [task.evaluate(KEYS, x)[0] for _ in range(3)]
        np.testing.assert_array_equal(found[None], found[True])
        np.testing.assert_array_equal(found[None], [found[None][0]] * 3)
        assert (found[False][0] != found[False][1]).all()
    finally:
        del gymnasium.registry["Persistent-v0"]
    assert not memes.tasks.gymnasium("CartPole-v1").evaluate.fresh


def test_the_number_of_environments_does_not_grow_with_the_batch(monkeypatch):
    created, make = [], gymnasium.make
    monkeypatch.setattr(gymnasium, "make", lambda *of, **more: created.append(of) or make(*of, **more))
    task = memes.tasks.gymnasium("MountainCarContinuous-v0", hidden=(4,), steps=3)
    x = np.asarray(task.init(jax.random.key(0), 70))
    keys = jax.random.split(jax.random.key(1), 70)
    fitness, feature = task.evaluate(keys, x)
    assert len(created) <= 34  # 32 are for episodes, and at most two are for checks
    parts = [task.evaluate(keys[i : i + 7], x[i : i + 7]) for i in range(0, 70, 7)]
    np.testing.assert_array_equal(fitness, np.concatenate([part[0] for part in parts]))
    np.testing.assert_array_equal(feature, np.concatenate([part[1] for part in parts]))


def test_warnings_of_mujoco_are_printed_and_leave_no_file(tmp_path, monkeypatch, capfd):
    """The HalfCheetah model has an attribute that causes a MuJoCo warning."""
    monkeypatch.chdir(tmp_path)
    task = memes.tasks.gymnasium("HalfCheetah-v5", hidden=(4,), steps=3)
    assert np.isfinite(task.evaluate(KEYS, rows(task))[0]).all()
    file = f"{gymnasium.__path__[0]}/envs/mujoco/assets/half_cheetah.xml"
    memes.physics.compile(file, backend="numpy")
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err.count("MuJoCo warning: ") <= 1


def farthest(episode):
    return [np.abs(episode.observations[:, 0]).max(), len(episode.rewards)]


def test_results_do_not_depend_on_workers_or_other_rows():
    task = memes.tasks.gymnasium("CartPole-v1", hidden=(4,), steps=20)
    x = rows(task)
    fitness, feature = task.evaluate(KEYS, x)
    with memes.workers(2) as executor:
        found = memes.parallelize(task, executor, block=2).evaluate(KEYS, x)
    np.testing.assert_array_equal(found[0], np.float32(fitness))
    np.testing.assert_array_equal(found[1], np.float32(feature))
    alone = task.evaluate(KEYS[3:4], x[3:4])
    np.testing.assert_array_equal(alone[1][0], feature[3])


def test_starts_depend_on_keys_only_if_the_task_is_uncertain():
    about = {"hidden": (4,), "steps": 20, "feature_low": (0, 0), "feature_high": (5, 20)}
    for uncertain in (True, False):
        task = memes.tasks.gymnasium("CartPole-v1", uncertain=uncertain, feature=farthest, **about)
        x = np.repeat(rows(task, 1), 6, axis=0)
        _, feature = task.evaluate(KEYS, x)
        assert len(set(feature[:, 0])) == (6 if uncertain else 1)
        assert (feature[:, 1] <= 20).all()


def test_policy_gradients_learn_from_transitions():
    task = memes.tasks.gymnasium("CartPole-v1", hidden=(4,), steps=20, observed=(0, 2))
    fitness, feature, _, seen = task.evaluate_transitions(KEYS, rows(task))
    np.testing.assert_array_equal(seen.alive.sum(axis=1), fitness)  # the reward is 1 per step
    np.testing.assert_array_equal(seen.ended.sum(axis=1), fitness < 20)
    np.testing.assert_array_equal(seen.observation[:, 1:5], seen.next_observation[:, :4])
    means = [seen.next_observation[i][seen.alive[i]].mean(axis=0)[[0, 2]] for i in range(6)]
    np.testing.assert_allclose(feature, means, atol=1e-6)
    with memes.workers(1) as executor:
        algorithm = memes.presets.pga_me(
            memes.parallelize(task, executor), batch=4, num_critic_training_steps=2, critic_hidden=(4,),
            gradient_steps=2, replay_size=100, transitions_batch=4,
        )  # fmt: skip
        run = memes.run(algorithm, generations=2, progress=False)
    assert run.archive.occupied.any()
    assert 0 < int(run.state.emitter[1].replay.size) <= 100


def test_wrong_options_are_refused():
    wrong = [
        ({"environment": "CartPol-v1"}, "unknown environment of Gymnasium 'CartPol-v1': did you mean"),
        ({"observed": (0, 4)}, "observed must be indices from 0 to 3, got 0, 4"),
        ({"informed": ("x",)}, "informed: 'CartPole-v1' has an empty info; use observed"),
        ({"observed": (0,), "informed": ("x",)}, "observed and informed cannot be combined"),
        ({"feature": farthest}, "feature_low and feature_high must be given"),
        ({"make": {"colour": 1}}, "'CartPole-v1' cannot be made: TypeError"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"feature_low": (0.0,)}, "must have one entry per feature \\(2\\), got 1"),
    ]
    for options, sentence in wrong:
        with pytest.raises(UsageError, match=sentence):
            memes.tasks.gymnasium(**{"environment": "CartPole-v1"} | options)


def test_a_command_runs_an_environment_by_its_name(tmp_path, capsys):
    words = ["gymnasium:CartPole-v1", "--hidden", "4", "--steps", "10", "--observed", "0", "2"]
    options = ["--algorithm", "me", "--batch", "6", "--generations", "2", "--resolution", "4", "4"]
    out = ["--out", str(tmp_path / "run"), "--no-figures-draw", "--reevaluate-samples", "2"]
    assert main(["run", *words, *options, *out, "--workers", "2", "--worker-rows", "3"]) == 0
    printed = capsys.readouterr()
    assert "evaluating on 2 workers, in blocks of 3" in printed.err
    assert "evaluations/s  2 workers" in " ".join(printed.err.split("\n"))
    run = memes.load_run(tmp_path / "run")
    assert run.config.feature_low == pytest.approx([-4.8, -0.418879], abs=1e-5)
    assert np.nanmax(run.archive.fitness) <= 10
    assert memes.task_from_run(run, "gymnasium:CartPole-v1").evaluate.steps == 10
    with pytest.raises(UsageError, match="has a task that reads other files or packages"):
        memes.task_from_run(run)
    again = ["--task", words[0], "--generations", "3", "--workers", "1", "--quiet"]
    assert main(["resume", str(tmp_path / "run"), *again]) == 0
