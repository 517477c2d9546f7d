from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memes.archive import Status, add, empty
from memes.cells import CVT, Grid
from memes.task import Evaluation

DIM = 3
jitted_add = jax.jit(add)


def grid(*shape):
    return Grid(jnp.full(len(shape), -1.0), jnp.ones(len(shape)), shape)


def centres(cells):
    """Return a feature in the interior of each cell, [c, k]."""
    if isinstance(cells, CVT):
        return np.asarray(cells.centroids)
    axes = [(np.arange(s) + 0.5) / s * 2 - 1 for s in cells.shape]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)


def cell_of(cells, feature):
    if isinstance(cells, CVT):
        return np.argmin(np.sum((feature - np.asarray(cells.centroids)) ** 2, axis=-1))
    shape = np.array(cells.shape)
    position = np.clip(np.floor((feature + 1) / 2 * shape), 0, shape - 1).astype(int)
    return np.ravel_multi_index(position, cells.shape)


CENTROIDS = jnp.array([[-1.0, -1.0], [-0.6, 0.8], [0.1, 0.0], [0.7, -0.5], [1.0, 1.0]])
CELLS = {
    "line": grid(5),
    "plane": grid(4, 3),
    "space": grid(2, 3, 2),
    "voronoi": CVT(-jnp.ones(2), jnp.ones(2), CENTROIDS),
}


class Oracle:
    """An archive that stores its elites in a dictionary and adds evaluations one at a time."""

    def __init__(self, cells):
        self.cells = cells
        self.elites = {}

    def add(self, x, evaluation, offered, lane, generation):
        before = set(self.elites)
        owner = {}
        for i in range(len(x)):
            fitness, feature = evaluation.fitness[i], evaluation.feature[i]
            if not (offered[i] and np.isfinite(fitness) and np.isfinite(feature).all()):
                continue
            cell = cell_of(self.cells, feature)
            if cell not in self.elites or fitness > self.elites[cell][1]:
                self.elites[cell] = (x[i], fitness, feature, generation, lane[i])
                owner[cell] = i
        status = np.full(len(x), Status.REJECTED)
        for cell, i in owner.items():
            status[i] = Status.IMPROVED if cell in before else Status.NEW
        return status

    def assert_equals(self, archive):
        occupied = np.asarray(archive.occupied)
        assert set(np.flatnonzero(occupied)) == set(self.elites)
        columns = [archive.genotypes, archive.fitness, archive.feature, archive.generation, archive.lane]
        for cell, elite in self.elites.items():
            for column, value in zip(columns, elite, strict=True):
                np.testing.assert_array_equal(column[cell], value)
        assert (np.asarray(archive.fitness)[~occupied] == -np.inf).all()
        assert (np.asarray(archive.generation)[~occupied] == -1).all()
        assert (np.asarray(archive.lane)[~occupied] == -1).all()


def random_batch(rng, cells, n, faults=True, ties=True):
    """Return a batch with different genotypes and lanes, but only a few different fitness values.

    Some evaluations are not finite.
    """
    where = centres(cells)
    feature = where[rng.integers(0, len(where), n)] + rng.uniform(-0.04, 0.04, (n, where.shape[1]))
    fitness = rng.integers(-2, 3, n) if ties else rng.permutation(n) - n / 2
    fitness = fitness.astype(np.float32)
    if faults:
        feature[rng.random(n) < 0.15] *= 3.0
        fitness = np.where(rng.random(n) < 0.2, rng.choice([np.nan, np.inf, -np.inf], n), fitness)
        feature = np.where(
            rng.random(feature.shape) < 0.05,
            rng.choice([np.nan, np.inf, -np.inf], feature.shape),
            feature,
        )
    return {
        "x": rng.normal(size=(n, DIM)).astype(np.float32),
        "evaluation": Evaluation(np.float32(fitness), np.float32(feature)),
        "offered": rng.random(n) < 0.8 if faults else np.ones(n, bool),
        "lane": rng.permutation(n).astype(np.int32),
    }


def take(batch, rows):
    return jax.tree.map(lambda leaf: leaf[rows], batch)


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize(
    ("cells", "n"),
    [("line", 40), ("plane", 4), ("plane", 12), ("plane", 40), ("space", 40), ("voronoi", 40)],
)
def test_add_agrees_with_an_oracle_that_adds_one_row_at_a_time(cells, n):
    rng = np.random.default_rng(n)
    archive, oracle = empty(CELLS[cells], DIM), Oracle(CELLS[cells])
    for generation in range(12):
        batch = random_batch(rng, CELLS[cells], n)
        archive, status = jitted_add(archive, **batch, generation=generation)
        np.testing.assert_array_equal(status, oracle.add(**batch, generation=generation))
        oracle.assert_equals(archive)


ROW = st.tuples(
    st.integers(0, 3),
    st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, np.nan, np.inf, -np.inf]),
    st.sampled_from([0.0, 0.0, 0.0, np.nan, np.inf]),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(ROW, min_size=6, max_size=6), min_size=1, max_size=3))
