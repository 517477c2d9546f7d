"""Deep archives agree with NumPy code. Runs record elites that become worse, and emptied cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.archive import Entries, Status, empty
from memes.cells import Grid
from memes.context import Context
from memes.deep_archive import DeepArchive
from memes.emitters import Isoline, Reevaluation
from memes.judges import Offer
from memes.store.changes import last_per_cell
from memes.task import Evaluation

DEPTH, BATCH = 3, 12
CELLS = Grid(jnp.zeros(2), jnp.ones(2), (2, 2))
JUDGE = DeepArchive(DEPTH)


@jax.jit
def generation_of(state, archive, candidates, generation):
    offer = Offer(candidates, jnp.zeros(BATCH, jnp.int32), generation)
    after, status = JUDGE.update(state, archive, offer)
    return after, JUDGE.elites(after, archive, generation), status


def oracle(cells, batch):
    """Insert evaluated genotypes into lists of (name, fitness values, features), one list per cell."""
    pool = []
    for name, fitness, feature in batch:
        known = [each for cell in cells for each in cell if each[0] == name]
        old = known[0] if known else (name, [], [])
        for cell in cells:
            cell[:] = [each for each in cell if each[0] != name]
        pool.append((name, [*old[1], fitness], [*old[2], feature]))
    for each in pool:
        place = np.mean(each[2], axis=0)
        cells[int(place[0] >= 0.5) * 2 + int(place[1] >= 0.5)].append(each)
    for cell in cells:
        cell.sort(key=lambda each: -np.mean(each[1]))
        del cell[DEPTH:]


def test_a_deep_archive_agrees_with_numpy_over_generations():
    """Genotypes serve as names, so that the test can follow individuals."""
    rng = np.random.default_rng(0)
    state, archive = JUDGE.init(CELLS, 1), empty(CELLS, 1)
    cells, names = [[] for _ in range(4)], iter(range(1, 10_000))
    emptied = worse = 0
    for generation in range(40):
        present = np.flatnonzero(np.asarray(state.fitness) > -np.inf)
        again = rng.permutation(present)[: BATCH // 2]
        again = np.concatenate([again, np.full(BATCH - len(again), -1)]).astype(np.int32)
        old = np.asarray(state.genotypes)[:, 0]
        name = np.array([old[row] if row >= 0 else next(names) for row in again], np.float32)
        fitness, feature = rng.normal(size=BATCH), rng.random((BATCH, 2))
        feature[:, 0] *= 0.6  # two cells have few individuals, and sometimes become empty
        evaluation = Evaluation(jnp.float32(fitness), jnp.float32(feature))
        candidates = Entries(
            jnp.asarray(name)[:, None],
            evaluation,
            jnp.ones(BATCH, bool),
            jnp.arange(BATCH),
            jnp.asarray(again),
        )
        before = archive
        state, archive, status = generation_of(state, archive, candidates, jnp.int32(generation))
        oracle(cells, list(zip(name, fitness, feature, strict=True)))

        rows = np.asarray(state.genotypes).reshape(4, DEPTH), np.asarray(state.fitness).reshape(4, DEPTH)
        counts = np.asarray(state.evaluations).reshape(4, DEPTH)
        for i, cell in enumerate(cells):
            used = rows[1][i] > -np.inf
            order = np.argsort(-rows[1][i][used])
            np.testing.assert_array_equal(rows[0][i][used][order], [each[0] for each in cell])
            np.testing.assert_array_equal(counts[i][used][order], [len(each[1]) for each in cell])
            means = [np.mean(each[1]) for each in cell]
            np.testing.assert_allclose(rows[1][i][used][order], means, rtol=1e-4, atol=1e-5)
            assert bool(archive.occupied[i]) == bool(cell)
            assert float(archive.genotypes[i, 0]) == (cell[0][0] if cell else 0)
        first = {cell[0][0] for cell in cells if cell}
        np.testing.assert_array_equal(np.asarray(status) > 0, [each in first for each in name])
        changed = np.asarray(archive.generation) == generation
        same = np.asarray(archive.fitness) == np.asarray(before.fitness)
        assert (changed | same).all()
        emptied += int((before.occupied & ~archive.occupied).sum())
        worse += int((archive.fitness < before.fitness).sum())
    assert emptied >= 1
    assert worse >= 10


def test_invalid_evaluations_change_nothing():
    evaluation = Evaluation(jnp.zeros(BATCH), jnp.full((BATCH, 2), 0.2))
    new = jnp.full(BATCH, -1, jnp.int32)
    x = jnp.arange(BATCH, dtype=jnp.float32)[:, None]
    first = Entries(x, evaluation, jnp.ones(BATCH, bool), jnp.arange(BATCH), new)
    state, archive, status = generation_of(JUDGE.init(CELLS, 1), empty(CELLS, 1), first, jnp.int32(0))
    np.testing.assert_array_equal(np.asarray(status), [Status.NEW] + [Status.REJECTED] * (BATCH - 1))
    bad = Evaluation(jnp.full(BATCH, jnp.nan), evaluation.feature)
    again = first._replace(evaluation=bad, again=jnp.zeros(BATCH, jnp.int32).at[1:].set(-1))
    unchanged, same, status = generation_of(state, archive, again, jnp.int32(1))
    jax.tree.map(np.testing.assert_array_equal, (unchanged, same), (state, archive))
    assert not np.asarray(status).any()


def test_individuals_are_drawn_in_proportion_to_exp_of_minus_their_rank():
    task = memes.tasks.arm(joints=2)
    parents = JUDGE.init(CELLS, 2)._replace(
        fitness=jnp.array([1, 3, 2, 5, -jnp.inf, 4, *[-jnp.inf] * 6]),  # ranks 2 0 1, 0 - 1
        feature=jnp.repeat(jnp.array([[0.2, 0.2], [0.2, 0.7], [0.7, 0.2], [0.7, 0.7]]), DEPTH, axis=0),
    )
    context = Context(
        task, jnp.int32(1), empty(CELLS, 2), JUDGE.parents(parents, empty(CELLS, 2)), None, None
    )

    def drawn(key, size):
        return Reevaluation(size).ask(key, jnp.zeros((size, 2)), context)[1]

    keys, other = (jax.random.split(jax.random.key(seed), 4000) for seed in (0, 1))
    rows = np.asarray(jax.jit(jax.vmap(lambda key: drawn(key, 1).again[0]))(keys))
    weight = np.exp(-np.array([2, 0, 1, 0, np.inf, 1]))
    np.testing.assert_allclose(
        np.bincount(rows, minlength=6) / len(keys), weight / weight.sum(), atol=0.03
    )
    # Draws are without replacement. New genotypes fill the batch if there are too few individuals.
    for size, key in zip((7, 20), other, strict=False):
        batch = drawn(key, size)
        again = np.asarray(batch.again)
        assert sorted(again[again >= 0]) == [0, 1, 2, 3, 5]
        x = np.asarray(batch.candidates.x)[again < 0]
        assert len(np.unique(x, axis=0)) == size - 5


def test_the_change_log_reproduces_an_archive_whose_cells_become_empty(tmp_path):
    task = memes.tasks.noisy_arm(joints=4, fitness_noise=0.2, feature_noise=0.3)
    algorithm = memes.presets.extract_me(task, memes.cells.grid(task, (12, 12)), batch=40, depth=2)
    run = memes.run(algorithm, generations=40, seed=0, out=tmp_path / "run", progress=False)
    changes = memes.load_changes(run.folder)
    assert (changes.fitness == -np.inf).any()
    last, archive = last_per_cell(changes, 40), run.archive
    last = last._replace(
        **{name: np.asarray(column)[np.argsort(last.cell)] for name, column in last._asdict().items()}
    )
    elites = np.flatnonzero(archive.occupied)
    np.testing.assert_array_equal(last.cell, elites)
    for name in ("fitness", "feature", "lane", "generation"):
        np.testing.assert_array_equal(getattr(last, name), np.asarray(getattr(archive, name))[elites])
    fitness = np.full(archive.cells.count, -np.inf)
    decreases = 0
    for cell, value in zip(changes.cell, changes.fitness, strict=True):
        decreases += value < fitness[cell]
        fitness[cell] = value
    assert decreases > 10
    np.testing.assert_array_equal(fitness, archive.fitness)


def test_the_deep_archive_loses_less_than_map_elites_when_elites_are_evaluated_again():
    task = memes.tasks.noisy_arm(joints=4, fitness_noise=0.2, feature_noise=0.02)
    cells = memes.cells.grid(task, (8, 8))
    loss = {}
    for preset in (memes.presets.me, memes.presets.extract_me):
        run = memes.run(preset(task, cells, batch=64), generations=150, seed=0, progress=False)
        correction = memes.reevaluate(run.archive, task, samples=64)
        loss[preset.__name__] = memes.metrics.archive_loss(run.archive, correction.archive)["qd_score"]
    assert loss["extract_me"] < 0.7 * loss["me"]


def test_wrong_settings_are_refused():
    task = memes.tasks.arm(joints=2)
    with pytest.raises(memes.UsageError, match="offer_samples must be False with judge DeepArchive"):
        memes.compose(task, Isoline(4), judge=DeepArchive(), offer_samples=True)
    for wrong in ({"depth": 0}, {"proportion_reevaluated": 1.0}, {"batch": 1}):
        with pytest.raises(memes.UsageError, match=next(iter(wrong))):
            memes.presets.extract_me(task, **wrong)
