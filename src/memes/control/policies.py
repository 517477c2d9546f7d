"""Policies, which are controllers that use neural networks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from memes.control.mlp_kernels import Network, fastest
from memes.control.perturbations import Pairs, Repeats, Thin, entries, split
from memes.control.perturbations import rows as rows_of
from memes.control.rollouts import Controller
from memes.errors import at_least, require

Act = Callable[[Array, Array], Array]
Layers = list[tuple[Array, Array]]  # per layer: weights [n, in, out] and biases [n, out]


def mlp(
    sizes: Sequence[int],
    *,
    hidden: Callable[[Array], Array] = jax.nn.relu,
    output: Callable[[Array], Array] = jnp.tanh,
    weights: str = "float32",
) -> Controller:
    """Build a controller whose genotypes are the parameters of a multi-layer perceptron.

    For each layer, a genotype contains the weights (in, out) in row-major order, followed by the biases.
    Initial weights are LeCun-uniform, U(-sqrt(3 / in), sqrt(3 / in)); initial biases are 0.

    Args:
        sizes: Sizes of the observation, of each hidden layer and of the action.
        hidden: Activation of hidden layers.
        output: Activation of the last layer.
        weights: Type in which weights are stored during a rollout, `float32` or `bfloat16`. With
            `bfloat16`, each step reads half as much memory on a GPU. Sums are always float32.
    """
    require(len(sizes) >= 2, f"sizes must name at least input and output, got {tuple(sizes)}")
    for size in sizes:
        at_least(1, sizes=size)
    require(weights in ("float32", "bfloat16"), f"weights must be float32 or bfloat16, got '{weights}'")
    network = Network(tuple(sizes), hidden, output)
    shapes = list(itertools.pairwise(sizes))
    ends = [0]
    for rows, columns in shapes:
        ends.append(ends[-1] + rows * columns + columns)

    def init(key: Array, n: int) -> Array:
        layers = []
        for layer_key, (rows, columns) in zip(jax.random.split(key, len(shapes)), shapes, strict=True):
            bound = math.sqrt(3 / rows)
            entries = jax.random.uniform(layer_key, (n, rows * columns), minval=-bound, maxval=bound)
            layers += [entries, jnp.zeros((n, columns))]
        return jnp.concatenate(layers, axis=1)

    def parameters(x: Array) -> Layers:
        layers = []
        for start, (rows, columns) in zip(ends[:-1], shapes, strict=True):
            middle, end = start + rows * columns, start + rows * columns + columns
            matrix = x[:, start:middle].reshape(-1, rows, columns)
            layers.append((matrix.astype(weights), x[:, middle:end]))
        return layers

    def forward(signal: Array, *layers: Callable[[Array], Array]) -> Array:
        for layer in layers[:-1]:
            signal = hidden(layer(signal))
        return output(layers[-1](signal))

    def act(layers: Layers, observation: Array, t: ArrayLike) -> Array:
        del t
        return forward(observation, *(partial(affine, "ni,nio->no", *layer) for layer in layers))

    def policy(x: Array, observation: Array) -> Array:
        layers = jax.tree.map(lambda leaf: leaf[0], parameters(x[None]))
        return forward(observation, *(partial(affine, "bi,io->bo", *layer) for layer in layers))

    def in_factors(candidates: Repeats, samples: Pairs) -> Callable[[Array, Array], Array]:
        steps, first = split(samples.step, network.blocks), candidates.evaluations
        thin = any(isinstance(step, Thin) for step in steps)

        def act_repeated(observation: Array, t: Array) -> Array:
            signal = observation.reshape(candidates.x.shape[0], candidates.count, sizes[0])
            return forward(signal, *repeated).reshape(-1, sizes[-1])

        def act_mirrored(observation: Array, t: Array) -> Array:
            signal = observation.reshape(samples.mean.shape[0], 2, samples.each, sizes[0])
            return forward(signal, *around).reshape(-1, sizes[-1])

        def in_parts(alone: Act, paired: Act, observation: Array, t: Array) -> Array:
            return jnp.concatenate([alone(observation[:first], t), paired(observation[first:], t)])

        act_alone: Act = act_repeated
        if candidates.count == 1:
            act_alone = partial(act, parameters(candidates.x))
        else:
            layers = [(weights, bias[:, None]) for weights, bias in parameters(candidates.x)]
            repeated = [partial(affine, "cri,cio->cro", *layer) for layer in layers]
        if thin:
            means = parameters(samples.mean)
            parts = zip(means, steps[::2], steps[1::2], strict=True)
            around = [partial(mirrored, *mean, step, shift) for mean, step, shift in parts]
            by_xla = partial(in_parts, act_alone, act_mirrored)
        elif candidates.count == 1:  # in XLA, sharing would not make full matrices faster
            by_xla = partial(act, parameters(jnp.concatenate([candidates.x, rows_of(samples)])))
        else:
            by_xla = partial(in_parts, act_alone, partial(act, parameters(rows_of(samples))))
        return fastest(network, candidates, samples, by_xla)

    return Controller(
        ends[-1],
        init,
        parameters,
        act,
        policy,
        blocks=network.blocks,
        in_factors=in_factors if weights == "float32" else None,
        network=network if weights == "float32" else None,
    )


def affine(product: str, matrix: Array, bias: Array, signal: Array) -> Array:
    """Compute a layer without its activation; `product` is the `einsum` of the matrix product."""
    return jnp.einsum(product, signal, matrix, preferred_element_type=jnp.float32) + bias


def mirrored(
    matrix: Float[Array, "L i o"],
    bias: Float[Array, "L o"],
    step: Array | Thin,
    shift: Array | Thin,
    signal: Float[Array, "L 2 P i"],
) -> Float[Array, "L 2 P o"]:
    """Compute a layer without its activation, for mirrored pairs around each lane's parameters."""
    if isinstance(step, Thin):
        inner = jnp.sum(signal[..., None, :] * step.left[:, None], axis=-1)
        moved = jnp.sum(inner[..., None] * step.right[:, None], axis=-2)
    else:
        own = step.reshape(*step.shape[:2], *matrix.shape[1:])
        moved = jnp.einsum("lspi,lpio->lspo", signal, own)
    sign = jnp.array([1.0, -1.0]).reshape(2, 1, 1)
    moved = sign * (moved + entries((shift,))[:, None])
    return affine("lspi,lio->lspo", matrix, bias[:, None, None], signal) + moved
