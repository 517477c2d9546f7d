from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memes.archive import empty
from memes.cells import Grid
from memes.context import Context
from memes.errors import UsageError
from memes.history import Past
from memes.selectors import (
    Cycle,
    Either,
    Fittest,
    FittestOfLatest,
    MostNovel,
    Uniform,
    select,
)
from memes.task import Task
from memes.task import uniform as uniform_init

# Initial genotypes are drawn from [5, 6], which contains no elite.
TASK = Task("toy", 3, (0.0, 0.0), (1.0, 1.0), uniform_init(3, 5.0, 6.0), lambda keys, x: None)
CELLS = Grid(jnp.zeros(2), jnp.ones(2), (4, 4))
ELITES = np.array([0, 3, 4, 11, 15])
FITNESS = np.array([-3.0, -1.0, -5.0, -2.0, -4.0], np.float32)
DRAWS = 2000
FITTEST = {count: Fittest(count) for count in (1, 3, 100)}
MOST_NOVEL = {neighbours: MostNovel(2, neighbours) for neighbours in (1, 2)}


def archive_of(cells, fitness):
    """Return an archive with elites in the given cells. The elites differ in all fields."""
    cells = np.asarray(cells)
    feature = np.stack([cells // 4, cells % 4], axis=1) / 4 + 0.125
    return replace(
        empty(CELLS, 3),
        genotypes=jnp.zeros((16, 3)).at[cells].set(np.float32(cells[:, None] + [0.25, 0.5, 0.75])),
        fitness=jnp.full(16, -jnp.inf).at[cells].set(fitness),
        feature=jnp.zeros((16, 2)).at[cells].set(np.float32(feature)),
    )


ARCHIVE = archive_of(ELITES, FITNESS)
# These features are far from the origin, which is the feature of empty cells. Novelty with one
# neighbour ranks the elites differently from novelty with two neighbours.
PAST = Past(jnp.array([[0.4, 0.3], [1.0, 0.5], [1.0, 0.6], [0.0, 0.0]]), jnp.arange(4) < 3)


@partial(jax.jit, static_argnums=0)
def draw(selector, key, archive, past=PAST, generation=0):
    return select(
        selector, key, Context(TASK, jnp.int32(generation), archive, archive, past, None), DRAWS
    )


def test_a_draw_does_not_depend_on_which_draws_are_wanted():
    context = Context(TASK, jnp.int32(0), ARCHIVE, ARCHIVE, PAST, None)
    wanted = jnp.arange(4) == 2
    some = select(Uniform(), jax.random.key(0), context, 4, wanted)
    all_draws = select(Uniform(), jax.random.key(0), context, 4)
    np.testing.assert_array_equal(some.x[2], all_draws.x[2])
    np.testing.assert_array_equal(some.feature[2], all_draws.feature[2])
    assert select(Uniform(), jax.random.key(0), context, 4, wanted & False).x.shape == (4, 3)


def drawn_cells(individuals, archive=ARCHIVE):
    """Check that all fields of each drawn elite come from one cell. Return these cells."""
    cell = np.floor(np.asarray(individuals.x[:, 0])).astype(int)
    assert np.asarray(archive.occupied)[cell].all()
    np.testing.assert_array_equal(individuals.x, archive.genotypes[cell])
    np.testing.assert_array_equal(individuals.fitness, archive.fitness[cell])
    np.testing.assert_array_equal(individuals.feature, archive.feature[cell])
    return cell


def assert_uniform_over(cell, elites):
    assert set(cell) == set(elites)
    expected = DRAWS / len(elites)
    chi_square = sum((np.sum(cell == e) - expected) ** 2 / expected for e in elites)
    # A chi-square value has mean df and variance 2 df, so the bound is five standard deviations above
    # the mean.
    df = len(elites) - 1
    assert chi_square < df + 5 * np.sqrt(2 * df) + 1e-9


def test_uniform_draws_whole_elites_with_equal_probability():
    assert_uniform_over(drawn_cells(draw(Uniform(), jax.random.key(0), ARCHIVE)), ELITES)


def test_uniform_draws_are_independent_of_each_other():
    cell = drawn_cells(draw(Uniform(), jax.random.key(1), ARCHIVE))
    again = drawn_cells(draw(Uniform(), jax.random.key(2), ARCHIVE))
    # There are five elites, so two independent draws are equal with probability 1/5.
    for a, b in ((cell[1:], cell[:-1]), (cell, again)):
        assert abs(np.mean(a == b) - 0.2) < 5 * np.sqrt(0.16 / DRAWS)


@pytest.mark.parametrize("cell", [0, 7, 15])
def test_a_lone_elite_is_always_drawn(cell):
    archive = archive_of([cell], np.float32([-1.0]))
    for seed, selector in enumerate([Uniform(), FITTEST[3], MOST_NOVEL[1]]):
        individuals = draw(selector, jax.random.key(seed), archive)
        assert set(drawn_cells(individuals, archive)) == {cell}


@pytest.mark.parametrize("count", FITTEST)
def test_fittest_draws_uniformly_from_only_the_fittest_elites(count):
    cell = drawn_cells(draw(FITTEST[count], jax.random.key(count), ARCHIVE))
    assert_uniform_over(cell, ELITES[np.argsort(-FITNESS)][:count])


@pytest.mark.parametrize("neighbours", MOST_NOVEL)
def test_most_novel_draws_uniformly_from_only_the_most_novel_elites(neighbours):
    feature = np.asarray(ARCHIVE.feature)[ELITES]
    points = np.asarray(PAST.feature)[np.asarray(PAST.valid)]
    distance = np.linalg.norm(feature[:, None] - points, axis=-1)
    novelty = np.sort(distance, axis=1)[:, :neighbours].mean(axis=1)
    cell = drawn_cells(draw(MOST_NOVEL[neighbours], jax.random.key(neighbours), ARCHIVE))
    assert_uniform_over(cell, ELITES[np.argsort(-novelty)][:2])


@pytest.mark.parametrize(("count", "latest"), [(2, 3), (1, 1), (4, 2), (2, 100)])
def test_fittest_of_latest_draws_uniformly_from_the_fittest_of_the_latest_cells(count, latest):
    changed = np.array([7, 2, 9, 4, 5])  # the generation of each elite
    archive = replace(ARCHIVE, generation=jnp.full(16, -1).at[ELITES].set(changed))
    recent = np.argsort(-changed)[:latest]
    expected = recent[np.argsort(-FITNESS[recent])][:count]
    cell = drawn_cells(draw(FittestOfLatest(count, latest), jax.random.key(5), archive))
    assert_uniform_over(cell, ELITES[expected])


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_either_uses_each_selector_with_its_probability(probability):
    best, last = ELITES[FITNESS.argmax()], ELITES[-1]
    archive = replace(ARCHIVE, generation=jnp.full(16, -1).at[last].set(1))
    selector = Either(Fittest(1), FittestOfLatest(1, 1), probability)
    cell = drawn_cells(draw(selector, jax.random.key(6), archive))
    assert set(cell) <= {best, last}
    error = 5 * np.sqrt(probability * (1 - probability) / DRAWS)
    assert abs(np.mean(cell == best) - probability) <= error


def test_cycle_alternates_between_selectors():
    selector = Cycle(FITTEST[1], MOST_NOVEL[1], 3)
    for generation in range(8):
        cell = drawn_cells(draw(selector, jax.random.key(7), ARCHIVE, PAST, generation))
        assert len(set(cell)) == (1 if generation // 3 % 2 == 0 else 2)


def test_most_novel_never_draws_an_empty_cell():
    # The stored feature of an empty cell is the origin. This feature would be more novel than the
    # features of all elites.
    archive = archive_of([10, 15], np.float32([1.0, 2.0]))
    cell = drawn_cells(draw(MOST_NOVEL[1], jax.random.key(3), archive), archive)
    assert_uniform_over(cell, [10, 15])


@pytest.mark.parametrize("selector", [Uniform(), FITTEST[3]])
def test_an_empty_archive_gives_draws_of_init_that_were_never_evaluated(selector):
    x, fitness, feature = draw(selector, jax.random.key(4), empty(CELLS, 3))
    assert ((x >= 5) & (x <= 6)).all()
    assert len(np.unique(x, axis=0)) == DRAWS
    assert np.isnan(fitness).all()
    assert feature.shape == (DRAWS, 2)
    assert np.isnan(feature).all()


@pytest.mark.parametrize("selector", [Fittest, MostNovel])
def test_a_count_of_zero_is_refused(selector):
    with pytest.raises(UsageError, match=r"^count must"):
        selector(0)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda: FittestOfLatest(1, 0), "^latest must"),
        (lambda: Either(Uniform(), Uniform(), 1.5), "^probability must"),
        (lambda: Cycle(Uniform(), Uniform(), 0), "^every must"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(mistake, sentence):
    with pytest.raises(UsageError, match=sentence):
        mistake()
