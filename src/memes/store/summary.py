"""Summaries of runs: one small JSON file each, without genotypes, for comparisons."""

from __future__ import annotations

import json
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
from memes.store.files import check_entries, intact, read_json, save_text
from memes.store.folder import (
    METRICS,
    Run,
    algorithm_label,
    check_links,
    check_map,
    check_names,
    load_run,
    plain,
    task_label,
)

FILE = "summary.json"
FORMAT = "memes-summary"
POINTS = 120  # generations that the curves show, at most
MAX_CELLS = 20_000  # of an archive whose fitness is written down cell by cell
CURVES = METRICS
ABOUT = (
    "device", "versions", "precision", "compile_seconds", "cells", "uncertain", "map", "feature_names",
    "seeds_together", "dim", "min_fitness", "processes_on_device",
)  # fmt: skip
Lifespans = dict[str, dict[str, dict[str, float]]]
Columns = dict[str, tuple[float | None, ...]]
# The entries of a file, and of its `about`.
ENTRIES: dict[str, Any] = {
    "task": str, "algorithm": str, "label": str, "seed": int, "scale": str | None, "generations": int,
    "options": dict, "about": dict, "curves": Columns, "corrections": Columns, "lifespans": Lifespans,
    "longest_lives": Columns, "steps": dict[str, float | None],
    "low": tuple[float, ...], "high": tuple[float, ...],
}  # fmt: skip
ABOUT_ENTRIES = {
    "compile_seconds": float | None, "seconds_per_generation": float | None, "commit": str | None,
    "map": dict | None, "feature_names": tuple[str, ...] | None, "min_fitness": float | None,
    "processes_on_device": int | None, "device": str | None,
}  # fmt: skip
# What each correction and each lifespan has at least.
CORRECTED = {"generation", "evaluations"}
LIFE = {"count", "mean", "median"}
MOST = 1e30  # no number of a run is larger
_array = partial(np.asarray, dtype=float)  # None becomes NaN


class Summary(NamedTuple):
    """A run in a few numbers. A mean over nothing is NaN, or left out.

    Attributes:
        task: Its name.
        algorithm: Its name.
        label: How the run is called in tables.
        seed: Seed of the run.
        scale: Which defaults it had; None if it was made in Python.
        generations: How many were done.
        options: Options of the task and the algorithm.
        about: `commit` (of the library; in version 0.2 of the working directory), `when`,
            `seconds_per_generation`, and what `config.json` says of the device, the versions, the
            precision, compilation, the cells, the map, the names of features, the entries of a genotype,
            the least fitness and the processes that shared the device.
        curves: `CURVES` at up to `POINTS` generations, the first and the last among them, half of them
            in equal distances and half in equal ratios; and for each kind of offspring `step_exploit`,
            ...: its mean distance from the parent in feature space, in cell widths, as the median over
            the generations since the point before.
        corrections: The columns of `corrected.csv`, and the run's `evaluations` until then; empty if the
            archive was never corrected. Of runs of version 0.2 the columns `..._by_mean` are missing.
        lifespans: By kind of lane, and by reason of the reset or for `all`: `count`, `mean` and `median`
            age at the reset; for `all` also `paper_mean`, what the paper's table has in place of the
            mean: of each lane (n - 1) / n times the longest of its n lives, as a mean over the lanes.
        longest_lives: By kind, the longest life of each lane that was ever reset, in generations; empty
            where an older version made the summary.
        steps: By kind, the median over all generations of the distances in `curves`.
        low: Lower bounds of the features [k].
        high: Upper bounds of the features [k].
        heat: Fitness along each feature of a grid, NaN where empty; None for a tessellation and for very
            many cells.
        corrected_heat: The same of the corrected archive, if there is one.
    """

    task: str
    algorithm: str
    label: str
    seed: int
    scale: str | None
    generations: int
    options: dict[str, Any]
    about: dict[str, Any]
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
        """The last correction, if there was any: the scores by its own statistic, and those by means."""
        return {name: float(column[-1]) for name, column in self.corrections.items()} or None

    @property
    def corrected_mean(self) -> dict[str, float] | None:
        """The measures and losses of the last correction by means; None if they are not known."""
        end = "_by_mean"
        of_last = self.corrected or {}
        return {name.removesuffix(end): of_last[name] for name in of_last if name.endswith(end)} or None


