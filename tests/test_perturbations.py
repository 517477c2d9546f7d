"""Factored samples agree with full genotypes, and so do their evaluations."""

import dataclasses
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emulation
import memes
from memes.control import mlp
from memes.control.mlp_kernels import Network, act_by_kernel, act_natively, drawn
from memes.control.perturbations import (
    Pairs,
    Repeats,
    Thin,
    as_pairs,
    by_chunks,
    no_pairs,
    rounded,
    rows,
    scaled,
    split,
)
from memes.estimates import reevaluator
from memes.kernels import dispatch
from memes.kernels.cxx import compiler
from memes.strategies.noise import Gaussian, LowRank
from memes.task import FactoredEvaluate, evaluate, evaluate_factors

LANES, PAIRS, CANDIDATES = 2, 35, 3


def pairs_of(controller, noise, lanes=LANES, pairs=PAIRS):
    mean = controller.init(jax.random.key(0), lanes)
    return Pairs(mean, scaled(noise(jax.random.key(1), (lanes, pairs, controller.dim)), 0.3))


def by_numpy(samples):
    """Compute samples with loops in float64: all `mean + step` of a lane, then all `mean - step`."""
    dim = samples.mean.shape[1]
    found = []
    for lane, mean in enumerate(np.float64(samples.mean)):
        steps = []
        for pair in range(samples.each):
            step = []
            for part in samples.step:
                if isinstance(part, Thin):
                    left, right = np.float64(part.left[lane, pair]), np.float64(part.right[lane, pair])
                    step.append(sum(np.outer(a, b) for a, b in zip(left, right, strict=True)).ravel())
                else:
                    step.append(np.float64(part[lane, pair]))
            steps.append(np.concatenate(step)[:dim])
        found += [mean + step for step in steps] + [mean - step for step in steps]
    return np.array(found)


NOISES = {
    "gaussian": lambda blocks: Gaussian(),
    "low-rank": lambda blocks: LowRank(2, blocks),
    "rank 1 across blocks": lambda blocks: LowRank(1),
}


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_rows_are_means_plus_and_minus_steps(noise):
    controller = mlp((4, 7, 2))
    samples = pairs_of(controller, noise(controller.blocks))
    np.testing.assert_allclose(rows(samples), by_numpy(samples), rtol=1e-5, atol=1e-6)


def test_split_divides_steps_at_blocks_and_keeps_thin_parts_that_fit():
    blocks = ((3, 5), (1, 5))
    whole = np.arange(40.0).reshape(1, 2, 20)
    np.testing.assert_array_equal(split((whole,), blocks)[1], whole[..., 15:])
    thin = (Thin(np.ones((1, 2, 1, 3)), np.ones((1, 2, 1, 5))), np.zeros((1, 2, 5)))
    assert split(thin, blocks) is thin
    assert [part.shape for part in split(thin, ((5, 3), (1, 5)))] == [(1, 2, 15), (1, 2, 5)]


def test_only_groups_of_equal_structure_are_joined_as_pairs():
    controller = mlp((4, 7, 2))
    a, b = (pairs_of(controller, Gaussian(), lanes) for lanes in (2, 3))
    joined = as_pairs([a, b])
    np.testing.assert_array_equal(rows(joined), np.concatenate([rows(a), rows(b)]))
    other = pairs_of(controller, LowRank(1, controller.blocks))
    fewer = pairs_of(controller, Gaussian(), pairs=4)
    for groups in ([], [a, other], [a, fewer], [a, rows(b)], [rows(a)]):
        assert as_pairs(groups) is None


@pytest.mark.parametrize("most", [None, 1, 8, 14, 100])
@pytest.mark.parametrize(("pairs", "repeats"), [(1, 1), (4, 3), (7, 9), (None, 5)])
def test_chunks_do_not_change_results(most, pairs, repeats):
    controller = mlp((2, 2))
    samples = (
        pairs_of(controller, Gaussian(), lanes=3, pairs=pairs) if pairs else no_pairs(controller.dim)
    )
    candidates = Repeats(controller.init(jax.random.key(2), 2), repeats)
    seen = []

    def function(keys, candidates, samples):
        seen.append(keys.shape[0])
        x = jnp.concatenate([rows(candidates), rows(samples)])
        return {"x": x, "noise": jax.vmap(jax.random.normal)(keys)}

    def keys():
        return jax.random.split(jax.random.key(3), 2 * repeats + 6 * (pairs or 0))

    @jax.jit
    def both(*rows):
        return function(keys(), *rows), by_chunks(function, most, keys(), *rows)

    expected, found = both(candidates, samples)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert most is None or max(seen[1:]) <= max(most, 2)


