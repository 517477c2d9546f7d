"""Policies, which are controllers that use neural networks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Key

from memes.control.mlp_kernels import Network, fastest
from memes.control.perturbations import Pairs, Repeats, Thin, entries, split
from memes.control.perturbations import rows as rows_of
from memes.control.rollouts import InFactors
from memes.errors import at_least, known, require
from memes.pytrees import TreeGenotypes

Act = Callable[[Array, Array], Array]
Layers = list[tuple[Any, Any]]  # per layer: weights [n, in, out] and biases [n, out]
Activation = Callable[[Array], Array]
# Activations that are stored by name, because JAX functions cannot be pickled.
NAMED: dict[str, Activation] = {"relu": jax.nn.relu, "tanh": jnp.tanh}


@dataclass(frozen=True)
class MLP:
    """A controller whose genotypes are the parameters of a multi-layer perceptron.

    For each layer, a genotype contains the weights (in, out) in row-major order, followed by the biases.
    Initial weights are LeCun-uniform, U(-sqrt(3 / in), sqrt(3 / in)), and initial biases are 0.

    Attributes:
        sizes: Sizes of the observation, of each hidden layer and of the action.
        hidden: Activation of hidden layers, as a function or as a name (relu or tanh).
        output: Activation of the last layer.
        weights: Type in which weights are stored during a rollout, `float32` or `bfloat16`. On a
            GPU, a control step reads half as much memory with `bfloat16` as with `float32`. Sums are
            always float32.
        trees: Object that converts between genotypes and pytrees, and makes the initial parameters. None
            if genotypes are vectors.
    """

    sizes: tuple[int, ...]
    hidden: str | Activation = "relu"
    output: str | Activation = "tanh"
    weights: str = "float32"
    trees: TreeGenotypes | None = None

    def __post_init__(self) -> None:
        require(len(self.sizes) >= 2, f"sizes must name at least input and output, got {self.sizes}")
        for size in self.sizes:
            at_least(1, sizes=size)
        require(
            self.weights in ("float32", "bfloat16"),
            f"weights must be float32 or bfloat16, got '{self.weights}'",
        )
        for field in ("hidden", "output"):
            given = getattr(self, field)
            names = (name for name, function in NAMED.items() if given is function)
            object.__setattr__(self, field, next(names, given))
            if isinstance(given, str):
                known(f"{field} activation", given, NAMED)

    @property
    def dim(self) -> int:
        """Number of entries of a genotype."""
        return self._network.dim

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of each layer's weights and biases, in the order of the layers."""
        return self._network.blocks

    @property
    def network(self) -> Network | None:
        """The network, or None if its weights are not in float32."""
        return self._network if self.weights == "float32" else None

    @property
    def in_factors(self) -> InFactors | None:
        """A function that computes the actions of factored genotypes.

        The value is None if the weights are not in float32.
        """
        return self._in_factors if self.weights == "float32" else None

    def init(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        """Draw initial parameters."""
        if self.trees is not None:
            return self.trees.init(key, n)
        layers, keys = [], jax.random.split(key, len(self._shapes))
        for layer_key, (rows, columns) in zip(keys, self._shapes, strict=True):
            bound = math.sqrt(3 / rows)
            entries = jax.random.uniform(layer_key, (n, rows * columns), minval=-bound, maxval=bound)
            layers += [entries, jnp.zeros((n, columns))]
        return jnp.concatenate(layers, axis=1)

    def parameters(self, x: Float[Array | np.ndarray, "n d"]) -> Layers:
        """Return the weights and biases of each layer."""
        layers, start = [], 0
        for rows, columns in self._shapes:
            middle, end = start + rows * columns, start + rows * columns + columns
            matrix = x[:, start:middle].reshape(-1, rows, columns)
            layers.append((matrix.astype(self.weights), x[:, middle:end]))
            start = end
        return layers

    def act(
        self, parameters: Layers, observation: Float[Array | np.ndarray, "n o"], t: ArrayLike
    ) -> Float[Array, "n a"]:
        """Return the actions of each genotype."""
        return self._forward(
            observation, (partial(affine, "ni,nio->no", *layer) for layer in parameters)
        )

    def policy(
        self, x: Float[Array | np.ndarray, " d"], observation: Float[Array | np.ndarray, "b o"]
    ) -> Float[Array, "b a"]:
        """Return the actions of one genotype's policy for many observations."""
        layers = jax.tree.map(lambda leaf: leaf[0], self.parameters(x[None]))
        return self._forward(observation, (partial(affine, "bi,io->bo", *layer) for layer in layers))

    @property
    def _network(self) -> Network:
        hidden, output = (
            NAMED[each] if isinstance(each, str) else each for each in (self.hidden, self.output)
        )
        return Network(self.sizes, hidden, output)

    @property
    def _shapes(self) -> list[tuple[int, int]]:
        return list(itertools.pairwise(self.sizes))

    def _forward(self, signal: Any, layers: Iterable[Callable[[Array], Array]]) -> Array:
        (_, hidden, output), (*before, last) = self._network, layers
        for layer in before:
            signal = hidden(layer(signal))
        return output(last(signal))

    def _in_factors(self, candidates: Repeats, samples: Pairs) -> Act:
        steps, first = split(samples.step, self.blocks), candidates.evaluations
        thin = any(isinstance(step, Thin) for step in steps)

        def act_repeated(observation: Array, t: Array) -> Array:
            signal = observation.reshape(candidates.x.shape[0], candidates.count, self.sizes[0])
            return self._forward(signal, repeated).reshape(-1, self.sizes[-1])

        def act_mirrored(observation: Array, t: Array) -> Array:
            signal = observation.reshape(samples.mean.shape[0], 2, samples.each, self.sizes[0])
            return self._forward(signal, around).reshape(-1, self.sizes[-1])

        def in_parts(alone: Act, paired: Act, observation: Array, t: Array) -> Array:
            return jnp.concatenate([alone(observation[:first], t), paired(observation[first:], t)])

        act_alone: Act = act_repeated
        if candidates.count == 1:
            act_alone = partial(self.act, self.parameters(candidates.x))
        else:
            layers = [(weights, bias[:, None]) for weights, bias in self.parameters(candidates.x)]
            repeated = [partial(affine, "cri,cio->cro", *layer) for layer in layers]
        if thin:
            means = self.parameters(samples.mean)
            parts = zip(means, steps[::2], steps[1::2], strict=True)
            around = [partial(mirrored, *mean, step, shift) for mean, step, shift in parts]
            by_xla = partial(in_parts, act_alone, act_mirrored)
        elif candidates.count == 1:
            # For full matrices, the factored form is not faster in XLA than whole genotypes.
            whole = jnp.concatenate([candidates.x, rows_of(samples)])
            by_xla = partial(self.act, self.parameters(whole))
        else:
            by_xla = partial(in_parts, act_alone, partial(self.act, self.parameters(rows_of(samples))))
        return fastest(self._network, candidates, samples, by_xla)


def mlp(
    sizes: Sequence[int],
    *,
    hidden: Activation = jax.nn.relu,
    output: Activation = jnp.tanh,
    weights: str = "float32",
) -> MLP:
    """Build a controller whose genotypes are the parameters of a multi-layer perceptron.

    Args:
        sizes: Sizes of the observation, of each hidden layer and of the action.
        hidden: Activation of hidden layers.
        output: Activation of the last layer.
        weights: Type in which weights are stored during a rollout, `float32` or `bfloat16`. On a
            GPU, a control step reads half as much memory with `bfloat16` as with `float32`. Sums are
            always float32.
    """
    return MLP(tuple(sizes), hidden, output, weights)


def affine(product: str, matrix: Array, bias: Array, signal: Array) -> Array:
    """Compute a layer without its activation. `product` is the `einsum` expression."""
    return jnp.einsum(product, signal, matrix, preferred_element_type=jnp.float32) + bias


def mirrored(
    matrix: Float[Array, "L i o"],
    bias: Float[Array, "L o"],
    step: Array | Thin,
    shift: Array | Thin,
    signal: Float[Array, "L 2 P i"],
) -> Float[Array, "L 2 P o"]:
    """Compute a layer without its activation, for mirrored pairs around each lane's parameters."""
    if isinstance(step, Thin):
        inner = jnp.sum(signal[..., None, :] * step.left[:, None], axis=-1)
        moved = jnp.sum(inner[..., None] * step.right[:, None], axis=-2)
    else:
        own = step.reshape(*step.shape[:2], *matrix.shape[1:])
        moved = jnp.einsum("lspi,lpio->lspo", signal, own)
    sign = jnp.array([1.0, -1.0]).reshape(2, 1, 1)
    moved = sign * (moved + entries((shift,))[:, None])
    return affine("lspi,lio->lspo", matrix, bias[:, None, None], signal) + moved
