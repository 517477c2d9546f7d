"""Summaries of runs for comparisons. They are small JSON files without genotypes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memes.archive import Archive
from memes.cells import Grid
from memes.context import Kind
from memes.errors import require
from memes.metrics import finite_median
from memes.resets import Reason
from memes.store.archives import FORMAT_VERSION, check_version
from memes.store.files import check_entries, read_json, reading, save_text
from memes.store.folder import METRICS, Run, check_links, load_run
from memes.store.schema import check_names, entries_of, plain, read
from memes.task import Map

FILE = "summary.json"
FORMAT = "memes-summary"
POINTS = 120  # Maximum number of generations in the curves.
MAX_CELLS = 20_000  # Largest archive, in cells, whose fitness per cell is stored.
CURVES = METRICS
Lifespans = dict[str, dict[str, dict[str, float]]]
Columns = dict[str, tuple[float | None, ...]]
ENTRIES: dict[str, Any] = {
    "task": str, "algorithm": str, "label": str, "seed": int, "scale": str | None, "generations": int,
    "options": dict, "about": dict, "curves": Columns, "corrections": Columns, "lifespans": Lifespans,
    "longest_lives": Columns, "steps": dict[str, float | None],
    "low": tuple[float, ...], "high": tuple[float, ...],
}  # fmt: skip

# The columns that `corrections` must contain, and the statistics that `lifespans` must contain.
CORRECTED = {"generation", "evaluations"}
LIFE = {"count", "mean", "median"}
MOST = 1e30  # Maximum absolute value of a number.
_array = partial(np.asarray, dtype=float)  # Converts None to NaN.


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts about a run other than its results.

    Facts that an older version of memes did not record are None or empty.

    Attributes:
        device: The device, as in `Provenance`, followed by the number of processes that shared the
            device.
        versions: Versions of packages.
        precision: Precision of matrix products.
        compile_seconds: Compilation time in seconds.
        cells: Cells of the archive as in `RunConfig`.
        uncertain: Whether the task is uncertain.
        map: The walls of the task.
        feature_names: Names of the features.
        seeds_together: Number of seeds that ran as one batch.
        dim: Number of entries of a genotype.
        min_fitness: Fitness that adds 0 to the QD-score.
        processes_on_device: Maximum number of processes that used the device at the same time.
        commit: Commit of the library. For runs of version 0.2, it is the commit of the working
            directory.
        when: Time of the start.
        seconds_per_generation: Mean time per generation in seconds.
    """

    device: str | None = None
    versions: dict[str, Any] = field(default_factory=dict)
    precision: str | None = None
    compile_seconds: float | None = None
    cells: int | tuple[int, ...] | None = None
    uncertain: bool = False
    map: Map | None = None
    feature_names: tuple[str, ...] = ()
    seeds_together: int | None = None
    dim: int | None = None
    min_fitness: float | None = None
    processes_on_device: int | None = None
    commit: str | None = None
    when: str | None = None
    seconds_per_generation: float | None = None


class Summary(NamedTuple):
    """The summary of a run, without genotypes.

    Undefined values, such as the mean over an empty set of lanes, are NaN or omitted.

    Attributes:
        task: Name of the task.
        algorithm: Name of the algorithm.
        label: Label of the run in tables.
        seed: Seed of the run.
        scale: Scale of the defaults, or None if the run was made in Python.
        generations: Number of completed generations.
        options: Options of the task and the algorithm.
        about: Facts about the run.
        curves: The metrics that `CURVES` lists, at up to `POINTS` generations, including the first and
            the last generation. Half of the generations are spaced linearly, and half are spaced
            logarithmically. The columns `step_exploit`, ... contain the distance between parents and
            offspring of each kind, in cell widths. Distances are averaged in each generation. Each
            point is the median of these averages over all generations since the previous point.
        corrections: The columns of `corrected.csv`, and the number of `evaluations` before each
            correction. The dict is empty if the archive was never corrected. Summaries of version 0.2 do
            not have the columns `..._by_mean`.
        lifespans: Statistics of the age of lanes at their resets, by kind of lane and by reason of the
            reset. The reason `all` combines all reasons. The statistics are `count`, `mean` and
            `median`. The reason `all` also has `paper_mean`, which the paper's table reports instead of
            the mean. It is the average over lanes of (n - 1) / n times the longest life, where n is the
            number of lives of the lane.
        longest_lives: Longest life in generations of each lane that was reset, by kind of lane. The dict
            is empty in summaries of older versions.
        steps: Distance between parent and offspring, by kind of offspring, as the median over all
            generations.
        low: Lower bounds of the features [k].
        high: Upper bounds of the features [k].
        heat: Fitness of each cell of a grid, with one axis per feature and NaN for empty cells. None for
            a tessellation or for more than `MAX_CELLS` cells.
        corrected_heat: Fitness of each cell of the corrected archive, or None if there is none.
    """

    task: str
    algorithm: str
    label: str
    seed: int
    scale: str | None
    generations: int
    options: dict[str, Any]
    about: RunFacts
    curves: dict[str, np.ndarray]
    corrections: dict[str, np.ndarray]
    lifespans: Lifespans
    longest_lives: dict[str, np.ndarray]
    steps: dict[str, float]
    low: tuple[float, ...]
    high: tuple[float, ...]
    heat: np.ndarray | None
    corrected_heat: np.ndarray | None

    @property
    def corrected(self) -> dict[str, float] | None:
        """The value of each column at the last correction, or None if there was no correction."""
        return {name: float(column[-1]) for name, column in self.corrections.items()} or None


