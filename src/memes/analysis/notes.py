"""Sentences about a comparison: what the runs of a task do not allow to be said."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from memes.analysis.groups import Groups, Labels, views
from memes.analysis.statistics import corrected_p, smallest_p

SIGNIFICANT = 0.05


def notes(groups: Groups) -> list[str]:
    """Collect the sentences of all tasks."""
    about = _about_seeds, _about_lengths, _about_corrections
    return [
        f"{task}{said}." for task, labels in groups.items() for each in about for said in each(labels)
    ]


def _about_seeds(labels: Labels) -> Iterator[str]:
    alone = [label for label, runs in labels.items() if len(runs) == 1]
    if alone:
        has = "has" if len(alone) == 1 else "have"
        yield f": {', '.join(alone)} {has} one seed: no interval and no test"
    most = sorted(len(runs) for runs in labels.values())[-2:]
    pairs = math.comb(len(labels), 2)
    p = corrected_p(smallest_p(*most), pairs) if pairs else math.nan
    if p >= SIGNIFICANT:
        yield (
            f": too few seeds to find a significant difference: {most[0]} against {most[1]} in "
            f"{counted(pairs, 'comparison')} give no corrected p below {p:.4g}"
        )


def _about_lengths(labels: Labels) -> Iterator[str]:
    runs = sorted((run for of_label in labels.values() for run in of_label), key=lambda r: r.generations)
    median = float(np.median([run.generations for run in runs]))
    if 2 * runs[0].generations < median:
        yield (
            f": equal generations are only {runs[0].generations:,}, since {runs[0].label}, seed "
            f"{runs[0].seed}, has no more; the median run has {median:,.0f}"
        )
    view = next(view for view in views(labels) if view.name == "evaluations")
    unknown = [run.label for run in runs if math.isnan(view.value(run, "coverage"))]
    if unknown:
        named = [label for label in labels if label in unknown]
        yield f": scores {view.words} are not known of {', '.join(named)}"


def _about_corrections(labels: Labels) -> Iterator[str]:
    facts: dict[str, tuple[str, Callable[[float], str]]] = {
        "generation": ("generations done", "{:g}".format),
        "samples": ("evaluations of each elite", "{:g}".format),
        "by_mean": ("statistics", lambda by_mean: "means" if by_mean else "medians"),
    }
    for view in [view for view in views(labels) if view.name.startswith("corrected")]:
        unlike = []
        for column, (words, said) in facts.items():
            values = [view.value(run, column) for runs in labels.values() for run in runs]
            different = dict.fromkeys(said(value) for value in values if math.isfinite(value))
            if len(different) > 1:
                unlike.append(f"{words} ({' and '.join(different)})")
        if unlike:
            yield f", {view.words}: corrections differ in {', '.join(unlike)}"


def counted(n: int, what: str) -> str:
    """Say how many there are: "1 pair", "3 pairs"."""
    return f"1 {what}" if n == 1 else f"{n} {what}s"
