"""The evolution strategy of Salimans et al. (2017): an isotropic Gaussian with an adaptive mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float, Key, PyTree

from memes.control.perturbations import Pairs, rounded, scaled
from memes.errors import at_least, positive, require
from memes.pytrees import choose
from memes.strategies.noise import Gaussian, Noise
from memes.validation import check_fields


class OpenAIESState(NamedTuple):
    """The mean and the optimiser state of each lane."""

    mean: Float[Array, "L d"]
    optimiser: PyTree


@dataclass(frozen=True)
class OpenAIES:
    """An evolution strategy with mirrored samples, whose mean follows an estimated gradient.

    The i-th sample is m + s e_i, where m is the mean and e_i is the noise. Its utility is u_i. The
    optimiser follows the gradient sum_i u_i e_i / (M s), minus the L2 regularisation l2 m (Salimans et
    al., 2017).

    Attributes:
        samples: Number of samples per lane, M. This number must be even, because each noise vector is
            used with both signs.
        sigma: Standard deviation of the samples, s.
        learning_rate: Learning rate of the optimiser.
        l2: Strength of the L2 regularisation of the mean.
        optimiser: Function that returns an optax optimiser for a learning rate.
        noise: Distribution of the noise e_i.
        noise_dtype: Type of the steps s e_i. With bfloat16, the samples and the gradient use the same
            rounded steps, so the gradient is exact for the rounded distribution.
    """

    samples: int = 512
    sigma: float = 0.02
    learning_rate: float = 0.01
    l2: float = 0.0
    optimiser: Callable[[float], optax.GradientTransformation] = optax.adam
    noise: Noise = Gaussian()
    noise_dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        check_fields(self)
        require(
            self.samples >= 2 and self.samples % 2 == 0,
            "samples must be even and at least 2, because they are drawn in mirrored pairs, "
            f"got {self.samples}",
        )
        at_least(2, samples=self.samples)
        at_least(0, l2=self.l2)
        positive(sigma=self.sigma, learning_rate=self.learning_rate)

    def init(self, key: Key[Array, ""], mean: Float[Array, "L d"]) -> OpenAIESState:
        """Start each lane at its mean, with a new optimiser."""
        return OpenAIESState(mean, jax.vmap(self._optimiser.init)(mean))

    def mean(self, state: OpenAIESState) -> Float[Array, "L d"]:
        """Return the mean of each lane."""
        return state.mean

    def ask(self, key: Key[Array, ""], state: OpenAIESState) -> tuple[OpenAIESState, Pairs]:
        """Draw mirrored pairs around each mean."""
        lanes, dim = state.mean.shape
        noise = self.noise(key, (lanes, self.samples // 2, dim))
        return state, Pairs(state.mean, rounded(scaled(noise, self.sigma), self.noise_dtype))

    def tell(
        self, state: OpenAIESState, x: Float[Array, "L M d"], utilities: Float[Array, "L M"]
    ) -> OpenAIESState:
        """Update each mean with the gradient that is estimated from the utilities of its samples."""
        half = self.samples // 2
        # The two samples of a pair differ by twice their noise, so `ask` does not store the noise.
        noise = (x[:, :half] - x[:, half:]) / (2 * self.sigma)
        weight = utilities[:, :half] - utilities[:, half:]
        ascent = jnp.sum(weight[..., None] * noise, axis=1) / (self.samples * self.sigma)
        updates, optimiser = jax.vmap(self._optimiser.update)(
            self.l2 * state.mean - ascent, state.optimiser, state.mean
        )
        return OpenAIESState(optax.apply_updates(state.mean, updates), optimiser)

    def restart(
        self,
        key: Key[Array, ""],
        state: OpenAIESState,
        where: Bool[Array, " L"],
        mean: Float[Array, "L d"],
    ) -> OpenAIESState:
        """Restart the lanes for which `where` is True, with the given means and new optimisers."""
        return choose(where, self.init(key, mean), state)

    def degenerate(self, state: OpenAIESState) -> Bool[Array, " L"]:
        """Return True for each lane whose mean is not finite."""
        return ~jnp.isfinite(state.mean).all(axis=-1)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return self.optimiser(self.learning_rate)
