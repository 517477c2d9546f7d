"""Compute the tables of a comparison, and notes on how to interpret them.

There is one function per table, which returns rows of plain values. The notes warn
against conclusions that the runs do not support.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np

from memes.analysis.groups import (
    Groups,
    Labels,
    View,
    are_alike,
    evaluations_of,
    main_view,
    runs_of,
    views,
)
from memes.analysis.statistics import (
    SIGNIFICANT,
    Estimate,
    corrected_p,
    interquartile_mean,
    interval,
    rank_sum,
    relative_difference,
    smallest_p,
)
from memes.store.summary import CURVES, Summary

Row = dict[str, Any]


def all_tables(groups: Groups) -> dict[str, list[Row]]:
    """Return the rows of all tables. The keys are the names of the functions that compute the tables."""
    return {make.__name__: make(groups) for make in TABLES.values()}


def scores(groups: Groups) -> list[Row]:
    """List medians and interquartile means over the seeds, per measure and comparison point."""
    return [
        {"task": task, "label": label, "view": view.name, "where": view.words, "measure": measure}
        | {"evaluations": evaluations_of(groups[task], view)[label]}
        | _estimate("median", interval(values))
        | _estimate("iqm", interval(values, interquartile_mean))
        for task, view, measure, by_label in _measured(groups)
        for label, values in by_label.items()
    ]


def tests(groups: Groups) -> list[Row]:
    """List rank-sum tests between the labels of a task, per measure and comparison point.

    The p-values are corrected for the number of pairs of algorithms that are compared on the task.
    """
    rows = []
    for task, view, measure, by_label in _measured(groups):
        pairs = list(combinations(by_label, 2))
        for a, b in pairs:
            p = rank_sum(by_label[a], by_label[b])
            rows.append(
                {"task": task, "view": view.name, "where": view.words, "measure": measure}
                | {"a": a, "b": b}
                | _estimate("difference", relative_difference(by_label[a], by_label[b]))
                | {"p": p, "comparisons": len(pairs), "corrected_p": corrected_p(p, len(pairs))}
            )
    return rows


def _measured(groups: Groups) -> Iterator[tuple[str, View, str, dict[str, list[float]]]]:
    """Yield (task, view, measure, values). `values` contains the values of the runs, by label."""
    for task, labels in groups.items():
        for view in views(labels):
            for measure in view.measures:
                values = {
                    label: [view.value(run, measure) for run in runs] for label, runs in labels.items()
                }
                yield task, view, measure, values


def lifespans(groups: Groups) -> list[Row]:
    """List statistics of the lifespans of lanes, as medians over the seeds."""
    rows = []
    for task, label, runs in _each(groups):
        for kind in dict.fromkeys(kind for run in runs for kind in run.lifespans):
            of_kind = [run.lifespans[kind] for run in runs if kind in run.lifespans]
            for reason in dict.fromkeys(reason for lives in of_kind for reason in lives):
                found = [lives[reason] for lives in of_kind if reason in lives]
                rows.append(
                    {"task": task, "label": label, "kind": kind, "reason": reason}
                    | {"resets": int(sum(life["count"] for life in found))}
                    | _estimate("mean", interval([life["mean"] for life in found]))
                    | {"median": float(np.median([life["median"] for life in found]))}
                )
    return rows


def steps(groups: Groups) -> list[Row]:
    """List parent-offspring distances in cell widths, as medians over the seeds."""
    return [
        {"task": task, "label": label, "kind": kind}
        | _estimate("distance", interval([run.steps[kind] for run in runs if kind in run.steps]))
        for task, label, runs in _each(groups)
        for kind in dict.fromkeys(kind for run in runs for kind in run.steps)
    ]


def times(groups: Groups) -> list[Row]:
    """List the run times and the devices of each label."""

    def evaluations_per_second(run: Summary) -> float:
        seconds = float(run.curves["seconds"][-1])
        return float(run.curves["evaluations"][-1]) / seconds if seconds > 0 else np.nan

    def median(runs: list[Summary], of: Callable[[Summary], float | None]) -> float:
        return interval(np.array([of(run) for run in runs], float)).value  # None becomes NaN

    return [
        {
            "task": task,
            "label": label,
            "n": len(runs),
            "device": " / ".join(dict.fromkeys(str(run.about.device) for run in runs)),
            "generations": median(runs, lambda run: run.generations),
            # The maximum over the seeds is used, because later seeds may reuse the compiled programs of
            # the first seed.
            "compile_seconds": max(run.about.compile_seconds or 0.0 for run in runs),
            "seconds_per_generation": median(runs, lambda run: run.about.seconds_per_generation),
            "seconds": median(runs, lambda run: float(run.curves["seconds"][-1])),
            "evaluations_per_second": median(runs, evaluations_per_second),
        }
        for task, label, runs in _each(groups)
    ]


def seeds(groups: Groups) -> list[Row]:
    """List every run with its final scores."""
    rows = [
        {"task": task, "label": label, "seed": run.seed, "algorithm": run.algorithm, "scale": run.scale}
        | {name: float(run.curves[name][-1]) for name in CURVES}
        | {f"corrected_{name}": value for name, value in (run.corrected or {}).items()}
        for task, label, runs in _each(groups)
        for run in runs
    ]
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def _each(groups: Groups) -> Iterator[tuple[str, str, list[Summary]]]:
    for task, labels in groups.items():
        for label, runs in labels.items():
            yield task, label, runs


def _estimate(name: str, estimate: Estimate) -> Row:
    value, low, high, n = estimate
    return {name: value, f"{name}_low": low, f"{name}_high": high, "n": n}


def notes(groups: Groups) -> list[str]:
    """Collect the notes of all tasks."""
    about = _about_seeds, _about_lengths, _about_corrections
    return [
        f"{task}{said}." for task, labels in groups.items() for each in about for said in each(labels)
    ]


def _about_seeds(labels: Labels) -> Iterator[str]:
    alone = [label for label, runs in labels.items() if len(runs) == 1]
    if alone:
        has = "has" if len(alone) == 1 else "have"
        yield f": {', '.join(alone)} {has} one seed, and therefore no interval and no test"
    most = sorted(len(runs) for runs in labels.values())[-2:]
    pairs = math.comb(len(labels), 2)
    p = corrected_p(smallest_p(*most), pairs) if pairs else math.nan
    if p >= SIGNIFICANT:
        yield (
            f": too few seeds to find a significant difference: with {counted(pairs, 'comparison')}, "
            f"even {most[0]} against {most[1]} seeds cannot give a corrected p below {p:.4g}"
        )


def _about_lengths(labels: Labels) -> Iterator[str]:
    runs = sorted(runs_of(labels), key=lambda run: run.generations)
    median = float(np.median([run.generations for run in runs]))
    if 2 * runs[0].generations < median:
        yield (
            f": runs are compared after only {runs[0].generations:,} generations, the length of "
            f"{runs[0].label}, seed {runs[0].seed}; the median is {median:,.0f} generations"
        )
    spent = evaluations_of(labels, main_view(labels))
    if not are_alike(spent.values()):
        least, most = min(spent, key=spent.__getitem__), max(spent, key=spent.__getitem__)
        yield (
            f", {main_view(labels).words}: the algorithms used different numbers of evaluations, "
            f"from {spent[least]:,.0f} ({least}) to {spent[most]:,.0f} ({most})"
        )
    view = next(view for view in views(labels) if view.name == "evaluations")
    unknown = [run.label for run in runs if math.isnan(view.value(run, "coverage"))]
    if unknown:
        named = [label for label in labels if label in unknown]
        yield f": scores {view.words} are missing for {', '.join(named)}"


def _about_corrections(labels: Labels) -> Iterator[str]:
    facts: dict[str, tuple[str, Callable[[float], str]]] = {
        "generation": ("generations done", "{:g}".format),
        "samples": ("evaluations of each elite", "{:g}".format),
        "by_mean": ("statistics", lambda by_mean: "means" if by_mean else "medians"),
    }
    for view in [view for view in views(labels) if view.name.startswith("corrected")]:
        unlike = []
        for column, (words, said) in facts.items():
            values = [view.value(run, column) for run in runs_of(labels)]
            different = dict.fromkeys(said(value) for value in values if math.isfinite(value))
            if len(different) > 1:
                unlike.append(f"{words} ({' and '.join(different)})")
        if unlike:
            yield f", {view.words}: corrections differ in {', '.join(unlike)}"


def counted(n: int, what: str) -> str:
    """Format a number with a noun, such as "1 pair" or "3 pairs"."""
    return f"1 {what}" if n == 1 else f"{n} {what}s"


TABLES = {make.__name__: make for make in (scores, tests, lifespans, steps, times, seeds)}