def summarise(run: Run) -> Summary:
    """Sum up a run; one that was read from a folder gives the same as the one that was saved there."""
    run = run._replace(metrics=_as_saved(run.metrics), corrected=_as_saved(run.corrected))
    config, metrics, cells = run.config, run.metrics, run.archive.cells
    done, steps = len(metrics["generation"]), _steps(run)
    lifespans, longest_lives = _lives(run.lanes)
    about = {name: config.get(name) for name in ABOUT}
    about |= {"commit": config.get("commit") or config.get("git_commit"), "when": config.get("started")}
    sharing = config.get("processes_on_device") or 1
    if sharing > 1:  # the times are then not those of a run that has the device alone
        about["device"] = f"{config.get('device')}, shared by {sharing} processes"
    corrections = run.corrected
    if corrections:
        row = corrections["generation"].astype(int) - 1
        within = bool(((row >= 0) & (row < done)).all())
        require(within, f"a correction of the run in '{run.folder}' is of none of its generations")
        corrections = corrections | {"evaluations": metrics["evaluations"][row]}
    return Summary(
        task=task_label(config),
        algorithm=config["algorithm"],
        label=algorithm_label(config),
        seed=int(config["seed"]),
        scale=config.get("scale"),
        generations=done,
        options=_options(config.get("options") or {}),
        about=about | {"seconds_per_generation": float(metrics["seconds"][-1]) / done},
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
    """Columns with as many digits as CSV files have."""
    return {name: _rounded(column, 9) for name, column in columns.items()}


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """Options as files have them, without `generations`, which version 0.1 recorded among them."""
    written = json.loads(json.dumps(options, default=plain), parse_float=_shortest)
    return {name: value for name, value in written.items() if name != "generations"}


def _steps(run: Run) -> dict[str, np.ndarray]:
    """Measure parent-offspring distances [G] in cell widths: sides of a cube like the average cell."""
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
    """Collect `lifespans` and `longest_lives` from the ages [G, L] of lanes where they were reset."""
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
    """Round values to so many significant digits."""
    rounded: np.ndarray = np.char.mod(f"%.{digits}g", np.asarray(values, float)).astype(float)
    return rounded


def save_summary(path: str | Path, summary: Summary) -> None:
    """Write a summary as JSON, without spaces: most of it is one number after the other."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **summary._asdict()}
    text = json.dumps(content, default=plain)
    # Numbers that are not finite become null.
    short = json.loads(text, parse_float=_shortest, parse_constant=lambda name: None)
    save_text(Path(path), json.dumps(short, separators=(",", ":")))


def _shortest(number: str) -> float:
    """A number that is whole without its point."""
    value = float(number)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def write_summary(run: Run) -> None:
    """Write `summary.json` into the folder of a run, if it has one and has begun."""
    if run.folder is not None and run.generations:
        save_summary(run.folder / FILE, summarise(run))


def load_summary(path: str | Path) -> Summary:
    """Read a summary file, or sum up a run folder that has none."""
    path = Path(path)
    file = path / FILE if path.is_dir() else path
    check_links(path)
    if path.is_dir() and not file.exists():
        with intact(path):
            return summarise(load_run(path))
    content = read_json(file)
    with intact(file):
        return _parse(content, file)


def _parse(content: dict[str, Any], file: Path) -> Summary:
    require(content.get("format") == FORMAT, f"'{file}' is not the summary of a run")
    check_version(int(content["format_version"]), file)
    content.setdefault("longest_lives", {})  # which summaries did not have from the beginning
    fields = {name: content[name] for name in Summary._fields}
    check_entries(file, fields, ENTRIES)
    check_entries(file, fields["about"], ABOUT_ENTRIES)
    check_map(file, fields["about"])
    check_names(file, fields["about"], len(fields["low"]))
    for name in ("curves", "corrections", "longest_lives"):
        fields[name] = {column: _array(values) for column, values in fields[name].items()}
    low, high = _array(fields["low"]), _array(fields["high"])
    lives = [life for by_reason in fields["lifespans"].values() for life in by_reason.values()]
    numbers = [*fields["curves"].values(), *fields["corrections"].values(), low, high]
    for fault, found in {
        "its curves are not equally long": not _level(fields["curves"], set(CURVES)),
        "its corrections are not equally long": fields["corrections"]
        and not _level(fields["corrections"], CORRECTED),
        "its features have no bounds": low.shape != high.shape or not (low < high).all(),
        "its lifespans are incomplete": not all(life.keys() >= LIFE for life in lives),
        "its numbers are absurd": any((np.abs(column) > MOST).any() for column in numbers)
        or not all(0 <= fields[name] <= MOST for name in ("seed", "generations")),
    }.items():
        require(not found, f"'{file}' is damaged: {fault}")
    for name in ("heat", "corrected_heat"):
        if fields[name] is not None:
            fields[name] = _array(fields[name])
            flat = fields[name].ndim != len(low) or not fields[name].size
            require(not flat, f"'{file}' is damaged: its {name} is not that of a grid")
    fields |= {"low": tuple(low.tolist()), "high": tuple(high.tolist())}
    fields["options"] = _options(fields["options"])
    fields["steps"] = {kind: float(_array(step)) for kind, step in fields["steps"].items()}
    return Summary(**fields)


def _level(columns: dict[str, np.ndarray], needed: set[str]) -> bool:
    """Are there equally long columns, not of length nought, with all that is needed?"""
    lengths = {len(column) for column in columns.values()}
    return needed <= columns.keys() and len(lengths) == 1 and lengths != {0}
