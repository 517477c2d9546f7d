"""What is left of a run when it is compared with others: one small JSON file, without genotypes."""

from __future__ import annotations

import glob
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memes.archive import Archive
from memes.cells import Grid
from memes.context import Kind
from memes.errors import require
from memes.metrics import finite_median
from memes.resets import Reason
from memes.store.files import intact, replace_file
from memes.store.folder import FORMAT_VERSION, Run, check_version, holds_run, load_run, plain

FILE = "summary.json"
FORMAT = "memes-summary"
POINTS = 120  # generations that the curves show, at most
MAX_CELLS = 20_000  # of an archive whose fitness is written down cell by cell
CURVES = ("generation", "evaluations", "seconds", "qd_score", "coverage", "max_fitness")
ABOUT = (
    "device",
    "versions",
    "precision",
    "compile_seconds",
    "cells",
    "uncertain",
    "map",
    "seeds_together",
)


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
        about: `commit`, `when`, `seconds_per_generation`, and what `config.json` says of the device,
            the versions, the precision, compilation, the cells and the map.
        curves: `CURVES` at up to `POINTS` generations, the first and the last among them, half of them
            in equal distances and half in equal ratios; and for each kind of offspring `step_exploit`,
            ...: its mean distance from the parent in feature space, in cell widths, as the median over
            the generations since the point before.
        corrections: The columns of `corrected.csv`, and the run's `evaluations` until then; empty if the
            archive was never corrected.
        lifespans: By kind of lane, and by reason of the reset or for `all`: `count`, `mean` and `median`
            age at the reset; for `all` also `paper_mean`, what the paper's table has in place of the
            mean: of each lane (n - 1) / n times the longest of its n lives, as a mean over the lanes.
        longest_lives: By kind, the longest life of each lane that was ever reset, in generations; empty
            where an older version made the summary.
        steps: By kind, the median over all generations of the distances in `curves`.
        shape: Cells along each feature; None for a tessellation.
        low: Lower bounds of the features [k].
        high: Upper bounds of the features [k].
        heat: Fitness [*shape], NaN where empty; None for a tessellation and for very many cells.
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
    lifespans: dict[str, dict[str, dict[str, float]]]
    longest_lives: dict[str, np.ndarray]
    steps: dict[str, float]
    shape: tuple[int, ...] | None
    low: tuple[float, ...]
    high: tuple[float, ...]
    heat: np.ndarray | None
    corrected_heat: np.ndarray | None

    @property
    def corrected(self) -> dict[str, float] | None:
        """The last correction, if there was any."""
        return {name: float(column[-1]) for name, column in self.corrections.items()} or None


def summarise(run: Run) -> Summary:
    """The summary of a run, with what its folder holds of corrections."""
    config, metrics, cells = run.config, run.metrics, run.archive.cells
    done, steps = len(metrics["generation"]), _steps(run)
    return Summary(
        task=config["task"],
        algorithm=config["algorithm"],
        label=config.get("label") or config["algorithm"],
        seed=int(config["seed"]),
        scale=config.get("scale"),
        generations=done,
        options=config.get("options") or {},
        about={name: config.get(name) for name in ABOUT}
        | {
            "commit": config.get("git_commit"),
            "when": config.get("started"),
            "seconds_per_generation": float(metrics["seconds"][-1]) / done,
        },
        curves=_curves(metrics, steps),
        corrections=_corrections(run),
        lifespans=_lifespans(run.lanes),
        longest_lives=_longest_lives(run.lanes),
        steps={kind: finite_median(values) for kind, values in steps.items()},
        shape=cells.shape if isinstance(cells, Grid) else None,
        low=tuple(np.asarray(cells.low).tolist()),
        high=tuple(np.asarray(cells.high).tolist()),
        heat=_heat(run.archive),
        corrected_heat=None if run.correction is None else _heat(run.correction.archive),
    )


def cell_width(low: np.ndarray, high: np.ndarray, count: int) -> float:
    """The side of a cube as large as the average one of `count` cells between two corners [k]."""
    return float((np.prod(np.asarray(high) - np.asarray(low)) / count) ** (1 / len(low)))


