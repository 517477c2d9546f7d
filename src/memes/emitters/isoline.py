"""Random variation of elites (Vassiliades and Mouret, 2018): the emitter of MAP-Elites."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from memes.context import Context, Kind
from memes.emitters.base import Emitter, Lanes, Proposal, Rows, offspring, report
from memes.errors import at_least
from memes.hints import checked
from memes.selectors import Selector, select, uniform
from memes.task import Task


@checked
def isoline(
    batch: int, *, iso: float = 0.01, line: float = 0.1, selector: Selector = uniform
) -> Emitter:
    """Emit offspring of pairs of elites: `a + iso * noise + line * z * (b - a)`, z one number a row.

    Every offspring is a candidate. While the archive is empty, parents come from `task.init`.

    Args:
        batch: Offspring in a generation.
        iso: Standard deviation of the isotropic noise.
        line: Standard deviation along the line from one parent to the other.
        selector: Which elites become parents.
    """
    at_least(1, batch=batch)
    at_least(0, iso=iso, line=line)

    def init(key: Array, task: Task) -> Array:
        del key
        return jnp.full((batch, task.feature_dim), jnp.nan)  # the parents' features

    def ask(key: Array, state: Array, context: Context) -> tuple[Array, Proposal]:
        del state
        key_a, key_b, key_iso, key_line = jax.random.split(key, 4)
        a = select(selector, key_a, context, batch)
        b = selector(key_b, context, batch)
        noise = jax.random.normal(key_iso, a.x.shape)
        along = jax.random.normal(key_line, (batch, 1))
        varied = a.x + iso * noise + line * along * (b.x - a.x)
        # Generation 0 offers the draws of `task.init` themselves.
        return a.feature, offspring(jnp.where(context.archive.occupied.any(), varied, a.x))

    def tell(state: Array, candidates: Rows, samples: Rows, context: Context) -> tuple[Array, Lanes]:
        del candidates, samples, context
        return state, report(Kind.VARIATION, state)

    def part(count: int) -> Emitter | None:
        dealt = batch % count == 0
        return isoline(batch // count, iso=iso, line=line, selector=selector) if dealt else None

    return Emitter(
        persistent=(False,) * batch, samples=0, lanes=batch, init=init, ask=ask, tell=tell, part=part
    )