def numpy_policy(x, observation, network):
    """Evaluate the network of one genotype in float64, one layer at a time."""
    activations = {jax.nn.relu: lambda signal: np.maximum(signal, 0), jnp.tanh: np.tanh}
    start, signal = 0, observation
    for i, (height, width) in enumerate(itertools.pairwise(network.sizes)):
        matrix = x[start : start + height * width].reshape(height, width)
        bias = x[start + height * width : start + height * width + width]
        start += height * width + width
        last = i == len(network.sizes) - 2
        signal = activations[network.output if last else network.hidden](signal @ matrix + bias)
    return signal


def by_factors(network, candidates, samples, observation):
    """Evaluate networks as `Controller.in_factors` does on this machine."""
    controller = mlp(network.sizes, hidden=network.hidden, output=network.output)
    return controller.in_factors(candidates, samples)(observation, 0)


def by_xla(network, candidates, samples, observation):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dispatch, "runs_cpp", lambda: False)
        return by_factors(network, candidates, samples, observation)


def natively(network, candidates, samples, observation):
    step, ranks = drawn(network, samples)
    return act_natively(network, ranks, candidates, samples.mean, step.astype(jnp.float32), observation)


def emulated(network, candidates, samples, observation):
    step, ranks = drawn(network, samples)
    return act_by_kernel(
        network, ranks, candidates, samples.mean, step, observation, launch=emulation.launch
    )


needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
native = pytest.param(natively, marks=needs_compiler)
kernels = pytest.mark.parametrize("act", [pytest.param(emulated, marks=needs_compiler), native])

NETWORKS = {
    "the ant": Network((27, 64, 64, 8), jax.nn.relu, jnp.tanh),
    "few columns": Network((3, 8, 6, 1), jnp.tanh, jnp.tanh),
    "many columns": Network((5, 160, 23, 12), jax.nn.relu, jax.nn.relu),
    "one layer": Network((40, 2), jax.nn.relu, jnp.tanh),
}


def case(network, noise, pairs=PAIRS, repeats=1):
    controller = mlp(network.sizes)
    samples = pairs_of(controller, noise(controller.blocks), pairs=pairs)
    candidates = Repeats(controller.init(jax.random.key(2), CANDIDATES), repeats)
    shape = (CANDIDATES * repeats + 2 * LANES * pairs, network.sizes[0])
    return candidates, samples, jax.random.normal(jax.random.key(3), shape)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize(("repeats", "dtype"), [(1, "float32"), (6, "bfloat16")])
def test_factored_policies_act_as_policies_of_whole_genotypes(network, noise, repeats, dtype):
    """The compared implementations are plain JAX, native code, and the GPU kernel in the emulator."""
    candidates, samples, observation = case(network, noise, repeats=repeats)
    samples = samples._replace(step=rounded(samples.step, dtype))
    x = np.concatenate([np.repeat(np.float64(candidates.x), repeats, axis=0), by_numpy(samples)])
    expected = [numpy_policy(*row, network) for row in zip(x, np.float64(observation), strict=True)]
    ways = [by_xla, by_factors] + [natively, emulated] * (compiler() is not None)
    for act in ways:
        found = jax.jit(partial(act, network))(candidates, samples, observation)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5, err_msg=act.__name__)


