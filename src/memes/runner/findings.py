"""Findings: problems with a task that are found by evaluating random genotypes.

`memes.check` evaluates a few genotypes to find such problems. A run looks for the same problems in the
evaluations of its first generation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax.interpreters import partial_eval
from jaxtyping import Float

from memes.archive import Fault, faults, finite, outside
from memes.cells import Cells
from memes.task import Evaluation, Task, evaluate, initial

FAULTS = {Fault.NAN: "not a number", Fault.INFINITE: "infinite", Fault.ABSURD: "of absurd size"}
# Some problems are reported only if they affect more than this share of the evaluations.
SHARE = 0.05
# Suggested bounds exceed the range of the features on each side by this share of the range.
MARGIN = 0.1
# Bounds are suggested only if there are at least `LEAST` evaluations.
LEAST = 8
# A min_fitness is too low if the lowest fitness exceeds it by more than `VAST` times the range of the
# fitness values. A feature diverges if its range is more than `VAST` times its interquartile range.
VAST = 1000.0


class Finding(NamedTuple):
    """A finding about a task.

    Attributes:
        topic: Topic of the finding: "faults", "bounds", "noise" or "min_fitness".
        sentence: Message that describes the problem, what was observed, and what to do.
        fatal: Whether a run of the task would be meaningless.
    """

    topic: str
    sentence: str
    fatal: bool = False


@dataclass(frozen=True, eq=False)
class Observations:
    """A summary of evaluations of random genotypes, from which findings are derived.

    Attributes:
        evaluations: Number of evaluations.
        faults: Number of invalid evaluations, by `Fault`.
        outside: Number of evaluations with features outside the bounds.
        fitness: Fitness of m valid evaluations.
        feature: Features of the same m evaluations.
        noisy: Whether repeated evaluations of a genotype can differ, or None if unknown.
    """

    evaluations: int
    faults: tuple[int, ...]
    outside: int
    fitness: Float[np.ndarray, " m"] = field(repr=False)
    feature: Float[np.ndarray, "m k"] = field(repr=False)
    noisy: bool | None = None

    @property
    def usable(self) -> int:
        """Number of valid evaluations."""
        return self.evaluations - sum(self.faults)


def observe(evaluation: Evaluation, cells: Cells, noisy: bool | None = None) -> Observations:
    """Summarise evaluations for an archive with the given cells."""
    usable = np.asarray(finite(evaluation))
    return Observations(
        evaluations=len(usable),
        faults=tuple(np.asarray(faults(evaluation)).tolist()),
        outside=int(outside(evaluation, cells)),
        fitness=np.asarray(evaluation.fitness)[usable],
        feature=np.asarray(evaluation.feature)[usable],
        noisy=noisy,
    )


def findings(task: Task, seen: Observations) -> list[Finding]:
    """Return the findings that follow from observations, or an empty list if there are no problems."""
    return [*_faults(task, seen), *_bounds(task, seen), *_noise(task, seen), *_min_fitness(task, seen)]


def _faults(task: Task, seen: Observations) -> Iterator[Finding]:
    counts = zip(FAULTS.values(), seen.faults, strict=True)
    what = " and ".join(f"{count:,} are {words}" for words, count in counts if count)
    if seen.usable == 0:
        yield Finding(
            "faults",
            f"evaluate of task '{task.name}' returned no valid result for {seen.evaluations:,} random "
            f"genotypes: {what}; a run would find no elite; correct the fitness and the feature that "
            "evaluate returns",
            fatal=True,
        )
    elif what:
        yield Finding(
            "faults",
            f"among {seen.evaluations:,} evaluations of task '{task.name}', {what}: such evaluations "
            "are left out and counted",
        )


def _bounds(task: Task, seen: Observations) -> Iterator[Finding]:
    if seen.outside > SHARE * seen.usable:
        outside = (
            f"{seen.outside / seen.usable:.0%} of the features lie outside feature_low and "
            f"feature_high of task '{task.name}' and are assigned to cells at the edge"
        )
        if len(seen.feature):
            outside += f"; {_remedy(seen.feature.astype(float))}"
        yield Finding("bounds", outside)


def _remedy(feature: Float[np.ndarray, "m k"]) -> str:
    """Return text that suggests bounds, or that reports a feature with a few extreme values."""
    if len(feature) < LEAST:
        return "'memes check' suggests bounds that fit"
    low, middle, upper, high = np.quantile(feature, (0, 0.25, 0.75, 1), axis=0)
    vast = (high - low > VAST * (upper - middle)) & (upper > middle)
    if vast.any():
        i = int(np.argmax(vast))
        return (
            f"feature {i + 1} reaches {low[i]:.3g} and {high[i]:.3g}, but half of its values lie within "
            f"{middle[i]:.3g} to {upper[i]:.3g}: check evaluate for a simulation that diverges"
        )
    return "bounds that fit are feature_low={}, feature_high={}".format(*fitting_bounds(feature))


def fitting_bounds(
    feature: Float[np.ndarray, "m k"],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return suggested bounds: the range of the features, enlarged by a margin and rounded outwards."""
    low, high = feature.min(axis=0).astype(float), feature.max(axis=0).astype(float)
    unit = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0)) * MARGIN
    step = 10.0 ** np.floor(np.log10(unit))
    low, high = np.floor((low - unit) / step) * step, np.ceil((high + unit) / step) * step
    # The bounds are formatted as text and parsed, because a product such as 0.1 * 3 has many digits.
    short_low, short_high = (tuple(float(f"{x:.6g}") for x in bound) for bound in (low, high))
    return short_low, short_high


