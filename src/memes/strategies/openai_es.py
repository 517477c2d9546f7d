"""The evolution strategy of Salimans et al. (2017): an isotropic Gaussian whose mean climbs."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float, PyTree

from memes.errors import at_least, positive, require
from memes.factors import Pairs, Samples, scaled
from memes.hints import checked
from memes.shards import Shards
from memes.strategies.base import Strategy
from memes.strategies.noise import Noise, gaussian
from memes.trees import choose


class OpenAIESState(NamedTuple):
    """The means, and the optimiser's state, each leaf with a leading lane axis."""

    mean: Float[Array, "L d"]
    optimiser: PyTree


@checked
def openai_es(
    *,
    samples: int = 512,
    sigma: float = 0.02,
    optimiser: optax.GradientTransformation | None = None,
    l2: float = 0.0,
    noise: Noise = gaussian,
) -> Strategy:
    """Sample in mirrored pairs around a mean that follows the estimated gradient of the utilities.

    Args:
        samples: Samples of each lane: half of them noise vectors, each with both signs. Even.
        sigma: Standard deviation of the samples.
        optimiser: Any optax optimiser; None is Adam with learning rate 0.01.
        l2: Pull of the mean towards zero.
        noise: Where the samples lie, in units of sigma.
    """
    require(
        samples >= 2 and samples % 2 == 0,
        f"samples must be even and at least 2, since they are drawn in mirrored pairs, got {samples}",
    )
    at_least(2, samples=samples)
    at_least(0, l2=l2)
    positive(sigma=sigma)
    transform = optax.adam(0.01) if optimiser is None else optimiser
    pairs = samples // 2

    def init(key: Array, mean: Array) -> OpenAIESState:
        del key
        return OpenAIESState(mean, jax.vmap(transform.init)(mean))

    def ask(key: Array, state: OpenAIESState) -> tuple[OpenAIESState, Pairs]:
        lanes, dim = state.mean.shape
        return state, Pairs(state.mean, scaled(noise(key, (lanes, pairs, dim)), sigma))

    def tell(state: OpenAIESState, x: Array, utilities: Array) -> OpenAIESState:
        return climb(state, ascent(x, utilities))

    def ascent(x: Array, utilities: Array) -> Array:
        half = x.shape[1] // 2
        # The two of a pair differ by twice their noise: it need not be kept from `ask`.
        drawn = (x[:, :half] - x[:, half:]) / (2 * sigma)
        weight = utilities[:, :half] - utilities[:, half:]
        return jnp.sum(weight[..., None] * drawn, axis=1) / (samples * sigma)

    def climb(state: OpenAIESState, ascent: Array) -> OpenAIESState:
        updates, optimiser_state = jax.vmap(transform.update)(
            l2 * state.mean - ascent, state.optimiser, state.mean
        )
        return OpenAIESState(optax.apply_updates(state.mean, updates), optimiser_state)

    def restart(key: Array, state: OpenAIESState, where: Array, mean: Array) -> OpenAIESState:
        return choose(where, init(key, mean), state)

    def degenerate(state: OpenAIESState) -> Array:
        return ~jnp.isfinite(state.mean).all(axis=-1)  # its spread is fixed

    def split(shards: Shards) -> Strategy | None:
        if pairs % shards.count:
            return None
        few = openai_es(samples=samples // shards.count, sigma=sigma, noise=noise)

        def ask(key: Array, state: OpenAIESState) -> tuple[OpenAIESState, Samples]:
            return state, shards.each(lambda key: few.ask(key, state)[1], shards.keys(key))

        def tell(state: OpenAIESState, x: Array, utilities: Array) -> OpenAIESState:
            by_shard = x.reshape(shards.here, 1, -1, x.shape[-1])
            own = shards.mine(utilities[0])[:, None]
            # Gathered, and then added up alike by all: sums of devices would depend on their number.
            parts = shards.gather(shards.each(ascent, by_shard, own))
            return shards.alone(climb_all, state, parts)

        def climb_all(state: OpenAIESState, parts: Array) -> OpenAIESState:
            return climb(state, jnp.sum(parts, axis=0, keepdims=True))

        return whole._replace(ask=ask, tell=tell)

    whole = Strategy(samples, init, lambda state: state.mean, ask, tell, restart, degenerate, split)
    return whole
