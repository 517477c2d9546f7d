"""Metrics of a run: pure functions of the archive and of `Info`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from memes.algorithm import Info
from memes.archive import Archive, Fault
from memes.context import Kind
from memes.errors import in_unit_interval, positive, require
from memes.estimates import Correction, entered_again
from memes.pytrees import in_32_bits
from memes.resets import Reason
from memes.task import Evaluation

LANE_KINDS = (Kind.EXPLOIT, Kind.EXPLORE)


def qd_score(archive: Archive, min_fitness: float = 0.0) -> Float[Array, ""]:
    """Return the QD-score: the sum of `fitness - min_fitness` over all elites.

    Elites with a fitness below `min_fitness` add 0.
    """
    above = jnp.maximum(archive.fitness - min_fitness, 0.0)
    return jnp.sum(jnp.where(archive.occupied, above, 0.0))


def coverage(archive: Archive) -> Float[Array, ""]:
    """Return the share of the cells that contain an elite."""
    return jnp.mean(archive.occupied, dtype=jnp.float32)


def max_fitness(archive: Archive) -> Float[Array, ""]:
    """Return the fitness of the best elite, or -inf if the archive is empty."""
    return jnp.max(archive.fitness)


def mean_fitness(archive: Archive) -> Float[Array, ""]:
    """Return the mean fitness of the elites, or NaN if the archive is empty."""
    return jnp.mean(archive.fitness, where=archive.occupied)


def finite_median(values: np.ndarray) -> float:
    """Return the median of the finite values, or NaN (without a warning) if there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")


def score(archive: Archive, min_fitness: float = 0.0) -> dict[str, Array]:
    """Return the QD-score, coverage, maximum fitness and mean fitness of an archive as a dictionary."""
    return {
        "qd_score": qd_score(archive, min_fitness),
        "coverage": coverage(archive),
        "max_fitness": max_fitness(archive),
        "mean_fitness": mean_fitness(archive),
    }


# One compiled program computes all metrics.
scored: Callable[..., dict[str, Array]] = jax.jit(score, static_argnums=1)


def archive_loss(illusory: Archive, corrected: Archive, min_fitness: float = 0.0) -> dict[str, float]:
    """Return the relative decrease of each metric from the illusory to the corrected archive.

    Fitness is measured relative to `min_fitness`, as in the QD-score. A loss of 0 means that the
    metric is unchanged. A loss of 1 is a total loss, for example if no elite survives. If a metric of
    the illusory archive is 0, the loss of this metric is NaN.
    """
    before, after = scored(illusory, min_fitness), scored(corrected, min_fitness)
    nothing_left = float(after["coverage"]) == 0

    def drop(name: str) -> float:
        origin = min_fitness if name.endswith("fitness") else 0.0
        a, b = float(before[name]) - origin, float(after[name]) - origin
        if not np.isfinite(a) or a == 0:
            return float("nan")
        return 1.0 if nothing_left else (a - b) / abs(a)

    return {name: drop(name) for name in before}


