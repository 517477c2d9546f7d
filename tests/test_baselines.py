"""Tests of known properties of MEMES and the baselines. Each test uses five seeds.

See `benchmarks/baselines.py` for more comparisons.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes import presets
from memes.archive import add, empty


@pytest.fixture(scope="module")
def optimised():
    return True


SEEDS = 5


def archives(algorithm, generations):
    """Return the final archive of each seed, [seeds, ...]."""

    def run(key):
        init_key, run_key = jax.random.split(key)

        def step(state, generation):
            return algorithm.step(jax.random.fold_in(run_key, generation), state)[0], None

        return jax.lax.scan(step, algorithm.init(init_key, generations), jnp.arange(generations))[
            0
        ].archive

    return jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), SEEDS))


def filled(archive):
    """Return the number of filled cells for each seed."""
    return np.sum(np.asarray(archive.fitness) > -np.inf, axis=1)


def median_coverage(archive):
    return np.median(filled(archive)) / archive.fitness.shape[1]


def median_best(archive):
    return np.median(np.max(np.asarray(archive.fitness), axis=1))


def median_qd(archive):
    fitness = np.asarray(archive.fitness)
    return np.median(np.sum(fitness, axis=1, where=fitness > -np.inf))


def toy_task(evaluate, dim, start, edge, cells):
    return memes.Task(
        "toy",
        dim,
        (-edge, -edge),
        (edge, edge),
        start,
        memes.rowwise(evaluate),
        resolution=(cells, cells),
    )


def hills(key, x):
    """Return the fitness and the feature.

    The fitness has a hill of height 1 at the start, and a hill of height 3 beyond a valley.
    """
    x = jnp.clip(x, -1.0, 1.0)
    return jnp.maximum(1 - jnp.linalg.norm(x), 3 - 6 * jnp.linalg.norm(x - 0.7)), x


TRAP = toy_task(hills, 2, memes.uniform(2, -0.3, 0.1), 1.0, 20)


@pytest.fixture(scope="module")
def trapped():
    """Return the archives of ES, which climbs the low hill and stays on it."""
    return archives(presets.es(TRAP, samples=16), 1000)


def test_es_climbs_the_hill_it_starts_on_and_stays(trapped):
    best = np.max(np.asarray(trapped.fitness), axis=1)
    assert (best > 0.99).all()
    assert (best < 1.01).all()


@pytest.fixture(scope="module")
def spread():
    return archives(presets.ns_es(TRAP, samples=16), 1000)


def test_ns_es_spreads(trapped, spread):
    assert median_coverage(spread) > 5 * median_coverage(trapped)


def test_memes_fills_more_cells_than_es_and_ns_es_and_leaves_the_trap(trapped, spread):
    """MEMES fills more cells than ES and NS-ES in every seed, at equal numbers of evaluations."""
    algorithm = presets.memes(TRAP, lanes=16, samples=8)
    evaluations = 1000 * presets.es(TRAP, samples=16).batch_size
    found = archives(algorithm, evaluations // algorithm.batch_size)
    assert (filled(found) > filled(spread)).all()
    assert (filled(found) > filled(trapped)).all()
    assert median_best(found) > 2.5


@pytest.mark.long
def test_nsra_es_leaves_the_trap():
    found = archives(presets.nsra_es(TRAP, samples=16, patience=5), 1000)
    assert median_best(found) > 2.5


def test_me_es_spreads_and_climbs(trapped):
    found = archives(presets.me_es(TRAP, samples=16), 1000)
    assert median_coverage(found) > 3 * median_coverage(trapped)
    assert median_best(found) > 0.99


@pytest.mark.slow
def test_cma_me_beats_me_on_a_sphere_of_twenty_dimensions():
    """Compare QD-scores at equal numbers of evaluations.

    Each feature is the sum of ten entries of the genotype, so most features are near 0.
    """

    def sphere(key, x):
        folded = jnp.where(jnp.abs(x) <= 5, x, 25 / x)
        feature = jnp.stack([jnp.sum(folded[:10]), jnp.sum(folded[10:])])
        return 1 - jnp.sum(jnp.square(x - 2)) / 980, feature

    task = toy_task(sphere, 20, memes.uniform(20, -0.1, 0.1), 50.0, 100)
    by_cma = median_qd(archives(presets.cma_me(task), 500))
    assert by_cma > 1.5 * median_qd(archives(presets.me(task, batch=128), 500))


@pytest.mark.long
def test_me_sampling_loses_less_to_noise_than_me():
    """Compare archive losses at equal numbers of evaluations. Elites are re-evaluated without noise."""
    task = memes.tasks.noisy_arm(joints=4, fitness_noise=0.1, feature_noise=0.1)
    exact, cells = memes.tasks.arm(joints=4), memes.cells.grid(task, (10, 10))

    @jax.jit
    @jax.vmap
    def corrected(archive):
        truth = exact.evaluate(None, archive.genotypes)
        lane, generation = archive.lane, archive.generation
        return add(
            empty(cells, 4), archive.genotypes, truth, archive.occupied, lane=lane, generation=generation
        )[0]

    lost = {}
    for name, algorithm in {
        "me": presets.me(task, cells, batch=128),
        "me-sampling": presets.me_sampling(task, cells, batch=4, resamples=32),
    }.items():
        found = archives(algorithm, 200)
        lost[name] = 1 - median_qd(corrected(found)) / median_qd(found)
    assert lost["me-sampling"] < 0.6 * lost["me"]
