"""The nearest neighbours of many points among many: exact, without the matrix of all distances.

Both searches have two stages. Points are put into groups, and the k nearest of them lie in the k groups
whose nearest member is nearest: so a search over the minima of the groups comes first, then one over the
members of the best groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from importlib import resources

import jax
import jax.numpy as jnp
from jax import Array, lax

from memes.kernels import cuda
from memes.kernels.cuda import Kernel
from memes.kernels.dispatch import choose
from memes.kernels.source import written


def nearest(query: Array, points: Array, count: int) -> Array:
    """Squared Euclidean distances of `query[n, k]` to the nearest `count` of `points[h, k]`: [n, count].

    They are in ascending order. A point with an infinite entry is absent; distances are infinite where
    there are fewer points than `count`. Memory does not grow with n x h.
    """
    if points.shape[0] == 0:
        return jnp.full((query.shape[0], count), jnp.inf)
    by_kernel = partial(nearest_by_kernel, count=count) if count <= MOST else None
    by_blocks = partial(nearest_by_blocks, count=count)
    return choose(cuda=by_kernel, xla=by_blocks, what="the search for neighbours")(query, points)


GROUP = 16
BLOCK = 128  # queries at a time: what they need stays in the caches


def nearest_by_blocks(query: Array, points: Array, count: int) -> Array:
    """`nearest` in plain JAX, for every platform: `top_k` over minima of groups, then in the best."""
    h, k = points.shape
    n_groups = -(-h // GROUP)
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


# A warp of the kernel: its groups for each lane, and the most queries that it takes together. More of
# either need more registers. With few queries each has fewer, so that there are warps enough.
EACH, QUERIES, WARPS, WARPS_WANTED = 16, 4, 4, 1024
MOST = 128  # neighbours that the kernel finds


def nearest_by_kernel(
    query: Array, points: Array, count: int, *, launch: Callable[..., list[Array]] = cuda.launch
) -> Array:
    """`nearest` as a CUDA kernel: what a few queries need stays in the registers of their warp."""
    (n, k), h = query.shape, points.shape[0]
    if n == 0:
        return jnp.zeros((0, count))
    together = next(q for q in (QUERIES, 2, 1) if q == 1 or n >= q * WARPS_WANTED)
    groups = 32 * EACH
    members = -(-h // groups)
    # The search over groups reads the j-th members of all of them together, the search within the best
    # groups all members of one: each has a layout in which a warp reads what is side by side.
    filled = jnp.pad(points, ((0, groups * members - h), (0, 0)), constant_values=jnp.inf)
    by_member = filled.T.reshape(k, members, groups)
    by_group = by_member.transpose(2, 0, 1)
    (found,) = launch(
        search_kernel(k, count, together),
        (query, by_member, by_group),
        [jax.ShapeDtypeStruct((n, count), jnp.float32)],  # type: ignore[no-untyped-call]
        blocks=-(-n // (together * WARPS)),
        threads=32 * WARPS,
        numbers=(n, members),
    )
    return found


def search_kernel(dimensions: int, count: int, queries: int) -> Kernel:
    """The kernel, with `queries` to a warp."""
    source = (resources.files("memes.kernels") / "neighbours.cu").read_text()
    ahead = 1 if queries == QUERIES else EACH // 4  # few warps hide little: they read further ahead
    settings = {"DIMENSIONS": dimensions, "COUNT": count, "QUERIES": queries, "AHEAD": ahead}
    return Kernel(written(source, **settings, EACH=EACH, THREADS=32 * WARPS), "nearest")