@needs_compiler
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_rows_of_native_code_do_not_depend_on_the_rest_of_the_batch(noise):
    network = NETWORKS["many columns"]
    candidates, samples, observation = case(network, noise)
    act = jax.jit(partial(natively, network))

    def by_pair(array, lanes, pairs):
        return (
            array[CANDIDATES:]
            .reshape(LANES, 2, PAIRS, -1)[lanes][:, :, pairs]
            .reshape(-1, array.shape[1])
        )

    everyone = np.asarray(act(candidates, samples, observation))
    order = np.random.default_rng(0).permutation(PAIRS)
    for lanes, chosen, alone in [
        ([1, 0], order, [2, 0, 1]),
        ([1], np.array([4, 4, 0]), [1, 1, 1, 1]),
        ([0], np.array([34]), []),
        ([], np.array([3]), [2]),
    ]:
        lanes, alone = np.array(lanes, int), np.array(alone, int)
        some = jax.tree.map(lambda leaf, i=lanes, j=chosen: leaf[i][:, j], samples.step)
        seen = jnp.concatenate([observation[alone], by_pair(observation, lanes, chosen)])
        found = act(Repeats(candidates.x[alone], 1), Pairs(samples.mean[lanes], some), seen)
        expected = np.concatenate([everyone[alone], by_pair(everyone, lanes, chosen)])
        np.testing.assert_array_equal(found, expected)


@needs_compiler
def test_native_tanh_equals_numpy_up_to_rounding():
    x = np.float32(np.concatenate([np.linspace(-12, 12, 4001), np.geomspace(1e-30, 1, 500), [0, 1e9]]))
    x = np.concatenate([x, -x, [np.inf, -np.inf]]).astype(np.float32)
    network = Network((1, 1), jax.nn.relu, jnp.tanh)
    nobody = Pairs(jnp.zeros((0, 2)), (jnp.zeros((0, 1, 2)),))
    identity = jnp.tile(jnp.array([1.0, 0.0]), (len(x), 1))
    found = natively(network, Repeats(identity, 1), nobody, jnp.asarray(x)[:, None])[:, 0]
    np.testing.assert_allclose(found, np.tanh(np.float64(x)), rtol=5e-7)


@kernels
def test_kernels_are_mapped_over_seeds_and_need_no_candidates(act):
    sizes = (4, 7, 2)
    controller, network = mlp(sizes), Network(sizes, jax.nn.relu, jnp.tanh)
    many = [
        pairs_of(controller, Gaussian(), lanes=1)._replace(mean=m)
        for m in np.eye(3, controller.dim)[:, None]
    ]
    samples = jax.tree.map(lambda *leaves: jnp.stack(leaves), *many)
    observation = jax.random.normal(jax.random.key(3), (3, 2 * PAIRS, 4))
    found = jax.vmap(lambda s, o: act(network, Repeats(s.mean[:0], 1), s, o))(samples, observation)
    for each, o, actions in zip(many, observation, found, strict=True):
        np.testing.assert_allclose(
            actions, controller.act(controller.parameters(rows(each)), o, 0), atol=1e-5
        )


@kernels
@pytest.mark.parametrize("hidden", [jax.nn.relu, jnp.tanh])
def test_kernels_propagate_nan(act, hidden):
    sizes = (4, 7, 2)
    controller, network = mlp(sizes), Network(sizes, hidden, jnp.tanh)
    samples = pairs_of(controller, Gaussian(), lanes=1)
    observation = jnp.zeros((2 * PAIRS, 4)).at[3, 1].set(jnp.nan)
    found = act(network, Repeats(samples.mean[:0], 1), samples, observation)
    np.testing.assert_array_equal(np.isnan(found).any(axis=1), np.arange(2 * PAIRS) == 3)


MAZE = memes.tasks.point_maze(steps=8, hidden=(6,), uncertain=True)
SMALL = {"lanes": 4, "samples": 10}


def first_batch(algorithm):
    """Return the first batch that an algorithm proposes."""
    init_key, ask_key = jax.random.split(jax.random.key(0))
    return jax.jit(lambda: algorithm.ask(ask_key, algorithm.init(init_key))[1])()


def whole(task):
    """Return the task without its factored evaluation."""
    return dataclasses.replace(task, evaluate=task.evaluate.rows)


