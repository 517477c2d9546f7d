import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memes.errors import UsageError, install
from memes.objectives import centred_ranks
from memes.strategies import Evosax
from memes.strategies.evosax import names

LANES, DIM, SAMPLES, SIGMA = 2, 5, 12, 0.3
CMA = Evosax("cma-es", samples=SAMPLES, sigma=SIGMA)
ask, tell = jax.jit(CMA.ask), jax.jit(CMA.tell)


def init(strategy, mean):
    return strategy.init(jax.random.key(0), mean)


def means(seed, lanes=LANES):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(lanes, DIM)), jnp.float32)


def ranks_of(values):
    return centred_ranks(values, jnp.ones(values.shape, bool))


def lanes_of(state, where):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[where], state)


class Tutorial:
    """CMA-ES for one lane in float64, as in Hansen's tutorial (arXiv 1604.00772, figure 6)."""

    def __init__(self, mean):
        n, lam = DIM, SAMPLES
        raw = np.log((lam + 1) / 2) - np.log(np.arange(1, lam + 1))
        mu = lam // 2
        self.mueff = raw[:mu].sum() ** 2 / (raw[:mu] ** 2).sum()
        mueff_minus = raw[mu:].sum() ** 2 / (raw[mu:] ** 2).sum()
        self.cc = (4 + self.mueff / n) / (n + 4 + 2 * self.mueff / n)
        self.c1 = 2 / ((n + 1.3) ** 2 + self.mueff)
        self.cmu = min(1 - self.c1, 2 * (self.mueff + 1 / self.mueff - 2) / ((n + 2) ** 2 + self.mueff))
        alpha = min(
            1 + self.c1 / self.cmu,
            1 + 2 * mueff_minus / (self.mueff + 2),
            (1 - self.c1 - self.cmu) / (n * self.cmu),
        )
        positive, negative = raw[raw > 0].sum(), -raw[raw < 0].sum()
        self.weights = np.where(raw >= 0, raw / positive, alpha * raw / negative)
        self.cs = (self.mueff + 2) / (n + self.mueff + 5)
        self.ds = 1 + 2 * max(0, np.sqrt((self.mueff - 1) / (n + 1)) - 1) + self.cs
        self.chi = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
        self.mean, self.sigma, self.C = np.float64(mean), SIGMA, np.eye(n)
        self.ps, self.pc, self.updates = np.zeros(n), np.zeros(n), 0

    def tell(self, x, utilities):
        y = (np.float64(x)[np.argsort(-utilities)] - self.mean) / self.sigma
        step = np.maximum(self.weights, 0) @ y
        values, vectors = np.linalg.eigh(self.C)
        whiten = vectors @ np.diag(values**-0.5) @ vectors.T
        self.mean = self.mean + self.sigma * step
        self.updates += 1
        self.ps = (1 - self.cs) * self.ps + np.sqrt(self.cs * (2 - self.cs) * self.mueff) * whiten @ step
        length = np.linalg.norm(self.ps)
        # The tutorial uses `updates` here. evosax uses `updates + 1`, which accepts slightly longer
        # paths.
        decayed = np.sqrt(1 - (1 - self.cs) ** (2 * (self.updates + 1)))
        stalled = length / decayed >= (1.4 + 2 / (DIM + 1)) * self.chi
        self.sigma *= np.exp(self.cs / self.ds * (length / self.chi - 1))
        self.pc = (1 - self.cc) * self.pc
        self.pc += (not stalled) * np.sqrt(self.cc * (2 - self.cc) * self.mueff) * step
        outward = DIM / np.sum((y @ whiten) ** 2, axis=1)
        weights = np.where(self.weights >= 0, self.weights, self.weights * outward)
        kept = 1 + self.c1 * stalled * self.cc * (2 - self.cc)
        kept -= self.c1 + self.cmu * self.weights.sum()
        self.C = kept * self.C + self.c1 * np.outer(self.pc, self.pc)
        self.C += self.cmu * (y.T * weights) @ y


