"""The emitter of Extract-ME that evaluates individuals again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key

from memes.context import Context, Kind
from memes.control.perturbations import Repeats
from memes.deep_archive import rank_in_cell
from memes.emitters.base import Batch, Lanes, Rows, report
from memes.errors import at_least
from memes.task import Task, initial
from memes.validation import check_fields


@dataclass(frozen=True)
class Reevaluation:
    """An emitter that proposes individuals of a `DeepArchive`, so that they are evaluated again.

    The individuals are drawn without replacement. The probability of an individual is proportional to
    `exp(-r)`, where r is its rank in its cell, starting at 0. If there are fewer individuals than
    candidates, the remaining candidates are new genotypes from `task.init`.

    Attributes:
        size: Number of candidates per generation.
    """

    size: int

    samples: ClassVar[int] = 0
    transitions: ClassVar[bool] = False
    gradients: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, **{"number of re-evaluations": self.size})

    @property
    def lanes(self) -> int:
        """Number of lanes: one per candidate."""
        return self.size

    @property
    def persistent(self) -> tuple[bool, ...]:
        """One flag per candidate. All are False, because no lane continues in the next generation."""
        return (False,) * self.size

    def init(self, key: Key[Array, ""], task: Task) -> Float[Array, "n k"]:
        """Return NaN as the feature of each parent, because candidates have no parents."""
        return jnp.full((self.size, task.feature_dim), jnp.nan)

    def ask(
        self, key: Key[Array, ""], state: Float[Array, "n k"], context: Context
    ) -> tuple[Float[Array, "n k"], Batch]:
        """Draw individuals."""
        draw_key, init_key = jax.random.split(key)
        parents, cells = context.parents, context.archive.cells
        rank = rank_in_cell(cells.index(parents.feature), parents.fitness, cells.count)
        # The individuals with the largest sums of log-probability and Gumbel noise are drawn.
        score = jax.random.gumbel(draw_key, rank.shape) - rank
        score, row = jax.lax.top_k(
            jnp.where(parents.occupied, score, -jnp.inf), min(self.size, rank.size)
        )
        missing = self.size - row.size
        again = jnp.pad(jnp.where(score > -jnp.inf, row, -1), (0, missing), constant_values=-1)
        known = parents.genotypes[jnp.maximum(again, 0)]
        x = jnp.where(again[:, None] >= 0, known, initial(context.task, init_key, self.size))
        lane = jnp.arange(self.size, dtype=jnp.int32)
        return state, Batch(Repeats(x), jnp.ones(self.size, bool), lane, again, (), lane[:0])

    def tell(
        self, state: Float[Array, "n k"], candidates: Rows, samples: Rows, context: Context
    ) -> tuple[Float[Array, "n k"], Lanes]:
        """Return the unchanged state, and the report on the lanes."""
        return state, report(Kind.VARIATION, state)
