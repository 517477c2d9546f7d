"""Search distributions from the library evosax, such as CMA-ES."""

from __future__ import annotations

import importlib.util
import inspect
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Bool, Float, Key, PyTree

from memes.errors import UsageError, at_least, known, package, positive, require
from memes.pytrees import choose
from memes.validation import check_fields

# The supported strategies. Tests check that the first samples have the given standard deviation, and
# that updates improve the mean.
SUITABLE = ("cma-es", "cr-fm-nes", "open-es", "pgpe", "sep-cma-es", "snes", "xnes")
# The strategies whose weights and learning rates depend on the number of parents.
WEIGHTED = ("cma-es", "sep-cma-es")
# If the variances of two directions differ by more than this factor, float32 cannot represent the
# covariance matrix.
CONDITION = 1 / float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Evosax:
    """A strategy from the library evosax, such as `cma-es`, `sep-cma-es` or `snes`.

    `names()` lists the supported strategies. They update a distribution according to the ranks of the
    samples of one generation. Therefore, only the order of the utilities matters. A lane does not change
    if none of its samples has a valid evaluation.

    The update of CMA-ES in evosax agrees with Hansen's tutorial, except for the stall indicator h_sigma.
    This indicator counts one update too many, so the stall condition is met slightly more often in early
    generations.

    In each generation, CMA-ES computes the eigendecomposition of a d x d covariance matrix for each
    lane. For d = 1000, each eigendecomposition takes 0.08 s on two CPU cores. For many lanes or
    dimensions, use `sep-cma-es`.

    Attributes:
        name: Name of the strategy in evosax, in lower case and with dashes.
        samples: Number of samples per lane.
        sigma: Standard deviation of the samples in the first generation.
        options: Further arguments of the strategy's constructor, as pairs of a name and a value, such as
            `(("elite_ratio", 0.25),)`.
        parents: The set of samples that update the distribution: `all` or `positive`. With `all`, the
            ranks of all samples are used, as in evosax. With `positive`, only the n samples with
            positive utility are used. The learning rates are those of CMA-ES for n parents. The i-th
            best of these samples has the weight `w_i = log(n + 1/2) - log(i)`, divided by the sum of all
            weights. `positive` requires cma-es or sep-cma-es.
    """

    name: str
    samples: int = 512
    sigma: float = 0.02
    options: tuple[Any, ...] = ()
    parents: Literal["all", "positive"] = "all"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(2, samples=self.samples)
        positive(sigma=self.sigma)
        _constructor(self.name)
        require(
            self.parents == "all" or self.name in WEIGHTED,
            f"parents must be 'all' for strategy '{self.name}', got 'positive'; use the strategy "
            f"{' or '.join(WEIGHTED)}",
        )

    def init(self, key: Key[Array, ""], mean: Float[Array, "L d"]) -> PyTree:
        """Start each lane at its mean."""
        algorithm, params = _built(self, mean.shape[-1])
        keys = jax.random.split(key, mean.shape[0])
        return _strong(jax.vmap(lambda k, m: algorithm.init(k, m, params))(keys, mean))

    def mean(self, state: PyTree) -> Float[Array, "L d"]:
        """Return the mean of each lane."""
        mean: Array = state.mean
        return mean

    def ask(self, key: Key[Array, ""], state: PyTree) -> tuple[PyTree, Float[Array, "L M d"]]:
        """Draw samples of each lane."""
        algorithm, params = _built(self, state.mean.shape[-1])
        keys = jax.random.split(key, state.mean.shape[0])
        x, state = jax.vmap(lambda k, s: algorithm.ask(k, s, params))(keys, state)
        return _strong(state), x

    def tell(self, state: PyTree, x: Float[Array, "L M d"], utilities: Float[Array, "L M"]) -> PyTree:
        """Update each lane according to the utilities of its samples."""
        algorithm, params = _built(self, x.shape[-1])

        def tell_one(x: Array, utilities: Array, state: PyTree) -> PyTree:
            no_key = jax.random.key(0)  # the supported strategies draw no random numbers here
            used = params
            if self.parents == "positive":
                used = _of_parents(algorithm, params, jnp.sum(utilities > 0))
            return algorithm.tell(no_key, x, -utilities, state, used)[0]  # evosax minimises

        told = _strong(jax.vmap(tell_one)(x, utilities, state))
        informed = utilities != 0 if self.parents == "all" else utilities > 0
        return choose(jnp.any(informed, axis=-1), told, state)

    def restart(
        self, key: Key[Array, ""], state: PyTree, where: Bool[Array, " L"], mean: Float[Array, "L d"]
    ) -> PyTree:
        """Restart the lanes for which `where` is True, with the given means."""
        return choose(where, self.init(key, mean), state)

    def degenerate(self, state: PyTree) -> Bool[Array, " L"]:
        """Return True for each lane whose distribution is collapsed, too elongated, or not finite."""
        return _degenerate(state)


