"""Parts of a claim: relations between two samples of seeds, each with a verdict and its numbers.

A claim needs all of its relations, so each is *shown* by its own p-value: an intersection-union test. To
*refute* one is enough, so there p-values are corrected for all comparisons of the claim on a task.
*Above* means a higher median and p < 0.05. *On par* means that the whole interval of the relative
difference lies within 5%. What is neither shown nor refuted is inconclusive.
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
FEWEST_OF_INTERVAL = 5  # even the range of n values covers their median with 1 - 2 ** (1 - n) only


class Verdict(StrEnum):
    """A judgement of runs on a claim."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTED = "not tested"


class Outcome(NamedTuple):
    """A verdict, a line for each number behind it, and the fewest seeds that any of them is of."""

    verdict: Verdict
    numbers: tuple[str, ...]
    seeds: int = 0


# (runs, comparisons that the p-values are corrected for) -> what they say
Check = Callable[[Runs, int], Outcome]


def above(a: Of, b: Of, level: float = SIGNIFICANT) -> Check:
    """`a` is above `b`, with a p-value below a level."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        compared = _compared(a, b, runs, comparisons)
        return compared.outcome(
            shown=compared.p < level and compared.higher,
            refuted=compared.corrected_p < level and not compared.higher,
        )

    return check


def on_par(a: Of, b: Of, within: float = MARGIN) -> Check:
    """`a` and `b` differ by no more than so much of `b`."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        compared = _compared(a, b, runs, comparisons)
        low, high = compared.difference.low, compared.difference.high
        outside = low > within or high < -within
        return compared.outcome(
            shown=-within <= low and high <= within,
            refuted=outside and compared.corrected_p < SIGNIFICANT,
        )

    return check


def at_least(a: Of, b: Of, within: float = MARGIN) -> Check:
    """`a` is above `b` or on par with it: even the low end of the interval is hardly below."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        compared = _compared(a, b, runs, comparisons)
        low = compared.difference.low
        lower = compared.corrected_p < SIGNIFICANT and not compared.higher
        return compared.outcome(shown=low >= -within, refuted=lower and low < -within)

    return check


def at_most(a: Of, b: Of, more: float) -> Check:
    """`a` exceeds `b` by at most such a share of it."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        compared = _compared(a, b, runs, comparisons)
        low, high = compared.difference.low, compared.difference.high
        refuted = low > more and compared.corrected_p < SIGNIFICANT
        return compared.outcome(shown=high <= more, refuted=refuted)

    return check


def between(a: Of, least: float, most: float, said: str = "") -> Check:
    """The median of `a` lies between two numbers, as far as its interval tells; `said` is why these."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        del comparisons
        found = interval(a.values(runs))
        enough = found.n >= FEWEST_OF_INTERVAL
        return _outcome(
            found.n,
            f"{a.words}: {a.label} {_shown(found)}, to lie between {least:.4g} and {most:.4g}{said}",
            shown=enough and least <= found.low and found.high <= most,
            refuted=enough and (found.low > most or found.high < least),
        )

    return check


def near(a: Of, number: float, within: float) -> Check:
    """The median of `a` differs from a number of the paper by no more than such a share of it."""
    return between(a, (1 - within) * number, (1 + within) * number, f" ({number:g} in the paper)")


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


def where_run(check_of: Callable[[str], Check], labels: Sequence[str]) -> Check:
    """Check each label that has runs, all of which must hold; a line names those that have none."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        del comparisons
        outcome = all_of([check_of(label) for label in labels if runs.get(label)], runs)
        missing = ", ".join(label for label in labels if not runs.get(label))
        return outcome._replace(numbers=(*outcome.numbers, *[f"not run: {missing}"] * bool(missing)))

    return check


def does_not_apply(reason: str) -> Check:
    """Nothing to be tested."""
    return lambda runs, comparisons: Outcome(Verdict.NOT_TESTED, (reason,))


def all_of(checks: Sequence[Check], runs: Runs) -> Outcome:
    """Judge several checks that must all hold.

    One that is refuted refutes all. Where nothing could be tested, nothing is; where only some could,
    the rest cannot be conclusive.
    """
    outcomes = [check(runs, len(checks)) for check in checks]
    verdicts = {outcome.verdict for outcome in outcomes}
    numbers = tuple(line for outcome in outcomes for line in outcome.numbers)
    seeds = min((outcome.seeds for outcome in outcomes if outcome.seeds), default=0)
    if len(verdicts) <= 1:
        return Outcome(next(iter(verdicts), Verdict.NOT_TESTED), numbers, seeds)
    refuted = Verdict.NOT_REPRODUCED in verdicts
    return Outcome(Verdict.NOT_REPRODUCED if refuted else Verdict.INCONCLUSIVE, numbers, seeds)


class _Compared(NamedTuple):
    """Two samples side by side: the line about them, p before and after correction, their difference.

    The difference has no interval where there are too few seeds for one.
    """

    n: int
    line: str
    p: float
    corrected_p: float
    higher: bool
    difference: Estimate

    def outcome(self, *, shown: bool, refuted: bool) -> Outcome:
        return _outcome(self.n, self.line, shown=shown, refuted=refuted)


def _compared(a: Of, b: Of, runs: Runs, comparisons: int) -> _Compared:
    one, other = a.values(runs), b.values(runs)
    first, second = interval(one), interval(other)
    difference = relative_difference(one, other)
    if difference.n < FEWEST_OF_INTERVAL:
        difference = difference._replace(low=math.nan, high=math.nan)
    p = rank_sum(one, other)
    corrected = corrected_p(p, comparisons)
    line = f"{a.words}: {a.label} {_shown(first)} against {b.label} {_shown(second)}"
    if a.label == b.label:
        line = f"{a.label}: {a.words} {_shown(first)} against {b.words} {_shown(second)}"
    if min(first.n, second.n) == 0:
        unknown = [of.label for of, n in ((a, first.n), (b, second.n)) if n == 0]
        missing = " and ".join(dict.fromkeys(unknown))
        line = f"{line}: {missing} not run, or without such a number"
    else:
        if math.isfinite(difference.value):
            line += f": {difference.value:+.1%}"
        if math.isfinite(difference.low):
            line += f" [{difference.low:+.1%}, {difference.high:+.1%}]"
        if math.isfinite(p):
            line += f", p = {p:.2g}" + f", {corrected:.2g} corrected" * (comparisons > 1)
    higher = first.value > second.value
    return _Compared(min(first.n, second.n), line, p, corrected, higher, difference)


def _outcome(n: int, line: str, *, shown: bool, refuted: bool) -> Outcome:
    if n == 0:
        return Outcome(Verdict.NOT_TESTED, (line,))
    verdict = Verdict.REPRODUCED if shown else Verdict.INCONCLUSIVE
    return Outcome(Verdict.NOT_REPRODUCED if refuted else verdict, (line,), n)


def _shown(estimate: Estimate) -> str:
    if estimate.n == 0:
        return "-"
    span = f" [{estimate.low:.4g}, {estimate.high:.4g}]" if math.isfinite(estimate.low) else ""
    return f"{estimate.value:.4g}{span} (n={estimate.n})"
