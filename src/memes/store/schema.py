"""Types of the entries of `config.json`: the settings, the provenance and the outcome of a run.

The entries of a file are checked against the fields of these types. All entries are at the top level of
the file.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from memes.archive import LIMIT
from memes.errors import LONGEST_NAME, require
from memes.store.archives import FORMAT_VERSION, check_version
from memes.store.files import check_entries
from memes.task import Map, numbered

THEN = ", then "  # Separator between the devices of a run that was resumed on another device.
# Options that older versions did not have, with values that reproduce the behaviour of those versions.
ONCE_ABSENT = {
    "candidate_samples": 1,
    "candidate_statistic": "median",
    "fifo_size": 50_000,  # option of memes-me
    "noise_dtype": "float32",
    "statistic": "mean",  # option of me-sampling
}
T = TypeVar("T")
Points = tuple[tuple[float, ...], ...]
MAP = {"walls": tuple[Points, ...], "start": tuple[float, ...], "goal": float | None}


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Settings of a run.

    Attributes:
        task: The task argument of a command, such as `arm` or `file.py:name`. For runs that were made in
            Python, this entry is the name of the task.
        task_name: Name of the task.
        algorithm: Name of the algorithm.
        label: Label of the run in tables. If None, the name of the algorithm is used.
        scale: Name of the scale that a command used for its defaults, or None for runs made in Python.
        options: Options of the task and the algorithm.
        seed: Seed of the random numbers.
        seeds: All seeds of the call that made the run, or None if there was only one seed.
        generations: Number of generations.
        evaluations: Maximum number of evaluations, if the user set one.
        dim: Number of entries of a genotype.
        cells: Number of cells along each feature of a grid, or in a whole tessellation.
        centroids: Number of centroids of a tessellation, if a command made the tessellation.
        feature_low: Lower bounds of the features.
        feature_high: Upper bounds of the features.
        feature_names: Names of the features. Empty if an older version made the run.
        min_fitness: Fitness that adds 0 to the QD-score.
        uncertain: Whether the task is uncertain.
        map: The walls of the task, if its features are coordinates of a position.
        batch_size: Number of evaluations per generation.
        chunk: Maximum number of evaluations at a time. If None, there is no maximum.
        seeds_per_batch: Requested number of seeds per batch, if it was given.
        seeds_together: Number of seeds that ran as one batch.
        devices: Number of devices.
        shards: Number of shards.
        call_seconds: Requested duration of a device call in seconds.
        worker_rows: Number of genotypes that are sent to a worker at a time. Only recorded if a command
            made the run.
        observers: Settings of custom observers, by the name of their class.
        settings: All other entries: the settings of the default observers, such as `checkpoint_every`,
            the remaining options of the command, and the argument `metadata` of `memes.run`.
    """

    task: str
    algorithm: str
    seed: int
    task_name: str = ""
    label: str | None = None
    scale: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None
    generations: int = 0
    evaluations: int | None = None
    dim: int | None = None
    cells: int | tuple[int, ...] | None = None
    centroids: int | None = None
    feature_low: tuple[float, ...] = ()
    feature_high: tuple[float, ...] = ()
    feature_names: tuple[str, ...] = ()
    min_fitness: float | None = None
    uncertain: bool = False
    map: Map | None = None
    batch_size: int | None = None
    chunk: int | None = None
    seeds_per_batch: int | None = None
    seeds_together: int | None = None
    devices: int | None = None
    shards: int = 1
    call_seconds: float = 1.0
    worker_rows: int | None = None
    observers: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def known_options(self) -> dict[str, Any]:
        """The options, with default values for options that older versions did not record."""
        return ONCE_ABSENT | self.options

    @property
    def task_label(self) -> str:
        """The name of the task in tables and figures."""
        return (self.task_name or Path(self.task).name) if ":" in self.task else self.task

    @property
    def algorithm_label(self) -> str:
        """The name of the algorithm in tables and figures."""
        return self.label or self.algorithm

    def names(self, k: int) -> tuple[str, ...]:
        """Return the names of k features, or numbered names if an older version recorded no names."""
        return self.feature_names or tuple(numbered(k))


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Device, versions and times of a run.

    Attributes:
        started: Time of the start.
        resumed: Times at which the run was resumed.
        device: Name of the device. If the run was resumed on a different device, this entry contains the
            names of all devices.
        precision: Precision of matrix products.
        versions: Versions of packages.
        commit: Commit of the library. Version 0.2 recorded only `git_commit`.
        git_commit: Commit of the working directory.
        code: Digests of custom tasks and algorithms, by name.
        compile_seconds: Compilation time in seconds.
        processes_on_device: Maximum number of processes that used the device at the same time.
    """

    started: str | None = None
    resumed: tuple[str, ...] = ()
    device: str | None = None
    precision: str | None = None
    versions: dict[str, Any] = field(default_factory=dict)
    commit: str | None = None
    git_commit: str | None = None
    code: dict[str, Any] = field(default_factory=dict)
    compile_seconds: float | None = None
    processes_on_device: int | None = None

    def resumed_on(self, device: str | None, when: str) -> Provenance:
        """Return the provenance of a run after the run has been resumed."""
        devices = filter(None, [*(self.device or "").split(THEN), device])
        return replace(
            self, resumed=(*self.resumed, when), device=THEN.join(dict.fromkeys(devices)) or None
        )


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """The outcome of a run, recorded when it ends.

    Attributes:
        finished: Time of the end.
        generations_done: Number of completed generations.
        seconds: Time of the completed generations in seconds. The time between an interruption and
            `resume` is not included.
        stopped: Reason why the run ended before its last generation, or None if the run was completed.
        signal: Signal that ended the run, or None if no signal ended it.
    """

    finished: str
    generations_done: int
    seconds: float = 0.0
    stopped: str | None = None
    signal: str | None = None


class Header(NamedTuple):
    """The content of `config.json`. The outcome is None until the run ends."""

    config: RunConfig
    provenance: Provenance = Provenance()
    outcome: RunOutcome | None = None

    def entries(self) -> dict[str, Any]:
        """Return the entries of the file."""
        config, ended = entries_of(self.config), {} if self.outcome is None else vars(self.outcome)
        settings = config.pop("settings")
        return {"format_version": FORMAT_VERSION, **settings, **config, **vars(self.provenance), **ended}

    def updated(self, entries: Mapping[str, Any]) -> Header:
        """Return the header with some entries replaced. All entries are converted to JSON and back."""
        written = json.dumps(self.entries() | dict(entries), default=plain)
        return header_of(json.loads(written), "metadata")


def plain(value: Any) -> Any:
    """Convert a value to a type that JSON supports: arrays to lists, and other objects to text."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)


