"""Kernels for policies in factored form.

A kernel reads the weights of a repeated genotype once for several evaluations. It reads the noise of a
mirrored pair once for both samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib import resources
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from memes.control.perturbations import Pairs, Repeats, Thin, entries, split
from memes.kernels import cuda
from memes.kernels.cuda import Kernel
from memes.kernels.cxx import native_target, parallel
from memes.kernels.dispatch import choose
from memes.kernels.source import written
from memes.pytrees import filled

# Names of the activations in kernels.
ACTIVATIONS: dict[Any, str] = {jax.nn.relu: "relu", jnp.tanh: "tangent"}


class Network(NamedTuple):
    """A multi-layer perceptron: the sizes of input, hidden layers and output, and the activations."""

    sizes: tuple[int, ...]
    hidden: Callable[[Array], Array]
    output: Callable[[Array], Array]

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Sizes (rows, columns) of each layer's weights and biases, in the order of the layers."""
        shapes = itertools.pairwise(self.sizes)
        return tuple(block for rows, columns in shapes for block in ((rows, columns), (1, columns)))

    @property
    def dim(self) -> int:
        """The number of entries of a genotype."""
        return sum(rows * columns for rows, columns in self.blocks)


def drawn(network: Network, samples: Pairs) -> tuple[Float[Array, "L P e"], tuple[int, ...]]:
    """Return the noise of each pair and the rank of each layer.

    The noise has the order in which kernels read it. For each layer, it consists of the noise of the
    weights, followed by the noise of the biases. The rank of a full matrix is given as 0. The noise of a
    low-rank matrix consists of its left factors, padded to a multiple of 4, and its right factors.
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
    network: Network, candidates: Repeats, samples: Pairs, otherwise: Callable[[Array, Array], Array]
) -> Callable[[Array, Array], Array]:
    """Return the fastest `act(observation, t)`, which computes the actions of candidates and samples.

    If no kernel supports the activations on the platform, return `otherwise`.
    """
    if not {network.hidden, network.output} <= set(ACTIVATIONS):
        return otherwise
    step, ranks = drawn(network, samples)

    def by(kernel: Callable[..., Array], step: Array) -> Callable[[Array, Array], Array]:
        return lambda observation, t: kernel(network, ranks, candidates, samples.mean, step, observation)

    # If no evaluations share weights, XLA is as fast as the CUDA kernel.
    shared = samples.mean.shape[0] or candidates.count > 1
    # Convert and align the noise only once, instead of in every control step.
    aligned = filled(step.astype(jnp.float32), -(-step.shape[2] // VECTOR) * VECTOR, axis=2)
    return choose(
        cuda=by(act_by_kernel, step) if shared else None,
        cpp=by(act_natively, aligned),
        xla=otherwise,
        what="a policy",
    )


class Tiling(NamedTuple):
    """Settings that determine how a kernel divides its work.

    The defaults were the fastest settings measured on an H200 (docs/speed.md).

    Attributes:
        warps: Number of warps per block.
        each: Number of pairs that a warp computes one after the other.
        share: Number of evaluations of a repeated genotype that a warp computes together.
        ahead: Number of weight rows of a repeated genotype that a warp prefetches.
        resident: Number of blocks per multiprocessor. The compiler limits the number of registers
            accordingly.
        columns: Maximum number of adjacent columns that a thread computes.
    """

    warps: int = 16
    each: int = 2
    share: int = 4
    ahead: int = 2
    resident: int = 2
    columns: int = 4


TILINGS = {
    "float32": Tiling(),
    "bfloat16": Tiling(),
}


def act_by_kernel(
    network: Network,
    ranks: tuple[int, ...],
    candidates: Repeats,
    mean: Float[Array, "L d"],
    step: Float[Array, "L P e"],
    observation: Float[Array, "n o"],
    *,
    launch: Callable[..., list[Array]] = cuda.launch,
) -> Float[Array, "n a"]:
    """Compute the actions of the candidates, followed by the actions of the samples, on GPUs."""
    (lanes, pairs, width), (count, repeats) = step.shape, (candidates.x.shape[0], candidates.count)
    tiling = TILINGS[step.dtype.name]
    most = min(tiling.share, max(1, repeats))
    tiling = tiling._replace(share=1 << most.bit_length() - 1)  # a power of two, for vector loads
    alone, paired = -(-repeats // tiling.share), tiling.warps * tiling.each
    blocks = -(-count * alone // tiling.warps) + lanes * -(-pairs // paired)
    result = jax.ShapeDtypeStruct((observation.shape[0], network.sizes[-1]), jnp.float32)  # type: ignore[no-untyped-call]
    (action,) = launch(
        policy_kernel(network, ranks, width, step.dtype, tiling),
        (candidates.x, mean, step, observation),
        [result],
        blocks=blocks,
        threads=32 * tiling.warps,
        numbers=(count, repeats, lanes, pairs),
    )
    return action


def policy_kernel(
    network: Network, ranks: tuple[int, ...], width: int, dtype: Any, tiling: Tiling
) -> Kernel:
    """Return the kernel for a network and the ranks of its steps.

    Args:
        network: The layer sizes and activations of the policies.
        ranks: Rank of the step of each layer; 0 means a full matrix.
        width: Number of noise entries per pair.
        dtype: Type of the noise: float32 or bfloat16.
        tiling: How the kernel divides its work among threads.
    """
    lines = []
    for layer in _layers(network, ranks):
        # Number of columns that a thread reads at once. All sizes and offsets must be multiples of this
        # number.
        aligned = (layer.columns, layer.mean, layer.step, network.dim, width)
        columns = next(
            n
            for n in (8, 4, 2, 1)
            if n == 1
            or (n <= tiling.columns and layer.columns >= 8 * n and not any(x % n for x in aligned))
        )
        rank = f"PAIRED ? {layer.rank} : 0"
        shape = f"{layer.rows}, {layer.columns}, {columns}, {rank}, PAIRED, S, {layer.last}"
        lines.append(f"layer<{shape}>(mean + {layer.mean}, step + {layer.step}, signal);")
    blanks = {name.upper(): value for name, value in tiling._asdict().items() if name != "columns"}
    kind = "float" if dtype == jnp.float32 else "unsigned short"
    return Kernel(
        _source("mlp_kernels.cu", network, width, lines, DRAWN_TYPE=kind, **blanks), "policies"
    )


# ------------------------------------------------------------------------------------------- CPUs

VECTOR = 16  # number of float32 values in the widest SIMD vectors of CPUs


def act_natively(
    network: Network,
    ranks: tuple[int, ...],
    candidates: Repeats,
    mean: Float[Array, "L d"],
    step: Float[Array, "L P e"],
    observation: Float[Array, "n o"],
) -> Float[Array, "n a"]:
    """Compute the actions of the candidates, followed by the actions of the samples, on CPUs.

    This function requires a C++ compiler. The noise of each pair may end with padding, which aligns the
    noise of the next pair.
    """
    lines = [
        f"layer<{layer.rows}, {layer.columns}, PAIRS ? {layer.rank} : 0, PAIRS, S, {layer.last}>"
        f"(mean + {layer.mean}, steps, {layer.step}, in, out);"
        for layer in _layers(network, ranks)
    ]
    target = native_target(
        _source("mlp_kernels.cc", network, step.shape[2], lines, PARALLEL=parallel()),
        "Policies",
        "a policy",
    )
    result = jax.ShapeDtypeStruct((observation.shape[0], network.sizes[-1]), jnp.float32)  # type: ignore[no-untyped-call]
    call = jax.ffi.ffi_call(target, result, vmap_method="sequential")
    action: Array = call(candidates.x, mean, step, observation, repeats=np.int64(candidates.count))
    return action


# --------------------------------------------------------------------------------------------- sources


class _Layer(NamedTuple):
    """Sizes of a layer, and the offsets of its parameters in a mean and in the noise."""

    rows: int
    columns: int
    rank: int
    mean: int
    step: int
    last: str


def _layers(network: Network, ranks: tuple[int, ...]) -> list[_Layer]:
    shapes = list(itertools.pairwise(network.sizes))
    found, mean, step = [], 0, 0
    for i, ((rows, columns), rank) in enumerate(zip(shapes, ranks, strict=True)):
        found.append(_Layer(rows, columns, rank, mean, step, str(i == len(shapes) - 1).lower()))
        mean += rows * columns + columns
        step += (-(-rank * rows // 4) * 4 + rank * columns if rank else rows * columns) + columns
    return found


def _source(file: str, network: Network, width: int, layers: list[str], **parts: Any) -> str:
    return written(
        (resources.files("memes.control") / file).read_text(),
        INPUTS=network.sizes[0],
        OUTPUTS=network.sizes[-1],
        WIDEST=max(network.sizes),
        DIM=network.dim,
        DRAWN=width,
        HIDDEN=ACTIVATIONS[network.hidden],
        OUTPUT=ACTIVATIONS[network.output],
        LAYERS=layers,
        **parts,
    )