def _steps(run: Run) -> dict[str, np.ndarray]:
    """For each kind with offspring, their mean distance from the parents in cell widths: [G]."""
    cells = run.archive.cells
    width = cell_width(np.asarray(cells.low, float), np.asarray(cells.high, float), cells.count)
    distances = {
        kind.name.lower(): run.metrics.get(f"parent_distance_{kind.name.lower()}") for kind in Kind
    }
    return {
        kind: values / width
        for kind, values in distances.items()
        if values is not None and np.isfinite(values).any()
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


def _corrections(run: Run) -> dict[str, np.ndarray]:
    if not run.corrected:
        return {}
    row = run.corrected["generation"].astype(int) - 1
    return run.corrected | {"evaluations": run.metrics["evaluations"][row]}


def _lifespans(lanes: dict[str, np.ndarray]) -> dict[str, dict[str, dict[str, float]]]:
    """Ages of the lanes [G, L] where they were reset, by kind and reason."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind, ended in _ended(lanes).items():
        ages = {"all": lanes["age"][ended]} | {
            reason.name.lower(): lanes["age"][ended & (lanes["reset"] == reason)] for reason in Reason
        }
        found[kind.name.lower()] = {
            reason: {"count": age.size, "mean": float(age.mean()), "median": float(np.median(age))}
            for reason, age in ages.items()
            if age.size
        }
        lives, of_kind = ended.sum(axis=0), (lanes["kind"] == kind).any(axis=0)
        paper = (lives - 1) / np.maximum(lives, 1) * _longest(lanes, ended)
        found[kind.name.lower()]["all"]["paper_mean"] = float(paper[of_kind].mean())
    return found


def _longest_lives(lanes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        kind.name.lower(): _longest(lanes, ended)[ended.any(axis=0)]
        for kind, ended in _ended(lanes).items()
    }


def _ended(lanes: dict[str, np.ndarray]) -> dict[Kind, np.ndarray]:
    """Where lanes were reset, [G, L] for each kind that ever was."""
    found = {kind: (lanes["kind"] == kind) & (lanes["reset"] != Reason.NONE) for kind in Kind}
    return {kind: ended for kind, ended in found.items() if ended.any()}


def _longest(lanes: dict[str, np.ndarray], ended: np.ndarray) -> np.ndarray:
    """The largest age of each lane where it `ended[G, L]`, 0 if it never did: [L]."""
    longest: np.ndarray = np.where(ended, lanes["age"], 0).max(axis=0)
    return longest


def _heat(archive: Archive) -> np.ndarray | None:
    if not isinstance(archive.cells, Grid) or archive.cells.count > MAX_CELLS:
        return None
    fitness = np.where(np.asarray(archive.occupied), np.asarray(archive.fitness, float), np.nan)
    return _rounded(fitness, 4).reshape(archive.cells.shape)


def _rounded(values: np.ndarray, digits: int) -> np.ndarray:
    """The values to so many significant digits."""
    flat = [float(f"{value:.{digits}g}") for value in np.asarray(values, float).ravel()]
    return np.asarray(flat).reshape(np.shape(values))


def save_summary(path: str | Path, summary: Summary) -> None:
    """Write a summary as JSON, without spaces: most of it is one number after the other."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **summary._asdict()}
    text = json.dumps(_plain(content), separators=(",", ":"), allow_nan=False, default=plain)
    replace_file(Path(path), lambda file: file.write(f"{text}\n".encode()))


def write_summary(folder: str | Path) -> Path:
    """Summarise the run in a folder and write `summary.json` there; returns its path."""
    file = Path(folder) / FILE
    save_summary(file, summarise(load_run(folder)))
    return file


def _plain(value: Any) -> Any:
    """Arrays as lists, whole numbers without a point, and what is not finite as null."""
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value


def load_summary(path: str | Path) -> Summary:
    """Read a summary file."""
    file = Path(path)
    with intact(file):
        return _parse(json.loads(file.read_text()), file)


def _parse(content: Any, file: Path) -> Summary:
    ours = isinstance(content, dict) and content.get("format") == FORMAT
    require(ours, f"'{file}' is not the summary of a run")
    check_version(int(content["format_version"]), file)
    content.setdefault("longest_lives", {})  # which summaries did not have from the beginning
    fields = {name: content[name] for name in Summary._fields}
    shape = None if fields["shape"] is None else tuple(map(int, fields["shape"]))
    curves = {name: _array(column) for name, column in fields["curves"].items()}
    sizes = {len(curves[name]) for name in CURVES}
    require(len(sizes) == 1 and sizes != {0}, f"'{file}' is damaged: its curves are not equally long")
    for name in ("heat", "corrected_heat"):
        if fields[name] is not None:
            fields[name] = _array(fields[name]).reshape(shape)
    return Summary(**fields)._replace(
        seed=int(fields["seed"]),
        generations=int(fields["generations"]),
        curves=curves,
        corrections={name: _array(column) for name, column in fields["corrections"].items()},
        longest_lives={kind: _array(lives) for kind, lives in fields["longest_lives"].items()},
        steps={kind: _number(step) for kind, step in fields["steps"].items()},
        shape=shape,
        low=tuple(map(float, fields["low"])),
        high=tuple(map(float, fields["high"])),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _array(values: list[Any]) -> np.ndarray:
    return np.asarray(values, dtype=float)  # None becomes NaN


def load_all(paths: Iterable[str | Path], argument: str = "RUN") -> list[Summary]:
    """Summaries of run folders, summary files, folders of either, or patterns such as `runs/arm-*`."""
    return [load(path) for path in find(paths, argument)]


def load(path: Path) -> Summary:
    """The summary of one run folder or summary file."""
    if not path.is_dir():
        return load_summary(path)
    if (path / FILE).exists():
        return load_summary(path / FILE)
    with intact(path):
        return summarise(load_run(path))


def find(paths: Iterable[str | Path], argument: str = "RUN") -> list[Path]:
    """The run folders and summary files that are meant, each of them once, in the order given.

    Errors name the argument.
    """
    found: dict[Path, Path] = {}
    for word in paths:
        places = [Path(word)] if Path(word).exists() else [Path(p) for p in sorted(glob.glob(str(word)))]
        require(bool(places), f"{argument}: there is no file or folder '{word}'")
        here = [run for place in places for run in _runs_in(place)]
        require(bool(here), f"{argument}: there is no run and no summary in '{word}'")
        for run in here:
            folder = run.parent if run.name == FILE and holds_run(run.parent) else run
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _runs_in(place: Path) -> Iterator[Path]:
    if not place.is_dir() or holds_run(place):
        yield place
        return
    for entry in sorted(place.iterdir()):
        if entry.is_dir():
            yield from _runs_in(entry)
        elif entry.suffix == ".json" and _is_summary(entry):
            yield entry


def _is_summary(file: Path) -> bool:
    with file.open("rb") as stream:
        return FORMAT.encode() in stream.read(100)  # a folder may hold large files of other kinds
