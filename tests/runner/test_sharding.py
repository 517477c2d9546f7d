"""Test the parts of a sharded generation. `test_placement` compares complete runs."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import memes
from memes.emitters import ES, Isoline, OneOf, Parallel
from memes.objectives import Fitness, Novelty
from memes.runner.placement import REPLICATED, SHARDED, Placement
from memes.runner.sharding import divide, each, fetch, gather, isolated

HERE = np.int32(4)


def on_one_device(function, *arguments, results=SHARDED):
    """Compute a function of [4, ...] arrays in four shards on one device."""
    placement = Placement(4, (jax.devices()[0],))
    mapped = placement.mapped(function, (REPLICATED, *(SHARDED for _ in arguments)), results)
    return jax.jit(mapped)(HERE, *arguments)


def test_genotypes_are_fetched_by_their_index_over_all_shards():
    x = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    place = np.array([11, 0, 4])
    found = on_one_device(lambda here, x: fetch(x, jnp.asarray(place)), x, results=REPLICATED)
    np.testing.assert_array_equal(found, x.reshape(12, 2)[place])


def test_each_shard_uses_its_own_rows_and_gather_keeps_the_order():
    x = np.arange(24.0, dtype=np.float32).reshape(4, 3, 2)
    sums = on_one_device(lambda here, x: each(lambda rows: rows.sum(axis=1), x, here=here), x)
    np.testing.assert_array_equal(sums, x.sum(axis=2))
    whole = on_one_device(lambda here, x: gather(x), x, results=REPLICATED)
    np.testing.assert_array_equal(whole, x.reshape(12, 2))


def test_lanes_are_divided_if_the_number_of_shards_divides_each_emitter():
    es = ES(Fitness(), 8)
    assert divide(es, 4) == replace(es, lanes=2)
    assert divide(es, 3) is None
    assert divide(OneOf(es, 4), 4) is None  # one of four copies is active
    both = Parallel((es, ES(Novelty(), 4), Isoline(16)))
    assert [emitter.lanes for emitter in divide(both, 4).emitters] == [2, 1, 4]
    assert divide(both, 8) is None


def test_an_isolated_function_is_compiled_separately():
    """The function is a branch of a conditional, so the compiler does not fuse it with other code."""

    def product(x, here):
        return isolated(lambda x: x * 2.0, x, true=here > 0) * 3.0

    text = jax.jit(product).lower(jnp.ones(8), HERE).compile().as_text()
    assert "conditional" in text
    np.testing.assert_array_equal(jax.jit(product)(jnp.ones(8), HERE), np.full(8, 6.0))
    constant = jax.jit(lambda x: product(x, jnp.int32(1))).lower(jnp.ones(8)).compile().as_text()
    assert "conditional" not in constant  # a constant condition is removed by the compiler


def test_shards_that_do_not_divide_the_lanes_share_only_the_evaluations():
    """The shards divide the evaluations of the batch, but not the lanes."""
    task = memes.tasks.arm(joints=4)
    algorithm = memes.presets.memes(task, memes.cells.grid(task, (6, 6)), lanes=2, samples=8)
    placement = Placement(4, (jax.devices()[0],))
    sharded = placement.sharded(algorithm)
    assert sharded.part is None
    assert not placement.divides(algorithm, 1)
    state = algorithm.init(jax.random.key(0))
    step = placement.mapped(
        lambda here, key, state: sharded.step(key, state, here)[0],
        (REPLICATED, REPLICATED, placement.of_state(algorithm, 1)),
        placement.of_state(algorithm, 1),
    )
    after = jax.jit(step)(HERE, jax.random.key(1), state)
    alone, _ = jax.jit(algorithm.step)(jax.random.key(1), state)
    for name in ("genotypes", "fitness", "feature"):
        np.testing.assert_allclose(getattr(after.archive, name), getattr(alone.archive, name), atol=1e-6)
