"""Totals of a run are computed exactly from its metrics and lanes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.metrics import Totals, accumulate, measure
from memes.resets import Reason
from memes.runner.device import first_state, keys_of
from memes.runner.loop import totals_of

ARM = memes.tasks.arm(joints=4)


def often_wrong(keys, x):
    """Return the arm task with a NaN or infinite fitness in a quarter of the evaluations."""
    exact, drawn = ARM.evaluate(keys, x), jax.random.key_data(keys)[:, 0] % 8
    wrong = jnp.where(drawn == 0, jnp.nan, jnp.inf)
    return jnp.where(drawn < 2, wrong, exact.fitness), exact.feature


TASK = replace(ARM, evaluate=often_wrong)
CELLS = memes.cells.grid(TASK, (10, 10))
PRESETS = {
    "memes": lambda: memes.presets.memes(
        TASK, CELLS, lanes=4, samples=8, stale_budget=2, fifo_size=64, learning_rate=3e38
    ),
    "me": lambda: memes.presets.me(TASK, CELLS, batch=8),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_the_totals_of_a_run_agree_with_its_generations(preset):
    algorithm = PRESETS[preset]()
    run = memes.run(algorithm, generations=15, seed=1, progress=False)
    init_key, run_key = keys_of(1)
    state, expected = first_state(algorithm)(init_key, 15), Totals.zero()
    step = jax.jit(algorithm.step)
    for generation in range(15):
        state, info = step(jax.random.fold_in(run_key, generation), state)
        made = jax.tree.map(lambda leaf: np.asarray(leaf)[None], measure(state.archive, info))
        expected, _ = accumulate(expected, made)
    found = totals_of(run)
    for name in Totals._fields:
        a, b = getattr(found, name), getattr(expected, name)
        if name == "resets":  # the entry for `Reason.NONE` is not used
            a, b = np.delete(a, Reason.NONE), np.delete(b, Reason.NONE)
        np.testing.assert_array_equal(a, b, name)
        assert a.dtype == np.int64
    if preset == "memes":
        assert found.ended.sum() > 5
        assert found.resets[Reason.DEGENERATE] > 0
    assert found.additions.sum() > 1
    assert (found.faults[:2] > 5).all()


def test_a_run_without_generations_has_zero_totals():
    algorithm = PRESETS["me"]()
    run = memes.run(algorithm, generations=1, progress=False)
    begun = run._replace(metrics={}, lanes={})
    jax.tree.map(np.testing.assert_array_equal, totals_of(begun), Totals.zero())
