"""Helpers for pytrees of arrays with a common first axis, of rows or lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int, PyTree

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def in_32_bits(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function create 32-bit arrays, even if JAX creates 64-bit arrays elsewhere."""

    @wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        with jax.enable_x64(False):
            return function(*arguments, **keywords)

    return call


def choose(where: Bool[Array, " n"], new: T, old: T) -> T:
    """Take the rows of `new` where `where`, and those of `old` elsewhere."""

    def choose_leaf(a: Array, b: Array) -> Array:
        return jnp.where(where.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    chosen: T = jax.tree.map(choose_leaf, new, old)
    return chosen


def take(tree: T, start: int, stop: int, step: int = 1) -> T:
    """Take the rows from `start` to `stop`, in steps of `step`."""
    taken: T = jax.tree.map(lambda leaf: leaf[start:stop:step], tree)
    return taken


def pick(tree: T, index: Int[Array, "*n"]) -> T:
    """Take the rows of an index; a scalar drops the axis."""
    picked: T = jax.tree.map(lambda leaf: leaf[index], tree)
    return picked


def put(tree: T, index: Int[Array, "*n"], rows: T) -> T:
    """Replace the rows of an index."""
    after: T = jax.tree.map(lambda leaf, new: leaf.at[index].set(new), tree, rows)
    return after


def concatenate(trees: Sequence[T]) -> T:
    """Concatenate the rows of several trees."""
    joined: T = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)
    return joined


def by_lane(tree: T, lanes: int) -> T:
    """Split rows [L * M, ...] by lane: [L, M, ...]."""

    def split_leaf(leaf: Array) -> Array:
        return leaf.reshape(lanes, leaf.shape[0] // lanes, *leaf.shape[1:])

    split: T = jax.tree.map(split_leaf, tree)
    return split


def filled(array: Array, size: int, axis: int) -> Array:
    """Extend an axis to a size, with zeros or with unused keys."""
    shape = (*array.shape[:axis], size - array.shape[axis], *array.shape[axis + 1 :])
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        filler = jax.random.split(jax.random.key(0, impl=jax.random.key_impl(array)), shape)
    else:
        filler = jnp.zeros(shape, array.dtype)
    return jnp.concatenate([array, filler], axis=axis)


def in_chunks(function: Callable[..., T], rows: int | None, *arrays: Array) -> T:
    """Compute `function(*arrays)` of arrays [n, ...] in chunks of `rows` rows; None is one chunk.

    All chunks have the same size, and the last one is padded: compilers round differently for different
    sizes, and the result of a row must not depend on the number of other rows.
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