def summarise(run: Run) -> Summary:
    """Summarise a run. The result is the same for a run in memory and for a run read from its folder."""
    run = run._replace(metrics=_as_saved(run.metrics), corrected=_as_saved(run.corrected))
    config, metrics, cells = run.config, run.metrics, run.archive.cells
    done, steps = len(metrics["generation"]), _steps(run)
    lifespans, longest_lives = _lives(run.lanes)
    found = vars(config) | vars(run.provenance)
    facts = RunFacts(**{each.name: found[each.name] for each in fields(RunFacts) if each.name in found})
    sharing = facts.processes_on_device or 1
    if sharing > 1:  # other processes increase the times
        facts = replace(facts, device=f"{facts.device}, shared by {sharing} processes")
    corrections = run.corrected
    if corrections:
        row = corrections["generation"].astype(int) - 1
        within = bool(((row >= 0) & (row < done)).all())
        require(within, f"a correction of the run in '{run.folder}' belongs to none of its generations")
        corrections = corrections | {"evaluations": metrics["evaluations"][row]}
    return Summary(
        task=config.task_label,
        algorithm=config.algorithm,
        label=config.algorithm_label,
        seed=config.seed,
        scale=config.scale,
        generations=done,
        options=_options(config.options),
        about=replace(
            facts,
            commit=run.provenance.commit or run.provenance.git_commit,
            when=run.provenance.started,
            seconds_per_generation=float(metrics["seconds"][-1]) / done,
        ),
        curves=_curves(metrics, steps),
        corrections=corrections,
        lifespans=lifespans,
        longest_lives=longest_lives,
        steps={kind: finite_median(values) for kind, values in steps.items()},
        low=tuple(np.asarray(cells.low).tolist()),
        high=tuple(np.asarray(cells.high).tolist()),
        heat=_heat(run.archive),
        corrected_heat=None if run.correction is None else _heat(run.correction.archive),
    )