def compare(illusory: Archive, correction: Correction, min_fitness: float = 0.0) -> dict[str, float]:
    """Return the metrics of the illusory and the corrected archive, the losses and two median variances.

    Metrics whose names end with `_by_mean` refer to a second corrected archive. In this archive, each
    elite has the mean fitness and the mean features of its evaluations.

    `median_fitness_variance` and `median_feature_variance` are medians over the elites. The fitness
    variance of an elite is the variance of the fitness over its evaluations. The feature variance of an
    elite is the mean of the variances of its features. Both medians are NaN if there is no elite.
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
        means = Evaluation(jnp.asarray(correction.fitness_mean), jnp.asarray(correction.feature_mean))
        graded = entered_again(illusory, correction.elite_cell, means)
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


class Deviations(NamedTuple):
    """Standard deviations of fitness and features over the evaluations of the elite in each cell.

    Empty cells contain NaN.

    Attributes:
        fitness: Standard deviation of the fitness.
        feature: Root mean square of the standard deviations of all features, in units of the feature
            ranges.
    """

    fitness: Float[np.ndarray, " c"]
    feature: Float[np.ndarray, " c"]


def deviations(illusory: Archive, correction: Correction) -> Deviations:
    """Return the standard deviations for the elites of the illusory archive."""
    cells = illusory.cells
    widths = np.asarray(cells.high) - np.asarray(cells.low)
    relative = np.mean(correction.feature_variance / np.square(widths), axis=1)

    def by_cell(variance: np.ndarray) -> np.ndarray:
        found = np.full(cells.count, np.nan)
        found[correction.elite_cell] = np.sqrt(variance)
        return found

    return Deviations(by_cell(np.asarray(correction.fitness_variance)), by_cell(relative))


def reproducibility(
    illusory: Archive, correction: Correction, *, fitness_std: float, feature_std: float
) -> dict[str, float]:
    """Return the reproducibility scores of the fitness and of the features of an archive.

    A score is the sum over the elites of `1 - min(1, s / r)`. Here s is the standard deviation of the
    fitness or of the features over the evaluations of an elite, and r is a reference deviation. An elite
    without noise adds 1, and an elite with a deviation of at least r adds 0.

    The scores follow Flageat and Cully, Uncertain Quality-Diversity, IEEE Transactions on Evolutionary
    Computation, 2023, arXiv:2302.00463. In the authors' code, r is the largest deviation of the same
    cell in all compared archives. In this function, r is an argument, so that the score of a run does
    not depend on other runs.

    Args:
        illusory: The archive before the correction.
        correction: The correction of this archive.
        fitness_std: Reference deviation r of the fitness.
        feature_std: Reference deviation r of the features, in units of their ranges.
    """
    positive(fitness_std=fitness_std, feature_std=feature_std)
    found = deviations(illusory, correction)
    references = {"fitness": fitness_std, "feature": feature_std}
    return {
        name: float(np.nansum(_reproducible(getattr(found, name), reference)))
        for name, reference in references.items()
    }


def _reproducible(std: np.ndarray, reference: float) -> np.ndarray:
    return 1 - np.minimum(1, std / reference)


def tradeoff(
    illusory: Archive,
    correction: Correction,
    *,
    fitness_range: tuple[float, float],
    fitness_std: float | None = None,
    feature_std: float | None = None,
    preferences: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
) -> Float[np.ndarray, " p"]:
    """Return the score of an archive for each preference between performance and reproducibility.

    The value of an elite is `(1 - p) q + p (1 - min(1, s / r))`:

    - p is the preference for reproducibility.
    - q is the performance: the position of the elite's mean fitness in `fitness_range`, clipped to
      [0, 1].
    - s is the standard deviation of the elite's evaluations, and r is the reference deviation. If
      `fitness_std` is given, both are deviations of the fitness. If `feature_std` is given, both are
      deviations of the features.

    Each cell keeps the elite with the greatest value among the elites whose mean feature lies in the
    cell. The score is the sum of the values of these elites.

    The function computes one weighted sum per preference. Reference: Flageat et al., Exploring the
    Performance-Reproducibility Trade-off in Quality-Diversity, 2024, arXiv:2409.13315. In the authors'
    code, s is the deviation of the features.

    Args:
        illusory: The archive before the correction.
        correction: The correction of this archive.
        fitness_range: The fitness at which q = 0, and the fitness at which q = 1.
        fitness_std: Reference deviation r of the fitness.
        feature_std: Reference deviation r of the features, in units of their ranges. Exactly one of the
            two references is required.
        preferences: Weights of the reproducibility, p, in [0, 1].
    """
    given = {"fitness": fitness_std, "feature": feature_std}
    references = {name: std for name, std in given.items() if std is not None}
    require(
        len(references) == 1,
        f"exactly one of fitness_std and feature_std must be given, got {len(references)}",
    )
    ((name, reference),) = references.items()
    positive(**{f"{name}_std": reference})
    low, high = fitness_range
    require(low < high, f"fitness_range must increase, got {fitness_range}")
    for preference in preferences:
        in_unit_interval(preferences=preference)
    fitness, feature = correction.fitness_mean, correction.feature_mean
    require(
        fitness is not None and feature is not None,
        "correction must have the means of the evaluations, which version 0.2 did not save; correct the "
        "archive again",
    )
    assert fitness is not None
    assert feature is not None
    performance = np.clip((np.asarray(fitness) - low) / (high - low), 0, 1)
    std = getattr(deviations(illusory, correction), name)[correction.elite_cell]
    stable = _reproducible(std, reference)
    archives = [
        entered_again(
            illusory,
            correction.elite_cell,
            Evaluation(
                jnp.asarray((1 - p) * performance + p * stable, jnp.float32),
                jnp.asarray(feature, jnp.float32),
            ),
        )
        for p in preferences
    ]
    return np.array([float(qd_score(archive)) for archive in archives])


def parent_distance(info: Info) -> Float[Array, " kinds"]:
    """Return, for each `Kind`, the mean distance in feature space between offspring and their parents.

    Candidates without a parent are ignored. The result of a kind without offspring is NaN.
    """
    distance = jnp.linalg.norm(info.feature - info.parent_feature, axis=-1)
    counted = info.offered & jnp.isfinite(distance)
    return _mean_by_kind(distance, info.kind, counted)


def _mean_by_kind(values: Array, kind: Array, counted: Array) -> Array:
    """Return the mean value for each `Kind`. Values for which `counted` is False are ignored."""
    where = (kind == jnp.arange(len(Kind))[:, None]) & counted
    return jnp.mean(jnp.broadcast_to(values, where.shape), axis=-1, where=where)


class Generation(NamedTuple):
    """The metrics of one generation, or the stacked metrics of G generations."""

    qd_score: Float[Array, "*G"]
    coverage: Float[Array, "*G"]
    max_fitness: Float[Array, "*G"]
    mean_fitness: Float[Array, "*G"]
    parent_distance: Float[Array, "*G kinds"]
    age: Float[Array, "*G kinds"]
    additions: Int[Array, "*G kinds"]
    resets: Int[Array, "*G reasons"]
    lifespans: Int[Array, "*G kinds"]
    ended: Int[Array, "*G kinds"]
    faults: Int[Array, "*G faults"]
    outside: Int[Array, "*G"]
    samples: Int[Array, "*G"]
    candidates: Int[Array, "*G"]


@in_32_bits
def measure(archive: Archive, info: Info, min_fitness: float = 0.0) -> Generation:
    """Compute the metrics of one generation.

    `age[kinds]` is the mean age of the lanes of each kind. `ended[kinds]` is the number of lanes that
    were reset in this generation. `lifespans[kinds]` is the sum of the ages of the reset lanes.
    """
    of_kind = info.kind == jnp.arange(len(Kind))[:, None]
    ended = of_kind & (info.reset != Reason.NONE)
    return Generation(
        **score(archive, min_fitness),
        parent_distance=parent_distance(info),
        age=_mean_by_kind(info.age, info.kind, jnp.ones_like(info.offered)),
        additions=info.additions,
        resets=jnp.sum(info.reset == jnp.arange(len(Reason))[:, None], axis=-1),
        lifespans=jnp.sum(jnp.where(ended, info.age, 0), axis=-1),
        ended=jnp.sum(ended, axis=-1),
        faults=info.faults,
        outside=info.outside,
        samples=info.ledger.samples,
        candidates=info.ledger.candidates,
    )


class Totals(NamedTuple):
    """Sums since the start of a run (int64), from which `accumulate` derives the cumulative columns."""

    samples: np.ndarray
    candidates: np.ndarray
    additions: np.ndarray
    resets: np.ndarray
    lifespans: np.ndarray
    ended: np.ndarray
    faults: np.ndarray
    outside: np.ndarray

    @classmethod
    def zero(cls) -> Totals:
        """Return the totals before the first generation."""
        shapes = {"additions": len(Kind), "resets": len(Reason), "lifespans": len(Kind)}
        shapes |= {"ended": len(Kind), "faults": len(Fault)}
        return cls(*(np.zeros(shapes.get(name, ()), np.int64) for name in cls._fields))


def accumulate(totals: Totals, measured: Generation) -> tuple[Totals, dict[str, np.ndarray]]:
    """Convert the stacked metrics of G generations to the columns of `metrics.csv`, each [G].

    The columns `samples`, `candidates`, `evaluations` (their sum), `resets_*`, `share_*`, `lifespan_*`,
    `faults_*` and `outside_bounds` are cumulative from the start of the run. All other columns refer to
    single generations. Means over empty sets are NaN.

    Returns:
        The totals after these generations, and the columns by name.
    """
    so_far = Totals(
        *(
            total + np.cumsum(np.asarray(getattr(measured, name), np.int64), axis=0)
            for name, total in zip(Totals._fields, totals, strict=True)
        )
    )
    with np.errstate(invalid="ignore"):
        share = so_far.additions / so_far.additions.sum(axis=1, keepdims=True)
        lifespan = so_far.lifespans / so_far.ended

    columns = {
        "evaluations": so_far.samples + so_far.candidates,
        "samples": so_far.samples,
        "candidates": so_far.candidates,
    }
    for name in ("qd_score", "coverage", "max_fitness", "mean_fitness"):
        columns[name] = np.asarray(getattr(measured, name))
    for kind in Kind:
        columns[f"added_{kind.name.lower()}"] = np.asarray(measured.additions)[:, kind]
        columns[f"share_{kind.name.lower()}"] = share[:, kind]
    for kind in LANE_KINDS:
        columns[f"age_{kind.name.lower()}"] = np.asarray(measured.age)[:, kind]
        columns[f"lifespan_{kind.name.lower()}"] = lifespan[:, kind]
    for reason in Reason:
        if reason is not Reason.NONE:
            columns[f"resets_{reason.name.lower()}"] = so_far.resets[:, reason]
    for kind in Kind:
        columns[f"parent_distance_{kind.name.lower()}"] = np.asarray(measured.parent_distance)[:, kind]
    for fault in Fault:
        columns[f"faults_{fault.name.lower()}"] = so_far.faults[:, fault]
    columns["outside_bounds"] = so_far.outside
    return Totals(*(total[-1] for total in so_far)), columns


@cache
def column_kinds() -> dict[str, str]:
    """Return the type of each column of `accumulate`: "i" for integers and "f" for other numbers."""
    kinds = np.zeros((1, len(Kind)))
    zeros: dict[str, Any] = {name: np.zeros(1) for name in Generation._fields}
    zeros |= {"parent_distance": kinds, "age": kinds}
    zeros |= {name: zero[None] for name, zero in Totals.zero()._asdict().items()}
    columns = accumulate(Totals.zero(), Generation(**zeros))[1]
    return {name: column.dtype.kind for name, column in columns.items()}
