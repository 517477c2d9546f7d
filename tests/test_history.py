from collections import deque
from itertools import count

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.archive import add, empty
from memes.cells import Grid
from memes.errors import UsageError
from memes.history import FIFO, Elites, Everything, Nothing
from memes.task import Evaluation

jitted_add = jax.jit(add)
ARCHIVE = empty(Grid(jnp.zeros(2), jnp.ones(2), (2, 2)), 1)


def stored(history, state, archive=ARCHIVE):
    feature, valid = history.past(state, archive)
    return sorted(map(tuple, np.asarray(feature)[np.asarray(valid)].tolist()))


def random_pushes(sizes, seed):
    """Yield batches of distinct features, and masks that select different shares of them."""
    rng, number = np.random.default_rng(seed), count(1)
    for size in sizes:
        feature = np.array([[i, -i] for i, _ in zip(number, range(size), strict=False)], np.float32)
        yield feature, rng.random(size) < rng.choice([0.0, 0.3, 0.8, 1.0])


@pytest.mark.parametrize("capacity", [1, 7, 16])
def test_fifo_keeps_the_last_features_as_a_deque_does(capacity):
    history, oracle = FIFO(capacity), deque(maxlen=capacity)
    state, push = history.init(2, None), jax.jit(history.push)
    sizes = [5, 20] * 10
    for feature, mask in random_pushes(sizes, seed=capacity):
        state = push(state, feature, mask)
        oracle.extend(map(tuple, feature[mask].tolist()))
        assert stored(history, state) == sorted(oracle)
    assert len(oracle) == capacity


def test_everything_keeps_all_features_until_the_end_of_the_run():
    pushes = list(random_pushes([5] * 8, seed=0))
    total = sum(int(mask.sum()) for _, mask in pushes)
    history = Everything()
    state, push, given = history.init(2, total), jax.jit(history.push), []
    for feature, mask in pushes:
        state = push(state, feature, mask)
        given += map(tuple, feature[mask].tolist())
        assert stored(history, state) == sorted(given)
    assert len(given) == total


def test_a_ring_that_was_never_full_can_be_enlarged():
    """The history of a run is enlarged if the run is extended."""
    history, push = Everything(), jax.jit(Everything().push)
    small, large = history.init(2, 12), history.init(2, 30)
    for i, (feature, mask) in enumerate(random_pushes([4] * 6, seed=3)):
        if i == 3:
            assert 0 < small.size <= small.capacity == 12
            small = small._replace(rows=jnp.pad(small.rows, ((0, 18), (0, 0))))
        small, large = push(small, feature, mask), push(large, feature, mask)
    jax.tree.map(np.testing.assert_array_equal, small, large)


def test_everything_needs_the_length_of_the_run():
    with pytest.raises(UsageError, match=r"'Everything' needs the length of the run"):
        Everything().init(2, None)
    algorithm = memes.presets.ns_es(memes.tasks.arm(joints=2), samples=4)
    with pytest.raises(UsageError, match=r"call init with generations"):
        algorithm.init(jax.random.key(0))
    with pytest.raises(UsageError, match=r"generations must be at least 1, got 0"):
        algorithm.init(jax.random.key(0), 0)


def test_elites_returns_the_features_of_the_current_archive():
    history = Elites()
    state = history.init(2, None)
    assert stored(history, state) == []

    def offer(archive, fitness, feature):
        evaluation = Evaluation(jnp.array(fitness), jnp.array(feature))
        rows = jnp.ones(2, bool)
        return jitted_add(archive, jnp.ones((2, 1)), evaluation, rows, lane=jnp.arange(2), generation=0)[
            0
        ]

    archive = offer(ARCHIVE, [1.0, 2.0], [[0.25, 0.25], [0.75, 0.25]])
    assert stored(history, state, archive) == [(0.25, 0.25), (0.75, 0.25)]
    # The first evaluation replaces an elite. The feature of this elite is discarded. The second
    # evaluation is rejected.
    archive = offer(archive, [3.0, 0.0], [[0.125, 0.375], [0.625, 0.375]])
    assert stored(history, state, archive) == [(0.125, 0.375), (0.75, 0.25)]
    pushed = history.push(state, jnp.ones((3, 2)), jnp.ones(3, bool))
    assert stored(history, pushed, archive) == [(0.125, 0.375), (0.75, 0.25)]


def test_nothing_stores_no_features():
    history = Nothing()
    state = history.push(history.init(2, None), jnp.ones((3, 2)), jnp.ones(3, bool))
    assert history.past(state, ARCHIVE).feature.shape == (0, 2)
    assert stored(history, state) == []


def test_a_history_needs_a_positive_capacity():
    with pytest.raises(UsageError, match=r"^capacity of the history"):
        FIFO(0)
