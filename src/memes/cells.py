"""Cells of the feature space: a regular grid, or a centroidal Voronoi tessellation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key

from memes.errors import at_least, require
from memes.task import Task
from memes.validation import checked

TARGET_CELLS = 2500
MAX_CELLS = 10_000_000

Features = Float[Array | np.ndarray, "*n k"] | Sequence[Any]  # arrays or lists of numbers


@runtime_checkable
class Cells(Protocol):
    """A partition of the feature space (the box from `low` to `high`) into `count` cells."""

    @property
    def low(self) -> Float[Array, " k"]:
        """Lower bounds of the features."""

    @property
    def high(self) -> Float[Array, " k"]:
        """Upper bounds of the features."""

    @property
    def count(self) -> int:
        """Number of cells, c."""

    def index(self, feature: Features) -> Int[Array, "*n"]:
        """Return the cell index of each finite feature, in [0, count)."""


def require_arrays(cells: Cells) -> None:
    """Raise a `UsageError` unless `cells` is a pytree of arrays, such as a registered dataclass."""
    arrays = all(isinstance(leaf, (Array, np.ndarray)) for leaf in jax.tree.leaves(cells))
    require(
        isinstance(cells, Cells) and arrays,
        f"cells of the class {type(cells).__name__} must have low, high, count and index(feature), and "
        "be a frozen dataclass of arrays, registered with jax.tree_util.register_dataclass",
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Grid:
    """A regular grid with `shape[i]` boxes of equal size along feature i, numbered in C order."""

    low: Float[Array, " k"]
    high: Float[Array, " k"]
    shape: tuple[int, ...] = field(metadata={"static": True})

    @property
    def count(self) -> int:
        """Number of cells, c."""
        return math.prod(self.shape)

    def index(self, feature: Features) -> Int[Array, "*n"]:
        """Return the cell index of each finite feature."""
        shape = jnp.asarray(self.shape, jnp.float32)
        position = jnp.floor((jnp.asarray(feature) - self.low) / (self.high - self.low) * shape)
        position = jnp.clip(position, 0, shape - 1).astype(jnp.int32)
        strides = np.cumprod((1, *self.shape[:0:-1]), dtype=np.int32)[::-1]
        return jnp.sum(position * strides, axis=-1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CVT:
    """A Voronoi tessellation, in which each point belongs to the cell of the nearest centroid.

    To compute distances, each feature is scaled so that its bounds are 0 and 1. The centroids are
    `centroids[c, k]`.
    """

    low: Float[Array, " k"]
    high: Float[Array, " k"]
    centroids: Float[Array, "c k"]

    @property
    def count(self) -> int:
        """Number of cells, c."""
        return int(self.centroids.shape[0])

    def index(self, feature: Features) -> Int[Array, "*n"]:
        """Return the cell index of each finite feature."""
        width = self.high - self.low
        # Points are clipped. Otherwise, a point far outside the bounds could have equal distances to
        # several centroids after rounding.
        position = jnp.clip((jnp.asarray(feature) - self.low) / width, 0, 1)
        flat = position.reshape(-1, self.low.shape[0])
        cell = _nearest(flat, (self.centroids - self.low) / width)
        return cell.reshape(position.shape[:-1])


@checked
def grid(task: Task, resolution: tuple[int, ...] | None = None) -> Grid:
    """Make a regular grid over the task's features.

    Args:
        task: Task with the feature bounds.
        resolution: Number of cells along each feature. The default is the resolution of the task. If the
            task has no resolution, the grid has about 2 500 cells, with the same number along each
            feature (50 x 50 for two features).
    """
    k = task.feature_dim
    shape = task.resolution if resolution is None else resolution
    if shape is None:
        shape = (max(2, round(TARGET_CELLS ** (1 / k))),) * k
    require(
        len(shape) == k,
        f"resolution must have one entry per feature of task '{task.name}' ({k}), got {len(shape)}",
    )
    require(min(shape) >= 1, f"resolution must be at least 1 in each feature, got {tuple(shape)}")
    require(
        math.prod(shape) <= MAX_CELLS,
        f"resolution must give at most {MAX_CELLS:,} cells, got {math.prod(shape):,}; use fewer cells, "
        "or a tessellation (cvt)",
    )
    return Grid(*_bounds(task), tuple(int(s) for s in shape))


def cvt(
    key: Key[Array, ""], task: Task, centroids: int, *, points: int = 50_000, iterations: int = 20
) -> CVT:
    """Make a centroidal Voronoi tessellation of the task's feature space with Lloyd's algorithm.

    Args:
        key: PRNG key of the random points.
        task: Task with the feature bounds.
        centroids: Number of cells.
        points: Number of random points that represent the feature space. The points are uniformly
            distributed.
        iterations: Number of iterations of Lloyd's algorithm.
    """
    at_least(1, centroids=centroids, points=points)
    at_least(0, iterations=iterations)
    cloud = jax.random.uniform(key, (max(points, 10 * centroids), task.feature_dim))

    def lloyd(_: Array, centres: Array) -> Array:
        owner = _nearest(cloud, centres)
        size = jnp.zeros(centroids).at[owner].add(1.0)
        total = jnp.zeros_like(centres).at[owner].add(cloud)
        return jnp.where(size[:, None] > 0, total / jnp.maximum(size, 1)[:, None], centres)

    unit = jax.lax.fori_loop(0, iterations, lloyd, cloud[:centroids])
    low, high = _bounds(task)
    return CVT(low, high, low + unit * (high - low))


def centres(cells: Cells) -> Float[np.ndarray, "c k"]:
    """Return the centre of each cell. For a tessellation, this is the centroid."""
    if isinstance(cells, CVT):
        return np.asarray(cells.centroids, float)
    require(isinstance(cells, Grid), f"cells must be a grid or a CVT, got {type(cells).__name__}")
    assert isinstance(cells, Grid)
    unit = (np.indices(cells.shape).reshape(len(cells.shape), -1).T + 0.5) / np.array(cells.shape)
    low, high = np.asarray(cells.low, float), np.asarray(cells.high, float)
    return np.asarray(low + unit * (high - low))


def _bounds(task: Task) -> tuple[Array, Array]:
    bounds = (np.asarray(bound, np.float32) for bound in (task.feature_low, task.feature_high))
    low, high = map(jax.device_put, bounds)  # `device_put` needs no compilation
    return low, high


def _nearest(points: Array, centres: Array) -> Array:
    """Return the index of the nearest centre for each point, int32[n].

    The shape of `points` is [n, k], and the shape of `centres` is [c, k]. If several centres
    are equally near, return the first one. Points are processed in blocks, which limits memory usage.
    """

    def block(rows: Array) -> Array:
        return jnp.argmin(jnp.sum(jnp.square(rows[None] - centres), axis=-1)).astype(jnp.int32)

    nearest: Array = jax.lax.map(block, points, batch_size=1024)
    return nearest
