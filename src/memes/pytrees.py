"""Functions that process pytrees of arrays row by row, and a conversion of pytrees to genotypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes.errors import require

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def in_32_bits(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it creates 32-bit arrays, even if JAX is configured for 64-bit arrays."""

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        with jax.enable_x64(False):
            return function(*arguments, **keywords)

    return call


def choose(where: Bool[Array, " n"], new: T, old: T) -> T:
    """Take each row from `new` if `where` is true for this row, and from `old` otherwise."""

    def choose_leaf(a: Array, b: Array) -> Array:
        return jnp.where(where.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    chosen: T = jax.tree.map(choose_leaf, new, old)
    return chosen


def take(tree: T, start: int, stop: int, step: int = 1) -> T:
    """Return every `step`-th row, from `start` up to but excluding `stop`."""
    taken: T = jax.tree.map(lambda leaf: leaf[start:stop:step], tree)
    return taken


def pick(tree: T, index: Int[Array, "*n"]) -> T:
    """Return the rows with the given indices. For a scalar index, the result has no row axis."""
    picked: T = jax.tree.map(lambda leaf: leaf[index], tree)
    return picked


def put(tree: T, index: Int[Array, "*n"], rows: T) -> T:
    """Replace the rows with the given indices."""
    after: T = jax.tree.map(lambda leaf, new: leaf.at[index].set(new), tree, rows)
    return after


def concatenate(trees: Sequence[T]) -> T:
    """Concatenate the rows of several trees."""
    joined: T = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)
    return joined


def by_lane(tree: T, lanes: int) -> T:
    """Reshape the rows [L * M, ...] of L lanes to [L, M, ...]."""

    def split_leaf(leaf: Array) -> Array:
        return leaf.reshape(lanes, leaf.shape[0] // lanes, *leaf.shape[1:])

    split: T = jax.tree.map(split_leaf, tree)
    return split


def filled(array: Array, size: int, axis: int) -> Array:
    """Pad an axis to a given size, with zeros or, for arrays of PRNG keys, with arbitrary keys."""
    shape = (*array.shape[:axis], size - array.shape[axis], *array.shape[axis + 1 :])
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        filler = jax.random.split(jax.random.key(0, impl=jax.random.key_impl(array)), shape)
    else:
        filler = jnp.zeros(shape, array.dtype)
    return jnp.concatenate([array, filler], axis=axis)


def in_chunks(function: Callable[..., T], rows: int | None, *arrays: Array) -> T:
    """Compute `function(*arrays)` for arrays [n, ...] in chunks of `rows` rows.

    If `rows` is None, all rows are one chunk. The last chunk is padded to the size of the other chunks.
    Rounding depends on the chunk size, so without padding, the result of a row could depend on the
    number of rows.
    """
    if rows is None:
        return function(*arrays)
    n = arrays[0].shape[0]
    count = -(-n // rows)

    def cut(array: Array) -> Array:
        return filled(array, count * rows, axis=0).reshape(count, rows, *array.shape[1:])

    results: PyTree = jax.lax.map(lambda chunk: function(*chunk), tuple(map(cut, arrays)))
    joined: T = jax.tree.map(lambda leaf: leaf.reshape(count * rows, *leaf.shape[2:])[:n], results)
    return joined


@dataclass(frozen=True)
class TreeGenotypes:
    """A conversion between pytrees and the vectors that algorithms vary.

    The vector of a tree is the concatenation of the tree's float arrays. All other leaves, such as the
    activation function of an equinox module, are the same in every tree.

    Attributes:
        make: `(key) -> tree`, which returns a random initial tree. All trees have the same structure.
        layout: Order of the arrays in a vector, as pairs `(index, transposed)`. The index is the
            position of the array among the float arrays of the tree. `transposed` is True if the vector
            contains the transpose of the array. If `layout` is None, the arrays have the order of the
            tree and are not transposed.
    """

    make: Callable[[Array], PyTree]
    layout: tuple[tuple[int, bool], ...] | None = None

    @property
    def dim(self) -> int:
        """The number of entries of a vector, d."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the float arrays in a tree, in the order of the tree."""
        leaves, _ = self._example
        return [leaf.shape for leaf in leaves if is_floats(leaf)]

    @property
    def dtypes(self) -> list[Any]:
        """The types of the float arrays in a tree, in the order of the tree."""
        leaves, _ = self._example
        return [leaf.dtype for leaf in leaves if is_floats(leaf)]

    def init(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        """Return the vectors of n random trees. This method can be the `init` function of a task."""
        return jax.vmap(lambda key: self.row(self.make(key)))(jax.random.split(key, n))

    def row(self, tree: PyTree) -> Float[Array, " d"]:
        """Return the vector of a tree."""
        arrays = [leaf for leaf in jax.tree.leaves(tree) if is_floats(leaf)]
        shapes = [array.shape for array in arrays]
        require(
            shapes == self.shapes,
            f"tree must have float arrays of shapes {self.shapes}, like trees of make, got {shapes}",
        )
        parts = [arrays[i].T if transposed else arrays[i] for i, transposed in self._layout]
        return jnp.concatenate([jnp.ravel(part).astype(jnp.float32) for part in parts])

    def tree(self, x: Float[Array | np.ndarray, "*n d"]) -> PyTree:
        """Convert a vector to a tree, or vectors `[*n, d]` to a tree of stacked arrays `[*n, ...]`."""
        return self.join(self.arrays(x))

    def arrays(self, x: Float[Array | np.ndarray, "*n d"]) -> list[Array]:
        """Return the float arrays of the tree that a vector represents.

        For several vectors, the arrays are stacked.
        """
        x = jnp.asarray(x)
        require(
            x.shape[-1] == self.dim,
            f"x must have {self.dim} entries per genotype, like trees of make, got {x.shape}",
        )
        shapes, dtypes, start = self.shapes, self.dtypes, 0
        found: dict[int, Array] = {}
        for i, transposed in self._layout:
            shape = shapes[i][::-1] if transposed else shapes[i]
            end = start + math.prod(shape)
            part = x[..., start:end].reshape(*x.shape[:-1], *shape).astype(dtypes[i])
            found[i] = jnp.swapaxes(part, -1, -2) if transposed else part
            start = end
        return [found[i] for i in range(len(shapes))]

    def join(self, arrays: Sequence[Array]) -> PyTree:
        """Return the tree that contains the given float arrays."""
        leaves, structure = self._example
        following = iter(arrays)
        return jax.tree.unflatten(
            structure, [next(following) if is_floats(leaf) else leaf for leaf in leaves]
        )

    @property
    def _layout(self) -> tuple[tuple[int, bool], ...]:
        return self.layout or tuple((i, False) for i in range(len(self.shapes)))

    @cached_property
    @in_32_bits
    def _example(self) -> tuple[list[Any], Any]:
        with jax.ensure_compile_time_eval():  # computes constants even during tracing
            leaves, structure = jax.tree.flatten(self.make(jax.random.key(0)))
        require(
            any(map(is_floats, leaves)),
            "make must return a tree with an array of floats, such as the parameters of a network, "
            f"got {structure}",
        )
        return leaves, structure


def is_floats(leaf: Any) -> bool:
    """Return True if the leaf is a float array. Algorithms vary only such leaves."""
    return isinstance(leaf, (jax.Array, np.ndarray)) and jnp.issubdtype(leaf.dtype, jnp.floating)
