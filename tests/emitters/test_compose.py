import jax
import jax.numpy as jnp
import numpy as np

import memes
from memes.emitters import ES, Isoline, OneOf, Parallel

strategy = memes.strategies.OpenAIES(samples=4)
task = memes.tasks.arm(joints=3)
exploit = ES(memes.objectives.Fitness(), lanes=2, strategy=strategy)
explore = ES(memes.objectives.Novelty(2), lanes=3, strategy=strategy)


def test_parallel_joins_batches_in_order_with_distinct_lanes():
    algorithm = memes.compose(task, Parallel((exploit, Isoline(2), explore)))
    state = jax.jit(algorithm.init)(jax.random.key(0))
    _, batch = jax.jit(algorithm.ask)(jax.random.key(1), state)
    np.testing.assert_array_equal(batch.lane, np.arange(7))
    np.testing.assert_array_equal(batch.sample_lane, np.repeat([0, 1, 4, 5, 6], 4))
    assert algorithm.emitter.persistent == (True, True, False, False, True, True, True)
    assert algorithm.batch_size == batch.x.shape[0] == 7 + 20


def test_parallel_passes_each_emitter_only_its_own_rows():
    both = memes.compose(task, Parallel((exploit, explore)), history=memes.history.FIFO(10))
    ask, tell, evaluate = jax.jit(both.ask), jax.jit(both.tell), jax.jit(both.evaluate)
    state, batch = ask(jax.random.key(1), jax.jit(both.init)(jax.random.key(0)))
    evaluation = evaluate(jax.random.key(2), batch)
    before, _ = tell(state, batch, evaluation)
    for lane in range(5):
        rows = jnp.concatenate([jnp.zeros(5, bool), batch.sample_lane == lane])
        fitness = jnp.where(rows, -evaluation.fitness, evaluation.fitness)
        feature = jnp.where(rows[:, None], 1 - evaluation.feature, evaluation.feature)
        after, _ = tell(state, batch, memes.Evaluation(fitness, feature))
        moved = jnp.concatenate(
            [
                jnp.any(a.strategy.mean != b.strategy.mean, axis=1)
                for a, b in zip(before.emitter, after.emitter, strict=True)
            ]
        )
        np.testing.assert_array_equal(np.flatnonzero(moved), [lane])


def test_one_of_runs_one_emitter_per_generation_and_leaves_the_others_unchanged():
    algorithm = memes.compose(task, OneOf(exploit, 3))
    state = jax.jit(algorithm.init)(jax.random.key(0))
    step = jax.jit(algorithm.step)
    for generation in range(7):
        after, info = step(jax.random.fold_in(jax.random.key(1), generation), state)
        active = generation % 3
        np.testing.assert_array_equal(info.lane, [2 * active, 2 * active + 1])
        means = state.emitter[1].strategy.mean, after.emitter[1].strategy.mean
        changed = jnp.any(means[0] != means[1], axis=(1, 2))
        np.testing.assert_array_equal(np.flatnonzero(changed), [active])
        ages = after.emitter[1].age[:, 0]
        np.testing.assert_array_equal(ages, [(generation + 3 - i) // 3 for i in range(3)])
        state = after


def test_one_of_accepts_a_custom_turn():
    always_last = OneOf(exploit, 3, turn=lambda key, context, count: jnp.int32(count - 1))
    algorithm = memes.compose(task, always_last)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    _, info = jax.jit(algorithm.step)(jax.random.key(1), state)
    np.testing.assert_array_equal(info.lane, [4, 5])
