"""Checks of the relations between results of algorithms. A claim consists of such relations.

A claim is *shown* only if all of its relations are shown. Therefore, a p-value that shows a relation is
not corrected (intersection-union test). A claim is *refuted* if at least one of its relations is
refuted. Therefore, a p-value that refutes a relation is corrected for the number of testable relations
of the claim on a task. A relation that is neither shown nor refuted is inconclusive.

*Above* means a higher median and p < 0.05. *On par* means that the confidence interval of the relative
difference lies entirely within +-5%.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec

import numpy as np

from memes.analysis.statistics import (
    SIGNIFICANT,
    Estimate,
    corrected_p,
    fisher,
    holm,
    interval,
    rank_sum,
    relative_difference,
    smallest_p,
)
from memes.reproduce.quantities import Evidence, Quantity

MARGIN = 0.05
# Minimum number of seeds for a confidence interval. Even the full range of n values contains the true
# median only with probability 1 - 2 ** (1 - n).
FEWEST = 5


class Verdict(StrEnum):
    """The verdict on a claim."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTED = "not tested"
    NOT_APPLICABLE = "not applicable"


class CheckResult(NamedTuple):
    """The result of testing one relation.

    Attributes:
        n: Smallest number of seeds in the relation, or 0 if the relation cannot be tested.
        line: Text with the compared numbers.
        labels: The labels that the relation compares.
        decide: `(comparisons) -> (shown, refuted)`, which decides whether the relation is shown and
            whether it is refuted. For refutation, p is corrected for the number of comparisons.
        p: Two-sided p-value without correction, or NaN if there are too few seeds.
        least_p: Smallest p-value that is possible with this number of seeds, or NaN if there are too few
            seeds to refute the relation.
        superior: Whether the p-value alone can show the relation.
        by_mean: Text with the numbers that result if archives are corrected with means instead of
            medians. This text does not affect the verdict.
    """

    n: int
    line: str
    labels: tuple[str, ...]
    decide: Callable[[int], tuple[bool, bool]]
    p: float = math.nan
    least_p: float = math.nan
    superior: bool = False
    by_mean: str = ""


class ClaimOutcome(NamedTuple):
    """The verdict on a claim, with the numbers on which it is based.

    Attributes:
        verdict: The verdict on the claim, which follows from all of its relations.
        numbers: One line of text per relation.
        seeds: Smallest number of seeds in any relation.
        labels: The compared labels.
        p: The p-value of the decisive relation, or NaN if there is no such relation. If relations are
            refuted, the decisive relation is the refuted relation with the smallest p-value. Otherwise,
            it is the relation with the largest p-value among the relations that a p-value alone can
            show.
        corrected_p: The same p-value, corrected for the number of testable relations.
        instead: The lines of the refuted relations, or of the inconclusive relations if none is refuted.
    """

    verdict: Verdict
    numbers: tuple[str, ...] = ()
    seeds: int = 0
    labels: tuple[str, ...] = ()
    p: float = math.nan
    corrected_p: float = math.nan
    instead: tuple[str, ...] = ()


Check = Callable[[Evidence], CheckResult]
How = ParamSpec("How")


