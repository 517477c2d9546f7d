"""Runs side by side: by task and label, at equal generations, at equal evaluations, and corrected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from memes.errors import require
from memes.presets import PRESETS
from memes.store.summary import Summary

MEASURES = {"qd_score": "QD-score", "coverage": "coverage", "max_fitness": "max fitness"}
LOSSES = {f"{name}_loss": f"{words} loss" for name, words in MEASURES.items()}
SLACK = 0.15  # by which share of a number of generations or evaluations a known score may be earlier
ALIKE = 1.01  # numbers of evaluations that differ by less count as equal: MEMES evaluates its means too

# Task -> label -> runs, in the order in which they are shown.
Groups = dict[str, dict[str, list[Summary]]]


def group(summaries: Sequence[Summary], names: Sequence[str] = ()) -> Groups:
    """Put runs together that differ by their seeds alone.

    Labels are in the order of `memes list`, the same for every task; runs in that of their seeds. A run
    that is there twice, as a folder and as a summary of it, counts once.

    Args:
        summaries: Runs of any number of tasks and algorithms.
        names: What errors call each of them.
    """
    called = [f"'{name}'" for name in names] or [f"run {i + 1}" for i in range(len(summaries))]
    _check_cells(summaries, called)
    labelled = distinguish(summaries)
    seen: dict[tuple[Any, ...], tuple[Summary, str]] = {}
    for run, name in zip(labelled, called, strict=True):
        like, other = seen.setdefault((run.task, run.label, run.seed), (run, name))
        require(
            like is run or _same(like, run),
            f"RUN: {other} and {name} are both of task {run.task}, {run.label}, seed {run.seed}: "
            "leave one of them out",
        )
    groups: Groups = {}
    once = (run for run, _ in seen.values())
    for run in sorted(once, key=lambda run: (run.task, *_place(run), run.seed)):
        groups.setdefault(run.task, {}).setdefault(run.label, []).append(run)
    return groups


def _same(a: Summary, b: Summary) -> bool:
    """Whether two summaries are of the very same run, which the moment of its start tells."""
    when = a.about.get("when")
    return when is not None and (when, a.generations) == (b.about.get("when"), b.generations)


def all_labels(groups: Groups) -> list[str]:
    """The labels of all tasks, in the order in which each task has them."""
    places = {label: _place(runs[0]) for labels in groups.values() for label, runs in labels.items()}
    return sorted(places, key=lambda label: places[label])


def _place(run: Summary) -> tuple[int, str]:
    order = list(PRESETS)
    return order.index(run.algorithm) if run.algorithm in order else len(order), run.label


def distinguish(summaries: Sequence[Summary]) -> list[Summary]:
    """Add to the label of each run the options by which runs of that label differ on a task.

    The number of generations is no such option.
    """
    options: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in summaries:
        options.setdefault((run.task, run.label), []).append(run.options)
    differing: dict[str, list[str]] = {}
    for (_, label), found in options.items():
        names = differing.setdefault(label, [])
        for name in dict.fromkeys(name for each in found for name in each):
            if (
                name != "generations"
                and name not in names
                and any(each.get(name) != found[0].get(name) for each in found)
            ):
                names.append(name)
    return [
        run._replace(label=" ".join([run.label, *_options(run, differing[run.label])]))
        for run in summaries
    ]


def _options(run: Summary, names: list[str]) -> list[str]:
    return [f"{name}={run.options[name]}" for name in names if name in run.options]


def _check_cells(summaries: Sequence[Summary], names: Sequence[str]) -> None:
    first: dict[str, tuple[Summary, str]] = {}
    for run, name in zip(summaries, names, strict=True):
        like, other = first.setdefault(run.task, (run, name))
        require(
            _cells(run) == _cells(like),
            f"RUN: runs of task {run.task} must have the same cells, but {other} has {_cells(like)} and "
            f"{name} has {_cells(run)}",
        )


def _cells(run: Summary) -> str:
    cells = run.about.get("cells")
    shape = " x ".join(map(str, cells)) if isinstance(cells, list) else str(cells)
    bounds = ", ".join(f"{low:g} to {high:g}" for low, high in zip(run.low, run.high, strict=True))
    return f"{shape} over {bounds}"


def at(run: Summary, measure: str, by: str, amount: ArrayLike) -> np.ndarray:
    """A measure as it was last known at or before so many generations or evaluations.

    Args:
        run: Whose curve is meant.
        measure: A key of `MEASURES`.
        by: "generation" or "evaluations".
        amount: Any shape; the values have the same. NaN before the first one known, and where the last
            one known is earlier by more than `SLACK` with generations in between.
    """
    amount = np.asarray(amount, float)
    places, generation = run.curves[by], run.curves["generation"]
    index = np.searchsorted(places, amount, side="right") - 1
    following = np.append(generation[1:], generation[-1] + 1)
    known = (following[index] == generation[index] + 1) | (places[index] >= (1 - SLACK) * amount)
    return np.where((index >= 0) & known, run.curves[measure][index], np.nan)


def between(run: Summary, measure: str, by: str, amount: ArrayLike) -> np.ndarray:
    """A measure at so many generations or evaluations, on a line between the two nearest ones known."""
    value: np.ndarray = np.interp(np.asarray(amount, float), run.curves[by], run.curves[measure])
    return value


def is_share(measure: str) -> bool:
    """Whether a measure is shown in per cent."""
    return measure == "coverage" or measure in LOSSES


def common(runs: Sequence[Summary], by: str) -> float:
    """How many generations or evaluations all of the runs have."""
    return min(float(run.curves[by][-1]) for run in runs)


def final(run: Summary, measure: str) -> float:
    """A measure at the end of a run, of the corrected archive if there is one."""
    return float(run.curves[measure][-1]) if run.corrected is None else run.corrected[measure]


class View(NamedTuple):
    """One way to look at the runs of a task: where they are compared, and by which measures.

    Attributes:
        name: "generations", "evaluations", "corrected" or "losses", or one of the latter two with
            "-evaluations".
        words: Where that is, in words.
        measures: Names of what is compared, in words.
        value: `(run, measure)`, NaN where a run does not have it.
    """

    name: str
    words: str
    measures: Mapping[str, str]
    value: Callable[[Summary, str], float]


def views(labels: Mapping[str, Sequence[Summary]]) -> list[View]:
    """The views of the runs of one task, those of corrections if any of them was corrected."""
    runs = [run for group in labels.values() for run in group]
    generations, evaluations = common(runs, "generation"), common(runs, "evaluations")
    found = [
        View(
            "generations",
            f"after {generations:,.0f} generations",
            MEASURES,
            lambda run, measure: float(at(run, measure, "generation", generations)),
        ),
        View(
            "evaluations",
            f"after {evaluations:,.0f} evaluations",
            MEASURES,
            lambda run, measure: float(at(run, measure, "evaluations", evaluations)),
        ),
    ]
    corrected = [run for run in runs if run.corrections]
    if corrected:
        known = all(_has_correction(run, "generation", generations) for run in corrected)
        where = f"after {generations:,.0f} generations" if known else "at the end of each run"
        found += _corrected_views("", where, "generation", generations if known else np.inf)
    if any(run.curves["evaluations"][-1] > ALIKE * evaluations for run in corrected) and all(
        _has_correction(run, "evaluations", evaluations) for run in corrected
    ):
        where = f"after {evaluations:,.0f} evaluations"
        found += _corrected_views("-evaluations", where, "evaluations", evaluations)
    return found


def _corrected_views(suffix: str, where: str, by: str, amount: float) -> list[View]:
    def value(run: Summary, measure: str) -> float:
        return _corrected(run, measure, by, amount)

    return [
        View(f"corrected{suffix}", f"corrected, {where}", MEASURES, value),
        View(f"losses{suffix}", f"lost by correction, {where}", LOSSES, value),
    ]


def main_view(labels: Mapping[str, Sequence[Summary]]) -> View:
    """The one that counts: corrected if all runs are, and else at equal generations."""
    every = all(run.corrections for group in labels.values() for run in group)
    name = "corrected" if every else "generations"
    return next(view for view in views(labels) if view.name == name)


def _corrected(run: Summary, measure: str, by: str, amount: float) -> float:
    """What the last correction at or before so many generations or evaluations says of a measure."""
    if measure not in run.corrections:
        return np.nan
    before = run.corrections[measure][run.corrections[by] <= _until(by, amount)]
    return float(before[-1]) if before.size else np.nan


def _until(by: str, amount: float) -> float:
    return ALIKE * amount if by == "evaluations" else amount


def _has_correction(run: Summary, by: str, amount: float) -> bool:
    """Whether the archive was corrected at so many generations or evaluations, or hardly before."""
    places = run.corrections[by]
    slack = SLACK if by == "evaluations" else 0.0
    return bool(((places <= _until(by, amount)) & (places >= (1 - slack) * amount)).any())
