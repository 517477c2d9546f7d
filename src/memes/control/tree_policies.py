"""Policies whose parameters are pytrees, such as flax or equinox networks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Key, PyTree

from memes.control.mlp_kernels import Network
from memes.control.policies import MLP
from memes.errors import at_least
from memes.pytrees import TreeGenotypes, in_32_bits

# `(parameters, observation[o]) -> action[a]`
Apply = Callable[[PyTree, Array], Array]


def identity(signal: Array) -> Array:
    """Return the signal unchanged."""
    return signal


# The activations of perceptrons that `perceptron` recognises, and the corresponding NumPy functions.
HIDDEN: dict[Any, Callable[[Any], Any]] = {
    jax.nn.relu: lambda signal: np.maximum(signal, 0),
    jnp.tanh: np.tanh,
}
OUTPUT: dict[Any, Callable[[Any], Any]] = {**HIDDEN, identity: lambda signal: signal}
DRAWS, TOLERANCE = 64, 1e-4


@dataclass(frozen=True)
class TreePolicy:
    """A controller whose genotypes are the parameters of an arbitrary network.

    Attributes:
        trees: Conversion between genotypes and the pytrees of parameters.
        apply: `(parameters, observation[o]) -> action[a]`, which computes the output of the network.
    """

    trees: TreeGenotypes
    apply: Apply

    blocks: ClassVar[None] = None
    in_factors: ClassVar[None] = None
    network: ClassVar[None] = None

    @property
    def dim(self) -> int:
        """Number of entries of a genotype."""
        return self.trees.dim

    def init(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        """Draw initial parameters."""
        return self.trees.init(key, n)

    def parameters(self, x: Float[Array, "n d"]) -> list[Array]:
        """Return the arrays of all networks."""
        return self.trees.arrays(x)

    def act(
        self, parameters: list[Array], observation: Float[Array, "n o"], t: ArrayLike
    ) -> Float[Array, "n a"]:
        """Return the actions of each network."""
        actions: Array = jax.vmap(lambda own, seen: self.apply(self.trees.join(own), seen))(
            parameters, observation
        )
        return actions

    def policy(
        self, x: Float[Array | np.ndarray, " d"], observation: Float[Array | np.ndarray, "b o"]
    ) -> Float[Array, "b a"]:
        """Return the actions of one network for many observations."""
        actions: Array = jax.vmap(lambda seen: self.apply(self.trees.tree(x), seen))(observation)
        return actions


def tree_policy(
    make: Callable[[Array], PyTree], apply: Apply, *, observation_size: int
) -> MLP | TreePolicy:
    """Build a controller whose genotypes are the parameters of a network.

    If the network is a perceptron with float32 parameters and ReLU or tanh activations, its genotypes
    have the layout of `mlp`. Rollouts then use the same kernels as for `mlp`. Such networks are
    recognised by their outputs for random parameters.

    Args:
        make: `(key) -> parameters`, which returns a pytree of random initial parameters.
        apply: `(parameters, observation[o]) -> action[a]`, which computes the output of the network.
        observation_size: Number of entries of an observation, o.
    """
    at_least(1, observation_size=observation_size)
    trees = TreeGenotypes(make)
    recognised = perceptron(trees, apply, observation_size)
    if recognised is None:
        return TreePolicy(trees, apply)
    trees, network = recognised
    return MLP(*network, trees=trees)


@in_32_bits
def perceptron(
    trees: TreeGenotypes, apply: Apply, observation_size: int
) -> tuple[TreeGenotypes, Network] | None:
    """Return the perceptron that `apply` computes, or None if `apply` is not a perceptron."""
    layouts = [_layers(trees, observation_size, transposed) for transposed in (False, True)]
    candidates = [layout for layout in layouts if layout is not None]
    if not candidates:
        return None
    rng = np.random.default_rng(0)
    # The scales of the layers range from 0.01 to 10, so that activations have small and large inputs.
    scales = 10 ** rng.uniform(-2, 1, (DRAWS, len(trees.shapes)))
    arrays = [
        (rng.normal(size=(DRAWS, *shape)).T * scales[:, i]).T.astype(np.float32)
        for i, shape in enumerate(trees.shapes)
    ]
    observation = rng.normal(size=(DRAWS, observation_size)).astype(np.float32)
    with jax.default_matmul_precision("highest"):
        compute = jax.jit(jax.vmap(lambda own, seen: apply(trees.join(own), seen)))
        found = np.asarray(compute(arrays, observation))
    for layout, sizes in candidates:
        ordered = [np.swapaxes(arrays[i], -1, -2) if flip else arrays[i] for i, flip in layout]
        for hidden, output in itertools.product(HIDDEN, OUTPUT):
            expected = forward(ordered, observation, HIDDEN[hidden], OUTPUT[output])
            if found.shape == expected.shape and _alike(found, expected):
                return TreeGenotypes(trees.make, layout), Network(sizes, hidden, output)
    return None


def forward(
    arrays: list[np.ndarray],
    observation: Float[np.ndarray, "n o"],
    hidden: Callable[[np.ndarray], np.ndarray],
    output: Callable[[np.ndarray], np.ndarray],
) -> Float[np.ndarray, "n a"]:
    """Compute the outputs of n perceptrons in NumPy.

    `arrays` contains the weights [n, i, o] and the biases [n, o] of the first layer, then those of the
    second layer, and so on.
    """
    signal = np.asarray(observation, np.float64)
    for i in range(0, len(arrays), 2):
        signal = np.einsum("ni,nio->no", signal, arrays[i]) + arrays[i + 1]
        signal = (hidden if i + 2 < len(arrays) else output)(signal)
    return signal


def _alike(found: np.ndarray, expected: np.ndarray) -> bool:
    largest = np.maximum(np.abs(expected).max(axis=1, keepdims=True), 1e-6)
    return bool((np.abs(found - expected) <= TOLERANCE * largest).all())


def _layers(
    trees: TreeGenotypes, observation_size: int, transposed: bool
) -> tuple[tuple[tuple[int, bool], ...], tuple[int, ...]] | None:
    """Return the layout and the layer sizes, or None if the parameters do not fit a perceptron."""
    shapes, sizes, layout = trees.shapes, [observation_size], []
    if len(shapes) % 2 or any(dtype != jnp.float32 for dtype in trees.dtypes):
        return None
    for i in range(0, len(shapes), 2):
        weights, bias = sorted((i, i + 1), key=lambda part: -len(shapes[part]))
        rows, *columns = shapes[weights][::-1] if transposed else shapes[weights]
        if rows != sizes[-1] or len(columns) != 1 or shapes[bias] != tuple(columns):
            return None
        sizes.append(columns[0])
        layout += [(weights, transposed), (bias, False)]
    return tuple(layout), tuple(sizes)
