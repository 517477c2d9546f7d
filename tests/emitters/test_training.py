"""The training kernel for GPUs, run in the emulator, agrees with the implementation in plain JAX."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emulation
import memes
from memes.control.policies import mlp
from memes.control.rollouts import Transition
from memes.emitters import training
from memes.emitters.td3 import TD3, draw, learn, start
from memes.emitters.training import learn_by_kernel, train
from memes.kernels import cuda
from memes.kernels.cxx import compiler

# Options for two training rounds that change all networks. No layer size is a multiple of the kernel's
# tile size.
FAST = TD3(
    replay_size=300,
    soft_update=0.2,
    critic_learning_rate=1e-2,
    greedy_learning_rate=1e-2,
    critic_hidden=(33, 40, 5),
    transitions_batch=40,
    num_critic_training_steps=4,
)


def maze_with_policy(*sizes, **options):
    """Return a maze with other policies."""
    maze = memes.tasks.point_maze(steps=5)
    policy = mlp((2, *sizes, 2), **options)
    control = maze.control._replace(controller=policy)
    return replace(maze, dim=policy.dim, init=policy.init, control=control)


def learner_and_replay(task, settings):
    """Return a learner and a replay buffer that is filled with noise."""
    learner, replay = start(jax.random.key(0), task, settings)
    n, keys = settings.replay_size, jax.random.split(jax.random.key(1), 5)
    rows = Transition(
        *(jax.random.normal(key, part.shape) for key, part in zip(keys, replay.rows[:4], strict=False)),
        ended=jax.random.bernoulli(keys[4], 0.2, (n,)),
        alive=jnp.ones(n, bool),
    )
    return learner, replay._replace(rows=rows, pushed=jnp.int32(n))


def by_kernel(task, settings):
    learner, replay = learner_and_replay(task, settings)
    network = task.control.controller.network
    return learn_by_kernel(
        jax.random.key(7), learner, replay, network=network, settings=settings, launch=emulation.launch
    )


class NumpyMLP:
    """Perceptrons with one hidden ReLU layer, weights [m, d] and analytic gradients, trained by Adam."""

    def __init__(self, weights, sizes, rate):
        self.x, self.sizes, self.rate = np.array(weights, float), sizes, rate
        self.slow, self.m, self.v, self.steps = self.x.copy(), 0.0, 0.0, 0

    def layers(self, x):
        i, h, o = self.sizes
        parts = np.split(x, np.cumsum([i * h, h, h * o]))
        return parts[0].reshape(i, h), parts[1], parts[2].reshape(h, o), parts[3]

    def __call__(self, inputs, net=0, slow=False, output=lambda signal: signal):
        first, bias, last, shift = self.layers((self.slow if slow else self.x)[net])
        hidden = np.maximum(inputs @ first + bias, 0)
        return output(hidden @ last + shift), hidden

    def slopes(self, inputs, hidden, above, net=0):
        """Return the gradients of the loss with respect to the weights and the inputs.

        `above` is the gradient with respect to the outputs of the last layer before the activation.
        """
        first, _, last, _ = self.layers(self.x[net])
        below = above @ last.T * (hidden > 0)
        parts = inputs.T @ below, below.sum(0), hidden.T @ above, above.sum(0)
        return np.concatenate([part.ravel() for part in parts]), below @ first.T

    def step(self, slope, soft_update):
        self.steps += 1
        self.m = 0.9 * self.m + 0.1 * slope
        self.v = 0.999 * self.v + 0.001 * slope**2
        m, v = self.m / (1 - 0.9**self.steps), self.v / (1 - 0.999**self.steps)
        self.x = self.x - self.rate * m / (np.sqrt(v) + 1e-8)
        self.slow = self.slow + soft_update * (self.x - self.slow)


def test_training_agrees_with_a_numpy_implementation_of_qdax():
    """The target critics are updated after every step of the critics.

    The actor is trained on the batch of the last step of the critics.
    """
    s = replace(FAST, critic_hidden=(6,), transitions_batch=9, num_critic_training_steps=6)
    task, key = maze_with_policy(5), jax.random.key(7)
    learner, replay = learner_and_replay(task, s)
    seen = [np.asarray(part, float) for part in replay.rows[:5]]
    critics = NumpyMLP(learner.critics, (4, 6, 1), s.critic_learning_rate)
    actor = NumpyMLP(learner.actor[None], (2, 5, 2), s.greedy_learning_rate)
    for i in range(s.num_critic_training_steps // s.policy_delay):
        for at, noise in zip(*draw(jax.random.fold_in(key, i), replay, s), strict=True):
            observation, action, reward, after, ended = (part[np.asarray(at)] for part in seen)
            then = np.clip(actor(after, slow=True, output=np.tanh)[0] + np.asarray(noise), -1, 1)
            future = [critics(np.hstack([after, then]), net, slow=True)[0][:, 0] for net in (0, 1)]
            target = reward + s.discount * (1 - ended) * np.min(future, axis=0)
            inputs, slopes = np.hstack([observation, action]), []
            for net in (0, 1):
                value, hidden = critics(inputs, net)
                above = 2 / len(target) * (value - target[:, None])
                slopes.append(critics.slopes(inputs, hidden, above, net)[0])
            critics.step(np.stack(slopes), s.soft_update)
        act, kept = actor(observation, output=np.tanh)
        inputs = np.hstack([observation, act])
        _, hidden = critics(inputs)
        above = np.full((len(act), 1), -1 / len(act))
        by_action = critics.slopes(inputs, hidden, above)[1][:, 2:]
        actor.step(actor.slopes(observation, kept, by_action * (1 - act**2))[0][None], s.soft_update)
    found = jax.jit(lambda: learn(key, learner, replay, task, s))()
    np.testing.assert_allclose(found.critics, critics.x, atol=1e-5)
    np.testing.assert_allclose(found.target_critics, critics.slow, atol=1e-5)
    np.testing.assert_allclose(found.actor, actor.x[0], atol=1e-5)
    np.testing.assert_allclose(found.target_actor, actor.slow[0], atol=1e-5)


# One layer of the policy has more units than a block has threads. One batch has more rows than the warps
# of a block read at once.
WIDE = maze_with_policy(5, 260, hidden=jnp.tanh)
ONE_LAYER = replace(FAST, critic_hidden=(20,), transitions_batch=280, policy_delay=1)
TWO_LAYERS = replace(
    FAST, critic_hidden=(20, 40), transitions_batch=7, policy_delay=3, num_critic_training_steps=6
)
emulated = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


@emulated
@pytest.mark.parametrize(
    ("task", "settings", "drawn"),
    [
        (maze_with_policy(12), FAST, training.MOST_DRAWN),
        (maze_with_policy(12), TWO_LAYERS, training.MOST_DRAWN),
        pytest.param(WIDE, ONE_LAYER, 1, marks=pytest.mark.long),
    ],
    ids=["three layers", "two", "one, and a round in each launch"],
)
def test_the_kernel_and_xla_train_alike(task, settings, drawn, monkeypatch):
    """A kernel with concurrent blocks agrees with plain JAX up to rounding."""
    monkeypatch.setattr(training, "MOST_DRAWN", drawn)
    before, replay = learner_and_replay(task, settings)
    expected = jax.jit(lambda: learn(jax.random.key(7), before, replay, task, settings))()
    found = by_kernel(task, settings)
    for old, new, same in zip(*map(jax.tree.leaves, (before, expected, found)), strict=True):
        moved = np.abs(new - old).max()
        assert moved > 0
        np.testing.assert_allclose(same, new, rtol=0, atol=1e-4 * moved)


@emulated
@pytest.mark.long
def test_results_do_not_depend_on_the_number_of_blocks(monkeypatch):
    found = []
    for blocks in (1, 5):
        monkeypatch.setattr(emulation, "CONCURRENT_BLOCKS", blocks)
        found.append(by_kernel(WIDE, ONE_LAYER))
    jax.tree.map(np.testing.assert_array_equal, *found)


@emulated
def test_a_crashed_block_ends_the_blocks_that_wait_for_it():
    waits = "if (blockIdx.x == 1) _exit(1); while (true) usleep(100);"
    kernel = cuda.Kernel(f"void waiting(float*, float*) {{ {waits} }}", "waiting")
    options = {"blocks": 2, "threads": 1, "at_once": True}
    with pytest.raises(jax.errors.JaxRuntimeError, match="'waiting' has crashed"):
        jax.block_until_ready(
            emulation.launch(
                kernel, [jnp.zeros(1)], [jax.ShapeDtypeStruct((1,), jnp.float32)], **options
            )
        )


def traced(task, settings, mapped=lambda function: function, seeds=()):
    learner, replay = learner_and_replay(task, settings)
    training_of = mapped(lambda key: train(key, learner, replay, task, settings))
    return jax.jit(training_of).trace(jax.random.split(jax.random.key(0), seeds))


@pytest.mark.parametrize("several", [(), (jax.vmap, 3)], ids=["one seed", "several"])
def test_programs_for_gpus_launch_the_kernel_and_others_do_not(several):
    training_of = traced(maze_with_policy(12), FAST, *several)
    assert cuda.TARGET in training_of.lower(lowering_platforms=("cuda",)).as_text()
    assert cuda.TARGET not in training_of.lower(lowering_platforms=("cpu",)).as_text()


@pytest.mark.parametrize(
    ("policy", "fields"),
    [
        ({"weights": "bfloat16"}, {}),
        ({"hidden": jnp.sin}, {}),
        ({}, {"critic_hidden": ()}),
        ({}, {"critic_hidden": (5, 2000)}),
        ({}, {"transitions_batch": 5000}),
        ({}, {"policy_delay": 1_000_000, "num_critic_training_steps": 1_000_000}),
    ],
)
def test_unsupported_policies_and_settings_use_xla(policy, fields):
    network = maze_with_policy(12, **policy).control.controller.network
    assert network is None or not training.fits(network, replace(FAST, **fields))


@pytest.mark.parametrize("older", [False, True])
def test_old_gpus_train_in_xla_with_a_warning(older, monkeypatch):
    owned = [SimpleNamespace(compute_capability=each) for each in ("12.0", "6.1" if older else "7.0")]
    monkeypatch.setattr(cuda, "devices", lambda: owned)
    monkeypatch.setattr(cuda, "missing", lambda: "")
    monkeypatch.setattr(cuda, "_loaded", lambda kernel: "key")
    warns = pytest.warns(UserWarning, match="needs compute capability 7.0, the GPU has 6.1")
    with warns if older else nullcontext():
        jaxpr = str(traced(maze_with_policy(12), FAST).jaxpr)
    assert (cuda.TARGET not in jaxpr) == older


def test_unsupported_settings_launch_no_kernel():
    assert cuda.TARGET not in str(traced(maze_with_policy(12), replace(FAST, critic_hidden=())).jaxpr)
