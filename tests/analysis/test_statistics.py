import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memes.analysis.statistics import (
    corrected_p,
    fisher,
    holm,
    interquartile_mean,
    interval,
    rank_sum,
    relative_difference,
    smallest_p,
)


def permutation_p(a, b):
    """Compute the exact two-sided p-value of the rank-sum test from all possible rank sums."""
    both = np.concatenate([a, b])
    ranks = both.argsort().argsort() + 1
    middle = len(a) * (len(both) + 1) / 2
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, len(a))]
    found = abs(ranks[: len(a)].sum() - middle)
    return np.mean([abs(total - middle) >= found for total in sums])


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(2, 5), st.integers(0, 2**31))
def test_rank_sum_counts_arrangements(n, m, seed):
    values = np.random.default_rng(seed).permutation(n + m).astype(float)
    a, b = values[:n], values[n:]
    assert rank_sum(a, b) == pytest.approx(permutation_p(a, b))
    assert rank_sum(a, b) == pytest.approx(rank_sum(b, a))
    assert rank_sum(a, b) >= smallest_p(n, m) - 1e-12


def test_fully_separated_samples_have_the_smallest_p():
    assert rank_sum([1, 2, 3], [4, 5, 6]) == pytest.approx(smallest_p(3, 3))
    assert smallest_p(3, 3) == pytest.approx(0.1)
    assert rank_sum(np.arange(10), np.arange(10) + 100) == pytest.approx(2 / 184756)


def test_tied_samples_have_p_1():
    assert rank_sum([1, 1, 1], [1, 1, 1]) == 1
    assert rank_sum([1, 1, 2], [1, 1, 2]) == pytest.approx(1)


def test_statistics_of_one_seed_are_nan():
    assert math.isnan(rank_sum([1.0], [2.0, 3.0]))
    assert math.isnan(smallest_p(1, 5))
    assert math.isnan(corrected_p(math.nan, 3))
    one = interval([4.0])
    assert (one.value, one.n) == (4.0, 1)
    assert math.isnan(one.low)
    assert math.isnan(one.high)
    none = interval([math.nan])
    assert math.isnan(none.value)
    assert none.n == 0
    difference = relative_difference([2.0], [1.0, 1.0])
    assert difference.value == 1
    assert math.isnan(difference.low)


def test_bonferroni_multiplies_up_to_one():
    assert corrected_p(0.01, 3) == pytest.approx(0.03)
    assert corrected_p(0.4, 3) == 1


def test_interval_contains_the_median_and_is_deterministic():
    values = np.random.default_rng(0).normal(5, 1, 10)
    found = interval(values)
    assert found.value == np.median(values)
    assert values.min() <= found.low < found.value < found.high <= values.max()
    assert found == interval(values)
    assert interval([*values, math.nan]) == found
    assert interval([3.0, 3.0, 3.0])[:3] == (3, 3, 3)


def test_interval_has_about_its_nominal_coverage():
    rng = np.random.default_rng(1)
    draws = rng.normal(0, 1, (150, 20))
    held = [low <= 0 <= high for _, low, high, _ in (interval(x, np.mean) for x in draws)]
    assert 0.86 < np.mean(held) < 0.99


def test_interquartile_mean_excludes_a_quarter_at_each_end():
    assert interquartile_mean([0, 1, 2, 3, 100, 5, 6, -50]) == pytest.approx((1 + 2 + 3 + 5) / 4)
    rows = np.arange(24.0).reshape(3, 8)
    np.testing.assert_allclose(interquartile_mean(rows, axis=-1), rows.mean(axis=1))


def test_relative_difference_is_of_the_medians():
    a, b = np.array([10, 11, 12, 13, 14.0]), np.array([9, 10, 10, 11, 20.0])
    found = relative_difference(a, b)
    assert found.value == pytest.approx((12 - 10) / 10)
    assert found.low < found.value < found.high
    assert (found.low, found.high) != relative_difference(b, a)[1:3]
    below = relative_difference(-a, -b)
    assert below.value == pytest.approx(-0.2)
    assert math.isnan(relative_difference(a, b - 10).value)


def test_relative_difference_has_a_narrow_interval_for_similar_samples():
    rng = np.random.default_rng(2)
    a, b = rng.normal(100, 1, 10), rng.normal(100, 1, 10)
    _, low, high, _ = relative_difference(a, b)
    assert -0.05 < low < high < 0.05


def test_fisher_sums_the_tables_that_are_at_most_as_likely():
    """In 10 of the 210 ways to choose four of ten runs, all four are from the same group of five."""
    assert fisher(4, 5, 0, 5) == pytest.approx(10 / 210)
    assert fisher(2, 3, 0, 3) == pytest.approx(0.4)
    assert np.isnan(fisher(1, 1, 0, 5))


def test_holm_multiplies_the_smallest_p_by_the_count_and_never_decreases():
    assert holm([0.03, 0.01, np.nan, 0.02]) == pytest.approx([0.04, 0.03, np.nan, 0.04], nan_ok=True)
    assert holm([0.9, 0.5]) == [1.0, 1.0]
    assert holm([]) == []
