"""Exact search for nearest neighbours without a matrix of all distances.

The points are divided into groups. The k nearest points of a query lie in the k groups with the smallest
minimum distances. Therefore, both implementations have two stages. The first stage computes the minimum
distance of each group, and the second stage searches the members of the best groups.
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
    """Return the squared distances [n, count] from each `query[n, k]` to its nearest `points[h, k]`.

    The distances are in ascending order. Points with an infinite entry are ignored. If there are fewer
    points than `count`, the remaining distances are infinite. No array of size n x h is stored.
    """
    if points.shape[0] == 0:
        return jnp.full((query.shape[0], count), jnp.inf)
    by_kernel = partial(nearest_by_kernel, count=count) if count <= MOST else None
    by_blocks = partial(nearest_by_blocks, count=count)
    return choose(cuda=by_kernel, xla=by_blocks, what="the search for neighbours")(query, points)


GROUP = 16
BLOCK = 128  # Queries per block. The data of a block fit into the CPU's caches.


def nearest_by_blocks(query: Array, points: Array, count: int) -> Array:
    """Compute `nearest` in plain JAX, with `top_k` in both stages."""
    h, k = points.shape
    n_groups = -(-h // GROUP)
    filled = jnp.pad(points, ((0, n_groups * GROUP - h), (0, 0)), constant_values=jnp.inf)
    # The j-th members of all groups are adjacent in memory, so that vector instructions can be used.
    members = filled.T.reshape(k, GROUP, n_groups)

    def of_one(q: Array) -> Array:
        # XLA fuses and vectorises this loop. On CPUs, XLA would not vectorise a reduction over members.
        minima = reduce(jnp.minimum, [_squared_distance(q, members[:, j]) for j in range(GROUP)])
        best = _smallest(minima, min(count, n_groups))[1]
        candidates = _squared_distance(q, members[:, :, best]).reshape(-1)
        found = _smallest(candidates, min(count, candidates.shape[0]))[0]
        return jnp.pad(found, (0, count - found.shape[0]), constant_values=jnp.inf)

    distances: Array = lax.map(of_one, query, batch_size=BLOCK)
    return distances


def _squared_distance(a: Sequence[Array] | Array, b: Sequence[Array] | Array) -> Array:
    """Return the squared distance between two points, which are sequences of coordinates."""
    # Expanding the square would cause cancellation. Differences are cheap, as there are few coordinates.
    return sum(jnp.square(x - y) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def _smallest(values: Array, count: int) -> tuple[Array, Array]:
    negated, index = lax.top_k(-values, count)
    return -negated, index


# EACH: groups per lane of a warp. QUERIES: maximum number of queries per warp. WARPS: warps per block.
# Larger values of EACH and QUERIES need more registers. If there are few queries, each warp gets fewer
# queries, so that about WARPS_WANTED warps run.
EACH, QUERIES, WARPS, WARPS_WANTED = 16, 4, 4, 1024
MOST = 128  # maximum number of neighbours that the kernel supports


def nearest_by_kernel(
    query: Array, points: Array, count: int, *, launch: Callable[..., list[Array]] = cuda.launch
) -> Array:
    """Compute `nearest` with a CUDA kernel. Each warp keeps the data of a few queries in registers."""
    (n, k), h = query.shape, points.shape[0]
    if n == 0:
        return jnp.zeros((0, count))
    together = next(q for q in (QUERIES, 2, 1) if q == 1 or n >= q * WARPS_WANTED)
    groups = 32 * EACH
    members = -(-h // groups)
    # The first stage reads the j-th members of all groups together. The second stage reads all members
    # of one group together. Each stage has a separate copy of the points. The order of each copy ensures
    # that a warp reads adjacent memory.
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
    """Return the kernel that finds `count` neighbours. Each warp processes `queries` queries."""
    source = (resources.files("memes.kernels") / "neighbours.cu").read_text()
    ahead = 1 if queries == QUERIES else EACH // 4  # with few warps, prefetching hides latency
    settings = {"DIMENSIONS": dimensions, "COUNT": count, "QUERIES": queries, "AHEAD": ahead}
    return Kernel(written(source, **settings, EACH=EACH, THREADS=32 * WARPS), "nearest")