def test_cma_es_agrees_with_the_tutorial_from_the_first_update():
    state, oracles = init(CMA, means(0)), [Tutorial(mean) for mean in means(0)]
    for generation in range(6):
        state, x = ask(jax.random.fold_in(jax.random.key(0), generation), state)
        utilities = np.asarray(ranks_of(-jnp.sum(jnp.square(x) * jnp.arange(1, DIM + 1), axis=-1)))
        state = tell(state, x, utilities)
        for lane, oracle in enumerate(oracles):
            oracle.tell(np.asarray(x)[lane], utilities[lane])
            # The evolution path of the covariance would remain zero if h_sigma were zero in the first
            # update.
            assert np.linalg.norm(oracle.pc) > 0
            for found, expected in [
                (state.p_c, oracle.pc),
                (state.mean, oracle.mean),
                (state.std, oracle.sigma),
                (state.C, oracle.C),
            ]:
                np.testing.assert_allclose(found[lane], expected, rtol=2e-4, atol=2e-4)


class WithParents(Tutorial):
    """The same CMA-ES, but with all samples of positive utility as parents, as in the CMA-ME paper."""

    def tell(self, x, utilities):
        n, parents = DIM, int((utilities > 0).sum())
        if parents == 0:
            return
        raw = np.zeros(SAMPLES)
        raw[:parents] = np.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
        self.weights = raw / raw.sum()
        self.mueff = 1 / (self.weights**2).sum()
        self.cc = (4 + self.mueff / n) / (n + 4 + 2 * self.mueff / n)
        self.c1 = 2 / ((n + 1.3) ** 2 + self.mueff)
        self.cmu = min(1 - self.c1, 2 * (self.mueff - 2 + 1 / self.mueff) / ((n + 2) ** 2 + self.mueff))
        self.cs = (self.mueff + 2) / (n + self.mueff + 5)
        self.ds = 1 + 2 * max(0, np.sqrt((self.mueff - 1) / (n + 1)) - 1) + self.cs
        super().tell(x, utilities)


def test_cma_es_learns_from_the_samples_of_positive_utility():
    strategy = Evosax("cma-es", samples=SAMPLES, sigma=SIGMA, parents="positive")
    ask, tell = jax.jit(strategy.ask), jax.jit(strategy.tell)
    state, oracles = init(strategy, means(7)), [WithParents(mean) for mean in means(7)]
    for generation, counts in enumerate([(3, 1), (SAMPLES, 5), (0, 2), (4, 0)]):
        state, x = ask(jax.random.fold_in(jax.random.key(8), generation), state)
        ranks = np.asarray(ranks_of(-jnp.sum(jnp.square(x), axis=-1))) + 1
        order = np.argsort(np.argsort(-ranks, axis=1), axis=1)
        utilities = np.where(order < np.array(counts)[:, None], ranks, 0.0)
        state = tell(state, x, utilities)
        for lane, oracle in enumerate(oracles):
            oracle.tell(np.asarray(x)[lane], utilities[lane])
            for found, expected in [(state.mean, oracle.mean), (state.std, oracle.sigma)]:
                np.testing.assert_allclose(found[lane], expected, rtol=2e-4, atol=2e-4)
            np.testing.assert_allclose(state.C[lane], oracle.C, rtol=2e-3, atol=2e-4)


def test_all_strategies_are_tested():
    assert names() == sorted([*USUAL, *OTHERS])


USUAL = ["cma-es", "sep-cma-es", "snes"]
OTHERS = ["xnes", "cr-fm-nes", "pgpe", "open-es"]  # strategies of other families


@pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")  # used by evosax's PGPE
@pytest.mark.parametrize("name", [*USUAL, *(pytest.param(n, marks=pytest.mark.long) for n in OTHERS)])
def test_samples_start_with_deviation_sigma_and_the_mean_climbs(name):
    assert name in names()
    wide = Evosax(name, samples=2048, sigma=SIGMA)
    state = wide.init(jax.random.key(0), means(1))
    np.testing.assert_allclose(wide.mean(state), means(1), rtol=1e-6)
    step = np.asarray(wide.ask(jax.random.key(1), state)[1]) - means(1)[:, None]
    # At its start, CR-FM-NES draws a direction in which samples have a larger standard deviation.
    expected = SIGMA * np.sqrt(1 + np.square(getattr(state, "v", np.zeros((LANES, DIM)))))
    np.testing.assert_allclose(step.std(axis=1), expected, rtol=0.1)

    usual = Evosax(name, samples=64, sigma=SIGMA)

    def climb(state, key):
        state, x = usual.ask(key, state)
        return usual.tell(state, x, ranks_of(-jnp.sum(jnp.square(x), axis=-1))), None

    keys = jax.random.split(jax.random.key(2), 30)
    state, _ = jax.jit(lambda state: jax.lax.scan(climb, state, keys))(init(usual, means(1)))
    left = np.linalg.norm(usual.mean(state), axis=1) / np.linalg.norm(means(1), axis=1)
    assert (left < 0.999).all()
    assert name not in USUAL or (left < 0.1).all()


