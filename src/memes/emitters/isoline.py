"""Random variation of elites (Vassiliades and Mouret, 2018): the emitter of MAP-Elites."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from memes.context import Context, Kind
from memes.emitters.base import Emitter, Lanes, Proposal, Rows
from memes.errors import require
from memes.resets import Reason
from memes.selectors import Selector, select, uniform
from memes.task import Task


def isoline(
    batch: int, *, iso: float = 0.01, line: float = 0.1, selector: Selector = uniform
) -> Emitter:
    """`batch` offspring of pairs of elites: `a + iso * noise + line * z * (b - a)`, z one number a row.

    Every offspring is a candidate. While the archive is empty, parents come from `task.init`.

    Args:
        batch: Offspring in a generation.
        iso: Standard deviation of the isotropic noise.
        line: Standard deviation along the line from one parent to the other.
        selector: Which elites become parents.
    """
    require(batch >= 1, f"batch must be at least 1, got {batch}")
    require(iso >= 0, f"iso must be at least 0, got {iso}")
    require(line >= 0, f"line must be at least 0, got {line}")
    lane = jnp.arange(batch, dtype=jnp.int32)

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
        proposal = Proposal(
            # Generation 0 offers the draws of `task.init` themselves.
            candidates=jnp.where(context.archive.occupied.any(), varied, a.x),
            offered=jnp.ones(batch, bool),
            lane=lane,
            samples=jnp.zeros((0, context.task.dim)),
            sample_lane=lane[:0],
        )
        return a.feature, proposal

    def tell(state: Array, candidates: Rows, samples: Rows, context: Context) -> tuple[Array, Lanes]:
        del candidates, samples, context
        zero = jnp.zeros(batch, jnp.int32)
        info = Lanes(
            kind=jnp.full(batch, Kind.VARIATION, jnp.int32),
            parent_feature=state,
            age=zero,
            stale=zero,
            reset=jnp.full(batch, Reason.NONE, jnp.int32),
        )
        return state, info

    return Emitter((False,) * batch, 0, batch, init, ask, tell)
