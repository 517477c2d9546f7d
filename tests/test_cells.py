import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from memes.cells import CVT, cvt, grid
from memes.errors import UsageError
from memes.task import Task, uniform

LOW = np.array([-1.0, 0.0, 2.0, 10.0])
HIGH = np.array([1.0, 0.5, 5.0, 20.0])
SHAPES = [(7,), (5, 3), (2, 4, 3), (3, 1, 2, 5)]


def task(k, resolution=None):
    init = uniform(1, 0.0, 1.0)
    return Task("box", 1, LOW[:k], HIGH[:k], init, lambda keys, x: None, resolution=resolution)


@jax.jit
def index(cells, feature):
    return cells.index(feature)


@pytest.fixture(scope="module")
def tessellation():
    return cvt(jax.random.key(0), task(2), 23, points=3000)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_grid_numbers_its_boxes_in_c_order(shape):
    k = len(shape)
    rng = np.random.default_rng(k)
    box = rng.integers(0, shape, (60, k))
    feature = LOW[:k] + (box + rng.uniform(0.02, 0.98, (60, k))) / shape * (HIGH - LOW)[:k]
    found = index(grid(task(k), shape), np.float32(feature))
    np.testing.assert_array_equal(found, np.ravel_multi_index(box.T, shape))
    assert found.dtype == jnp.int32


@pytest.mark.parametrize("shape", SHAPES)
def test_features_on_or_beyond_the_bounds_belong_to_border_boxes(shape):
    k = len(shape)
    rng = np.random.default_rng(k)
    last = np.array(shape) - 1
    above = rng.integers(0, 2, (60, k), dtype=bool)
    beyond = rng.choice([0.0, 1e-3, 0.3, 1e30], (60, k))
    feature = np.where(above, HIGH[:k] + beyond, LOW[:k] - beyond)
    found = index(grid(task(k), shape), np.float32(feature))
    np.testing.assert_array_equal(found, np.ravel_multi_index(np.where(above, last, 0).T, shape))


def test_an_inner_boundary_belongs_to_the_box_above_it():
    unit = Task("unit", 1, (0.0,), (1.0,), uniform(1, 0.0, 1.0), lambda keys, x: None)
    edges = np.arange(9, dtype=np.float32)[:, None] / 8
    np.testing.assert_array_equal(grid(unit, (8,)).index(edges), [0, 1, 2, 3, 4, 5, 6, 7, 7])


@pytest.mark.parametrize(
    ("k", "shape"), [(1, (2500,)), (2, (50, 50)), (3, (14, 14, 14)), (4, (7, 7, 7, 7))]
)
def test_the_default_grid_has_about_2500_boxes(k, shape):
    cells = grid(task(k))
    assert cells.shape == shape
    assert cells.count == np.prod(shape)


def test_an_explicit_resolution_overrides_that_of_the_task():
    assert grid(task(2, resolution=(3, 4))).shape == (3, 4)
    assert grid(task(2, resolution=(3, 4)), (5, 6)).shape == (5, 6)


@pytest.mark.parametrize("shape", [(3,), (3, 3, 3), (0, 3), (3, -1)])
def test_a_resolution_must_be_positive_and_fit_the_features(shape):
    with pytest.raises(UsageError, match=r"^resolution must"):
        grid(task(2), shape)
    with pytest.raises(UsageError, match=r"^resolution must"):
        grid(task(2, resolution=shape))


def squared_distances(feature, cells):
    width = (HIGH - LOW)[:2]
    difference = (np.float64(feature)[:, None] - np.float64(cells.centroids)) / width
    return np.sum(difference**2, axis=-1)


def test_a_feature_belongs_to_the_nearest_centroid_in_units_of_the_bounds(tessellation):
    rng = np.random.default_rng(0)
    # With 1500 features, the search uses more than one block.
    feature = np.float32(rng.uniform(LOW[:2], HIGH[:2], (1500, 2)))
    distance = squared_distances(feature, tessellation)
    nearest, second = np.sort(distance, axis=1)[:, :2].T
    clear = second - nearest > 1e-5
    assert clear.mean() > 0.99
    found = np.asarray(index(tessellation, feature))
    np.testing.assert_array_equal(found[clear], distance.argmin(axis=1)[clear])


@pytest.mark.parametrize("distance", [1e3, 1e10, 1e30])
def test_features_far_outside_belong_to_the_nearest_border_cell_of_a_cvt(distance):
    cells = CVT(jnp.zeros(2), jnp.ones(2), jnp.array([[0.1, 0.1], [0.9, 0.9], [0.5, 0.5]]))
    feature = distance * jnp.array([[1.0, 1.0], [-1.0, -1.0]])
    np.testing.assert_array_equal(index(cells, feature), [1, 0])


def test_a_centroid_lies_in_its_own_cell(tessellation):
    np.testing.assert_array_equal(index(tessellation, tessellation.centroids), np.arange(23))
    assert tessellation.count == 23


def test_lloyd_iterations_make_cells_compact_and_equal_in_size(tessellation):
    start = cvt(jax.random.key(0), task(2), 23, points=3000, iterations=0)
    rng = np.random.default_rng(1)
    feature = np.float32(rng.uniform(LOW[:2], HIGH[:2], (1500, 2)))
    size, size_at_start = (np.bincount(index(c, feature), minlength=23) for c in (tessellation, start))
    assert size.min() > 0
    assert size.std() < 0.6 * size_at_start.std()
    compact = squared_distances(feature, tessellation).min(axis=1).mean()
    assert compact < 0.8 * squared_distances(feature, start).min(axis=1).mean()


def test_a_centroid_is_the_mean_of_its_cell(tessellation):
    rng = np.random.default_rng(2)
    feature = np.float32(rng.uniform(LOW[:2], HIGH[:2], (30_000, 2)))
    owner = np.asarray(index(tessellation, feature))
    mean = np.array([feature[owner == i].mean(axis=0) for i in range(23)])
    # A cell is about 1 / sqrt(23) = 0.2 wide.
    assert np.abs((mean - tessellation.centroids) / (HIGH - LOW)[:2]).max() < 0.03


def test_a_single_centroid_converges_to_the_middle():
    cells = cvt(jax.random.key(3), task(2), 1, points=3000, iterations=3)
    np.testing.assert_allclose(cells.centroids, [[0.0, 0.25]], atol=0.05)


def test_a_cvt_needs_a_centroid():
    with pytest.raises(UsageError, match=r"^centroids must"):
        cvt(jax.random.key(4), task(2), 0)


@settings(max_examples=30, deadline=None)
@given(
    hnp.arrays(np.float32, (4, 2), elements=st.floats(allow_nan=False, allow_infinity=False, width=32))
)
def test_every_finite_feature_has_a_cell(tessellation, feature):
    for cells in (grid(task(2), (5, 3)), tessellation):
        found = np.asarray(index(cells, feature))
        assert ((found >= 0) & (found < cells.count)).all()


def test_index_accepts_lists_of_numbers():
    for cells in (grid(task(2), (4, 4)), cvt(jax.random.key(0), task(2), 5, points=100)):
        points = [[0.5, 0.5], [0.1, 0.9]]
        expected = cells.index(jnp.array(points))
        assert [int(cells.index(point)) for point in points] == expected.tolist()
        np.testing.assert_array_equal(cells.index(points), expected)
        np.testing.assert_array_equal(cells.index(jnp.array([points])), expected[None])
