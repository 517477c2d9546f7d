from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emulation
from memes.archive import empty
from memes.cells import Grid
from memes.history import FIFO, Past, novelty
from memes.kernels import neighbours as searches
from memes.kernels.neighbours import GROUP, nearest_by_blocks, nearest_by_kernel


@pytest.fixture(scope="module")
def optimised():
    return True


jitted_novelty = jax.jit(novelty, static_argnums=2)
jitted_blocks = jax.jit(nearest_by_blocks, static_argnums=2)
jitted_kernel = jax.jit(partial(nearest_by_kernel, launch=emulation.launch), static_argnums=2)


def brute_force(query, feature, valid, neighbours):
    points = np.float64(feature)[np.asarray(valid)]
    distance = np.linalg.norm(np.float64(query)[:, None] - points, axis=-1)
    nearest = np.sort(distance, axis=1)[:, :neighbours]
    return nearest.sum(axis=1) / max(nearest.shape[1], 1)


def assert_exact(query, feature, valid, neighbours):
    query, feature = np.float32(query), np.float32(feature)
    found = jitted_novelty(query, Past(feature, valid), neighbours)
    np.testing.assert_allclose(
        found, brute_force(query, feature, valid, neighbours), rtol=1e-5, atol=1e-6
    )
    assert_kernel_agrees(query, np.where(valid[:, None], feature, np.float32(np.inf)), neighbours)


def assert_kernel_agrees(query, points, count):
    """Check that the emulated GPU kernel agrees with the implementation in plain JAX."""
    np.testing.assert_allclose(
        jitted_kernel(query, points, count), jitted_blocks(query, points, count), rtol=1e-6
    )


@pytest.mark.parametrize("count", [4, 40])
def test_the_kernel_assigns_several_queries_to_a_warp(monkeypatch, count):
    monkeypatch.setattr(searches, "WARPS_WANTED", 1)
    rng = np.random.default_rng(4)
    query, points = np.float32(rng.normal(size=(11, 3))), np.float32(rng.normal(size=(1500, 3)))
    points[rng.random(1500) < 0.2] = np.inf
    found = nearest_by_kernel(query, points, count, launch=emulation.launch)
    np.testing.assert_allclose(found, jitted_blocks(query, points, count), rtol=1e-6)


def test_the_kernel_is_mapped_over_seeds():
    rng = np.random.default_rng(5)
    query, points = np.float32(rng.normal(size=(3, 5, 2))), np.float32(rng.normal(size=(3, 40, 2)))
    found = jax.vmap(lambda q, p: jitted_kernel(q, p, 4))(query, points)
    for q, p, each in zip(query, points, found, strict=True):
        np.testing.assert_allclose(each, jitted_blocks(q, p, 4), rtol=1e-6)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_novelty_equals_brute_force_in_any_dimension(k):
    rng = np.random.default_rng(k)
    for fraction in (0.0, 0.1, 0.5, 1.0):
        valid = rng.random(37) < fraction
        assert_exact(rng.normal(size=(9, k)), rng.normal(size=(37, k)), valid, 4)


@pytest.mark.parametrize("size", [1, GROUP - 1, GROUP, GROUP + 1, 5 * GROUP])
@pytest.mark.parametrize("neighbours", [1, 10])
def test_novelty_equals_brute_force_for_any_size_of_the_past(size, neighbours):
    rng = np.random.default_rng(size)
    for valid in (np.ones(size, bool), rng.random(size) < 0.5):
        assert_exact(rng.normal(size=(9, 2)), rng.normal(size=(size, 2)), valid, neighbours)


def test_novelty_equals_brute_force_with_duplicates_and_ties():
    rng = np.random.default_rng(0)
    for _ in range(10):
        lattice = rng.integers(-1, 2, (46, 2))
        assert_exact(lattice[:9], lattice[9:], rng.random(37) < 0.7, 4)


@pytest.mark.parametrize("layout", ["one group", "a group each"])
def test_the_nearest_points_are_found_in_any_distribution_over_groups(layout):
    rng = np.random.default_rng(1)
    feature = rng.normal(size=(5 * GROUP, 2))
    feature = feature[np.argsort(np.linalg.norm(feature, axis=1))]
    if layout == "a group each":
        feature = feature.reshape(GROUP, 5, 2).swapaxes(0, 1).reshape(-1, 2)
    assert_exact(0.01 * rng.normal(size=(9, 2)), feature, np.ones(5 * GROUP, bool), 4)


def test_novelty_with_fewer_points_than_neighbours_is_their_mean_distance():
    valid = np.zeros(37, bool)
    valid[[3, 30]] = True
    feature = np.zeros((37, 2), np.float32)
    feature[3], feature[30] = (3.0, 4.0), (0.0, 1.0)
    np.testing.assert_allclose(
        jitted_novelty(np.zeros((9, 2), np.float32), Past(feature, valid), 4), 3.0
    )


@pytest.mark.parametrize("size", [0, 37])
def test_novelty_is_zero_without_past_features(size):
    past = Past(np.ones((size, 2), np.float32), np.zeros(size, bool))
    np.testing.assert_array_equal(jitted_novelty(np.ones((9, 2), np.float32), past, 4), np.zeros(9))


def test_empty_rows_of_a_history_are_not_neighbours_at_the_origin():
    history = FIFO(37)
    state = history.push(history.init(2, None), jnp.full((10, 2), 5.0), jnp.ones(10, bool))
    past = history.past(state, empty(Grid(jnp.zeros(2), jnp.ones(2), (2, 2)), 1))
    found = jitted_novelty(jnp.zeros((9, 2)), past, 4)
    np.testing.assert_allclose(found, np.full(9, np.sqrt(50)), rtol=1e-6)


@pytest.mark.parametrize("garbage", [0.0, np.nan, np.inf, -np.inf])
def test_values_of_invalid_points_do_not_matter(garbage):
    rng = np.random.default_rng(2)
    query = np.float32(rng.normal(size=(9, 2)))
    feature, valid = np.float32(rng.normal(size=(37, 2))), rng.random(37) < 0.5
    clean = jitted_novelty(query, Past(feature, valid), 4)
    dirty = np.where(valid[:, None], feature, np.float32(garbage))
    np.testing.assert_array_equal(jitted_novelty(query, Past(dirty, valid), 4), clean)


def test_the_order_of_the_past_does_not_matter():
    rng = np.random.default_rng(3)
    query = np.float32(rng.normal(size=(9, 2)))
    feature, valid = np.float32(rng.normal(size=(37, 2))), rng.random(37) < 0.5
    order = rng.permutation(37)
    np.testing.assert_allclose(
        jitted_novelty(query, Past(feature[order], valid[order]), 4),
        jitted_novelty(query, Past(feature, valid), 4),
        rtol=1e-6,
    )