def entries_of(instance: Any) -> dict[str, Any]:
    """Convert a dataclass to the entries of a file."""
    return {
        name: value._asdict() if isinstance(value, Map) else value
        for name, value in vars(instance).items()
    }


def header_of(entries: Mapping[str, Any], file: Path | str) -> Header:
    """Make a header from the entries of a `config.json`.

    Raises:
        UsageError: If an entry is invalid. The error message names the first invalid entry.
    """
    check_version(int(entries["format_version"]), file)
    config, provenance = read(RunConfig, entries, file), read(Provenance, entries, file)
    outcome = None if entries.get("finished") is None else read(RunOutcome, entries, file)
    known = {"format_version"}.union(*map(hints_of, (RunConfig, Provenance, RunOutcome)))
    settings = {name: value for name, value in entries.items() if name not in known}
    return Header(replace(config, settings=settings), provenance, outcome)


def read(of: Callable[..., T], entries: Mapping[str, Any], file: Path | str) -> T:
    """Make a dataclass from the entries of a file.

    Entries that are missing or null are set to their defaults.
    """
    every: Any = of
    needed = {f.name for f in fields(every) if (f.default, f.default_factory) == (MISSING, MISSING)}
    given = {name for name in hints_of(of) if name in needed or entries.get(name) is not None}
    check_entries(file, entries, {name: hint for name, hint in hints_of(of).items() if name in given})
    found = {name: tuples(entries[name]) for name in given}
    if "map" in found:
        found["map"] = map_of(file, entries["map"])
    if "feature_names" in found:
        check_names(file, found["feature_names"])
    return of(**found)


@cache
def hints_of(of: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the type of the file entry for each field of a dataclass, by the name of the field."""
    hints = typing.get_type_hints(of)
    hints.pop("settings", None)  # contains the remaining entries
    return hints | ({"map": dict[str, Any] | None} if "map" in hints else {})


def tuples(value: Any) -> Any:
    """Convert lists in a JSON value to tuples, except inside objects."""
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def map_of(file: Path | str, about: Mapping[str, Any]) -> Map:
    """Make the map of a task from the entries in `about`. Raise a `UsageError` if they are invalid."""
    check_entries(file, about, MAP)
    corners = [*about["walls"], [about["start"]], [[about["goal"] or 0.0] * 2]]
    sound = all(wall and np.shape(wall)[1:] == (2,) for wall in corners)
    sane = sound and all((np.abs(np.asarray(wall, float)) < LIMIT).all() for wall in corners)
    require(sane and set(about) == set(MAP), f"map in '{file}' cannot be drawn")
    return Map(tuples(about["walls"]), tuples(about["start"]), about["goal"])


def check_names(file: Path | str, names: tuple[str, ...], k: int | None = None) -> None:
    """Raise a `UsageError` if the feature names in a file are invalid, or if there are not k names."""
    sane = all(0 < len(name) <= LONGEST_NAME for name in names) and len(names) in (0, k or len(names))
    require(sane, f"feature_names in '{file}' must be one name per feature")
