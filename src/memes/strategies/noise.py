"""Distributions of the noise that an evolution strategy adds to its mean to draw samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
from jax import Array

from memes.control.perturbations import Step, Thin
from memes.errors import at_least, require
from memes.validation import check_fields


@runtime_checkable
class Noise(Protocol):
    """A distribution whose entries have mean 0 and variance 1."""

    def __call__(self, key: Array, shape: tuple[int, ...]) -> Array | Step:
        """Draw noise of shape [..., d], as an array or in factored form."""


@dataclass(frozen=True)
class Gaussian:
    """Noise with independent entries from a standard normal distribution."""

    def __call__(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Draw noise of a given shape."""
        return jax.random.normal(key, shape)


@dataclass(frozen=True)
class LowRank:
    """Noise that consists of low-rank matrices, and needs fewer random numbers than Gaussian noise.

    Each matrix is a product A B^T / sqrt(rank). The entries of A[rows, rank] and B[columns, rank] are
    standard normal numbers, so all entries of the product have variance 1. Gaussian noise is used if
    A and B together have at least as many entries as the product, for example for a vector of biases.

    Attributes:
        rank: Rank of each matrix.
        blocks: Number of rows and columns of each matrix in a genotype. If None, the genotype is treated
            as one matrix that is nearly square.
    """

    rank: int
    blocks: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, rank=self.rank)

    def __call__(self, key: Array, shape: tuple[int, ...]) -> Step:
        """Draw noise of a given shape, in factored form."""
        *batch, dim = shape
        width = math.isqrt(dim - 1) + 1
        matrices = [(-(-dim // width), width)] if self.blocks is None else self.blocks
        entries = sum(rows * columns for rows, columns in matrices)
        require(
            self.blocks is None or entries == dim,
            f"blocks must have {dim} entries in total, like a genotype, got {list(matrices)}",
        )
        keys = jax.random.split(key, len(matrices))
        return tuple(_matrix(k, batch, *size, self.rank) for k, size in zip(keys, matrices, strict=True))


def _matrix(key: Array, batch: Sequence[int], rows: int, columns: int, rank: int) -> Array | Thin:
    if rank * (rows + columns) >= rows * columns:
        return jax.random.normal(key, (*batch, rows * columns))
    left, right = jax.random.split(key)
    a = jax.random.normal(left, (*batch, rank, rows))
    b = jax.random.normal(right, (*batch, rank, columns))
    return Thin(a / math.sqrt(rank), b)