def test_add_agrees_with_the_oracle_on_any_ties_and_faults(batches):
    cells = grid(2, 2)
    where = centres(cells)
    archive, oracle = empty(cells, DIM), Oracle(cells)
    for generation, rows in enumerate(batches):
        index, fitness, fault, offered = (np.array(column) for column in zip(*rows, strict=True))
        number = 10.0 * generation + np.arange(6)
        batch = {
            "x": np.float32(np.tile(number[:, None], (1, DIM))),
            "evaluation": Evaluation(np.float32(fitness), np.float32(where[index] + fault[:, None])),
            "offered": offered,
            "lane": number.astype(np.int32),
        }
        archive, status = jitted_add(archive, **batch, generation=generation)
        np.testing.assert_array_equal(status, oracle.add(**batch, generation=generation))
        oracle.assert_equals(archive)


def filled(rng, cells, n=40, **kwargs):
    batch = random_batch(rng, cells, n, **kwargs)
    return batch, jitted_add(empty(cells, DIM), **batch, generation=0)[0]


def test_adding_a_batch_again_changes_nothing():
    batch, once = filled(np.random.default_rng(0), CELLS["plane"])
    twice, status = jitted_add(once, **batch, generation=1)
    assert_same(twice, once)
    assert (np.asarray(status) == Status.REJECTED).all()


def test_the_order_of_rows_does_not_matter_if_all_fitnesses_differ():
    rng = np.random.default_rng(1)
    _, start = filled(rng, CELLS["plane"])
    batch = random_batch(rng, CELLS["plane"], 40, ties=False)
    order = rng.permutation(40)
    archive, status = jitted_add(start, **batch, generation=1)
    permuted, permuted_status = jitted_add(start, **take(batch, order), generation=1)
    assert_same(permuted, archive)
    np.testing.assert_array_equal(permuted_status, np.asarray(status)[order])


def test_adding_a_batch_in_parts_gives_the_same_archive():
    rng = np.random.default_rng(2)
    _, start = filled(rng, CELLS["plane"])
    batch = random_batch(rng, CELLS["plane"], 40)
    whole, _ = jitted_add(start, **batch, generation=1)
    parts = start
    for first, last in pairwise([0, 12, 24, 36, 40]):
        parts, _ = jitted_add(parts, **take(batch, slice(first, last)), generation=1)
    assert_same(parts, whole)


def test_an_equally_fit_row_does_not_replace_an_elite():
    rng = np.random.default_rng(4)
    _, start = filled(rng, CELLS["plane"], faults=False)
    elites = np.asarray(start.occupied)
    feature = np.where(elites[:, None], start.feature, centres(CELLS["plane"]))
    rival = Evaluation(np.where(elites, start.fitness, 0.0).astype(np.float32), np.float32(feature))
    archive, status = jitted_add(
        start, np.ones((12, DIM), np.float32), rival, elites, lane=np.zeros(12, np.int32), generation=1
    )
    assert elites.any()
    assert_same(archive, start)
    assert (np.asarray(status) == Status.REJECTED).all()


def test_status_new_counts_the_cells_that_were_filled():
    rng = np.random.default_rng(5)
    archive = empty(CELLS["plane"], DIM)
    for generation in range(4):
        before = int(archive.occupied.sum())
        batch = random_batch(rng, CELLS["plane"], 4)
        archive, status = jitted_add(archive, **batch, generation=generation)
        assert (np.asarray(status) == Status.NEW).sum() == archive.occupied.sum() - before


def test_features_out_of_bounds_enter_border_cells_and_are_stored_unchanged():
    feature = np.float32([[-9.0, 0.0], [9.0, 0.0], [0.1, -9.0], [0.1, 9.0], [9.0, 9.0]])
    archive, status = jitted_add(
        empty(grid(3, 3), DIM),
        jnp.ones((5, DIM)),
        Evaluation(jnp.zeros(5), jnp.asarray(feature)),
        jnp.ones(5, bool),
        lane=jnp.arange(5),
        generation=0,
    )
    assert (np.asarray(status) == Status.NEW).all()
    np.testing.assert_array_equal(np.flatnonzero(archive.occupied), [1, 3, 5, 7, 8])
    np.testing.assert_array_equal(archive.feature[np.array([1, 7, 3, 5, 8])], feature)


def test_generation_may_differ_from_row_to_row():
    rng = np.random.default_rng(6)
    batch, _ = filled(rng, CELLS["plane"], faults=False)
    archive, _ = jitted_add(empty(CELLS["plane"], DIM), **batch, generation=batch["lane"] + 100)
    elites = np.asarray(archive.occupied)
    np.testing.assert_array_equal(archive.generation[elites], archive.lane[elites] + 100)


def test_an_archive_without_genotypes_accepts_the_same_rows():
    rng = np.random.default_rng(7)
    batch, full = filled(rng, CELLS["plane"])
    bare, _ = jitted_add(empty(CELLS["plane"], 0), **batch | {"x": batch["x"][:, :0]}, generation=0)
    assert_same(replace(bare, genotypes=full.genotypes), full)


def test_an_empty_archive_has_no_elites():
    archive = empty(CELLS["space"], DIM)
    assert archive.genotypes.shape == (12, DIM)
    assert archive.feature.shape == (12, 3)
    assert not archive.occupied.any()
