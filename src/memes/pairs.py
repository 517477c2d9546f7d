"""Kernels for the policies of mirrored pairs, which read what is drawn for a pair once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from memes.factors import Pairs, Thin, entries, split
from memes.kernels import cuda
from memes.kernels.cuda import Kernel
from memes.kernels.source import written
from memes.trees import filled

# Activations in C++. What is not a number stays so: a robot that fails must be seen to fail.
ACTIVATIONS: dict[Any, str] = {jax.nn.relu: "x < 0.f ? 0.f : x", jnp.tanh: "tanhf(x)"}


class Network(NamedTuple):
    """Multi-layer perceptrons of one shape: sizes of their signals, and their activations."""

    sizes: tuple[int, ...]
    hidden: Callable[[Array], Array]
    output: Callable[[Array], Array]

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of the weights and of the biases of each layer."""
        shapes = itertools.pairwise(self.sizes)
        return tuple(block for rows, columns in shapes for block in ((rows, columns), (1, columns)))


def drawn(network: Network, samples: Pairs) -> tuple[Float[Array, "L P e"], tuple[int, ...]]:
    """All that is drawn for a pair, in the order that kernels read, and the rank of each layer's step.

    Of each layer it is the matrix, whose rank is 0, or the left factors, filled up to a multiple of 4,
    and the right ones; and then the biases.
    """
    parts = split(samples.step, network.blocks)
    matrices, biases = parts[::2], [entries((part,)) for part in parts[1::2]]
    ranks = tuple(m.left.shape[-2] if isinstance(m, Thin) else 0 for m in matrices)
    if not any(ranks):
        return entries(samples.step)[..., : samples.mean.shape[-1]], ranks
    laid: list[Array] = []
    for matrix, bias in zip(matrices, biases, strict=True):
        if isinstance(matrix, Thin):
            left, right = (jax.lax.collapse(side, 2) for side in matrix)
            laid += [filled(left, -(-left.shape[2] // 4) * 4, axis=2), right, bias]
        else:
            laid += [matrix, bias]
    return jnp.concatenate(laid, axis=-1), ranks


def fastest(
    network: Network, candidates: Array, samples: Pairs, otherwise: Callable[[Array, Array], Array]
) -> Callable[[Array, Array], Array]:
    """The `act(observation, t)` of candidates and samples by a kernel, or `otherwise`."""
    if not {network.hidden, network.output} <= set(ACTIVATIONS) or not cuda.usable("a policy"):
        return otherwise
    step, ranks = drawn(network, samples)

    def by_kernel(observation: Array, t: Array) -> Array:
        del t
        return act_by_kernel(network, ranks, candidates, samples.mean, step, observation)

    return partial(jax.lax.platform_dependent, cuda=by_kernel, default=otherwise)


WARPS, EACH = 16, 2  # of a block, and pairs of a warp


def act_by_kernel(
    network: Network,
    ranks: tuple[int, ...],
    candidates: Float[Array, "C d"],
    mean: Float[Array, "L d"],
    step: Float[Array, "L P e"],
    observation: Float[Array, "n o"],
    *,
    launch: Callable[..., list[Array]] = cuda.launch,
) -> Float[Array, "n a"]:
    """Let candidates, and then both samples of every pair, act: on NVIDIA GPUs."""
    (lanes, pairs, width), count = step.shape, candidates.shape[0]
    blocks = -(-count // WARPS) + lanes * -(-pairs // (WARPS * EACH))
    result = jax.ShapeDtypeStruct((observation.shape[0], network.sizes[-1]), jnp.float32)  # type: ignore[no-untyped-call]
    (action,) = launch(
        policy_kernel(network, ranks, width),
        (candidates, mean, step, observation),
        [result],
        blocks=blocks,
        threads=32 * WARPS,
        numbers=(count, lanes, pairs),
    )
    return action


def policy_kernel(network: Network, ranks: tuple[int, ...], width: int) -> Kernel:
    """The kernel for steps of these ranks, 0 where a matrix is whole, of so many numbers in all."""
    shapes = list(itertools.pairwise(network.sizes))
    dim = sum(rows * columns + columns for rows, columns in shapes)
    lines, mean, step = [], 0, 0
    for i, ((rows, columns), rank) in enumerate(zip(shapes, ranks, strict=True)):
        # How many columns a lane reads at once: those of a row, and all rows, must be so aligned.
        together = next(
            n
            for n in (4, 2, 1)
            if n == 1 or (columns >= 8 * n and not any(x % n for x in (columns, mean, step, dim, width)))
        )
        last = str(i == len(shapes) - 1).lower()
        arguments = f"{rows}, {columns}, {together}, PAIRED ? {rank} : 0, PAIRED, {last}"
        lines.append(f"layer<{arguments}>(mean + {mean}, step + {step}, signal);")
        mean += rows * columns + columns
        step += (-(-rank * rows // 4) * 4 + rank * columns if rank else rows * columns) + columns
    assert step == width
    source = written(
        (resources.files("memes") / "pairs.cu").read_text(),
        WARPS=WARPS,
        EACH=EACH,
        INPUTS=network.sizes[0],
        OUTPUTS=network.sizes[-1],
        WIDEST=max(network.sizes),
        DIM=dim,
        DRAWN=width,
        HIDDEN=ACTIVATIONS[network.hidden],
        OUTPUT=ACTIVATIONS[network.output],
        LAYERS=lines,
    )
    return Kernel(source, "policies")
