"""Alternative implementations of policies for mirrored samples, for speed comparisons.

Each implementation has a different layout of the weights.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from peers import Contestant

SIZES = (27, 64, 64, 8)
SHAPES = list(itertools.pairwise(SIZES))
SIGN = jnp.array([1.0, -1.0]).reshape(1, 2, 1, 1)  # signs of the two samples of a pair


def ways(lanes: int, pairs: int, steps: int) -> dict[str, Contestant]:
    """Return one implementation per layout of the weights.

    Each implementation computes `steps` policy steps without a simulator.
    """
    mean_key, noise_key, left_key, right_key = jax.random.split(jax.random.key(0), 4)
    mean = [0.1 * jax.random.normal(mean_key, (lanes, i, o)) for i, o in SHAPES]
    noise = [0.02 * jax.random.normal(noise_key, (lanes, pairs, i, o)) for i, o in SHAPES]

    def own(dtype: str) -> list[Array]:
        signed = [
            w[:, None, None] + SIGN[..., None] * e[:, None] for w, e in zip(mean, noise, strict=True)
        ]
        return [matrix.astype(dtype) for matrix in signed]

    def thin(rank: int) -> tuple[list[Array], ...]:
        left = [0.02 * jax.random.normal(left_key, (lanes, pairs, i, rank)) for i, _ in SHAPES]
        right = [jax.random.normal(right_key, (lanes, pairs, rank, o)) for _, o in SHAPES]
        return mean, left, right

    shared = [e.astype("bfloat16") for e in noise]
    found: dict[str, tuple[Callable[..., Array], Any]] = {
        "a matrix for each sample": (by_sample, (own("float32"),)),
        "the same in bfloat16": (by_sample, (own("bfloat16"),)),
        "a noise matrix for each pair": (by_pair, (mean, noise)),
        "the same, noise in bfloat16": (by_pair, (mean, shared)),
        "noise of rank 4": (by_factors, thin(4)),
        "noise of rank 1": (by_factors, thin(1)),
    }
    start = jax.random.normal(jax.random.key(1), (lanes, 2, pairs, SIZES[0]))
    return {name: _rollout(layer, weights, start, steps) for name, (layer, weights) in found.items()}


def by_sample(x: Array, matrix: Array) -> Array:
    """Multiply `x[l, 2, p, i]` by a separate matrix per sample, [l, 2, p, i, o]."""
    return jnp.einsum("lspi,lspio->lspo", x, matrix, preferred_element_type=jnp.float32)


def by_pair(x: Array, mean: Array, noise: Array) -> Array:
    """Multiply `x` by means [l, i, o] plus and minus noise [l, p, i, o]."""
    shift = jnp.einsum("lspi,lpio->lspo", x, noise, preferred_element_type=jnp.float32)
    return jnp.einsum("lspi,lio->lspo", x, mean) + SIGN * shift


def by_factors(x: Array, mean: Array, left: Array, right: Array) -> Array:
    """Multiply `x` by means [l, i, o] plus and minus noise.

    The noise of each mirrored pair is the product of two matrices, which are in `left` [l, p, i, r] and
    `right` [l, p, r, o].
    """
    inner = jnp.sum(x[..., None] * left[:, None], axis=-2)
    shift = jnp.sum(inner[..., None] * right[:, None], axis=-2)
    return jnp.einsum("lspi,lio->lspo", x, mean) + SIGN * shift


def _rollout(layer: Callable[..., Array], weights: Any, start: Array, steps: int) -> Contestant:
    def step(x: Array, weights: Any) -> Array:
        signal = x
        for matrices in zip(*weights, strict=True):
            signal = jax.nn.relu(layer(signal, *matrices))
        return x + 1e-3 * jnp.sum(signal, axis=-1, keepdims=True)

    @jax.jit
    def run(weights: Any, x: Array) -> Array:
        with jax.default_matmul_precision("highest"):
            return jax.lax.scan(lambda x, _: (step(x, weights), None), x, length=steps)[0]

    return Contestant(
        lambda: run(weights, start), lambda found: {"mean signal": float(jnp.abs(found).mean())}
    )