class Compared(NamedTuple):
    """A comparison of two samples.

    Attributes:
        p: The p-value before correction.
        corrected_p: The p-value after correction.
        higher: Whether the median of the first sample is higher.
        low: Lower end of the confidence interval of the relative difference, or NaN if there are too few
            seeds.
        high: Upper end of this interval, or NaN if there are too few seeds.
    """

    p: float
    corrected_p: float
    higher: bool
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the corrected p-value is significant."""
        return self.corrected_p < SIGNIFICANT


def relation(
    decide: Callable[Concatenate[Compared, How], tuple[bool, bool]],
) -> Callable[Concatenate[Quantity, Quantity, How], Check]:
    """Convert a test `(compared, *how) -> (shown, refuted)` to a function `(a, b, *how) -> Check`."""

    @wraps(decide)
    def between_two(a: Quantity, b: Quantity, /, *how: How.args, **named: How.kwargs) -> Check:
        def check(evidence: Evidence) -> CheckResult:
            one, other = a.values(evidence), b.values(evidence)
            first, second, apart = interval(one), interval(other), relative_difference(one, other)
            if apart.n < FEWEST:
                apart = apart._replace(low=math.nan, high=math.nan)
            p, higher = rank_sum(one, other), first.value > second.value

            def decided(comparisons: int) -> tuple[bool, bool]:
                corrected = corrected_p(p, comparisons)
                return decide(Compared(p, corrected, higher, apart.low, apart.high), *how, **named)

            superior = decide in TESTS
            testable = superior or math.isfinite(apart.low)
            return CheckResult(
                apart.n,
                _line(a, b, first, second, apart),
                (a.label, b.label),
                decided,
                p,
                smallest_p(one.size, other.size) if testable else math.nan,
                superior,
                _by_mean(a.means(evidence), b.means(evidence)),
            )

        return check

    return between_two


def _above(found: Compared, level: float = SIGNIFICANT) -> tuple[bool, bool]:
    """Check that `a` has a higher median than `b`, with a p-value below `level`."""
    return found.p < level and found.higher, found.significant and not found.higher


def _no_significant_gain(found: Compared, most: float = MARGIN) -> tuple[bool, bool]:
    """Check that `a` does not differ significantly from `b`.

    The upper end of the confidence interval of the relative difference must be at most `most`.
    """
    return found.p >= SIGNIFICANT and found.high <= most, found.significant and found.higher


TESTS = (_above, _no_significant_gain)
above, no_significant_gain = map(relation, TESTS)


@relation
def on_par(found: Compared, within: float = MARGIN) -> tuple[bool, bool]:
    """Check that `a` and `b` are on par.

    The confidence interval of the relative difference between `a` and `b` must lie between `-within` and
    `within`.
    """
    outside = found.low > within or found.high < -within
    return -within <= found.low and found.high <= within, outside and found.significant


@relation
def at_least(found: Compared, within: float = MARGIN) -> tuple[bool, bool]:
    """Check that `a` is above `b` or on par with it.

    The lower end of the confidence interval of the relative difference must be at least `-within`.
    """
    lower = found.significant and not found.higher
    return found.low >= -within, lower and found.low < -within


@relation
def at_most(found: Compared, more: float) -> tuple[bool, bool]:
    """Check that the relative difference from `b` to `a` is at most `more`.

    The upper end of the confidence interval of the relative difference must be at most `more`.
    """
    return found.high <= more, found.significant and found.low > more


def between(a: Quantity, least: float, most: float = math.inf, said: str = "") -> Check:
    """Check that the confidence interval of the median of `a` lies between two numbers.

    `said` is text about the source of the numbers. It is appended to the text of the result.
    """

    def check(evidence: Evidence) -> CheckResult:
        found = interval(a.values(evidence))
        wanted = f"between {least:.4g} and {most:.4g}" if math.isfinite(most) else f"{least:.4g} or more"
        line = f"{a.words}: {a.label} {_shown(found)}, required: {wanted}{said}"
        enough = found.n >= FEWEST
        inside = enough and least <= found.low and found.high <= most
        outside = enough and (found.low > most or found.high < least)
        return CheckResult(
            found.n, line, (a.label,), lambda n: (inside, outside), least_p=0.0 if enough else math.nan
        )

    return check


def near(a: Quantity, number: float, within: float) -> Check:
    """Check that the median of `a` is near a number from the paper.

    The relative difference between the median and the number must be at most `within`.
    """
    return between(a, (1 - within) * number, (1 + within) * number, f" ({number:g} in the paper)")


def most_have(a: Quantity) -> Check:
    """Check that more than half of the seeds of `a` have a value above 0.

    The relation is refuted if no seed has a value above 0 and there are at least `FEWEST` seeds.
    """

    def check(evidence: Evidence) -> CheckResult:
        has = a.values(evidence) > 0
        share = has.mean() if has.size else 0.0
        enough = has.size >= FEWEST
        return CheckResult(
            has.size,
            f"{a.words}: {a.label} in {has.sum()} of {has.size} seeds",
            (a.label,),
            lambda n: (share > 0.5, enough and share == 0),
            least_p=0.0 if enough else math.nan,
        )

    return check


def have_more(a: Quantity, b: Quantity) -> Check:
    """Check that `a` has more seeds with positive values than `b`, or higher values than `b`.

    Fisher's test compares the numbers of seeds, and the rank-sum test compares the values.
    """

    def check(evidence: Evidence) -> CheckResult:
        one, other = a.values(evidence), b.values(evidence)
        n = min(one.size, other.size)
        having = [int((values > 0).sum()) for values in (one, other)]
        tests = fisher(having[0], one.size, having[1], other.size), rank_sum(one, other)
        p = min((p for p in tests if math.isfinite(p)), default=math.nan)
        more = n > 0 and ((one > 0).mean(), one.mean()) > ((other > 0).mean(), other.mean())
        sides = (a.label, one, having[0]), (b.label, other, having[1])
        counts = [
            f"{label} in {has} of {values.size} seeds ({', '.join(f'{v:g}' for v in values)})"
            for label, values, has in sides
        ]
        line = f"{a.words}: {' against '.join(counts)}"

        def decided(comparisons: int) -> tuple[bool, bool]:
            return p < SIGNIFICANT and more, corrected_p(p, comparisons) < SIGNIFICANT and not more

        return CheckResult(
            n, line, (a.label, b.label), decided, p, smallest_p(one.size, other.size), True
        )

    return check


def all_of(checks: Sequence[Check], evidence: Evidence, family: bool = False) -> ClaimOutcome:
    """Return the outcome of a claim that requires several relations.

    A single refuted relation refutes the claim. If no relation can be tested, the claim is not tested.
    If only some relations can be tested, the claim cannot be shown.

    If `family` is True, each relation is also a separate result. In this case, Holm's method corrects
    all p-values, including p-values that show a relation. The correction also counts relations that
    cannot be tested.
    """
    if not checks:
        return ClaimOutcome(Verdict.NOT_APPLICABLE)
    findings = [check(evidence) for check in checks]
    ps = [found.p for found in findings]
    comparisons = max(1, sum(math.isfinite(found.least_p) for found in findings))
    corrected = [corrected_p(p, comparisons) for p in ps]
    verdicts = [_verdict(found, comparisons) for found in findings]
    if family:
        comparisons = len(findings)
        corrected = holm([p if math.isfinite(p) else 1.0 for p in ps])
        verdicts = [
            _verdict(found, 1) if not found.n or p < SIGNIFICANT else Verdict.INCONCLUSIVE
            for found, p in zip(findings, corrected, strict=True)
        ]
    numbers = [_with_p(found, p, comparisons) for found, p in zip(findings, corrected, strict=True)]
    verdict = verdicts[0] if len(set(verdicts)) == 1 else Verdict.INCONCLUSIVE
    instead = [n for n, each in zip(numbers, verdicts, strict=True) if each is Verdict.INCONCLUSIVE]
    with_p = [i for i, p in enumerate(ps) if math.isfinite(p)]
    decisive = max((i for i in with_p if findings[i].superior), key=ps.__getitem__, default=None)
    against = [i for i, each in enumerate(verdicts) if each is Verdict.NOT_REPRODUCED]
    if against:
        verdict, instead = Verdict.NOT_REPRODUCED, [numbers[i] for i in against]
        decisive = min((i for i in with_p if i in against), key=ps.__getitem__, default=None)
    least = [found.least_p for found in findings if math.isfinite(found.least_p)]
    if verdict is Verdict.INCONCLUSIVE and all(comparisons * p >= SIGNIFICANT for p in least):
        least_p = (
            f": the corrected p is at least {corrected_p(min(least), comparisons):.2g}" if least else ""
        )
        numbers.append(f"too few seeds to refute the claim{least_p}")
    return ClaimOutcome(
        verdict,
        tuple(numbers),
        min((found.n for found in findings if found.n), default=0),
        tuple(dict.fromkeys(label for found in findings for label in found.labels)),
        math.nan if decisive is None else ps[decisive],
        math.nan if decisive is None else corrected[decisive],
        tuple(instead),
    )


def _verdict(found: CheckResult, comparisons: int) -> Verdict:
    if found.n == 0:
        return Verdict.NOT_TESTED
    shown, refuted = found.decide(comparisons)
    verdict = Verdict.REPRODUCED if shown else Verdict.INCONCLUSIVE
    return Verdict.NOT_REPRODUCED if refuted else verdict


def _with_p(found: CheckResult, corrected: float, comparisons: int) -> str:
    if not math.isfinite(found.p):
        return found.line + found.by_mean
    words = f", {corrected:.2g} corrected" * (comparisons > 1)
    return f"{found.line}, p = {found.p:.2g}{words}{found.by_mean}"


def _by_mean(one: np.ndarray, other: np.ndarray) -> str:
    """Return text that compares two samples of values from archives that were corrected by means."""
    if not (one.size and other.size):
        return ""
    apart, p = relative_difference(one, other).value, rank_sum(one, other)
    tested = f", p = {p:.2g}" * math.isfinite(p)
    return (
        f" (corrected by means: {np.median(one):.4g} against {np.median(other):.4g}: "
        f"{apart:+.1%}{tested})"
    )


def _line(a: Quantity, b: Quantity, first: Estimate, second: Estimate, apart: Estimate) -> str:
    line = f"{a.words}: {a.label} {_shown(first)} against {b.label} {_shown(second)}"
    if a.label == b.label:
        line = f"{a.label}: {a.words} {_shown(first)} against {b.words} {_shown(second)}"
    missing = dict.fromkeys(of.label for of, found in ((a, first), (b, second)) if not found.n)
    if missing:
        line += f": {' and '.join(missing)} not run, or without this number"
    if math.isfinite(apart.value):
        line += f": {apart.value:+.1%}"
    if math.isfinite(apart.low):
        line += f" [{apart.low:+.1%}, {apart.high:+.1%}]"
    return line


def _shown(estimate: Estimate) -> str:
    if estimate.n == 0:
        return "-"
    span = f" [{estimate.low:.4g}, {estimate.high:.4g}]" if math.isfinite(estimate.low) else ""
    return f"{estimate.value:.4g}{span} (n={estimate.n})"
