from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memes.archive import empty
from memes.cells import Grid
from memes.context import Context, Kind
from memes.emitters import Isoline
from memes.emitters.base import Rows
from memes.errors import UsageError
from memes.history import Past
from memes.resets import Reason
from memes.selectors import Fittest
from memes.task import Evaluation, Task, uniform

BATCH = 2000
BOTH = Isoline(BATCH, iso=0.5, line=0.5)
NOISELESS = Isoline(BATCH, iso=0.0, line=0.0)
# Initial genotypes are drawn from [5, 6], which contains no elite.
TASK = Task("toy", 3, (0.0,), (1.0,), uniform(3, 5.0, 6.0), lambda keys, x: None)
EMPTY = empty(Grid(jnp.zeros(1), jnp.ones(1), (5,)), 3)
ELITES = np.float32([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.5, -1.0]])
FEATURES = np.float32([[0.1], [0.5], [0.9]])
CELLS = np.array([0, 2, 4])
ARCHIVE = replace(
    EMPTY,
    genotypes=EMPTY.genotypes.at[CELLS].set(ELITES),
    fitness=EMPTY.fitness.at[CELLS].set(jnp.array([1.0, 3.0, 2.0])),
    feature=EMPTY.feature.at[CELLS].set(FEATURES),
)


@partial(jax.jit, static_argnums=0)
def generation(emitter, key, archive):
    """Return what the emitter proposes in `ask` and what it reports in `tell`."""
    init_key, ask_key = jax.random.split(key)
    context = Context(
        TASK, jnp.int32(0), archive, archive, Past(jnp.zeros((0, 1)), jnp.zeros(0, bool)), None
    )
    state, proposal = emitter.ask(ask_key, emitter.init(init_key, TASK), context)

    def rows(x):
        n = x.shape[0]
        return Rows(x, Evaluation(jnp.zeros(n), jnp.zeros((n, 1))), jnp.zeros(n, jnp.int32))

    _, lanes = emitter.tell(state, rows(proposal.candidates.x), rows(jnp.zeros((0, 3))), context)
    return proposal, lanes


def first_parents(lanes):
    """Return the index of each candidate's first parent, identified by its feature."""
    match = np.asarray(lanes.parent_feature) == FEATURES.T
    np.testing.assert_array_equal(match.sum(axis=1), np.ones(BATCH))
    return match.argmax(axis=1)


def test_without_isotropic_noise_offspring_lie_on_the_line_of_two_elites():
    proposal, lanes = generation(Isoline(BATCH, iso=0.0, line=0.5), jax.random.key(0), ARCHIVE)
    first = first_parents(lanes)
    step = np.asarray(proposal.candidates.x, np.float64) - ELITES[first]

    # Every elite may be the second parent. For each elite, `off` is the distance of the offspring from
    # the line through the first parent and this elite. `z` is the position of the nearest point on this
    # line.
    towards = ELITES[None].astype(np.float64) - ELITES[first][:, None]
    length = np.sum(towards**2, axis=-1)
    z = np.sum(step[:, None] * towards, axis=-1) / np.maximum(length, 1e-9)
    off = np.linalg.norm(step[:, None] - z[..., None] * towards, axis=-1)
    second = np.where(np.abs(step).max(axis=1) < 1e-6, first, off.argmin(axis=1))
    rows = np.arange(BATCH)
    assert off[rows, second].max() < 1e-5

    # The second parent is drawn uniformly and independently of the first parent.
    pairs = np.bincount(3 * first + second, minlength=9)
    assert (np.abs(pairs - BATCH / 9) < 5 * np.sqrt(BATCH / 9)).all()

    # The step along the line is normally distributed, and both directions are equally likely.
    along = z[rows, second][first != second] / 0.5
    assert abs(along.mean()) < 5 / np.sqrt(along.size)
    np.testing.assert_allclose(along.std(), 1.0, rtol=0.08)
    assert 0.45 < np.mean(along < 0) < 0.55


def test_without_line_noise_offspring_are_isotropic_around_the_first_parent():
    proposal, lanes = generation(Isoline(BATCH, iso=0.2, line=0.0), jax.random.key(1), ARCHIVE)
    noise = (np.asarray(proposal.candidates.x) - ELITES[first_parents(lanes)]) / 0.2
    assert np.abs(noise.mean(axis=0)).max() < 5 / np.sqrt(BATCH)
    np.testing.assert_allclose(noise.std(axis=0), np.ones(3), rtol=0.08)
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 5 / np.sqrt(BATCH)


def test_the_variances_of_both_noises_add_up():
    proposal, lanes = generation(BOTH, jax.random.key(2), ARCHIVE)
    first = first_parents(lanes)
    for a in range(3):
        step = np.asarray(proposal.candidates.x)[first == a] - ELITES[a]
        towards = ELITES - ELITES[a]
        expected = 0.25 * np.eye(3) + 0.25 * np.einsum("bi,bj->ij", towards, towards) / 3
        found = step.T @ step / len(step)
        np.testing.assert_allclose(found, expected, atol=0.25 * np.trace(expected))


def test_without_noise_offspring_equal_their_parents():
    proposal, lanes = generation(NOISELESS, jax.random.key(3), ARCHIVE)
    first = first_parents(lanes)
    np.testing.assert_array_equal(proposal.candidates.x, ELITES[first])
    assert set(first) == {0, 1, 2}


def test_offspring_of_an_empty_archive_are_draws_of_init():
    proposal, lanes = generation(BOTH, jax.random.key(4), EMPTY)
    x = np.asarray(proposal.candidates.x)
    assert ((x >= 5) & (x <= 6)).all()
    assert len(np.unique(x, axis=0)) == BATCH
    assert np.isnan(lanes.parent_feature).all()


def test_parents_come_from_the_selector():
    emitter = Isoline(BATCH, iso=0.0, line=1.0, selector=Fittest(1))
    proposal, lanes = generation(emitter, jax.random.key(5), ARCHIVE)
    np.testing.assert_array_equal(proposal.candidates.x, np.tile(ELITES[1], (BATCH, 1)))
    np.testing.assert_array_equal(first_parents(lanes), np.ones(BATCH))


def test_every_offspring_is_a_candidate_of_a_temporary_lane():
    assert NOISELESS.persistent == (False,) * BATCH
    assert (len(NOISELESS.persistent), NOISELESS.samples, NOISELESS.lanes) == (BATCH, 0, BATCH)
    proposal, lanes = generation(NOISELESS, jax.random.key(6), ARCHIVE)
    assert np.asarray(proposal.offered).all()
    np.testing.assert_array_equal(proposal.lane, np.arange(BATCH))
    assert proposal.samples == ()
    assert proposal.sample_lane.shape == (0,)
    np.testing.assert_array_equal(lanes.kind, np.full(BATCH, Kind.VARIATION))
    np.testing.assert_array_equal(lanes.reset, np.full(BATCH, Reason.NONE))
    np.testing.assert_array_equal(lanes.age, np.zeros(BATCH))
    np.testing.assert_array_equal(lanes.stale, np.zeros(BATCH))


@pytest.mark.parametrize("setting", [{"lanes": 0}, {"iso": -0.1}, {"line": -0.1}], ids=str)
def test_a_wrong_setting_is_refused_by_name(setting):
    (name,) = setting
    with pytest.raises(UsageError, match=f"^{name} must"):
        Isoline(**{"lanes": 4} | setting)
