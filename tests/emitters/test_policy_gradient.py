from collections import deque
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes import UsageError
from memes.control.rollouts import Transition
from memes.emitters import Isoline, Parallel, PolicyGradient
from memes.emitters.td3 import TD3, networks, remember, sample
from memes.history import Ring
from memes.task import evaluate

CAPACITY = 50
# With these settings, each generation has one round of training.
SMALL = TD3(
    replay_size=4000,
    transitions_batch=32,
    num_critic_training_steps=2,
    critic_hidden=(16,),
    soft_update=0.25,
)


@pytest.fixture(scope="module")
def maze():
    return memes.tasks.point_maze(steps=30, hidden=(8,))


def transitions_of(values, alive):
    """Return transitions [n, T] with distinct entries."""
    values = jnp.asarray(values, jnp.float32)
    pair = jnp.stack([values, -values], axis=-1)
    return Transition(pair, pair[..., :1], values, pair + 0.5, values > 3, jnp.asarray(alive))


def empty_replay():
    blank = transitions_of(jnp.zeros((1, CAPACITY)), jnp.zeros((1, CAPACITY), bool))
    return Ring(jax.tree.map(lambda leaf: leaf[0], blank), jnp.int32(0))


def test_the_replay_keeps_the_latest_valid_transitions():
    rng = np.random.default_rng(0)
    replay, oracle = empty_replay(), deque(maxlen=CAPACITY)
    counter = 1.0
    for _ in range(12):
        values = counter + np.arange(20.0).reshape(4, 5)
        counter += 20
        values[rng.random((4, 5)) < 0.1] = np.nan  # a simulator may return NaN
        alive = rng.random((4, 5)) < 0.7
        replay = remember(replay, transitions_of(values, alive))
        oracle.extend(
            v for v, counts in zip(values.ravel(), alive.ravel(), strict=True) if counts & (v == v)
        )
        kept = np.asarray(replay.rows.reward)[: int(replay.size)]
        np.testing.assert_array_equal(np.sort(kept), np.sort(oracle))
        # All fields of a transition must be in the same row of the replay buffer.
        np.testing.assert_array_equal(replay.rows.observation[: int(replay.size), 0], kept)
        np.testing.assert_array_equal(replay.rows.next_observation[: int(replay.size), 0], kept + 0.5)
    assert replay.size == CAPACITY


def test_only_stored_transitions_are_sampled():
    replay = remember(empty_replay(), transitions_of([[1.0, 2.0, 3.0]], [[True, False, True]]))
    drawn = np.asarray(sample(jax.random.key(0), replay, 200).reward)
    assert set(drawn) == {1.0, 3.0}
    assert 60 < np.sum(drawn == 1.0) < 140


def test_a_generation_larger_than_the_replay_is_refused():
    with pytest.raises(UsageError, match="replay_size"):
        remember(empty_replay(), transitions_of(np.zeros((6, 10)), np.ones((6, 10), bool)))


def test_transitions_are_computed_only_on_request(maze):
    keys, x = jax.random.split(jax.random.key(0), 4), maze.init(jax.random.key(1), 4)
    assert jax.eval_shape(lambda: evaluate(maze, keys, x)).transitions is None
    asked = jax.eval_shape(lambda: evaluate(maze, keys, x, transitions=True)).transitions
    assert asked.observation.shape == (4, 30, 2)
    other = memes.presets.me(maze, batch=4)
    state, batch = other.ask(jax.random.key(2), other.init(jax.random.key(3)))
    assert other.evaluate(jax.random.key(4), batch).transitions is None
    del state


def test_evaluations_with_and_without_transitions_agree(maze):
    x = maze.init(jax.random.key(1), 6)
    plain = evaluate(maze, jax.random.split(jax.random.key(0), 6), x)
    full = evaluate(maze, jax.random.split(jax.random.key(0), 6), x, transitions=True)
    np.testing.assert_allclose(full.fitness, plain.fitness, atol=1e-6)
    np.testing.assert_allclose(full.transitions.reward.sum(axis=1), full.fitness, atol=1e-5)


@pytest.fixture(scope="module")
def two_generations(maze):
    """Return the states before and after the first generation, and after the second generation."""
    emitter = Parallel((Isoline(5), PolicyGradient(3, steps=2, td3=SMALL)))
    algorithm = memes.compose(maze, emitter)
    step = jax.jit(algorithm.step)
    start = algorithm.init(jax.random.key(0))
    first, _ = step(jax.random.key(1), start)
    second, _ = step(jax.random.key(2), first)
    return [state.emitter[1] for state in (start, first, second)]


def test_the_greedy_actor_may_be_the_only_one(maze):
    algorithm = memes.compose(maze, PolicyGradient(1, steps=2, td3=SMALL))
    result = memes.run(algorithm, generations=2, progress=False)
    assert result.metrics["candidates"][-1] == 2
    with pytest.raises(UsageError, match="batch must be at least 1, got 0"):
        memes.presets.pga_me(maze, batch=0)


