"""What a claim is made of: relations between two samples of seeds, each with a verdict and its numbers.

*Above* means a higher median and a p-value below 0.05, after correction for all comparisons of a claim
on a task. *On par* means that the whole interval of the relative difference lies within 5%. A relation
is not reproduced only where the opposite is shown; what shows neither is inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from memes.analysis.statistics import Estimate, corrected_p, interval, rank_sum, relative_difference
from memes.reproduce.quantities import Of, Runs

SIGNIFICANT = 0.05
MARGIN = 0.05
FEWEST = 3  # seeds that can show what most or none of the seeds have


class Verdict(StrEnum):
    """What runs say of a claim."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTED = "not tested"


class Outcome(NamedTuple):
    """A verdict, and a line for each number behind it."""

    verdict: Verdict
    numbers: tuple[str, ...]


# (runs, comparisons that the p-values are corrected for) -> what they say
Check = Callable[[Runs, int], Outcome]


def above(a: Of, b: Of) -> Check:
    """`a` is above `b`."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        compared = _compared(a, b, runs, comparisons)
        significant = compared.p < SIGNIFICANT
        return compared.outcome(
            shown=significant and compared.higher, refuted=significant and not compared.higher
        )

    return check


def on_par(a: Of, b: Of, within: float = MARGIN) -> Check:
    """`a` and `b` differ by no more than so much of `b`."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        compared = _compared(a, b, runs, comparisons)
        low, high = compared.difference.low, compared.difference.high
        return compared.outcome(
            shown=-within <= low and high <= within, refuted=low > within or high < -within
        )

    return check


def at_least(a: Of, b: Of, within: float = MARGIN) -> Check:
    """`a` is above `b` or on par with it: even the low end of the interval is hardly below."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        compared = _compared(a, b, runs, comparisons)
        shown = compared.difference.low >= -within
        refuted = compared.p < SIGNIFICANT and not compared.higher and not shown
        return compared.outcome(shown=shown, refuted=refuted)

    return check


def at_most(a: Of, b: Of, more: float) -> Check:
    """`a` exceeds `b` by at most such a share of it."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        compared = _compared(a, b, runs, comparisons)
        difference = compared.difference
        return compared.outcome(shown=difference.high <= more, refuted=difference.low > more)

    return check


def below(a: Of, limit: float) -> Check:
    """The median of `a` is below a number."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        del comparisons
        estimate = interval(a.values(runs))
        line = f"{a.words}: {a.label} {_shown(estimate)}, to be below {limit:g}"
        return _outcome(estimate.n, line, shown=estimate.high < limit, refuted=estimate.low >= limit)

    return check


def most_have(a: Of) -> Check:
    """More than half of the seeds have some; refuted if none has."""
    return _having(a, shown=lambda share: share > 0.5, refuted=lambda share: share == 0)


def none_has(a: Of) -> Check:
    """No seed has any; refuted if more than half have."""
    return _having(a, shown=lambda share: share == 0, refuted=lambda share: share > 0.5)


def _having(a: Of, shown: Callable[[float], bool], refuted: Callable[[float], bool]) -> Check:
    def check(runs: Runs, comparisons: int) -> Outcome:
        del comparisons
        values = a.values(runs)
        having = int(np.sum(values > 0))
        line = f"{a.words}: {a.label} in {having} of {values.size} seeds"
        share = having / max(values.size, 1)
        enough = values.size >= FEWEST
        return _outcome(
            values.size, line, shown=enough and shown(share), refuted=enough and refuted(share)
        )

    return check


def noted(check: Check, line: str) -> Check:
    """The check, with a further line."""

    def check_and_note(runs: Runs, comparisons: int) -> Outcome:
        outcome = check(runs, comparisons)
        return outcome._replace(numbers=(*outcome.numbers, line))

    return check_and_note


def does_not_apply(reason: str) -> Check:
    """Nothing to be tested."""
    return lambda runs, comparisons: Outcome(Verdict.NOT_TESTED, (reason,))


def all_of(checks: Sequence[Check], runs: Runs) -> Outcome:
    """What runs say of several checks that must all hold; p-values are corrected for their number.

    One that is refuted refutes all. Where nothing could be tested, nothing is; where only some could,
    the rest cannot be conclusive.
    """
    outcomes = [check(runs, len(checks)) for check in checks]
    verdicts = {outcome.verdict for outcome in outcomes}
    numbers = tuple(line for outcome in outcomes for line in outcome.numbers)
    if len(verdicts) == 1:
        return Outcome(verdicts.pop(), numbers)
    refuted = Verdict.NOT_REPRODUCED in verdicts
    return Outcome(Verdict.NOT_REPRODUCED if refuted else Verdict.INCONCLUSIVE, numbers)


class _Compared(NamedTuple):
    """Two samples side by side: the line about them, the corrected p-value, and their difference."""

    n: int
    line: str
    p: float
    higher: bool
    difference: Estimate

    def outcome(self, *, shown: bool, refuted: bool) -> Outcome:
        return _outcome(self.n, self.line, shown=shown, refuted=refuted)


def _compared(a: Of, b: Of, runs: Runs, comparisons: int) -> _Compared:
    one, other = a.values(runs), b.values(runs)
    first, second = interval(one), interval(other)
    difference = relative_difference(one, other)
    p = corrected_p(rank_sum(one, other), comparisons)
    line = f"{a.words}: {a.label} {_shown(first)} against {b.label} {_shown(second)}"
    if a.label == b.label:
        line = f"{a.label}: {a.words} {_shown(first)} against {b.words} {_shown(second)}"
    if min(first.n, second.n) == 0:
        missing = " and ".join(of.label for of, n in ((a, first.n), (b, second.n)) if n == 0)
        line = f"{line}: {missing} not run, or without such a number"
    else:
        if math.isfinite(difference.value):
            line += f": {difference.value:+.1%}"
        if math.isfinite(difference.low):
            line += f" [{difference.low:+.1%}, {difference.high:+.1%}]"
        if math.isfinite(p):
            line += f", p = {p:.2g}"
    return _Compared(min(first.n, second.n), line, p, first.value > second.value, difference)


def _outcome(n: int, line: str, *, shown: bool, refuted: bool) -> Outcome:
    if n == 0:
        return Outcome(Verdict.NOT_TESTED, (line,))
    verdict = Verdict.REPRODUCED if shown else Verdict.INCONCLUSIVE
    return Outcome(Verdict.NOT_REPRODUCED if refuted else verdict, (line,))


def _shown(estimate: Estimate) -> str:
    if estimate.n == 0:
        return "-"
    span = f" [{estimate.low:.4g}, {estimate.high:.4g}]" if math.isfinite(estimate.low) else ""
    return f"{estimate.value:.4g}{span} (n={estimate.n})"
