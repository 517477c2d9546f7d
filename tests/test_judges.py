"""Judges other than the archive agree with NumPy implementations of their publications."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.archive import Entries, Status, empty
from memes.cells import Grid
from memes.context import Context, Parents
from memes.history import Past, dominated_novelty
from memes.judges import DNSPopulation, Offer
from memes.objectives import DominatedNovelty
from memes.task import Evaluation

SIZE, BATCH, NEIGHBOURS = 12, 8, 3
CELLS = Grid(jnp.zeros(2), jnp.ones(2), (4, 4))
NOTHING = empty(CELLS, 3)


def scores(fitness, feature, neighbours):
    """Return the score of each individual, as in the publication. All fitness values must differ."""
    found = []
    for i in range(len(fitness)):
        fitter = [j for j in range(len(fitness)) if fitness[j] > fitness[i]]
        distances = sorted(np.linalg.norm(feature[i] - feature[j]) for j in fitter)[:neighbours]
        found.append(np.mean(distances) if fitter else np.inf)
    return np.array(found)


def drawn(rng, n):
    return Evaluation(np.float32(rng.normal(size=n)), np.float32(rng.random((n, 2))))


def offer(x, evaluation, offered=None, generation=0):
    n = len(evaluation.fitness)
    offered = jnp.ones(n, bool) if offered is None else jnp.asarray(offered)
    candidates = Entries(
        jnp.asarray(x), jax.tree.map(jnp.asarray, evaluation), offered, jnp.arange(n), jnp.full(n, -1)
    )
    return Offer(candidates, jnp.zeros(n, jnp.int32), generation)


@jax.jit(static_argnums=0)
def updated(judge, state, x, evaluation, offered, generation):
    return judge.update(state, NOTHING, offer(x, evaluation, offered, generation))


def update(judge, state, x, evaluation, offered=None, generation=0):
    offered = np.ones(len(x), bool) if offered is None else np.asarray(offered)
    return updated(judge, state, np.float32(x), evaluation, offered, generation)


def line(fitness, place):
    """Return individuals with features on a line."""
    return Evaluation(np.float32(fitness), np.stack([np.float32(place), np.zeros(len(place))], axis=1))


@pytest.mark.parametrize("neighbours", [1, 3, 40])
def test_dominated_novelty_is_the_mean_distance_to_the_nearest_fitter_individuals(neighbours):
    everyone = drawn(np.random.default_rng(0), 30)
    expected = scores(*everyone[:2], neighbours)
    found = dominated_novelty(everyone, everyone, neighbours, itself=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # Each query is scored separately against `everyone`. Empty rows of the population are ignored.
    query = drawn(np.random.default_rng(1), 5)
    gaps = Evaluation(
        np.append(everyone.fitness, -np.inf), np.append(everyone.feature, [[0, 0]], axis=0)
    )
    found = dominated_novelty(query, gaps, neighbours)
    for i in range(5):
        together = [
            np.append(a, b[i : i + 1], axis=0) for a, b in zip(everyone[:2], query[:2], strict=True)
        ]
        np.testing.assert_allclose(found[i], scores(*together, neighbours)[-1], rtol=1e-5)


def test_the_survivors_of_three_individuals():
    """With one neighbour, the scores of three individuals are infinity, 1 and 4.

    The score of the second individual is its distance to the first individual. The score of the third
    individual is its distance to the second individual.
    """
    judge = DNSPopulation(2, neighbours=1)
    state, status = update(judge, judge.init(CELLS, 1), np.zeros((3, 1)), line([3, 2, 1], [0, 1, 5]))
    np.testing.assert_array_equal(status, [Status.NEW, Status.REJECTED, Status.NEW])
    np.testing.assert_array_equal(state.fitness, [3, 1])
    # At feature 1, the new individual has score 1. It is rejected, because the last individual has score
    # 4.
    state, status = update(judge, state, np.zeros((1, 1)), line([2], [1]))
    np.testing.assert_array_equal(status, [Status.REJECTED])
    # At feature 4, the new individual has score 4. It replaces the last individual, which has score 1.
    state, status = update(judge, state, np.zeros((1, 1)), line([2], [4]))
    np.testing.assert_array_equal(status, [Status.NEW])
    np.testing.assert_array_equal(state.fitness, [3, 2])


def test_a_population_agrees_with_the_publication_over_generations():
    judge, rng = DNSPopulation(SIZE, NEIGHBOURS), np.random.default_rng(2)
    state = judge.init(CELLS, 3)
    members = np.zeros((0, 3)), np.zeros(0), np.zeros((0, 2))
    for generation in range(6):
        batch, x = drawn(rng, BATCH), np.float32(rng.normal(size=(BATCH, 3)))
        before = np.asarray(state.genotypes)
        state, status = update(judge, state, x, batch, generation=generation)
        union = [np.concatenate(pair) for pair in zip(members, (x, *batch[:2]), strict=True)]
        kept = np.argsort(-scores(union[1], union[2], NEIGHBOURS), kind="stable")[:SIZE]
        assert set(np.flatnonzero(status)) == {i - len(members[0]) for i in kept if i >= len(members[0])}
        members = [part[np.sort(kept)] for part in union]
        alive = np.asarray(state.occupied)
        order, expected = np.argsort(np.asarray(state.fitness)[alive]), np.argsort(members[1])
        for found, part in zip((state.genotypes, state.fitness, state.feature), members, strict=True):
            np.testing.assert_array_equal(np.asarray(found)[alive][order], part[expected])
        # Survivors keep their rows. All rows that changed contain individuals of this generation.
        written = (np.asarray(state.genotypes) != before).any(axis=1)
        np.testing.assert_array_equal(np.asarray(state.generation)[written], generation)
        assert written.sum() == (np.asarray(status) > 0).sum()


def test_copies_and_non_finite_individuals_do_not_enter():
    judge = DNSPopulation(4, neighbours=1)
    x, state = np.zeros((5, 1)), judge.init(CELLS, 1)
    # The second individual is a copy of the first individual. It enters, because a row is free.
    bad = line([1, 1, np.nan, 5, 2], [0, 0, 0, np.inf, 1])
    state, status = update(judge, state, x, bad, offered=[True, True, True, True, False])
    np.testing.assert_array_equal(status, [Status.NEW, Status.NEW, 0, 0, 0])
    # No row is free now, so only one of several copies survives.
    state, status = update(judge, state, x, line([1, 2, 3, 4, 4], [0, 1, 2, 3, 3]))
    assert sorted(np.asarray(state.fitness).tolist()) == [1, 2, 3, 4]
    np.testing.assert_array_equal(status, [0, Status.NEW, Status.NEW, Status.NEW, 0])


def test_compare_ranks_candidates_against_the_current_population():
    judge = DNSPopulation(2, neighbours=1)
    state, _ = update(judge, judge.init(CELLS, 1), np.zeros((2, 1)), line([3, 1], [0, 5]))
    compared = judge.compare(state, NOTHING, line([2, 2, 4], [1, 6, 0]))
    np.testing.assert_array_equal(compared.status, [0, Status.NEW, Status.NEW])  # accepted above score 5
    np.testing.assert_allclose(compared.value[:2], [1, 6])
    assert compared.value[2] == np.finfo(np.float32).max
    # If the population is not full, all individuals are accepted.
    roomy, _ = update(
        DNSPopulation(3), DNSPopulation(3).init(CELLS, 1), np.zeros((2, 1)), line([3, 1], [0, 5])
    )
    np.testing.assert_array_equal(DNSPopulation(3).compare(roomy, NOTHING, line([2], [0])).status, [2])


def test_parents_come_from_the_population_and_the_archive_keeps_the_best_of_each_cell():
    task = memes.tasks.arm(joints=3)
    cells = memes.cells.grid(task, (3, 3))
    algorithm = memes.presets.dns(task, cells, batch=6, population_size=20)
    step, ask = jax.jit(algorithm.step), jax.jit(algorithm.ask)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    best = np.full(9, -np.inf)
    for generation in range(6):
        key = jax.random.fold_in(jax.random.key(1), generation)
        asked, _ = ask(jax.random.split(jax.random.clone(key))[0], state)
        features = np.asarray(state.judge.feature)[np.asarray(state.judge.occupied)]
        assert len(features) == min(20, 6 * generation)
        if generation:
            assert all((features == parent).all(axis=1).any() for parent in np.asarray(asked.emitter))
        state, info = step(key, state)
        np.maximum.at(best, np.asarray(state.archive.cells.index(info.feature)), info.fitness)
        np.testing.assert_array_equal(state.archive.fitness, best)


def test_the_objective_is_the_score_among_the_parents():
    parents = drawn(np.random.default_rng(3), 16)
    own = Parents(jnp.zeros((16, 3)), *map(jnp.asarray, parents[:2]), jnp.full(16, -1, jnp.int32))
    past = Past(jnp.zeros((0, 2)), jnp.zeros(0, bool))
    context = Context(None, jnp.int32(0), NOTHING, own, past, None)
    batch = drawn(np.random.default_rng(4), 7)
    batch.fitness[0] = parents.fitness.max() + 1
    lane = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], batch)
    _, utilities = DominatedNovelty(NEIGHBOURS).utilities((), lane, context)
    expected = [
        scores(np.append(parents.fitness, f), np.append(parents.feature, [b], axis=0), NEIGHBOURS)[-1]
        for f, b in zip(*batch[:2], strict=True)
    ]
    np.testing.assert_array_equal(np.argsort(utilities[0]), np.argsort(expected))
    assert utilities[0, 0] == 0.5  # it is fitter than all parents


@pytest.mark.parametrize("wrong", [{"size": 0}, {"neighbours": 0}])
def test_wrong_population_sizes_and_neighbours_are_refused(wrong):
    with pytest.raises(memes.UsageError, match="must be at least 1"):
        DNSPopulation(**wrong)