def _noise(task: Task, seen: Observations) -> Iterator[Finding]:
    if seen.noisy and not task.uncertain:
        yield Finding(
            "noise",
            f"task '{task.name}' evaluates equal genotypes differently, but has uncertain=False; with "
            "uncertain=True its archives are corrected",
        )
    if seen.noisy is False and task.uncertain:
        yield Finding(
            "noise",
            f"evaluations of equal genotypes by task '{task.name}' are equal, but it has "
            "uncertain=True; with uncertain=False no elite is re-evaluated",
        )


def _min_fitness(task: Task, seen: Observations) -> Iterator[Finding]:
    if not len(seen.fitness):
        return
    least, most, given = float(seen.fitness.min()), float(seen.fitness.max()), float(task.min_fitness)
    below = float(np.mean(seen.fitness < given))
    if most <= given:
        yield Finding(
            "min_fitness",
            f"no fitness of task '{task.name}' exceeds its min_fitness, {given:g}: values are "
            f"{least:.4g} to {most:.4g}, and the QD-score is 0; set min_fitness to the lowest "
            "fitness that the task can have",
        )
    elif below > SHARE:
        yield Finding(
            "min_fitness",
            f"{below:.0%} of the fitness values lie below min_fitness of task '{task.name}', {given:g}, "
            f"and add nothing to the QD-score; the lowest was {least:.4g}",
        )
    elif most > least and least - given > VAST * (most - least):
        yield Finding(
            "min_fitness",
            f"min_fitness of task '{task.name}', {given:g}, is far below the fitness values, "
            f"{least:.4g} to {most:.4g}: the QD-score will measure little more than coverage",
        )


def uses_keys(task: Task) -> bool:
    """Return True if the program of a compiled task uses its random keys. The task is not evaluated."""

    def results(keys: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = evaluate(task, keys, x)
        return found.fitness, found.feature

    key = jax.eval_shape(lambda: jax.random.key(0))
    keys = jax.eval_shape(lambda key: jax.random.split(key, 2), key)
    x = jax.eval_shape(partial(initial, task, n=2), key)
    traced = jax.make_jaxpr(results)(keys, x).jaxpr
    _, used = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))
    return bool(used[0])
