"""Genotypes in factors: several evaluations share numbers, instead of one whole genotype for each.

`Pairs` are mirrored samples: the mean of each lane, and steps away from it. `Repeats` are genotypes that
are evaluated several times each. A task that can evaluate factors reads less memory: whole genotypes
need twice as much as pairs, or many times as much as pairs of low rank, and `count` times as much as
repeats. `rows` makes whole genotypes for all other tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key

from memes.pytrees import by_lane, concatenate, filled, in_chunks

T = TypeVar("T")


class Thin(NamedTuple):
    """Matrices of rank r, each the sum of r products of a column `left[i]` and a row `right[i]`."""

    left: Float[Array, "*n r rows"]
    right: Float[Array, "*n r columns"]


# Steps of genotypes in parts: vectors [*n, size], or matrices in row-major order.
Step = tuple[Array | Thin, ...]


class Pairs(NamedTuple):
    """P mirrored pairs per mean of each of L lanes: first all `mean + step`, then all `mean - step`.

    Leaves of `step` are [L, P, ...]. Entries beyond the end of a genotype are ignored.
    """

    mean: Float[Array, "L d"]
    step: Step

    @property
    def each(self) -> int:
        """The number of pairs per lane, P."""
        return int(jax.tree.leaves(self.step)[0].shape[1])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Repeats:
    """Genotypes that are evaluated `count` times each; evaluations of one genotype are consecutive."""

    x: Float[Array, "C d"]
    count: int = field(default=1, metadata={"static": True})

    @property
    def evaluations(self) -> int:
        """The number of evaluations of all genotypes, C * count."""
        return self.x.shape[0] * self.count


# M samples of each of L lanes, in the order of the lanes; in factors M = 2P.
Samples = Float[Array, "... d"] | Pairs


def rows(samples: Samples | Repeats) -> Float[Array, "S d"]:
    """Make whole genotypes, one per evaluation: lane after lane, genotype after genotype."""
    if isinstance(samples, Repeats):
        return samples.x if samples.count == 1 else jnp.repeat(samples.x, samples.count, axis=0)
    if isinstance(samples, Pairs):
        centre, dim = samples.mean[:, None], samples.mean.shape[-1]
        step = entries(samples.step)[..., :dim]
        samples = jnp.concatenate([centre + step, centre - step], axis=1)
    return samples.reshape(-1, samples.shape[-1])


def no_pairs(dim: int) -> Pairs:
    """Return pairs without lanes."""
    return Pairs(jnp.zeros((0, dim)), (jnp.zeros((0, 1, dim)),))


def entries(step: Step) -> Float[Array, "*n size"]:
    """Make whole steps."""
    return jnp.concatenate([_product(part) if isinstance(part, Thin) else part for part in step], -1)


def _product(thin: Thin) -> Array:
    left, right = (side.astype(jnp.float32) for side in thin)
    outer = jnp.sum(left[..., :, None] * right[..., None, :], axis=-3)
    return jax.lax.collapse(outer, outer.ndim - 2)


def scaled(step: Array | Step, by: float) -> Step:
    """Multiply steps, in parts or whole."""
    parts = step if isinstance(step, tuple) else (step,)
    return tuple(Thin(by * p.left, p.right) if isinstance(p, Thin) else by * p for p in parts)


def rounded(step: Step, dtype: str) -> Step:
    """Round steps to the type in which they are stored."""
    kept: Step = jax.tree.map(lambda leaf: leaf.astype(dtype), step)
    return kept


def split(step: Step, blocks: Sequence[tuple[int, int]]) -> Step:
    """Split steps into one part per block of rows and columns; other steps are returned whole."""

    def fits(part: Array | Thin, size: tuple[int, int]) -> bool:
        if isinstance(part, Thin):
            return (part.left.shape[-1], part.right.shape[-1]) == size
        return bool(part.shape[-1] == size[0] * size[1])

    if len(step) == len(blocks) and all(map(fits, step, blocks)):
        return step
    ends = np.cumsum([height * width for height, width in blocks])
    return tuple(jnp.split(entries(step)[..., : ends[-1]], ends[:-1], axis=-1))


def as_pairs(groups: Sequence[Samples]) -> Pairs | None:
    """Join groups of samples that are all in factors of equal structure; None if they are not."""
    pairs = [group for group in groups if isinstance(group, Pairs)]
    forms = {(jax.tree.structure(p), *(a.shape[1:] for a in jax.tree.leaves(p))) for p in pairs}
    return concatenate(pairs) if len(forms) == 1 and len(pairs) == len(groups) else None


def by_chunks(
    function: Callable[[Array, Repeats, Pairs], T],
    most: int | None,
    keys: Key[Array, " n"],
    candidates: Repeats,
    samples: Pairs,
) -> T:
    """Compute `function(keys[n], candidates, samples)` of n evaluations in chunks; see `in_chunks`.

    Args:
        function: Its result has leaves [n, ...].
        most: Maximum number of evaluations per chunk. A chunk has either candidates or samples, and both
            samples of a pair. None evaluates everything at once.
        keys: One PRNG key per evaluation.
        candidates: Genotypes that are evaluated several times.
        samples: Mirrored pairs.
    """
    if most is None:
        return function(keys, candidates, samples)
    first = candidates.evaluations
    alone = _repeats_by_chunks(function, most, keys[:first], candidates, samples)
    if not samples.mean.shape[0]:
        return alone
    return concatenate([alone, _pairs_by_chunks(function, most, keys[first:], candidates, samples)])


def _repeats_by_chunks(
    function: Callable[[Array, Repeats, Pairs], T],
    most: int,
    keys: Key[Array, " n"],
    candidates: Repeats,
    samples: Pairs,
) -> T:
    """Compute the results of candidates: several genotypes at a time, or some evaluations of each."""
    n, count = candidates.x.shape[0], candidates.count
    nobody = jax.tree.map(lambda leaf: leaf[:0], samples)
    each = min(count, most)
    cuts = -(-count // each)

    def of_some(keys: Array, x: Array) -> T:
        return by_lane(function(keys.reshape(-1), Repeats(x, each), nobody), x.shape[0])

    cut = filled(keys.reshape(n, count), cuts * each, axis=1).reshape(n * cuts, each)
    some = min(most // each, max(1, n * cuts))
    found = in_chunks(of_some, some, cut, rows(Repeats(candidates.x, cuts)))

    def mend(leaf: Array) -> Array:
        whole = leaf.reshape(n, cuts * each, *leaf.shape[2:])[:, :count]
        return whole.reshape(n * count, *leaf.shape[2:])

    mended: T = jax.tree.map(mend, found)
    return mended


def _pairs_by_chunks(
    function: Callable[[Array, Repeats, Pairs], T],
    most: int,
    keys: Key[Array, " n"],
    candidates: Repeats,
    samples: Pairs,
) -> T:
    """Compute the results of the samples: several lanes at a time, or some of the pairs of one lane."""
    lanes, pairs = samples.mean.shape[0], samples.each
    nobody = Repeats(candidates.x[:0], 1)
    each = min(pairs, max(1, most // 2))
    cuts = -(-pairs // each)

    def cut(leaf: Array) -> Array:
        """Split lanes [L, P, ...] into more, shorter ones: [L * cuts, each, ...]."""
        return filled(leaf, cuts * each, axis=1).reshape(lanes * cuts, each, *leaf.shape[2:])

    def of_lanes(plus: Array, minus: Array, mean: Array, *leaves: Array) -> T:
        some = Pairs(mean, jax.tree.unflatten(structure, leaves))
        both = jnp.concatenate([plus[:, None], minus[:, None]], axis=1)
        return by_lane(function(both.reshape(-1), nobody, some), mean.shape[0])

    def mend(leaf: Array) -> Array:
        """Invert `cut` for results [L * cuts, 2 * each, ...] of both samples of a pair."""
        apart = leaf.reshape(lanes, cuts, 2, each, *leaf.shape[2:]).swapaxes(1, 2)
        whole = apart.reshape(lanes, 2, cuts * each, *leaf.shape[2:])[:, :, :pairs]
        return whole.reshape(lanes * 2 * pairs, *leaf.shape[2:])

    leaves, structure = jax.tree.flatten(samples.step)
    paired = keys.reshape(lanes, 2, pairs)
    cut_up = [cut(paired[:, 0]), cut(paired[:, 1]), jnp.repeat(samples.mean, cuts, axis=0)]
    found = in_chunks(of_lanes, max(1, most // (2 * each)), *cut_up, *map(cut, leaves))
    mended: T = jax.tree.map(mend, found)
    return mended
