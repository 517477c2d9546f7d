"""Samples in factors: means, and steps away from them, that make up whole genotypes.

A strategy hands its samples out so. A task that can evaluate them so never sees whole genotypes, which
are twice as large, or many times if steps are of a low rank; `rows` makes them for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key

from memes.trees import by_lane, concatenate, filled, in_chunks

T = TypeVar("T")


class Thin(NamedTuple):
    """Matrices of rank r, each the sum of r products of a column `left[i]` and a row `right[i]`."""

    left: Float[Array, "*n r rows"]
    right: Float[Array, "*n r columns"]


# Steps of genotypes, part after part: entries [*n, size], or matrices whose rows follow each other.
Step = tuple[Array | Thin, ...]


class Pairs(NamedTuple):
    """P mirrored pairs around the mean of each of L lanes: `mean + step` of all, then `mean - step`.

    Leaves of `step` are [L, P, ...]. Entries beyond the last of a genotype do not count.
    """

    mean: Float[Array, "L d"]
    step: Step

    @property
    def each(self) -> int:
        """Pairs of a lane, P."""
        return int(jax.tree.leaves(self.step)[0].shape[1])


# Of L lanes M samples each, in the lanes' order; in factors M = 2P.
Samples = Float[Array, "... d"] | Pairs


def rows(samples: Samples) -> Float[Array, "S d"]:
    """Make samples whole, lane after lane."""
    if isinstance(samples, Pairs):
        centre, dim = samples.mean[:, None], samples.mean.shape[-1]
        step = entries(samples.step)[..., :dim]
        samples = jnp.concatenate([centre + step, centre - step], axis=1)
    return samples.reshape(-1, samples.shape[-1])


def entries(step: Step) -> Float[Array, "*n size"]:
    """Make steps whole."""
    return jnp.concatenate([_product(part) if isinstance(part, Thin) else part for part in step], -1)


def _product(thin: Thin) -> Array:
    outer = jnp.sum(thin.left[..., :, None] * thin.right[..., None, :], axis=-3)
    return jax.lax.collapse(outer, outer.ndim - 2)


def scaled(step: Array | Step, by: float) -> Step:
    """Multiply steps, in parts or whole."""
    parts = step if isinstance(step, tuple) else (step,)
    return tuple(Thin(by * p.left, p.right) if isinstance(p, Thin) else by * p for p in parts)


def split(step: Step, blocks: Sequence[tuple[int, int]]) -> Step:
    """Cut steps into one part for each block of rows and columns; whole ones where they do not fit."""

    def fits(part: Array | Thin, size: tuple[int, int]) -> bool:
        if isinstance(part, Thin):
            return (part.left.shape[-1], part.right.shape[-1]) == size
        return bool(part.shape[-1] == size[0] * size[1])

    if len(step) == len(blocks) and all(map(fits, step, blocks)):
        return step
    ends = np.cumsum([height * width for height, width in blocks])
    return tuple(jnp.split(entries(step)[..., : ends[-1]], ends[:-1], axis=-1))


def as_pairs(groups: Sequence[Samples]) -> Pairs | None:
    """Join groups of samples that are all in factors, and alike; None if they are not."""
    pairs = [group for group in groups if isinstance(group, Pairs)]
    forms = {(jax.tree.structure(p), *(a.shape[1:] for a in jax.tree.leaves(p))) for p in pairs}
    return concatenate(pairs) if len(forms) == 1 and len(pairs) == len(groups) else None


def by_chunks(
    function: Callable[[Array, Array, Pairs], T],
    most: int | None,
    keys: Key[Array, " n"],
    candidates: Float[Array, "C d"],
    samples: Pairs,
) -> T:
    """Compute `function(keys[n], candidates, samples)` of C + S = n rows; see `in_chunks`.

    Args:
        function: Its result has leaves [n, ...].
        most: Rows at a time, candidates apart from samples and pairs together; None is all at once.
        keys: A PRNG key for each row.
        candidates: Whole genotypes.
        samples: And those in factors.
    """
    if most is None:
        return function(keys, candidates, samples)
    count, lanes, pairs = candidates.shape[0], samples.mean.shape[0], samples.each
    nobody = jax.tree.map(lambda leaf: leaf[:0], samples)
    few = min(most, max(1, count))
    alone = in_chunks(lambda keys, x: function(keys, x, nobody), few, keys[:count], candidates)

    each = min(pairs, max(1, most // 2))
    cuts = -(-pairs // each)

    def cut(leaf: Array) -> Array:
        """Lanes [L, P, ...] cut into more, and shorter, ones: [L * cuts, each, ...]."""
        return filled(leaf, cuts * each, axis=1).reshape(lanes * cuts, each, *leaf.shape[2:])

    def of_lanes(plus: Array, minus: Array, mean: Array, *leaves: Array) -> T:
        some = Pairs(mean, jax.tree.unflatten(structure, leaves))
        both = jnp.concatenate([plus[:, None], minus[:, None]], axis=1)
        return by_lane(function(both.reshape(-1), candidates[:0], some), mean.shape[0])

    def mend(leaf: Array) -> Array:
        """The opposite of `cut`, for results [L * cuts, 2 * each, ...] of both samples of a pair."""
        apart = leaf.reshape(lanes, cuts, 2, each, *leaf.shape[2:]).swapaxes(1, 2)
        whole = apart.reshape(lanes, 2, cuts * each, *leaf.shape[2:])[:, :, :pairs]
        return whole.reshape(lanes * 2 * pairs, *leaf.shape[2:])

    leaves, structure = jax.tree.flatten(samples.step)
    paired = keys[count:].reshape(lanes, 2, pairs)
    cut_up = [cut(paired[:, 0]), cut(paired[:, 1]), jnp.repeat(samples.mean, cuts, axis=0)]
    found = in_chunks(of_lanes, max(1, most // (2 * each)), *cut_up, *map(cut, leaves))
    mended: T = jax.tree.map(mend, found)
    return concatenate([alone, mended])
