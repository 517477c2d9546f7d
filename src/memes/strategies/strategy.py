"""The interface of a search distribution."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jax import Array
from jaxtyping import Bool, Float, Key, PyTree

from memes.control.perturbations import Samples


@runtime_checkable
class Strategy(Protocol):
    """L independent search distributions over genotypes. All distributions are updated together."""

    @property
    def samples(self) -> int:
        """Number of samples per lane and generation, M."""

    def init(self, key: Key[Array, ""], mean: Float[Array, "L d"]) -> PyTree:
        """Start each lane at its mean."""

    def mean(self, state: PyTree) -> Float[Array, "L d"]:
        """Return the mean of each lane."""

    def ask(self, key: Key[Array, ""], state: PyTree) -> tuple[PyTree, Samples]:
        """Draw samples, as genotypes [L, M, d] or in factored form.

        This method draws all random numbers of a generation, so that `tell` does not need a key.
        """

    def tell(self, state: PyTree, x: Float[Array, "L M d"], utilities: Float[Array, "L M"]) -> PyTree:
        """Update each lane according to the utilities of its samples x, given as whole genotypes."""

    def restart(
        self, key: Key[Array, ""], state: PyTree, where: Bool[Array, " L"], mean: Float[Array, "L d"]
    ) -> PyTree:
        """Restart the lanes for which `where` is True, with the given means."""

    def degenerate(self, state: PyTree) -> Bool[Array, " L"]:
        """Return True for each lane whose distribution has collapsed or is no longer finite."""
