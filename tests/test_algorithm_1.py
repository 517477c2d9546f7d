"""Every generation of a run agrees with a NumPy implementation of the paper's Algorithm 1.

The tests compare this implementation with a run on one device and with a run in two shards.
"""

import jax
import numpy as np
import pytest

import memes
from memes.archive import Status
from memes.resets import Reason
from memes.runner.placement import REPLICATED, SHARDED, Placement

LANES, EXPLOIT, SAMPLES, BUDGET, NEIGHBOURS = 8, 4, 16, 2, 3
SIGMA, RATE = 0.05, 0.05


class Algorithm1:
    """A line-by-line implementation of Algorithm 1, which receives samples and their evaluations."""

    def __init__(self, cells, lanes, dim):
        self.cells = cells
        self.archive = {}  # cell -> (fitness, genotype)
        self.novelty_archive = []
        self.theta = np.zeros((lanes, dim))
        self.require_reset = np.zeros(lanes, bool)
        self.stale = np.zeros(lanes, int)
        self.steps = np.zeros(lanes, int)
        self.adam_m, self.adam_v = np.zeros((lanes, dim)), np.zeros((lanes, dim))

    def reset(self, lane, theta):
        self.theta[lane], self.stale[lane], self.steps[lane] = theta, 0, 0
        self.adam_m[lane], self.adam_v[lane] = 0, 0

    def update_archives(self, fitness, feature, offered):
        """Offer the means as one batch.

        Each cell accepts the fittest mean, or the first of several equally fit means.
        """
        cell = np.asarray(self.cells.index(feature))
        added = np.zeros(len(fitness), int)
        for c in set(cell[offered].tolist()):
            rows = [i for i in np.flatnonzero(offered) if cell[i] == c]
            best = max(rows, key=lambda i: (fitness[i], -i))
            before = self.archive.get(c)
            if before is None or fitness[best] > before[0]:
                added[best] = Status.NEW if before is None else Status.IMPROVED
                self.archive[c] = (fitness[best], self.theta[best].copy())
        self.novelty_archive += [feature[i] for i in np.flatnonzero(offered)]
        return added

    def novelty(self, feature):
        past = np.asarray(self.novelty_archive)
        distance = np.sort(np.linalg.norm(feature[:, None] - past[None], axis=-1), axis=1)
        return distance[:, :NEIGHBOURS].mean(axis=1)

    def es_step(self, lane, x, objective):
        order = np.array([np.sum(f > objective) + 0.5 * (np.sum(f == objective) - 1) for f in objective])
        utility = order / (len(objective) - 1) - 0.5
        noise = (x - self.theta[lane]) / SIGMA
        gradient = (utility[:, None] * noise).sum(axis=0) / (len(objective) * SIGMA)
        self.steps[lane] += 1
        t = self.steps[lane]
        self.adam_m[lane] = 0.9 * self.adam_m[lane] + 0.1 * gradient
        self.adam_v[lane] = 0.999 * self.adam_v[lane] + 0.001 * gradient**2
        m, v = self.adam_m[lane] / (1 - 0.9**t), self.adam_v[lane] / (1 - 0.999**t)
        self.theta[lane] += RATE * m / (np.sqrt(v) + 1e-8)


def whole(algorithm):
    """Return the compiled functions `step` and `init` of an algorithm.

    `step(key, state)` computes one generation, and returns `(state, info, outcome[1, n, ...])`.
    """

    @jax.jit
    def step(key, state):
        ask_key, evaluate_key = jax.random.split(key)
        state, batch = algorithm.ask(ask_key, state)
        evaluation = algorithm.evaluate(evaluate_key, batch)
        state, info = algorithm.tell(state, batch, evaluation)
        outcome = algorithm.assess(batch, evaluation)
        return state, info, jax.tree.map(lambda leaf: leaf[None], outcome)

    return step, jax.jit(algorithm.init)


def in_two_shards(algorithm):
    """Return `step` and `init` as in `whole`, but for two shards. The outcome is [2, n, ...]."""
    placement = Placement(2, (jax.devices()[0],))
    sharded = placement.sharded(algorithm)
    state = placement.of_state(algorithm, 1)
    step = placement.mapped(
        lambda here, key, state: sharded.step(key, state, here),
        (REPLICATED, REPLICATED, state),
        (state, REPLICATED, SHARDED),
    )
    compiled = jax.jit(step)
    return lambda key, state: compiled(np.int32(2), key, state), jax.jit(sharded.init)