@lru_cache
def _built(strategy: Evosax, dim: int) -> tuple[Any, Any]:
    """Build the algorithm of evosax and its parameters for genotypes with `dim` entries."""
    name, sigma, options = strategy.name, strategy.sigma, dict(strategy.options)
    constructor = _constructor(name)
    if "std_schedule" in inspect.signature(constructor).parameters:
        options = {"std_schedule": optax.constant_schedule(sigma), **options}
    # xNES multiplies the given step size by a matrix with the same scale. The product must be `sigma`,
    # so the step size is the square root of `sigma`.
    spread = math.sqrt(sigma) if name == "xnes" else sigma
    with jax.ensure_compile_time_eval():  # computes constants even during tracing
        try:
            algorithm = constructor(strategy.samples, jnp.zeros(dim), **options)
        except AssertionError as error:
            raise UsageError(
                f"samples={strategy.samples} does not suit strategy '{name}': {error}"
            ) from None
        params = algorithm.default_params
        if hasattr(params, "std_init"):
            params = params.replace(std_init=jnp.full_like(params.std_init, spread))
        return algorithm, params


def _of_parents(algorithm: Any, params: Any, n: Array) -> Any:
    """Return the parameters of CMA-ES with the n best samples as parents, without negative weights."""
    d, count = algorithm.num_dims, jnp.maximum(n, 1)
    rank = jnp.arange(1, algorithm.population_size + 1)
    raw = jnp.where(rank <= count, jnp.log(count + 0.5) - jnp.log(rank), 0.0)
    weights = raw / jnp.sum(raw)
    effective = 1 / jnp.sum(jnp.square(weights))
    c_std = (effective + 2) / (d + effective + 5)
    c_1 = 2 / ((d + 1.3) ** 2 + effective)
    c_mu = 2 * (effective + 1 / effective - 2) / ((d + 2) ** 2 + effective)
    return params.replace(
        weights=weights,
        mu_eff=effective,
        c_std=c_std,
        d_std=1 + 2 * jnp.maximum(0, jnp.sqrt((effective - 1) / (d + 1)) - 1) + c_std,
        c_c=(4 + effective / d) / (d + 4 + 2 * effective / d),
        c_1=c_1,
        c_mu=jnp.minimum(1 - c_1, c_mu),
    )


def names() -> list[str]:
    """Return the names of the strategies that `Evosax` supports.

    If evosax is not installed, the list is empty.
    """
    return sorted(_constructors()) if importlib.util.find_spec("evosax") else []


def _constructor(name: str) -> Any:
    package("evosax", "evosax", f"strategy '{name}'")
    require(name != "openai-es", "strategy 'openai-es' is not in evosax: use memes.strategies.OpenAIES")
    constructors = _constructors()
    return constructors[known("strategy", name, ["openai-es", *constructors])]


def _constructors() -> dict[str, Any]:
    from evosax.algorithms import distribution_based_algorithms

    named = {key.lower().replace("_", "-"): cls for key, cls in distribution_based_algorithms.items()}
    return {name: named[name] for name in SUITABLE if name in named}


def _degenerate(state: PyTree) -> Array:
    """Return True for each lane whose distribution is collapsed, too elongated, or not finite."""
    lanes = state.mean.shape[0]
    # The standard deviation along each axis is `std * D`. An array that a strategy lacks counts as 1.
    axes = getattr(state, "std", jnp.ones(lanes)).reshape(lanes, -1)
    axes = axes * getattr(state, "D", jnp.ones((lanes, 1))).reshape(lanes, -1)
    widest, narrowest = jnp.max(axes, axis=-1), jnp.min(axes, axis=-1)
    magnitude = jnp.max(jnp.abs(state.mean), axis=-1)
    finite = jnp.isfinite(magnitude) & jnp.isfinite(widest)
    collapsed = widest * CONDITION <= magnitude
    elongated = widest**2 > CONDITION * narrowest**2
    return ~finite | collapsed | elongated


def _strong(tree: PyTree) -> PyTree:
    """Convert weak array types to strong types, because the types of a loop's state must not change."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), tree)
