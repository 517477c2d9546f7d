"""The library computes with 32-bit arrays even if JAX enables 64-bit arrays (`JAX_ENABLE_X64=1`)."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes


def host(jit=False):
    return memes.Task(
        name="host",
        dim=3,
        feature_low=(0, 0),
        feature_high=(1, 1),
        init=memes.uniform(3, 0.0, 1.0),
        evaluate=lambda keys, x: (x.sum(axis=1), x[:, :2]),
        jit=jit,
    )


def run_small(task, preset="memes", **options):
    algorithm = getattr(memes.presets, preset)(
        task, memes.cells.grid(task, (5,) * task.feature_dim), **options
    )
    return memes.run(algorithm, generations=3, seed=1, progress=False)


SMALL = {"lanes": 4, "samples": 8, "fifo_size": 64}
LEARNING = {
    "batch": 8,
    "replay_size": 200,
    "transitions_batch": 8,
    "num_critic_training_steps": 4,
    "gradient_steps": 2,
    "critic_hidden": (4,),
}
RUNS = {
    "memes": lambda: run_small(host(jit=True), **SMALL),
    "memes on the host": lambda: run_small(host(), **SMALL),
    "memes with everything": lambda: run_small(host(jit=True), explore="everything", **SMALL),
    "cma-me": lambda: run_small(host(jit=True), "cma_me", batch=8),
    "nsra-es": lambda: run_small(host(jit=True), "nsra_es", samples=8),
    "pga-me": lambda: run_small(memes.tasks.point_maze(steps=5, hidden=(4,)), "pga_me", **LEARNING),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_runs_are_equal_with_and_without_64_bits(run):
    before = run()
    with jax.enable_x64(True):
        after = run()
    jax.tree.map(np.testing.assert_array_equal, before.state, after.state)
    kinds = {leaf.dtype for leaf in jax.tree.leaves(after.state)}
    assert kinds <= {np.dtype(name) for name in ("float32", "int32", "uint32", "bool")}


def test_a_custom_task_may_compute_in_64_bits():
    kinds = []

    def evaluate(keys, x):
        wide = x.astype(jnp.float64)
        kinds.append(wide.dtype)
        return wide.sum(axis=1), wide[:, :2]

    with jax.enable_x64(True):
        run_small(replace(host(jit=True), evaluate=evaluate), **SMALL)
    assert set(kinds) == {jnp.dtype("float64")}
