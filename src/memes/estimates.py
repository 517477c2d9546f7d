"""Estimates: summaries of several evaluations of the same genotype.

- `evaluate_repeatedly` evaluates each genotype several times, and `summarise` summarises the results.
- `resampled` makes a task that evaluates each genotype several times and returns the summary.
- `Candidates` determines how algorithms estimate the candidates that they offer to the archive.
- `reevaluate` corrects an archive that was found on an uncertain task.
- `reevaluator`, `estimates` and `correct` are the steps of `reevaluate`, for programs that show progress
  or can be interrupted. A `Reevaluator` estimates a few elites per call. `correct` makes the corrected
  archive from the estimates of all elites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key

from memes.archive import LIMIT, Archive, add, empty
from memes.control.perturbations import Repeats
from memes.errors import at_least, require
from memes.task import Evaluation, Task, evaluate, rows_like
from memes.validation import check_fields, check_types, checked

# A function `(values, axis=) -> summary`. The values of non-finite evaluations are passed as NaN.
Statistic = Callable[..., Array]
# The statistics by name. They ignore non-finite evaluations.
STATISTICS: dict[str, Statistic] = {"median": jnp.nanmedian, "mean": jnp.nanmean}


def check_statistic(name: str, statistic: Statistic) -> None:
    """Raise a `UsageError` if a custom function does not summarise values along an axis."""
    if statistic in STATISTICS.values():
        return
    try:
        good = np.shape(statistic(np.ones((2, 3), np.float32), axis=1)) == (2,)
    except Exception:  # custom functions can raise anything
        good = False
    require(good, f"{name} must be a function (values, axis=) such as jnp.nanmedian, got {statistic}")


@dataclass(frozen=True)
class Candidates:
    """The options that determine how candidates for the archive are evaluated.

    Attributes:
        candidate_samples: Number of evaluations of each candidate that is offered to the archive. The
            paper uses 1.
        candidate_statistic: Statistic that summarises the fitness and each feature over the evaluations
            of a candidate: median or mean. In Python, it can also be a function such as `jnp.nanmedian`.
    """

    candidate_samples: int = 1
    candidate_statistic: Literal["median", "mean"] | Statistic = "median"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, candidate_samples=self.candidate_samples)
        if not isinstance(self.candidate_statistic, str):
            check_statistic("candidate_statistic", self.candidate_statistic)

    def judge(self, each: Evaluation) -> Evaluation:
        """Estimate candidates from their evaluations. The evaluations of a candidate are consecutive."""
        if self.candidate_samples == 1:
            return each
        named = self.candidate_statistic
        statistic = STATISTICS[named] if isinstance(named, str) else named
        return summarise(finite_or_nan(by_genotype(each, self.candidate_samples)), statistic)


def evaluate_repeatedly(
    task: Task, keys: Key[Array, "n m"], x: Float[Array, "n d"], *, chunk: int | None = None
) -> Evaluation:
    """Evaluate each genotype m times, and return fitness [n, m] and feature [n, m, k].

    `chunk` has the same meaning as in `evaluate`.
    """
    n, m = keys.shape
    return by_genotype(evaluate(task, keys.reshape(n * m), Repeats(x, m), chunk=chunk), m)


def by_genotype(each: Evaluation, count: int) -> Evaluation:
    """Reshape `count` evaluations per genotype from [n * count, ...] to [n, count, ...]."""

    def split(values: Array) -> Array:
        return values.reshape(-1, count, *values.shape[1:])

    found: Evaluation = jax.tree.map(split, each._replace(transitions=None))
    return found


def finite_or_nan(each: Evaluation) -> Evaluation:
    """Write NaN for all numbers that archives reject. All `STATISTICS` ignore NaN."""

    def mask(values: Array) -> Array:
        return jnp.where(jnp.abs(values) < LIMIT, values, jnp.nan)

    return Evaluation(mask(each.fitness), mask(each.feature), each.extras)


def summarise(each: Evaluation, statistic: Statistic) -> Evaluation:
    """Summarise the m evaluations of each genotype.

    The fitness [n, m] becomes [n], and the features [n, m, k] become [n, k].

    Extras can have any type, so they are not summarised. Each genotype gets the extras of the evaluation
    whose fitness is nearest to the summary. If several evaluations are equally near, the first one is
    used.
    """
    fitness, feature = statistic(each.fitness, axis=1), statistic(each.feature, axis=1)
    if not each.extras:
        return Evaluation(fitness, feature)
    apart = jnp.abs(each.fitness - fitness[:, None])
    nearest = jnp.argmin(jnp.where(jnp.isnan(apart), jnp.inf, apart), axis=1)
    row = jnp.arange(len(nearest))
    return Evaluation(fitness, feature, jax.tree.map(lambda leaf: leaf[row, nearest], each.extras))


@dataclass(frozen=True)
class Resampled:
    """An evaluator that evaluates each genotype `n` times; see `resampled`."""

    task: Task
    n: int
    statistic: Statistic

    def __call__(self, keys: Array, x: Any) -> Evaluation:
        """Evaluate genotypes several times, and summarise the evaluations of each genotype."""
        keys = jax.vmap(lambda key: jax.random.split(key, self.n))(keys)
        return summarise(evaluate_repeatedly(self.task, keys, jnp.asarray(x)), self.statistic)


@checked
def resampled(task: Task, n: int, statistic: Callable[..., Array] = jnp.mean) -> Task:
    """Make a task that evaluates each genotype `n` times and summarises the results by `statistic`."""
    at_least(1, n=n)
    return replace(
        task,
        name=f"{task.name}-x{n}",
        evaluate=Resampled(task, n, statistic),
        evaluate_transitions=None,
        gradients=None,
        cost=task.cost * n,
        single=task.single or task,
    )


class Correction(NamedTuple):
    """A corrected archive, and statistics of the evaluations of each elite in the illusory archive.

    Attributes:
        archive: The archive of the elites that survive re-evaluation. Each elite keeps its original
            generation and lane. It has the extras of the evaluation whose fitness is nearest to the
            statistic.
        elite_cell: The cell of each elite in the illusory archive.
        fitness_variance: Variance of the fitness over the evaluations of each elite.
        feature_variance: Variance of each feature over the evaluations of each elite.
        samples: Number of evaluations per elite.
        fitness_mean: Mean fitness over the evaluations of each elite; None in files of version 0.2.
        feature_mean: Mean of each feature over the evaluations of each elite; None in files of version
            0.2.
    """

    archive: Archive
    elite_cell: Int[np.ndarray, " e"]
    fitness_variance: Float[np.ndarray, " e"]
    feature_variance: Float[np.ndarray, "e k"]
    samples: int
    fitness_mean: Float[np.ndarray, " e"] | None = None
    feature_mean: Float[np.ndarray, "e k"] | None = None


class Estimates(NamedTuple):
    """Estimates of n elites.

    Attributes:
        of: Fitness and features of each elite, summarised over its evaluations by the `statistic`.
        mean: Mean fitness and mean features of each elite over its evaluations.
        fitness_variance: Variance of the fitness over the evaluations of each elite.
        feature_variance: Variance of each feature over the evaluations of each elite.
    """

    of: Evaluation
    mean: Evaluation
    fitness_variance: Float[Array, " n"]
    feature_variance: Float[Array, "n k"]


class Reevaluator(NamedTuple):
    """A function that re-evaluates elites.

    Attributes:
        elites: Number of elites per call, n.
        estimate: `(key, genotypes[c, d], cell[n]) -> Estimates`, which estimates the elites in these
            cells. The function is compiled if the task is compiled.
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
    """Re-evaluate the elites of an archive, and offer them to an empty archive.

    Args:
        archive: The archive as the algorithm found it (illusory).
        task: The task on which the elites were found.
        samples: Number of evaluations per elite.
        key: PRNG key of the evaluations; by default `jax.random.key(0)`.
        statistic: Function `(values, axis=) -> summary` for the fitness and for each feature of an
            elite. The values of non-finite evaluations are passed as NaN, so the function should ignore
            NaN, like `nanmedian` (the default) or `nanmean`.
        rows: Maximum number of evaluations at a time.
    """
    check_types({"archive": archive, "task": task}, {"archive": Archive, "task": Task})
    count = int(archive.occupied.sum())
    again = reevaluator(task, samples, statistic=statistic, rows=rows, most=count)
    key = jax.random.key(0) if key is None else key
    return correct(archive, samples, list(estimates(again, key, archive, task)))


