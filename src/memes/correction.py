"""Corrections of an archive on an uncertain task: its elites are evaluated again.

`reevaluate` does it at once. Its two halves serve whoever wants to watch or stop it: `reevaluator`
estimates a few elites at a time, compiled once, and `correct` makes the corrected archive of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key

from memes.archive import Archive, add, empty
from memes.control.perturbations import Repeats
from memes.errors import at_least, require
from memes.estimates import Statistic, by_genotype, estimate
from memes.metrics import archive_loss, finite_median, scored
from memes.task import Evaluation, Task, evaluate


class Correction(NamedTuple):
    """A corrected archive, and how uncertain the e elites of the illusory archive are.

    Attributes:
        archive: The elites that hold a cell by the statistic of their evaluations. Each keeps the
            generation and lane of its discovery.
        elite_cell: The cell that each elite held in the illusory archive.
        fitness_variance: Over the evaluations of each elite.
        feature_variance: The same of each feature.
        samples: Evaluations of each elite.
        fitness_mean: Over the evaluations of each elite; None in files of version 0.2.
        feature_mean: The same of each feature.
    """

    archive: Archive
    elite_cell: Int[np.ndarray, " e"]
    fitness_variance: Float[np.ndarray, " e"]
    feature_variance: Float[np.ndarray, "e k"]
    samples: int
    fitness_mean: Float[np.ndarray, " e"] | None = None
    feature_mean: Float[np.ndarray, "e k"] | None = None


class Estimates(NamedTuple):
    """Estimates of n elites: the statistic `of` their evaluations, the `mean`, and the variances."""

    of: Evaluation
    mean: Evaluation
    fitness_variance: Float[Array, " n"]
    feature_variance: Float[Array, "n k"]


class Reevaluator(NamedTuple):
    """A way to evaluate elites again.

    Attributes:
        elites: The number that is taken together, n.
        estimate: `(key, genotypes[c, d], cell[n]) -> Estimates` of the elites in these cells; compiled,
            if the task can be.
    """

    elites: int
    estimate: Any


def reevaluate(
    archive: Archive,
    task: Task,
    samples: int = 512,
    *,
    key: Key[Array, ""] | None = None,
    statistic: Statistic = jnp.nanmedian,
    rows: int = 16_384,
) -> Correction:
    """Evaluate the elites again and let them compete anew for the cells.

    Args:
        archive: The illusory archive, as it was found.
        task: The task that its elites were found on.
        samples: Evaluations of each elite.
        key: PRNG key of the evaluations; None is `jax.random.key(0)`.
        statistic: Summary over an axis of an elite's fitness and of each of its features. It sees NaN
            where an evaluation was not finite, so use `nanmedian` (the default) or `nanmean`.
        rows: Evaluations at once; as many elites are taken together as this allows.
    """
    count = int(archive.occupied.sum())
    again = reevaluator(task, samples, statistic=statistic, rows=rows, most=count)
    key = jax.random.key(0) if key is None else key
    return correct(archive, samples, list(estimates(again, key, archive, task)))


def reevaluator(task: Task, samples: int, *, statistic: Statistic, rows: int, most: int) -> Reevaluator:
    """Build a `Reevaluator` of at most `most` elites at once; other arguments as of `reevaluate`."""
    at_least(1, samples=samples, rows=rows)

    def estimates_of(key: Array, genotypes: Array, cell: Array) -> Estimates:
        # Keys follow from the cell, so that the result does not depend on what is taken together.
        keys = jax.vmap(lambda c: jax.random.split(jax.random.fold_in(key, c), samples))(cell)
        x = Repeats(genotypes[cell], samples)
        each = evaluate(task, keys.reshape(-1), x, chunk=rows if rows < samples else None)

        each = by_genotype(each, samples)
        mean, variance = estimate(each, jnp.nanmean), estimate(each, jnp.nanvar)
        return Estimates(estimate(each, statistic), mean, variance.fitness, variance.feature)

    return Reevaluator(
        max(1, min(rows // samples, most)), jax.jit(estimates_of) if task.jit else estimates_of
    )


def estimates(
    again: Reevaluator, key: Key[Array, ""], archive: Archive, task: Task
) -> Iterator[Estimates]:
    """Yield the estimates of all elites in the order of their cells, a few at a time."""
    require(
        archive.genotypes.shape[1] == task.dim,
        f"archive must hold genotypes of {task.dim} entries, as task '{task.name}' has, "
        f"got {archive.genotypes.shape[1]}",
    )
    elites = np.flatnonzero(np.asarray(archive.occupied))
    for start in range(0, elites.size, again.elites):
        cell = elites[start : start + again.elites]
        # A compiled program takes just so many: the last ones are filled up with others.
        taken = np.resize(cell, again.elites) if task.jit else cell
        found = again.estimate(key, archive.genotypes, taken.astype(np.int32))
        yield jax.tree.map(lambda leaf, n=cell.size: np.asarray(leaf)[:n], found)


def correct(archive: Archive, samples: int, parts: Sequence[Estimates]) -> Correction:
    """Correct an archive by the estimates of all its elites, as `estimates` yields them."""
    elites = np.flatnonzero(np.asarray(archive.occupied))
    if elites.size == 0:
        nothing = empty(archive.cells, archive.genotypes.shape[1])
        blank = np.zeros(0), np.zeros((0, archive.feature.shape[1]))
        return Correction(nothing, elites, *blank, samples, *blank)
    found: Estimates = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    variances = np.asarray(found.fitness_variance), np.asarray(found.feature_variance)
    means = np.asarray(found.mean.fitness), np.asarray(found.mean.feature)
    corrected = _entered_again(archive, elites, found.of.fitness, found.of.feature)
    return Correction(corrected, elites, *variances, samples, *means)


def _entered_again(archive: Archive, elites: np.ndarray, *of: Array | np.ndarray) -> Archive:
    """Put the elites in these cells into an empty archive, by another fitness [e] and feature [e, k]."""

    def by_cell(values: Array | np.ndarray) -> Array:
        # With a row for each cell, however many elites there are, the same program serves all archives.
        rows = np.full((archive.cells.count, *values.shape[1:]), np.nan, np.float32)
        rows[elites] = np.asarray(values)
        return jnp.asarray(rows)

    fitness, feature = map(by_cell, of)
    entered: Archive = _entered(archive, Evaluation(fitness, feature))
    return entered


@jax.jit
def _entered(archive: Archive, of: Evaluation) -> Archive:
    nothing = empty(archive.cells, archive.genotypes.shape[1])
    lane, generation = archive.lane, archive.generation
    return add(nothing, archive.genotypes, of, archive.occupied, lane=lane, generation=generation)[0]


def compare(illusory: Archive, correction: Correction, min_fitness: float = 0.0) -> dict[str, float]:
    """Return the measures of both archives, the loss of each, and the variances.

    Names that end with `_by_mean` are of the archive that is corrected by the means of the evaluations,
    whatever the statistic of the correction was. `median_fitness_variance` is the median over the
    elites, and `median_feature_variance` that of the mean over the features; NaN if there is no elite.
    """
    names = ("qd_score", "coverage", "max_fitness")
    before, after = scored(illusory, min_fitness), scored(correction.archive, min_fitness)
    loss = archive_loss(illusory, correction.archive, min_fitness)
    variances = {
        "fitness": correction.fitness_variance,
        "feature": np.mean(correction.feature_variance, axis=1),
    }
    by_mean = {}
    if correction.fitness_mean is not None and correction.feature_mean is not None:
        means = correction.fitness_mean, correction.feature_mean
        graded = _entered_again(illusory, correction.elite_cell, *means)
        lost = archive_loss(illusory, graded, min_fitness)
        by_mean = {f"{name}_by_mean": float(scored(graded, min_fitness)[name]) for name in names}
        by_mean |= {f"{name}_loss_by_mean": lost[name] for name in names}
    return (
        {name: float(after[name]) for name in names}
        | {f"illusory_{name}": float(before[name]) for name in names}
        | {f"{name}_loss": loss[name] for name in names}
        | by_mean
        | {f"median_{name}_variance": finite_median(values) for name, values in variances.items()}
    )