def test_lanes_are_independent():
    state, x = ask(jax.random.key(3), init(CMA, means(2)))
    utilities = np.asarray(ranks_of(jnp.sum(x, axis=-1)))
    changed = utilities.copy()
    changed[1] *= -1
    before, after = tell(state, x, utilities), tell(state, x, changed)
    jax.tree.map(np.testing.assert_array_equal, lanes_of(before, 0), lanes_of(after, 0))
    assert (np.asarray(before.mean)[1] != np.asarray(after.mean)[1]).all()


def test_restart_initialises_only_the_chosen_lanes():
    state, x = ask(jax.random.key(4), init(CMA, means(3)))
    state = tell(state, x, ranks_of(jnp.sum(x, axis=-1)))
    restarted = CMA.restart(jax.random.key(0), state, jnp.array([True, False]), means(4))
    jax.tree.map(
        np.testing.assert_array_equal,
        lanes_of(restarted, 0),
        lanes_of(init(CMA, means(4)), 0),
    )
    jax.tree.map(np.testing.assert_array_equal, lanes_of(restarted, 1), lanes_of(state, 1))


def test_a_lane_with_zero_utilities_does_not_change():
    state, x = ask(jax.random.key(5), init(CMA, means(5)))
    utilities = jnp.zeros((LANES, SAMPLES)).at[1].set(ranks_of(jnp.sum(x[1:], axis=-1))[0])
    told = tell(state, x, utilities)
    jax.tree.map(np.testing.assert_array_equal, lanes_of(told, 0), lanes_of(state, 0))
    assert (np.asarray(told.mean)[1] != np.asarray(state.mean)[1]).all()


@pytest.mark.parametrize(
    ("fault", "change"),
    [
        ("none", {}),
        ("not finite", {"mean": np.nan}),
        ("no end", {"std": np.inf}),
        ("collapsed", {"std": 1e-9}),
        ("a line", {"D": np.array([1, 1e-4, 1e-4, 1e-4, 1e-4])}),
    ],
)
def test_degenerate_distributions_are_detected(fault, change):
    state = init(CMA, means(6))
    changed = {name: getattr(state, name).at[1].set(value) for name, value in change.items()}
    np.testing.assert_array_equal(CMA.degenerate(state.replace(**changed)), [False, fault != "none"])


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda: Evosax("sep-cma"), "unknown strategy 'sep-cma': did you mean 'sep-cma-es'"),
        (lambda: Evosax("zzz"), "unknown strategy 'zzz': choose from openai-es, "),
        (lambda: Evosax("hillclimbing"), "unknown strategy 'hillclimbing'"),
        (lambda: Evosax("ma-es"), "unknown strategy 'ma-es'"),
        (lambda: Evosax("snes", parents="positive"), "^parents must be 'all' for strategy 'snes'"),
        (lambda: Evosax("snes", samples=1), "^samples must be at least 2"),
        (lambda: Evosax("snes", sigma=0.0), "^sigma must be positive"),
        (
            lambda: init(Evosax("pgpe", samples=7), means(0)),
            "^samples=.* does not suit strategy 'pgpe'",
        ),
    ],
)
def test_a_wrong_setting_is_refused_by_name(mistake, sentence):
    with pytest.raises(UsageError, match=sentence):
        mistake()


def test_without_evosax_the_error_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "evosax", None)
    missing = re.escape(f"strategy 'snes' needs the extra evosax: {install('evosax')}")
    with pytest.raises(UsageError, match=missing):
        Evosax("snes")
    assert names() == []