@pytest.fixture(scope="module", params=[whole, in_two_shards])
def followed_run(request):
    """Run the NumPy implementation and the library together.

    Returns a trace of all generations, and the final states of both implementations.
    """
    task = memes.tasks.arm(joints=4)
    cells = memes.cells.grid(task, (7, 7))
    algorithm = memes.presets.memes(
        task, cells, lanes=LANES, samples=SAMPLES, sigma=SIGMA, learning_rate=RATE,
        stale_budget=BUDGET, neighbours=NEIGHBOURS, fifo_size=10_000,
    )  # fmt: skip
    step, init = request.param(algorithm)
    oracle = Algorithm1(cells, LANES, task.dim)
    init_key, run_key = jax.random.split(jax.random.key(3))
    state = init(init_key)
    trace = []
    for generation in range(120):
        state, info, outcome = step(jax.random.fold_in(run_key, generation), state)
        (mean, means, _, lane, _), samples, *_ = jax.device_get(outcome)
        shards = len(lane)
        np.testing.assert_array_equal(lane.ravel(), np.arange(LANES))
        mean, x = (np.float64(x).reshape(LANES, -1, task.dim) for x in (mean, samples.x))
        mean = mean[:, 0]
        fitness, feature = means.fitness.ravel(), means.feature.reshape(LANES, -1)
        sample_fitness = samples.evaluation.fitness.reshape(LANES, SAMPLES)
        sample_feature = samples.evaluation.feature.reshape(LANES, SAMPLES, -1)

        fresh = oracle.require_reset.copy()
        for lane in range(LANES):
            if generation == 0 or fresh[lane]:
                oracle.reset(lane, mean[lane])
        gap = np.abs(oracle.theta - mean).max()
        oracle.theta = mean.copy()  # use the library's means, so that errors do not accumulate
        elites_before = {tuple(genotype) for _, genotype in oracle.archive.values()}

        status = oracle.update_archives(fitness, feature, ~fresh)
        for lane in range(LANES):
            if oracle.steps[lane] == 0:
                oracle.require_reset[lane] = False
                continue
            oracle.stale[lane] = 0 if status[lane] else oracle.stale[lane] + 1
            oracle.require_reset[lane] = oracle.stale[lane] > BUDGET
        stale, age = oracle.stale.copy(), oracle.steps.copy()
        for lane in range(LANES):
            exploits = lane % (LANES // shards) < EXPLOIT // shards  # each shard has lanes of both kinds
            objective = sample_fitness[lane] if exploits else oracle.novelty(sample_feature[lane])
            oracle.es_step(lane, x[lane], objective)

        expected = {
            "status": status, "stale": stale, "age": age, "offered": ~fresh,
            "reset": np.where(oracle.require_reset, Reason.STALE, Reason.NONE),
        }  # fmt: skip
        trace.append((gap, expected, info, fresh, mean, elites_before))
    return trace, oracle, state


@pytest.mark.parametrize("name", ["status", "stale", "age", "offered", "reset"])
def test_lanes_agree_with_algorithm_1(followed_run, name):
    trace, _, _ = followed_run
    for generation, (_, expected, info, *_) in enumerate(trace):
        np.testing.assert_array_equal(getattr(info, name), expected[name], str(generation))


def test_means_agree_with_algorithm_1(followed_run):
    trace, _, _ = followed_run
    assert max(gap for gap, *_ in trace) < 2e-5


def test_a_reset_starts_from_an_elite(followed_run):
    trace, _, _ = followed_run
    starts = [
        tuple(mean[lane]) in elites
        for _, _, _, fresh, mean, elites in trace
        for lane in np.flatnonzero(fresh)
    ]
    assert len(starts) > 20
    assert all(starts)


def test_archives_agree_with_algorithm_1(followed_run):
    _, oracle, state = followed_run
    archive = state.archive
    assert set(np.flatnonzero(archive.occupied)) == set(oracle.archive)
    for cell, (fitness, genotype) in oracle.archive.items():
        assert archive.fitness[cell] == fitness
        np.testing.assert_array_equal(archive.genotypes[cell], genotype.astype(np.float32))
    size = int(state.history.size)
    np.testing.assert_array_equal(state.history.rows[:size], np.asarray(oracle.novelty_archive))
