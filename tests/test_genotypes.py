"""Pytrees as genotypes, and policies defined with Flax and Equinox."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes import TreeGenotypes, UsageError
from memes.control import mlp, tree_policy
from memes.control.perturbations import Pairs, Repeats, rows


def make(key):
    a, b = jax.random.split(key)
    return {
        "matrix": jax.random.normal(a, (2, 3)),
        "name": "constant",
        "steps": jnp.arange(2),
        "vector": (jax.random.normal(b, (4,)).astype(jnp.bfloat16),),
    }


TREES = TreeGenotypes(make)


@pytest.mark.parametrize("layout", [None, ((1, False), (0, True))])
def test_a_tree_equals_the_tree_of_its_row(layout):
    trees = TreeGenotypes(make, layout)
    tree = make(jax.random.key(1))
    row = trees.row(tree)
    assert row.shape == (trees.dim,) == (10,)
    assert row.dtype == jnp.float32
    jax.tree.map(np.testing.assert_array_equal, trees.tree(row), tree)
    assert trees.tree(row)["vector"][0].dtype == jnp.bfloat16
    # The expected genotype contains the parts in the order of the layout. Matrices are stored in
    # column-major order if there is a layout, and otherwise in row-major order.
    matrix, vector = np.asarray(tree["matrix"]), np.asarray(tree["vector"][0], np.float32)
    parts = [matrix.ravel(), vector] if layout is None else [vector, matrix.T.ravel()]
    np.testing.assert_array_equal(row, np.concatenate(parts))


def test_rows_become_one_stacked_tree_and_init_is_make():
    x = TREES.init(jax.random.key(2), 3)
    stacked = TREES.tree(x)
    assert stacked["matrix"].shape == (3, 2, 3)
    for i, key in enumerate(jax.random.split(jax.random.key(2), 3)):
        tree = make(key)
        np.testing.assert_array_equal(stacked["matrix"][i], tree["matrix"])
        np.testing.assert_array_equal(x[i], TREES.row(tree))


def test_elites_of_a_task_over_trees_convert_back_to_trees():
    def evaluate(key, tree):
        return -jnp.sum(tree["matrix"] ** 2), jnp.tanh(tree["matrix"][:, 0])

    bounds = {"feature_low": (-1.0, -1.0), "feature_high": (1.0, 1.0), "resolution": (4, 4)}
    task = memes.Task(
        "tree",
        TREES.dim,
        **bounds,
        init=TREES.init,
        evaluate=memes.rowwise(evaluate, TREES),
        trees=TREES,
    )
    run = memes.run(memes.presets.me(task, batch=16), generations=2, progress=False)
    for cell in np.flatnonzero(run.archive.occupied):
        fitness, feature = evaluate(None, task.trees.tree(run.archive.genotypes[cell]))
        np.testing.assert_allclose(run.archive.fitness[cell], fitness, rtol=1e-5)
        np.testing.assert_allclose(run.archive.feature[cell], feature, rtol=1e-5)


class Flax(nn.Module):
    activation: object = nn.relu
    final: object = nn.tanh

    @nn.compact
    def __call__(self, observation):
        signal = self.activation(nn.Dense(5)(observation))
        return self.final(nn.Dense(2)(signal))


def flax_policy(policy):
    return tree_policy(lambda key: policy.init(key, jnp.zeros(3)), policy.apply, observation_size=3)


def equinox_policy(activation, **options):
    def make(key):
        return eqx.nn.MLP(3, 2, 5, 1, activation, jnp.tanh, key=key, **options)

    return tree_policy(make, lambda model, observation: model(observation), observation_size=3)


@pytest.mark.parametrize(
    ("build", "hidden"),
    [(lambda: flax_policy(Flax()), jax.nn.relu), (lambda: equinox_policy(jnp.tanh), jnp.tanh)],
    ids=["flax", "equinox"],
)
def test_perceptrons_are_recognised_and_have_the_parameter_order_of_mlp(build, hidden):
    controller, like = build(), mlp([3, 5, 2], hidden=hidden)
    assert controller.network == like.network
    assert controller.blocks == like.blocks
    x = controller.init(jax.random.key(0), 4)
    observation = jax.random.normal(jax.random.key(1), (4, 3))
    expected = jax.vmap(lambda row, seen: apply(controller.trees.tree(row), seen))(x, observation)
    acted = controller.act(controller.parameters(x), observation, 0)
    np.testing.assert_allclose(acted, expected, atol=1e-6)
    # Factored genotypes lead to the same actions as whole genotypes. The genotypes are two candidates
    # and one mirrored pair.
    pairs = Pairs(x[2:3], (0.1 * x[3:4, None],))
    act = jax.jit(lambda seen: controller.in_factors(Repeats(x[:2]), pairs)(seen, 0))
    whole = jnp.concatenate([x[:2], rows(pairs)])
    expected = jax.vmap(lambda row, seen: apply(controller.trees.tree(row), seen))(whole, observation)
    np.testing.assert_allclose(act(observation), expected, atol=1e-5)


def apply(parameters, observation):
    return parameters(observation) if callable(parameters) else Flax().apply(parameters, observation)


@pytest.mark.parametrize(
    "build",
    [
        lambda: flax_policy(Flax(nn.relu6)),
        lambda: flax_policy(Flax(nn.leaky_relu)),
        lambda: equinox_policy(jax.nn.gelu),
        lambda: equinox_policy(jax.nn.relu, use_final_bias=False),
    ],
    ids=["relu6", "leaky", "gelu", "bias"],
)
def test_other_networks_act_without_kernels(build):
    controller = build()
    assert controller.network is None
    assert controller.in_factors is None
    x = controller.init(jax.random.key(0), 2)
    observation = jax.random.normal(jax.random.key(1), (2, 3))
    acted = controller.act(controller.parameters(x), observation, 0)
    for i in range(2):
        np.testing.assert_allclose(acted[i], controller.policy(x[i], observation)[i], atol=1e-6)
    assert np.ptp(np.asarray(acted)) > 0


def test_a_policy_of_equinox_acts_as_its_module():
    controller = equinox_policy(jax.nn.gelu)
    x, observation = controller.init(jax.random.key(0), 1)[0], jnp.array([[0.3, -1.0, 2.0]])
    model = controller.trees.tree(x)
    np.testing.assert_allclose(controller.policy(x, observation)[0], model(observation[0]), atol=1e-6)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: TreeGenotypes(lambda key: {"a": "b"}).dim, "array of floats"),
        (lambda: TREES.tree(jnp.zeros(3)), "10 entries per genotype"),
        (lambda: TREES.row({"matrix": jnp.zeros((3, 2))}), "tree must have float arrays of shapes"),
        (
            lambda: memes.Task("t", 3, [0], [1], TREES.init, memes.rowwise(lambda k, t: 0), trees=TREES),
            "dim of task 't' must be 10",
        ),
    ],
)
def test_wrong_uses_give_error_messages(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