def test_the_critics_learn_from_the_rows_of_all_emitters(two_generations):
    assert [int(state.replay.size) for state in two_generations] == [0, 8 * 30, 2 * 8 * 30]


def test_learning_starts_after_the_first_transitions(two_generations):
    start, first, second = (state.learner for state in two_generations)
    np.testing.assert_array_equal(first.critics, start.critics)
    assert np.abs(second.critics - first.critics).max() > 0
    assert np.abs(second.actor - first.actor).max() > 0


def test_the_target_actor_follows_at_the_rate_of_the_soft_update(two_generations):
    """In one round, the target actor moves towards the actor by the fraction `soft_update`."""
    _, old, new = (state.learner for state in two_generations)
    expected = old.target_actor + 0.25 * (new.actor - old.target_actor)
    np.testing.assert_allclose(new.target_actor, expected, atol=1e-6)


@pytest.mark.parametrize(("ends", "worth"), [(False, 5.0), (True, 1.0)])
def test_the_critics_learn_the_discounted_return(ends, worth):
    """With reward 1 per step, the value is 1 / (1 - discount), or 1 if every step ends the episode."""
    task = memes.tasks.point_maze(steps=30, hidden=(8,))
    environment = replace(
        task.control.environment,
        reward=lambda before, action, after: jnp.ones(action.shape[0]),
        ended=lambda place: jnp.full(place.shape[0], ends),
    )
    task = memes.control.control_task(
        "constant",
        environment,
        task.control.controller,
        fitness=lambda outcome: outcome.total,
        feature=lambda outcome: outcome.last,
        feature_low=(0, -0.5),
        feature_high=(1, 0.5),
    )
    learner = TD3(
        replay_size=4000,
        transitions_batch=64,
        num_critic_training_steps=600,
        critic_hidden=(32,),
        critic_learning_rate=3e-3,
        discount=0.8,
        soft_update=0.05,
    )
    algorithm = memes.compose(task, PolicyGradient(4, steps=1, td3=learner))
    step = jax.jit(algorithm.step)
    state = algorithm.init(jax.random.key(0))
    for g in range(4):
        state, _ = step(jax.random.key(g + 1), state)
    replay = state.emitter.replay.rows
    seen = slice(0, int(state.emitter.replay.size))
    value = networks(task, learner)[1](
        state.emitter.learner.critics, replay.observation[seen], replay.action[seen]
    )
    np.testing.assert_allclose(np.median(value), worth, rtol=0.1)


@pytest.mark.long
def test_the_greedy_actor_learns_to_move_forward():
    """Within 15 generations, the median fitness of the seeds exceeds 0.45 and rises by at least 0.1."""
    task = memes.tasks.point_maze()
    algorithm = memes.presets.pga_me(
        task,
        batch=16,
        gradient_steps=5,
        num_critic_training_steps=300,
        replay_size=20_000,
        transitions_batch=64,
        critic_hidden=(32, 32),
    )
    step = jax.jit(algorithm.step)
    greedy = np.zeros((5, 15))
    for seed in range(5):
        state = algorithm.init(jax.random.key(seed))
        for g in range(15):
            state, info = step(jax.random.key(100 * seed + g), state)
            greedy[seed, g] = info.fitness[8]  # the first 8 candidates are random variation
    best = np.median(greedy[:, 1:].max(axis=1))
    assert best > max(0.45, np.median(greedy[:, 0]) + 0.1)


def test_tasks_without_transitions_are_refused_by_name():
    with pytest.raises(UsageError, match="task 'arm' provides no transitions"):
        memes.presets.pga_me(memes.tasks.arm(joints=3))
    with pytest.raises(UsageError, match="task 'hexapod' has no policies"):
        memes.presets.pga_me(memes.tasks.hexapod(steps=1), replay_size=10).init(jax.random.key(0))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch": 0}, "batch"),
        ({"steps": 0}, "steps"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"steps": 1.5}, "steps must be int, got 1.5"),
    ],
)
def test_wrong_options_are_named(options, named):
    with pytest.raises(UsageError, match=named):
        PolicyGradient(**{"batch": 4} | options)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_critic_training_steps", 0),
        ("num_critic_training_steps", 7),
        ("transitions_batch", 0),
        ("replay_size", 0),
        ("policy_delay", 0),
        ("discount", "high"),
    ],
)
def test_wrong_settings_of_the_learner_are_named(field, value):
    with pytest.raises(UsageError, match=rf"^{field} must be"):
        TD3(**{field: value})
    with pytest.raises(UsageError, match=rf"^{field} must be"):
        memes.presets.pga_me(memes.tasks.point_maze(), **{field: value})
