"""Noise: where the samples of an evolution strategy lie around its mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
from jax import Array

from memes.errors import at_least, require
from memes.factors import Step, Thin

# (key, shape[..., d]) -> noise of that shape, or in parts; entries have mean 0 and variance 1.
Noise = Callable[[Array, tuple[int, ...]], Array | Step]


def gaussian(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw independent normal entries."""
    return jax.random.normal(key, shape)


def low_rank(rank: int, blocks: Sequence[tuple[int, int]] | None = None) -> Noise:
    """Draw matrices of a low rank: fewer random numbers, entries of equal variance.

    A matrix is a product A B^T / sqrt(rank) of normal A[rows, rank] and B[columns, rank]. Where that
    would save nothing, as for a vector of biases, it is plain Gaussian.

    Args:
        rank: Rank of each matrix.
        blocks: Rows and columns of the matrices that a genotype is made of, in order; None takes all of
            it as one that is nearly square.
    """
    at_least(1, rank=rank)

    def draw(key: Array, shape: tuple[int, ...]) -> Step:
        *batch, dim = shape
        width = math.isqrt(dim - 1) + 1
        matrices = [(-(-dim // width), width)] if blocks is None else blocks
        require(
            blocks is None or sum(rows * columns for rows, columns in blocks) == dim,
            f"blocks must have {dim} entries in all, as a genotype has, got {list(matrices)}",
        )
        keys = jax.random.split(key, len(matrices))
        return tuple(_matrix(k, batch, *size, rank) for k, size in zip(keys, matrices, strict=True))

    return draw


def _matrix(key: Array, batch: Sequence[int], rows: int, columns: int, rank: int) -> Array | Thin:
    if rank * (rows + columns) >= rows * columns:
        return jax.random.normal(key, (*batch, rows * columns))
    left, right = jax.random.split(key)
    a = jax.random.normal(left, (*batch, rank, rows))
    b = jax.random.normal(right, (*batch, rank, columns))
    return Thin(a / math.sqrt(rank), b)