def reevaluator(task: Task, samples: int, *, statistic: Statistic, rows: int, most: int) -> Reevaluator:
    """Build a `Reevaluator` that estimates up to `most` elites per call.

    All other arguments have the same meaning as in `reevaluate`.
    """
    at_least(1, samples=samples, rows=rows)
    check_statistic("statistic", statistic)

    def estimates_of(key: Array, genotypes: Array, cell: Array) -> Estimates:
        # Each key depends on the cell, so that results do not depend on the number of elites per call.
        keys = jax.vmap(lambda c: jax.random.split(jax.random.fold_in(key, c), samples))(cell)
        chunk = rows if rows < samples else None
        each = finite_or_nan(evaluate_repeatedly(task, keys, genotypes[cell], chunk=chunk))
        numbers = each._replace(extras={})
        mean, variance = summarise(numbers, jnp.nanmean), summarise(numbers, jnp.nanvar)
        return Estimates(summarise(each, statistic), mean, variance.fitness, variance.feature)

    return Reevaluator(
        max(1, min(rows // samples, most)), jax.jit(estimates_of) if task.jit else estimates_of
    )


def estimates(
    again: Reevaluator, key: Key[Array, ""], archive: Archive, task: Task
) -> Iterator[Estimates]:
    """Yield the estimates of all elites in the order of their cells, a few at a time."""
    require(
        archive.genotypes.shape[1] == task.dim,
        f"archive must have genotypes of {task.dim} entries like task '{task.name}', "
        f"got {archive.genotypes.shape[1]}",
    )
    elites = np.flatnonzero(np.asarray(archive.occupied))
    for start in range(0, elites.size, again.elites):
        cell = elites[start : start + again.elites]
        # The compiled program estimates a fixed number of elites, so the last call repeats some elites.
        taken = np.resize(cell, again.elites) if task.jit else cell
        found = again.estimate(key, archive.genotypes, taken.astype(np.int32))
        yield jax.tree.map(lambda leaf, n=cell.size: np.asarray(leaf)[:n], found)


def correct(archive: Archive, samples: int, parts: Sequence[Estimates]) -> Correction:
    """Return the correction of an archive, given the `estimates` of all its elites."""
    elites = np.flatnonzero(np.asarray(archive.occupied))
    if elites.size == 0:
        nothing = empty(archive.cells, archive.genotypes.shape[1], rows_like(archive.extras))
        blank = np.zeros(0), np.zeros((0, archive.feature.shape[1]))
        return Correction(nothing, elites, *blank, samples, *blank)
    found: Estimates = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    variances = np.asarray(found.fitness_variance), np.asarray(found.feature_variance)
    means = np.asarray(found.mean.fitness), np.asarray(found.mean.feature)
    corrected = entered_again(archive, elites, found.of)
    return Correction(corrected, elites, *variances, samples, *means)


def entered_again(archive: Archive, elites: np.ndarray, found: Evaluation) -> Archive:
    """Offer elites to an empty archive, given their cells [e] and their new evaluations [e]."""

    def by_cell(values: Array | np.ndarray) -> Array:
        # Each array has one row per cell, so that one compiled program works for any number of elites.
        rows = np.zeros((archive.cells.count, *values.shape[1:]), values.dtype)
        rows[elites] = np.asarray(values)
        return jnp.asarray(rows)

    entered: Archive = _entered(archive, jax.tree.map(by_cell, found))
    return entered


@jax.jit
def _entered(archive: Archive, of: Evaluation) -> Archive:
    nothing = empty(archive.cells, archive.genotypes.shape[1], rows_like(of.extras))
    lane, generation = archive.lane, archive.generation
    return add(nothing, archive.genotypes, of, archive.occupied, lane=lane, generation=generation)[0]
