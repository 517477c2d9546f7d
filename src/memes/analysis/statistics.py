"""Statistics for small numbers of seeds: bootstrap intervals and tests.

The functions ignore values that are not finite. If too few values remain, they return NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

# `scipy.stats` is imported inside functions, because importing it is slow and the figures of a run do
# not need it.

LEVEL = 0.95
SIGNIFICANT = 0.05
RESAMPLES = 20_000  # With fewer resamples, intervals would depend visibly on the random numbers.
EXACT = 25  # Largest number of values per sample for which the rank-sum test is exact.


class Estimate(NamedTuple):
    """A statistic of `n` values, and its interval. The interval is NaN for fewer than two values."""

    value: float
    low: float
    high: float
    n: int


def interval(values: ArrayLike, statistic: Callable[..., np.ndarray] = np.median) -> Estimate:
    """Compute a statistic of values [n] and its 95% bootstrap interval.

    The statistic is a function `(values, axis=...)`.
    """
    return _estimate(statistic, values)


def relative_difference(a: ArrayLike, b: ArrayLike) -> Estimate:
    """Compute the relative difference between the medians of `a[n]` and `b[m]`, and its interval.

    The interval is computed by resampling both `a` and `b`. The result is NaN if the median of `b` is 0.
    """

    def difference(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        first, second = np.median(a, axis=axis), np.median(b, axis=axis)
        return np.asarray((first - second) / np.where(second == 0, np.nan, np.abs(second)))

    return _estimate(difference, a, b)


def _estimate(statistic: Callable[..., np.ndarray], *samples: ArrayLike) -> Estimate:
    """Compute a statistic and its bootstrap interval. The seed is fixed, so tables can be reproduced."""
    found = [_finite(values) for values in samples]
    n = min(values.size for values in found)
    value = float(statistic(*found, axis=-1)) if n else math.nan
    if n < 2 or not math.isfinite(value):
        return Estimate(value, math.nan, math.nan, n)
    from scipy import stats

    ends = stats.bootstrap(
        found,
        statistic,
        vectorized=True,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(value, float(ends.low), float(ends.high), n)


def interquartile_mean(values: ArrayLike, axis: int = -1) -> np.ndarray:
    """Compute the mean without the lowest and the highest quarter of the values.

    The number of values in a quarter is rounded down.
    """
    from scipy import stats

    return np.asarray(stats.trim_mean(np.asarray(values), 0.25, axis=axis))


def rank_sum(a: ArrayLike, b: ArrayLike) -> float:
    """Compute the two-sided p-value of the Wilcoxon rank-sum test for the samples `a[n]` and `b[m]`.

    The test is exact if there are no ties and each sample has at most 25 values. Otherwise, the test
    uses a normal approximation. The result is NaN if a sample has fewer than two values.
    """
    one, other = _finite(a), _finite(b)
    if min(one.size, other.size) < 2:
        return math.nan
    both = np.concatenate([one, other])
    if np.ptp(both) == 0:
        return 1.0  # all values are equal
    from scipy import stats

    exact = np.unique(both).size == both.size and max(one.size, other.size) <= EXACT
    return float(stats.mannwhitneyu(one, other, method="exact" if exact else "asymptotic").pvalue)


def fisher(a: int, of_a: int, b: int, of_b: int) -> float:
    """Compute the two-sided p-value of Fisher's exact test for the shares `a / of_a` and `b / of_b`.

    The result is NaN if `of_a` or `of_b` is less than 2.
    """
    if min(of_a, of_b) < 2:
        return math.nan
    from scipy import stats

    return float(stats.fisher_exact([[a, of_a - a], [b, of_b - b]]).pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons by Holm's method. NaN values are ignored."""
    order = sorted((i for i, p in enumerate(ps) if math.isfinite(p)), key=lambda i: ps[i])
    corrected, largest = [math.nan] * len(ps), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * ps[i]))
        corrected[i] = largest
    return corrected


def corrected_p(p: float, comparisons: int) -> float:
    """Correct a p-value for multiple comparisons by Bonferroni's method."""
    return min(1.0, p * comparisons) if math.isfinite(p) else math.nan


def smallest_p(n: int, m: int) -> float:
    """Compute the smallest p-value that `rank_sum` can return for n and m values without ties."""
    return 2 / math.comb(n + m, n) if min(n, m) >= 2 else math.nan


def _finite(values: ArrayLike) -> np.ndarray:
    array: np.ndarray = np.asarray(values, dtype=float).ravel()
    finite: np.ndarray = array[np.isfinite(array)]
    return finite