def _as_saved(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Round columns to the number of digits that CSV files have."""
    return {name: _rounded(column, 9) for name, column in columns.items()}


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """Convert options to the form in which files store them.

    The entry `generations` is removed, because only version 0.1 recorded it as an option.
    """
    written = json.loads(json.dumps(options, default=plain), parse_float=_shortest)
    return {name: value for name, value in written.items() if name != "generations"}


def _steps(run: Run) -> dict[str, np.ndarray]:
    """Return the distances [G] between parents and offspring in cell widths, by kind of offspring."""
    cells = run.archive.cells
    sides = np.asarray(cells.high, float) - np.asarray(cells.low, float)
    width = (np.prod(sides) / cells.count) ** (1 / len(sides))
    columns = {kind: run.metrics.get(f"parent_distance_{kind.name.lower()}") for kind in Kind}
    return {
        kind.name.lower(): distance / width
        for kind, distance in columns.items()
        if distance is not None and np.isfinite(distance).any()
    }


def _curves(metrics: dict[str, np.ndarray], steps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    last = len(metrics["generation"]) - 1
    spaced = np.linspace(0, last, POINTS // 2), np.geomspace(1, last + 1, POINTS // 2) - 1
    at = np.unique(np.concatenate(spaced).round().astype(int))
    curves = {name: metrics[name][at] for name in CURVES}
    for kind, values in steps.items():
        since = np.split(values, at[:-1] + 1)
        curves[f"step_{kind}"] = _rounded(np.array([finite_median(part) for part in since]), 4)
    return curves


def _lives(lanes: dict[str, np.ndarray]) -> tuple[Lifespans, dict[str, np.ndarray]]:
    """Compute `lifespans` and `longest_lives` from the ages [G, L] of lanes at their resets."""
    lifespans: Lifespans = {}
    longest_lives: dict[str, np.ndarray] = {}
    age, reset = lanes["age"], lanes["reset"]
    for kind in Kind:
        of_kind = lanes["kind"] == kind
        ended = of_kind & (reset != Reason.NONE)
        if not ended.any():
            continue
        ages = {reason.name.lower(): age[ended & (reset == reason)] for reason in Reason}
        found = {
            reason: {"count": of.size, "mean": float(of.mean()), "median": float(np.median(of))}
            for reason, of in {"all": age[ended], **ages}.items()
            if of.size
        }
        lives, longest = ended.sum(axis=0), np.where(ended, age, 0).max(axis=0)
        paper = (lives - 1) / np.maximum(lives, 1) * longest
        found["all"]["paper_mean"] = float(paper[of_kind.any(axis=0)].mean())
        lifespans[kind.name.lower()] = found
        longest_lives[kind.name.lower()] = longest[lives > 0]
    return lifespans, longest_lives


def _heat(archive: Archive) -> np.ndarray | None:
    if not isinstance(archive.cells, Grid) or archive.cells.count > MAX_CELLS:
        return None
    fitness = np.where(np.asarray(archive.occupied), np.asarray(archive.fitness, float), np.nan)
    return _rounded(fitness, 4).reshape(archive.cells.shape)


def _rounded(values: np.ndarray, digits: int) -> np.ndarray:
    """Round values to a number of significant digits."""
    rounded: np.ndarray = np.char.mod(f"%.{digits}g", np.asarray(values, float)).astype(float)
    return rounded


def save_summary(path: str | Path, summary: Summary) -> None:
    """Write a summary as compact JSON."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **summary._asdict()}
    content["about"] = entries_of(summary.about)
    text = json.dumps(content, default=plain)
    # Numbers that are not finite become null.
    short = json.loads(text, parse_float=_shortest, parse_constant=lambda name: None)
    save_text(Path(path), json.dumps(short, separators=(",", ":")))


def _shortest(number: str) -> float:
    """Parse a number, and convert it to an integer if it has no fractional part."""
    value = float(number)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def write_summary(run: Run) -> None:
    """Write `summary.json` into the folder of a run.

    Nothing is written if the run has no folder or no generations.
    """
    if run.folder is not None and run.generations:
        save_summary(run.folder / FILE, summarise(run))


def load_summary(path: str | Path) -> Summary:
    """Read a summary file, or summarise a run folder that has no summary file."""
    path = Path(path)
    file = path / FILE if path.is_dir() else path
    check_links(path)
    if path.is_dir() and not file.exists():
        with reading(path):
            return summarise(load_run(path))
    content = read_json(file)
    with reading(file):
        return _parse(content, file)


def _parse(content: dict[str, Any], file: Path) -> Summary:
    require(content.get("format") == FORMAT, f"'{file}' is not the summary of a run")
    check_version(int(content["format_version"]), file)
    content.setdefault("longest_lives", {})  # missing in the first summaries
    parts = {name: content[name] for name in Summary._fields}
    check_entries(file, parts, ENTRIES)
    parts["about"] = read(RunFacts, parts["about"], file)
    check_names(file, parts["about"].feature_names, len(parts["low"]))
    for name in ("curves", "corrections", "longest_lives"):
        parts[name] = {column: _array(values) for column, values in parts[name].items()}
    low, high = _array(parts["low"]), _array(parts["high"])
    lives = [life for by_reason in parts["lifespans"].values() for life in by_reason.values()]
    numbers = [*parts["curves"].values(), *parts["corrections"].values(), low, high]
    for fault, found in {
        "its curves differ in length": not _level(parts["curves"], set(CURVES)),
        "its columns of corrections differ in length": parts["corrections"]
        and not _level(parts["corrections"], CORRECTED),
        "its features have no valid bounds": low.shape != high.shape or not (low < high).all(),
        "its lifespans are incomplete": not all(life.keys() >= LIFE for life in lives),
        "some of its numbers are out of range": any((np.abs(column) > MOST).any() for column in numbers)
        or not all(0 <= parts[name] <= MOST for name in ("seed", "generations")),
    }.items():
        require(not found, f"'{file}' is damaged: {fault}")
    for name in ("heat", "corrected_heat"):
        if parts[name] is not None:
            parts[name] = _array(parts[name])
            flat = parts[name].ndim != len(low) or not parts[name].size
            require(not flat, f"'{file}' is damaged: its {name} does not have the shape of a grid")
    parts |= {"low": tuple(low.tolist()), "high": tuple(high.tolist())}
    parts["options"] = _options(parts["options"])
    parts["steps"] = {kind: float(_array(step)) for kind, step in parts["steps"].items()}
    return Summary(**parts)


def _level(columns: dict[str, np.ndarray], needed: set[str]) -> bool:
    """Return True if no column is missing, and all columns have the same positive length."""
    lengths = {len(column) for column in columns.values()}
    return needed <= columns.keys() and len(lengths) == 1 and lengths != {0}
