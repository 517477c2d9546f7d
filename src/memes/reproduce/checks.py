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
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec

from memes.analysis.statistics import (
    SIGNIFICANT,
    Estimate,
    corrected_p,
    interval,
    rank_sum,
    relative_difference,
)
from memes.reproduce.quantities import Of, Runs

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
How = ParamSpec("How")


class Compared(NamedTuple):
    """Two samples side by side: the line about them, p before and after correction, their difference.

    The interval `low` to `high` of the relative difference is NaN where there are too few seeds for one.
    """

    n: int
    line: str
    p: float
    corrected_p: float
    higher: bool
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """After correction."""
        return self.corrected_p < SIGNIFICANT


def relation(
    decide: Callable[Concatenate[Compared, How], tuple[bool, bool]],
) -> Callable[Concatenate[Of, Of, How], Check]:
    """Turn `(compared, *how) -> (shown, refuted)` into `(a, b, *how) -> Check`."""

    @wraps(decide)
    def between_two(a: Of, b: Of, /, *how: How.args, **named: How.kwargs) -> Check:
        def check(runs: Runs, comparisons: int) -> Outcome:
            compared = _compare(a, b, runs, comparisons)
            return _outcome(compared.n, compared.line, *decide(compared, *how, **named))

        return check

    return between_two


@relation
def above(found: Compared, level: float = SIGNIFICANT) -> tuple[bool, bool]:
    """`a` is above `b`, with a p-value below a level."""
    return found.p < level and found.higher, found.corrected_p < level and not found.higher


@relation
def on_par(found: Compared, within: float = MARGIN) -> tuple[bool, bool]:
    """`a` and `b` differ by no more than so much of `b`."""
    outside = found.low > within or found.high < -within
    return -within <= found.low and found.high <= within, outside and found.significant


@relation
def at_least(found: Compared, within: float = MARGIN) -> tuple[bool, bool]:
    """`a` is above `b` or on par with it: even the low end of the interval is hardly below."""
    lower = found.significant and not found.higher
    return found.low >= -within, lower and found.low < -within


@relation
def at_most(found: Compared, more: float) -> tuple[bool, bool]:
    """`a` exceeds `b` by at most such a share of it."""
    return found.high <= more, found.significant and found.low > more


def between(a: Of, least: float, most: float, said: str = "") -> Check:
    """The median of `a` lies between two numbers, as far as its interval tells; `said` is why these."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        found = interval(a.values(runs))
        line = f"{a.words}: {a.label} {_shown(found)}, to lie between {least:.4g} and {most:.4g}{said}"
        enough = found.n >= FEWEST_OF_INTERVAL
        inside = enough and least <= found.low and found.high <= most
        outside = enough and (found.low > most or found.high < least)
        return _outcome(found.n, line, inside, outside)

    return check


def near(a: Of, number: float, within: float) -> Check:
    """The median of `a` differs from a number of the paper by no more than such a share of it."""
    return between(a, (1 - within) * number, (1 + within) * number, f" ({number:g} in the paper)")


def most_have(a: Of) -> Check:
    """More than half of the seeds have some; refuted if none has."""
    return _having(a, lambda share: (share > 0.5, share == 0))


def none_has(a: Of) -> Check:
    """No seed has any; refuted if more than half have."""
    return _having(a, lambda share: (share == 0, share > 0.5))


def _having(a: Of, decide: Callable[[float], tuple[bool, bool]]) -> Check:
    def check(runs: Runs, comparisons: int) -> Outcome:
        has = a.values(runs) > 0
        line = f"{a.words}: {a.label} in {has.sum()} of {has.size} seeds"
        return _outcome(has.size, line, *(decide(has.mean()) if has.size >= FEWEST else (False, False)))

    return check


def where_run(check_of: Callable[[str], Check], labels: Sequence[str]) -> Check:
    """Check each label that has runs, all of which must hold; a line names those that have none."""

    def check(runs: Runs, comparisons: int) -> Outcome:
        outcome = all_of([check_of(label) for label in labels if runs.get(label)], runs)
        missing = ", ".join(label for label in labels if not runs.get(label))
        return outcome._replace(numbers=(*outcome.numbers, *[f"not run: {missing}"] * bool(missing)))

    return check


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


def _compare(a: Of, b: Of, runs: Runs, comparisons: int) -> Compared:
    one, other = a.values(runs), b.values(runs)
    first, second, apart = interval(one), interval(other), relative_difference(one, other)
    if apart.n < FEWEST_OF_INTERVAL:
        apart = apart._replace(low=math.nan, high=math.nan)
    p = rank_sum(one, other)
    corrected = corrected_p(p, comparisons)
    line = f"{a.words}: {a.label} {_shown(first)} against {b.label} {_shown(second)}"
    if a.label == b.label:
        line = f"{a.label}: {a.words} {_shown(first)} against {b.words} {_shown(second)}"
    missing = dict.fromkeys(of.label for of, values in ((a, one), (b, other)) if not values.size)
    if missing:
        line += f": {' and '.join(missing)} not run, or without such a number"
    if math.isfinite(apart.value):
        line += f": {apart.value:+.1%}"
    if math.isfinite(apart.low):
        line += f" [{apart.low:+.1%}, {apart.high:+.1%}]"
    if math.isfinite(p):
        line += f", p = {p:.2g}" + f", {corrected:.2g} corrected" * (comparisons > 1)
    higher = first.value > second.value
    return Compared(apart.n, line, p, corrected, higher, apart.low, apart.high)


def _outcome(n: int, line: str, shown: bool, refuted: bool) -> Outcome:
    if n == 0:
        return Outcome(Verdict.NOT_TESTED, (line,))
    verdict = Verdict.REPRODUCED if shown else Verdict.INCONCLUSIVE
    return Outcome(Verdict.NOT_REPRODUCED if refuted else verdict, (line,), n)


def _shown(estimate: Estimate) -> str:
    if estimate.n == 0:
        return "-"
    span = f" [{estimate.low:.4g}, {estimate.high:.4g}]" if math.isfinite(estimate.low) else ""
    return f"{estimate.value:.4g}{span} (n={estimate.n})"
