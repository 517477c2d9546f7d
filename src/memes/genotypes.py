"""Genotypes that are pytrees, such as the parameters of a flax or equinox network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key, PyTree

from memes.errors import require
from memes.pytrees import in_32_bits


@dataclass(frozen=True)
class TreeGenotypes:
    """Conversion between pytrees and the vectors that algorithms vary.

    The arrays of floats in a tree are concatenated to one vector. All other leaves, such as the
    activation function of an equinox module, are the same in every tree.

    Attributes:
        make: `(key) -> tree`, a random initial tree. All trees have the same structure.
        layout: Order of the arrays in a vector, as indices of the arrays of floats in the tree, each
            with True if it is a matrix that is transposed. None is the order of the tree.
    """

    make: Callable[[Array], PyTree]
    layout: tuple[tuple[int, bool], ...] | None = None

    @property
    def dim(self) -> int:
        """The number of entries of a vector, d."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the arrays of floats in a tree, in its order."""
        leaves, _ = self._example
        return [leaf.shape for leaf in leaves if is_floats(leaf)]

    @property
    def dtypes(self) -> list[Any]:
        """The types of these arrays."""
        leaves, _ = self._example
        return [leaf.dtype for leaf in leaves if is_floats(leaf)]

    def init(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        """Return the vectors of n random trees; the `init` of a task."""
        return jax.vmap(lambda key: self.row(self.make(key)))(jax.random.split(key, n))

    def row(self, tree: PyTree) -> Float[Array, " d"]:
        """Return the vector of a tree."""
        arrays = [leaf for leaf in jax.tree.leaves(tree) if is_floats(leaf)]
        shapes = [array.shape for array in arrays]
        require(
            shapes == self.shapes,
            f"tree must have arrays of floats with the shapes {self.shapes} of make, got {shapes}",
        )
        parts = [arrays[i].T if transposed else arrays[i] for i, transposed in self._layout]
        return jnp.concatenate([jnp.ravel(part).astype(jnp.float32) for part in parts])

    def tree(self, x: Float[Array | np.ndarray, "*n d"]) -> PyTree:
        """Return the tree of a vector, or a tree of stacked arrays `[*n, ...]` for vectors `[*n, d]`."""
        return self.join(self.arrays(x))

    def arrays(self, x: Float[Array | np.ndarray, "*n d"]) -> list[Array]:
        """Return the arrays of floats of the tree of a vector, or stacked ones of several vectors."""
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
        """Return the tree with these arrays of floats."""
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
        with jax.ensure_compile_time_eval():  # constants, even if first needed inside a trace
            leaves, structure = jax.tree.flatten(self.make(jax.random.key(0)))
        require(
            any(map(is_floats, leaves)),
            "make must return a tree with an array of floats, such as the parameters of a network, "
            f"got {structure}",
        )
        return leaves, structure


def is_floats(leaf: Any) -> bool:
    """Return True if the leaf is an array of floats, which algorithms vary."""
    return isinstance(leaf, (jax.Array, np.ndarray)) and jnp.issubdtype(leaf.dtype, jnp.floating)
