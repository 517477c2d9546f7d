"""The emitter of MAP-Elites: random variation of elites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key

from memes.context import Context, Kind
from memes.emitters.base import Batch, Lanes, Rows, offspring, report
from memes.errors import at_least
from memes.selectors import Selector, Uniform, select
from memes.task import Task
from memes.validation import check_fields


@dataclass(frozen=True)
class Isoline:
    """An emitter that varies pairs of elites with the iso+line operator.

    The offspring of the elites a and b is `a + iso * noise + line * z * (b - a)` (Vassiliades and
    Mouret, 2018). The number z is drawn from a standard normal distribution, once per offspring. Every
    offspring is a candidate, and its lane lasts one generation. While the archive is empty, the emitter
    proposes genotypes from `task.init`.

    Attributes:
        lanes: Number of offspring per generation.
        iso: Standard deviation of the isotropic noise.
        line: Standard deviation along the line from one parent to the other.
        selector: Rule that chooses the parents.
    """

    lanes: int
    iso: float = 0.01
    line: float = 0.1
    selector: Selector = Uniform()

    samples: ClassVar[int] = 0
    transitions: ClassVar[bool] = False
    gradients: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, lanes=self.lanes)
        at_least(0, iso=self.iso, line=self.line)

    @property
    def persistent(self) -> tuple[bool, ...]:
        """One flag per lane. All flags are False, because every lane ends after one generation."""
        return (False,) * self.lanes

    def init(self, key: Key[Array, ""], task: Task) -> Float[Array, "L k"]:
        """Return the initial state, in which the features of all parents are unknown (NaN)."""
        return jnp.full((self.lanes, task.feature_dim), jnp.nan)

    def ask(
        self, key: Key[Array, ""], state: Float[Array, "L k"], context: Context
    ) -> tuple[Float[Array, "L k"], Batch]:
        """Propose offspring."""
        key_a, key_b, key_iso, key_line = jax.random.split(key, 4)
        a = select(self.selector, key_a, context, self.lanes)
        b = self.selector(key_b, context, self.lanes)
        noise = jax.random.normal(key_iso, a.x.shape)
        along = jax.random.normal(key_line, (self.lanes, 1))
        varied = a.x + self.iso * noise + self.line * along * (b.x - a.x)
        x = jnp.where(context.parents.occupied.any(), varied, a.x)
        return a.feature, offspring(x, jnp.arange(self.lanes, dtype=jnp.int32))

    def tell(
        self, state: Float[Array, "L k"], candidates: Rows, samples: Rows, context: Context
    ) -> tuple[Float[Array, "L k"], Lanes]:
        """Return the unchanged state (this emitter does not learn) and the report on the lanes."""
        return state, report(Kind.VARIATION, state)
