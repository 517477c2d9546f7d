"""The nearest neighbours of many points among many: exact, without the matrix of all distances.

Both searches have two stages. Points are put into groups, and the k nearest of them lie in the k groups
whose nearest member is nearest: so a search over the minima of the groups comes first, then one over the
members of the best groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl


def nearest(query: Array, points: Array, count: int) -> Array:
    """Squared Euclidean distances of `query[n, k]` to the nearest `count` of `points[h, k]`: [n, count].

    They are in ascending order. A point with an infinite entry is absent; distances are infinite where
    there are fewer points than `count`. Memory does not grow with n x h.
    """
    if points.shape[0] == 0:
        return jnp.full((query.shape[0], count), jnp.inf)
    found: Array = lax.platform_dependent(
        query,
        points,
        cuda=partial(nearest_by_kernel, count=count),
        default=partial(nearest_by_blocks, count=count),
    )
    return found


GROUP = 16
BLOCK = 128  # queries at a time: what they need stays in the caches


def nearest_by_blocks(query: Array, points: Array, count: int) -> Array:
    """`nearest` in plain JAX, for every platform: `top_k` over minima of groups, then in the best."""
    h, k = points.shape
    n_groups = pl.cdiv(h, GROUP)
    filled = jnp.pad(points, ((0, n_groups * GROUP - h), (0, 0)), constant_values=jnp.inf)
    # The j-th members of all groups are neighbours in memory, for vector instructions.
    members = filled.T.reshape(k, GROUP, n_groups)

    def of_one(q: Array) -> Array:
        # Not a reduction, which XLA on CPUs would take member by member: one fused, vectorised loop.
        minima = reduce(jnp.minimum, [_squared_distance(q, members[:, j]) for j in range(GROUP)])
        best = _smallest(minima, min(count, n_groups))[1]
        candidates = _squared_distance(q, members[:, :, best]).reshape(-1)
        found = _smallest(candidates, min(count, candidates.shape[0]))[0]
        return jnp.pad(found, (0, count - found.shape[0]), constant_values=jnp.inf)

    distances: Array = lax.map(of_one, query, batch_size=BLOCK)
    return distances


def _squared_distance(a: Sequence[Array] | Array, b: Sequence[Array] | Array) -> Array:
    """Of two points, given coordinate by coordinate."""
    # Differences, not the expanded square: no cancellation, and there are few coordinates.
    return sum(jnp.square(x - y) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def _smallest(values: Array, count: int) -> tuple[Array, Array]:
    negated, index = lax.top_k(-values, count)
    return -negated, index


# Of a thread block: its queries, its groups, its warps. Of several tried on an H200 these were within a
# fifth of the best for every number of features.
QUERIES, GROUPS, WARPS = 4, 2048, 4
SEGMENT = 64 * GROUPS  # points in one search; more would not fit into its registers

# An absent point is so far away, nearer than a group that was chosen already (infinitely far): no group
# is chosen twice. The square is finite, and larger than that of any distance between features.
FAR = 1e18
FURTHEST = 1e35


def nearest_by_kernel(query: Array, points: Array, count: int, *, interpret: bool = False) -> Array:
    """`nearest` as a Triton kernel: what a few queries need stays in the registers of their block."""
    points = jnp.where(jnp.isinf(points), FAR, points)
    h, k = points.shape
    search = partial(_search, count=count, interpret=interpret)
    if h <= SEGMENT:
        found = search(query, points)
    else:
        filled = jnp.pad(points, ((0, -h % SEGMENT), (0, 0)), constant_values=FAR)
        each = jax.vmap(search, in_axes=(None, 0), out_axes=1)(query, filled.reshape(-1, SEGMENT, k))
        found = _smallest(each.reshape(query.shape[0], -1), count)[0]
    return jnp.where(found > FURTHEST, jnp.inf, found)


def _search(query: Array, points: Array, count: int, *, interpret: bool) -> Array:
    """The `count` smallest squared distances of each query, [n, count], by one kernel."""
    from jax.experimental.pallas import triton

    (n, k), h = query.shape, points.shape[0]
    slots = pl.next_power_of_2(count)
    groups = min(GROUPS, max(slots, pl.next_power_of_2(pl.cdiv(h, GROUP))))
    members = pl.cdiv(h, groups)
    spread = pl.next_power_of_2(members)
    # The search over groups reads the j-th members of all of them together, the search within the best
    # groups all members of one: each has a layout in which a warp reads what is side by side.
    filled = jnp.pad(points, ((0, groups * members - h), (0, 0)), constant_values=FAR)
    by_member = filled.T.reshape(k, members, groups)
    by_group = jnp.pad(
        by_member.transpose(2, 0, 1), ((0, 0), (0, 0), (0, spread - members)), constant_values=FAR
    )
    padded = jnp.pad(query, ((0, -n % QUERIES), (0, 0)))

    def kernel(query_ref: Any, by_member_ref: Any, by_group_ref: Any, out_ref: Any) -> None:
        q = [query_ref[:, i] for i in range(k)]

        def nearer(j: Array, minima: Array) -> Array:
            row = [by_member_ref[i, pl.ds(j, 1), :] for i in range(k)]
            return jnp.minimum(minima, _squared_distance([x[:, None] for x in q], row))

        minima = lax.fori_loop(0, members, nearer, jnp.full((QUERIES, groups), jnp.inf))
        best = _extract(minima, count, slots, lambda values, place: place)

        member = lax.broadcasted_iota(jnp.int32, shape := (QUERIES, slots, spread), 2)
        slot = lax.broadcasted_iota(jnp.int32, shape, 1)
        group = jnp.broadcast_to(best[:, :, None], shape)
        candidates = [by_group_ref[group, i, member] for i in range(k)]
        squared = _squared_distance([x[:, None, None] for x in q], candidates)
        squared = jnp.where(slot < count, squared, jnp.inf).reshape(QUERIES, slots * spread)
        out_ref[:, :] = _extract(squared, count, slots, lambda values, place: jnp.min(values, axis=1))

    found = pl.pallas_call(
        kernel,
        grid=(padded.shape[0] // QUERIES,),
        in_specs=[
            pl.BlockSpec((QUERIES, k), lambda i: (i, 0)),
            pl.BlockSpec(by_member.shape, lambda i: (0, 0, 0)),
            pl.BlockSpec(by_group.shape, lambda i: (0, 0, 0)),
        ],
        out_specs=pl.BlockSpec((QUERIES, slots), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((padded.shape[0], slots), jnp.float32),  # type: ignore[no-untyped-call]
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=interpret,
    )(padded, by_member, by_group)
    distances: Array = found[:n, :count]
    return distances


def _extract(values: Array, count: int, slots: int, what: Callable[[Array, Array], Array]) -> Array:
    """`what(values, place)` of the smallest value in each row, of the next, and so on: [Q, slots].

    Only the first `count` slots are filled. Equal values count each.
    """
    column = lax.broadcasted_iota(jnp.int32, values.shape, 1)
    slot = lax.broadcasted_iota(jnp.int32, (values.shape[0], slots), 1)

    def smallest(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        values, taken = carry
        place = lax.argmin(values, 1, jnp.int32)
        taken = jnp.where(slot == i, what(values, place)[:, None], taken)
        return jnp.where(column == place[:, None], jnp.inf, values), taken

    nothing = jnp.zeros(slot.shape, jax.eval_shape(what, values, column[:, 0]).dtype)
    filled: Array = lax.fori_loop(0, count, smallest, (values, nothing))[1]
    return filled