@pytest.mark.parametrize("noise", ["gaussian", "low-rank"])
@pytest.mark.parametrize("chunk", [None, 6])
def test_factored_evaluation_agrees_with_whole_genotypes(noise, chunk):
    options = {"rank": 1} if noise == "low-rank" else {}
    algorithm = memes.presets.memes(MAZE, noise=noise, **SMALL, **options)
    batch = first_batch(algorithm)

    def keys():
        return jax.random.split(jax.random.key(2), algorithm.batch_size)

    @jax.jit
    def found_and_expected(batch):
        pairs = as_pairs(batch.samples)
        found = evaluate_factors(MAZE, keys(), batch.candidates, pairs, chunk=chunk)
        return found, evaluate(whole(MAZE), keys(), batch.x)

    found, expected = found_and_expected(batch)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected)


def test_an_algorithm_uses_factored_evaluation_if_the_task_has_it():
    calls = []

    def spy(*arguments):
        calls.append(arguments)
        return MAZE.evaluate.factors(*arguments)

    task = dataclasses.replace(MAZE, evaluate=FactoredEvaluate(MAZE.evaluate.rows, spy))
    algorithm = memes.presets.memes(task, **SMALL)
    init_key, step_key = jax.random.split(jax.random.key(0))
    _, info = jax.jit(lambda: algorithm.step(step_key, algorithm.init(init_key)))()
    assert isinstance(calls[0][2], Pairs)
    assert np.isfinite(info.fitness).all()
    # Tasks that replace or wrap `evaluate` get full genotypes. Offspring are also passed as full
    # genotypes.
    algorithms = [memes.presets.memes(other, **SMALL) for other in (whole(task), memes.noisy(task))]
    calls.clear()
    for algorithm in (*algorithms, memes.presets.me(task, batch=7)):
        jax.eval_shape(algorithm.step, step_key, jax.eval_shape(algorithm.init, init_key))
    assert not calls


def test_repeated_evaluations_pass_each_genotype_once():
    """Genotypes that are evaluated several times are passed once, with the number of evaluations."""
    calls = []

    def spy(keys, candidates, samples):
        calls.append((candidates.x.shape[0], candidates.count, samples.mean.shape[0]))
        return MAZE.evaluate.factors(keys, candidates, samples)

    task = dataclasses.replace(MAZE, evaluate=FactoredEvaluate(MAZE.evaluate.rows, spy))
    step_key, key = jax.random.split(jax.random.key(0))

    def traced(algorithm):
        calls.clear()  # discard the calls that `compose` made to check the task
        jax.eval_shape(algorithm.step, step_key, jax.eval_shape(algorithm.init, key))
        return calls

    assert traced(memes.presets.memes(task, candidate_samples=6, **SMALL)) == [(4, 6, 4)]
    assert traced(memes.presets.me_sampling(task, batch=5, resamples=3)) == [(5, 3, 0)]
    again = reevaluator(task, 9, statistic=jnp.nanmedian, rows=20, most=7)
    calls.clear()
    archive = jnp.zeros((7, task.dim))
    jax.eval_shape(again.estimate, key, archive, jnp.arange(2))
    assert calls == [(2, 9, 0)]


@pytest.mark.parametrize("chunk", [None, 4])
def test_repeats_evaluate_as_whole_genotypes(chunk):
    repeats = Repeats(MAZE.init(jax.random.key(0), 3), 7)

    def keys():
        return jax.random.split(jax.random.key(1), repeats.evaluations)

    found = jax.jit(lambda: evaluate(MAZE, keys(), repeats, chunk=chunk))()
    expected = jax.jit(lambda: evaluate(whole(MAZE), keys(), rows(repeats)))()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected)
    assert len(np.unique(np.asarray(found.feature), axis=0)) == repeats.evaluations


def test_results_of_factored_and_whole_samples_are_bitwise_equal():
    """A strategy returns samples in factored form or as full arrays. Both forms give equal results."""
    task, options = memes.tasks.arm(joints=6), {"samples": 10, "sigma": 0.1}

    class Whole(memes.strategies.OpenAIES):
        def ask(self, key, state):
            state, samples = super().ask(key, state)
            return state, rows(samples)

    found = []
    for each in (memes.strategies.OpenAIES(**options), Whole(**options)):
        algorithm = memes.presets.memes(task, lanes=4, strategy=each)
        state = jax.jit(algorithm.init)(jax.random.key(0))
        step = jax.jit(algorithm.step)
        for generation in range(5):
            state, _ = step(jax.random.key(generation), state)
        found.append(state)
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert found[0].archive.occupied.any()
