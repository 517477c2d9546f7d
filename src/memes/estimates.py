"""Estimates: what is believed of a genotype that was evaluated several times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
from jax import Array

from memes.archive import LIMIT
from memes.errors import at_least
from memes.task import Evaluation
from memes.validation import check_fields

# `(values, axis=) -> summary`. It sees NaN where an evaluation was not finite.
Statistic = Callable[..., Array]
# By name. They leave out evaluations that were not finite.
STATISTICS: dict[str, Statistic] = {"median": jnp.nanmedian, "mean": jnp.nanmean}


@dataclass(frozen=True)
class Candidates:
    """How candidates for the archive are judged.

    Attributes:
        candidate_samples: Evaluations of each mean that is offered to the archive; 1 is the paper's.
        candidate_statistic: What is believed of them, for the fitness and for each feature: their median
            or their mean. In Python also a function such as `jnp.nanmedian`.
    """

    candidate_samples: int = 1
    candidate_statistic: Literal["median", "mean"] | Statistic = "median"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, candidate_samples=self.candidate_samples)

    def judge(self, each: Evaluation) -> Evaluation:
        """Estimate candidates from their evaluations, those of one candidate in a row."""
        if self.candidate_samples == 1:
            return each
        named = self.candidate_statistic
        statistic = STATISTICS[named] if isinstance(named, str) else named
        return estimate(by_genotype(each, self.candidate_samples), statistic)


def by_genotype(each: Evaluation, samples: int) -> Evaluation:
    """Give the evaluations of each genotype an axis of their own; NaN where they are not finite."""

    def split(values: Array) -> Array:
        values = jnp.where(jnp.abs(values) < LIMIT, values, jnp.nan)
        return values.reshape(-1, samples, *values.shape[1:])

    return Evaluation(split(each.fitness), split(each.feature))


def estimate(each: Evaluation, statistic: Statistic) -> Evaluation:
    """Summarise evaluations `by_genotype`: fitness [n, m] and feature [n, m, k] to [n] and [n, k]."""
    return Evaluation(statistic(each.fitness, axis=1), statistic(each.feature, axis=1))
