"""Genotypes in factored form, in which several evaluations share data.

- `Pairs` are mirrored samples: the mean of each lane, and steps away from the mean.
- `Repeats` are genotypes that are evaluated several times each.

Tasks that accept the factored form read fewer bytes than tasks that need whole genotypes. For pairs,
they read half of the bytes, or far fewer if the steps have low rank. For repeats, they read 1 / `count`
of the bytes. For all other tasks, `rows` converts the factored form to whole genotypes.
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
    """Matrices of rank r: sums of r outer products of a column `left[i]` and a row `right[i]`."""

    left: Float[Array, "*n r rows"]
    right: Float[Array, "*n r columns"]


# The entries of steps, split into parts. A part is either a vector [*n, size] (for example, a flattened
# matrix) or a low-rank matrix.
Step = tuple[Array | Thin, ...]


class Pairs(NamedTuple):
    """P mirrored pairs of samples for each of L lanes.

    In each lane, all samples `mean + step` come first, followed by all samples `mean - step`. The leaves
    of `step` are [L, P, ...]. Steps may have more than d entries. The excess entries are ignored.
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
    """C genotypes with `count` consecutive evaluations each."""

    x: Float[Array, "C d"]
    count: int = field(default=1, metadata={"static": True})

    @property
    def evaluations(self) -> int:
        """The number of evaluations of all genotypes, C * count."""
        return self.x.shape[0] * self.count


# M samples for each of L lanes, in the order of the lanes. In factored form, M = 2P.
Samples = Float[Array, "... d"] | Pairs


def rows(samples: Samples | Repeats) -> Float[Array, "S d"]:
    """Return one whole genotype per evaluation, [S, d]. The order of lanes or genotypes is kept."""
    if isinstance(samples, Repeats):
        return samples.x if samples.count == 1 else jnp.repeat(samples.x, samples.count, axis=0)
    if isinstance(samples, Pairs):
        centre, dim = samples.mean[:, None], samples.mean.shape[-1]
        step = entries(samples.step)[..., :dim]
        samples = jnp.concatenate([centre + step, centre - step], axis=1)
    return samples.reshape(-1, samples.shape[-1])


def no_pairs(dim: int) -> Pairs:
    """Return `Pairs` with 0 lanes."""
    return Pairs(jnp.zeros((0, dim)), (jnp.zeros((0, 1, dim)),))


def entries(step: Step) -> Float[Array, "*n size"]:
    """Return steps as whole vectors [*n, size]."""
    return jnp.concatenate([_product(part) if isinstance(part, Thin) else part for part in step], -1)


def _product(thin: Thin) -> Array:
    left, right = (side.astype(jnp.float32) for side in thin)
    outer = jnp.sum(left[..., :, None] * right[..., None, :], axis=-3)
    return jax.lax.collapse(outer, outer.ndim - 2)


def scaled(step: Array | Step, by: float) -> Step:
    """Multiply steps, given as parts or as one array, by a number."""
    parts = step if isinstance(step, tuple) else (step,)
    return tuple(Thin(by * p.left, p.right) if isinstance(p, Thin) else by * p for p in parts)


def rounded(step: Step, dtype: str) -> Step:
    """Convert steps to the type `dtype`."""
    kept: Step = jax.tree.map(lambda leaf: leaf.astype(dtype), step)
    return kept


def split(step: Step, blocks: Sequence[tuple[int, int]]) -> Step:
    """Split steps into one part per block. `blocks` gives the (rows, columns) of each block.

    Steps that already have these parts are returned unchanged.
    """

    def fits(part: Array | Thin, size: tuple[int, int]) -> bool:
        if isinstance(part, Thin):
            return (part.left.shape[-1], part.right.shape[-1]) == size
        return bool(part.shape[-1] == size[0] * size[1])

    if len(step) == len(blocks) and all(map(fits, step, blocks)):
        return step
    ends = np.cumsum([height * width for height, width in blocks])
    return tuple(jnp.split(entries(step)[..., : ends[-1]], ends[:-1], axis=-1))


def as_pairs(groups: Sequence[Samples]) -> Pairs | None:
    """Join groups of samples if all of them are `Pairs` of the same form, and otherwise return None."""
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
    """Compute `function(keys[n], candidates, samples)` in chunks, as `in_chunks` does.

    Args:
        function: A function whose result has leaves [n, ...].
        most: Maximum number of evaluations per chunk, or None for one chunk. A chunk contains either
            candidates or samples. Both samples of a pair are in the same chunk.
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
    """Compute the results of the candidates in chunks.

    A chunk contains all evaluations of several genotypes, or some of the evaluations of one genotype.
    """
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
    """Compute the results of the samples in chunks.

    A chunk contains all pairs of several lanes, or some of the pairs of one lane.
    """
    lanes, pairs = samples.mean.shape[0], samples.each
    nobody = Repeats(candidates.x[:0], 1)
    each = min(pairs, max(1, most // 2))
    cuts = -(-pairs // each)

    def cut(leaf: Array) -> Array:
        """Split lanes [L, P, ...] into shorter lanes [L * cuts, each, ...]."""
        return filled(leaf, cuts * each, axis=1).reshape(lanes * cuts, each, *leaf.shape[2:])

    def of_lanes(plus: Array, minus: Array, mean: Array, *leaves: Array) -> T:
        some = Pairs(mean, jax.tree.unflatten(structure, leaves))
        both = jnp.concatenate([plus[:, None], minus[:, None]], axis=1)
        return by_lane(function(both.reshape(-1), nobody, some), mean.shape[0])

    def mend(leaf: Array) -> Array:
        """Join the results of the lanes that `cut` has split."""
        apart = leaf.reshape(lanes, cuts, 2, each, *leaf.shape[2:]).swapaxes(1, 2)
        whole = apart.reshape(lanes, 2, cuts * each, *leaf.shape[2:])[:, :, :pairs]
        return whole.reshape(lanes * 2 * pairs, *leaf.shape[2:])

    leaves, structure = jax.tree.flatten(samples.step)
    paired = keys.reshape(lanes, 2, pairs)
    cut_up = [cut(paired[:, 0]), cut(paired[:, 1]), jnp.repeat(samples.mean, cuts, axis=0)]
    found = in_chunks(of_lanes, max(1, most // (2 * each)), *cut_up, *map(cut, leaves))
    mended: T = jax.tree.map(mend, found)
    return mended
