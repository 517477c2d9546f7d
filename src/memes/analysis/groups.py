"""Groups of runs by task and label, and the points at which runs are compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from memes.algorithm import UNNAMED
from memes.errors import require
from memes.metrics import finite_median
from memes.presets import PRESETS
from memes.store.summary import Summary

MEASURES = {"qd_score": "QD-score", "coverage": "coverage", "max_fitness": "max fitness"}
PLACES = {"generation": "generations", "evaluations": "evaluations"}  # columns for comparison points
LOSSES = {f"{name}_loss": f"{words} loss" for name, words in MEASURES.items()}
# Maximum age of a score, as a share of the generations or evaluations at the comparison point.
SLACK = 0.15
# Numbers of generations or evaluations are treated as equal if they differ by at most this factor.
# Algorithms use different numbers of evaluations, because MEMES also evaluates the means of its lanes.
ALIKE = {"generation": 1.0, "evaluations": 1.01}

# `Labels` contains the runs of one task by label, and `Groups` contains the runs of all tasks by task
# and label. Both have the order in which tasks and labels are displayed.
Labels = Mapping[str, Sequence[Summary]]
Groups = dict[str, dict[str, list[Summary]]]


def runs_of(labels: Labels) -> list[Summary]:
    """List the runs of all labels."""
    return [run for runs in labels.values() for run in runs]


def group(summaries: Sequence[Summary], names: Sequence[str] = ()) -> Groups:
    """Group runs that differ only in their seeds.

    The labels of each task have the order of `memes list`, and the runs of a label are sorted by seed. A
    run that is given both as a folder and as its summary is used once. `names` are the names of
    the runs in error messages.
    """
    called = [f"'{name}'" for name in names] or [f"run {i + 1}" for i in range(len(summaries))]
    first: dict[str, tuple[Summary, str]] = {}
    seen: dict[tuple[str, str, int], tuple[Summary, str]] = {}
    for run, name in zip(distinguish(summaries), called, strict=True):
        like, other = first.setdefault(run.task, (run, name))
        require(
            _cells(run) == _cells(like),
            f"RUN: runs of task {run.task} must have the same cells, but {other} has {_cells(like)} and "
            f"{name} has {_cells(run)}",
        )
        like, other = seen.setdefault((run.task, run.label, run.seed), (run, name))
        unnamed = ", or give the algorithms names: compose(..., name=...)"
        require(
            like is run or _same(like, run),
            f"RUN: {other} and {name} have the same task ({run.task}), label ({run.label}) and seed "
            f"({run.seed}); leave one of them out{unnamed * (run.algorithm == UNNAMED)}",
        )
    groups: Groups = {}
    once = (run for run, _ in seen.values())
    for run in sorted(once, key=lambda run: (run.task, *_place(run), run.seed)):
        groups.setdefault(run.task, {}).setdefault(run.label, []).append(run)
    return groups


def _cells(run: Summary) -> str:
    cells = run.about.cells
    shape = " x ".join(map(str, cells)) if isinstance(cells, tuple) else str(cells)
    bounds = ", ".join(f"{low:g} to {high:g}" for low, high in zip(run.low, run.high, strict=True))
    return f"{shape} over {bounds}"


def _same(a: Summary, b: Summary) -> bool:
    """Return True if two summaries have equal start times and equal numbers of generations."""
    when = a.about.when
    return when is not None and (when, a.generations) == (b.about.when, b.generations)


def _place(run: Summary) -> tuple[int, str]:
    order = list(PRESETS)
    return order.index(run.algorithm) if run.algorithm in order else len(order), run.label


def all_labels(groups: Groups) -> list[str]:
    """List the labels of all tasks, in the order in which they are displayed."""
    places = {label: _place(runs[0]) for labels in groups.values() for label, runs in labels.items()}
    return sorted(places, key=lambda label: places[label])


def distinguish(summaries: Sequence[Summary]) -> list[Summary]:
    """Extend labels to distinguish runs of a task that have equal labels but different options.

    The labels are extended by the options that differ. Older runs did not record some options that had
    default values, so their labels do not contain these options. If runs still have equal labels but
    genotypes of different lengths, the labels are extended by `dim`.
    """
    algorithms: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in summaries:
        algorithms[run.task, run.label].add(run.algorithm)
    summaries = [
        run._replace(label=f"{run.label} ({run.algorithm})")
        if len(algorithms[run.task, run.label]) > 1
        else run
        for run in summaries
    ]
    values: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for run in summaries:
        for name, value in run.options.items():
            values[run.task, run.label, name].add(str(value))
    differing = {(label, name): None for (_, label, name), found in values.items() if len(found) > 1}

    def label(run: Summary) -> str:
        names = [name for label, name in differing if label == run.label and name in run.options]
        return " ".join([run.label, *(f"{name}={run.options[name]}" for name in names)])

    labelled = [run._replace(label=label(run)) for run in summaries]
    dims: dict[tuple[str, str], set[int]] = defaultdict(set)
    for run in labelled:
        if run.about.dim is not None:
            dims[run.task, run.label].add(run.about.dim)
    return [
        run._replace(label=f"{run.label} dim={run.about.dim}")
        if len(dims[run.task, run.label]) > 1
        else run
        for run in labelled
    ]


def without_short(runs: Mapping[str, Summary]) -> tuple[dict[str, Summary], list[str]]:
    """Leave out short runs.

    A run is short if its number of generations is less than half the median of the runs with its label.
    Such runs are trials or were stopped early. Runs are compared at equal generations, so a short run
    would shorten the comparison.

    Returns:
        The remaining runs, by their names in `runs`, and a message for each run that is left out.
    """
    labelled = distinguish(list(runs.values()))
    lengths: dict[tuple[str, str], list[int]] = defaultdict(list)
    for run in labelled:
        lengths[run.task, run.label].append(run.generations)
    kept, notes = {}, []
    for name, run in zip(runs, labelled, strict=True):
        median = float(np.median(lengths[run.task, run.label]))
        if 2 * run.generations >= median:
            kept[name] = runs[name]
        else:
            notes.append(
                f"{run.task}: '{name}' is left out: it has {run.generations:,} generations, but the "
                f"median of {run.label} is {median:,.0f}."
            )
    return kept, notes


def at(run: Summary, measure: str, by: str, amount: ArrayLike) -> np.ndarray:
    """Return the latest value of a measure at or before `amount` generations or evaluations.

    The result is NaN if there is no such value, or if the value is older than `SLACK` allows. `amount`
    may have any shape.
    """
    amount = np.asarray(amount, float)
    places, generation = run.curves[by], run.curves["generation"]
    index = np.searchsorted(places, amount, side="right") - 1
    following = np.append(generation[1:], generation[-1] + 1)
    known = (following[index] == generation[index] + 1) | (places[index] >= (1 - SLACK) * amount)
    return np.where((index >= 0) & known, run.curves[measure][index], np.nan)


def is_share(measure: str) -> bool:
    """Return True if a measure is shown as a percentage."""
    return measure == "coverage" or measure in LOSSES


class View(NamedTuple):
    """A comparison point for the runs of a task, and the measures that are compared at this point.

    Attributes:
        name: One of "generations", "evaluations", "corrected", "losses", "corrected-evaluations" and
            "losses-evaluations".
        words: Description of the comparison point.
        measures: Columns of the measures, with their display names.
        by: Unit of `amount`: "generation" or "evaluations".
        amount: Number of generations or evaluations at the comparison point.
    """

    name: str
    words: str
    measures: Mapping[str, str]
    by: str
    amount: float

    def value(self, run: Summary, measure: str) -> float:
        """Return a measure of a run at the comparison point.

        Corrected scores and losses are from the last correction at or before this point. The result is
        NaN if the run has not recorded the measure.
        """
        if self.name in ("generations", "evaluations"):
            return float(at(run, measure, self.by, self.amount))
        if measure not in run.corrections:
            return np.nan
        before = run.corrections[measure][run.corrections[self.by] <= ALIKE[self.by] * self.amount]
        return float(before[-1]) if before.size else np.nan


def views(labels: Labels) -> list[View]:
    """List the comparison points of a task, including corrected scores if any run was corrected."""
    runs = runs_of(labels)
    common = {by: min(float(run.curves[by][-1]) for run in runs) for by in PLACES}
    after = {by: f"after {common[by]:,.0f} {words}" for by, words in PLACES.items()}
    found = [View(words, after[by], MEASURES, by, common[by]) for by, words in PLACES.items()]
    corrected = [run for run in runs if run.corrections]
    known = [by for by in PLACES if all(_has_correction(run, by, common[by]) for run in corrected)]
    places = []
    if corrected and "generation" in known:
        places.append(("", after["generation"], "generation", common["generation"]))
    elif corrected:
        places.append(("", "at the end of each run", "generation", np.inf))
    most = max((run.curves["evaluations"][-1] for run in corrected), default=0)
    if "evaluations" in known and most > ALIKE["evaluations"] * common["evaluations"]:
        places.append(("-evaluations", after["evaluations"], "evaluations", common["evaluations"]))
    for suffix, where, by, amount in places:
        found.append(View(f"corrected{suffix}", f"corrected, {where}", MEASURES, by, amount))
        found.append(View(f"losses{suffix}", f"lost by correction, {where}", LOSSES, by, amount))
    return found


def evaluations_of(labels: Labels, view: View) -> dict[str, float]:
    """Return the median number of evaluations of each label at a comparison point."""
    return {
        label: finite_median(np.array([view.value(run, "evaluations") for run in runs]))
        for label, runs in labels.items()
    }


def are_alike(amounts: Iterable[float]) -> bool:
    """Return True if the numbers of evaluations are close enough to be treated as equal."""
    known = [amount for amount in amounts if np.isfinite(amount)]
    return not known or max(known) <= ALIKE["evaluations"] * min(known)


def _has_correction(run: Summary, by: str, amount: float) -> bool:
    """Return True if the archive was corrected at or shortly before the comparison point `amount`."""
    places = run.corrections[by]
    least = amount if by == "generation" else (1 - SLACK) * amount
    return bool(((places <= ALIKE[by] * amount) & (places >= least)).any())


def main_view(labels: Labels) -> View:
    """Return the comparison point "corrected" if all runs are corrected, and "generations" otherwise."""
    name = "corrected" if all(run.corrections for run in runs_of(labels)) else "generations"
    return next(view for view in views(labels) if view.name == name)
