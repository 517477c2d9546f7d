"""The run folder, which contains all results of a run in plain files. Nothing is pickled.

config.json     settings, seed, package versions, device, times
metrics.csv     one row per generation
lanes.npz       records of each lane in each generation
changes.bin     one row per change of a cell
archive.npz     the elites
corrected.npz   the corrected archive, if the task is uncertain
corrected.csv   one row per correction
summary.json    summary of the run, for comparisons
checkpoints/    files for `memes resume`
figures/        figures of the results
tensorboard/    metrics, if they are logged to TensorBoard
export/         tables and arrays in other formats, if they are exported
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memes import display
from memes.algorithm import State
from memes.archive import Archive, Status
from memes.context import Kind
from memes.errors import MOST, known, require
from memes.estimates import Correction
from memes.resets import Reason
from memes.store.archives import load_archive, load_correction, load_npz, save_npz
from memes.store.files import (
    append,
    as_path,
    read_json,
    read_table,
    reading,
    remove_files,
    replace_file,
    save_text,
)
from memes.store.schema import (
    Header,
    Provenance,
    RunConfig,
    RunOutcome,
    check_names,
    header_of,
    plain,
)

CONTENT = (
    "config.json", "metrics.csv", "lanes.npz", "changes.bin", "archive.npz", "corrected.npz",
    "corrected.csv", "summary.json", "checkpoints", "figures", "tensorboard", "export",
)  # fmt: skip

# Patterns for the names of all files that memes writes into a run folder and its subfolders.
# `remove_run` removes files in the order of `OWN`. config.json comes last, because it marks the folder
# as a run folder.
CHECKPOINTS = re.compile(r"[0-9]{8,}\.npz")
EVENTS = r"events\.out\.tfevents\.[0-9]+\.[0-9]+\.[0-9a-f]{8}"
TABLES = r"(metrics|archive|corrections|corrected_archive)\.(csv|parquet)|(run|policy)\.npz"
FILES = "|".join(re.escape(name) for name in CONTENT[1:] if "." in name)
OWN = tuple(
    (folder, re.compile(names))
    for folder, names in (
        ("checkpoints", rf"{CHECKPOINTS.pattern}|log\.bin"),
        ("figures", r"(archive|curves|positions)\.png"),
        ("tensorboard", EVENTS),
        ("export", f"{TABLES}|{EVENTS}"),
        (".", FILES),
        (".", r"config\.json"),
    )
)
FOLDERS = {folder for folder, _ in OWN} - {"."}
# Enums whose values are stored as integers in the records of lanes. `lanes.npz` also stores the names.
CODES: dict[str, type[IntEnum]] = {"kinds": Kind, "reasons": Reason, "statuses": Status}
# Names of the columns and arrays that the files of a run must contain.
METRICS = ("generation", "evaluations", "seconds", "qd_score", "coverage", "max_fitness")
LANES = ("generation", "kind", "age", "reset")


class Run(NamedTuple):
    """A run, as returned by `memes.run`, or as read from a folder by `load_run`.

    Attributes:
        folder: Folder of the run, or None if the run is only in memory.
        config: Settings of the run. `config.json` contains `config`, `provenance` and `outcome`.
        provenance: Device, versions and times of the run.
        outcome: Outcome of the run, or None if it has not ended.
        metrics: The columns of `metrics.csv` by name, each with G rows.
        lanes: Records of each lane in each generation, as arrays [G, L, ...] by name.
        archive: The archive, which contains the elites.
        corrected: The columns of `corrected.csv`, with one row per correction. The dict is empty if
            there were no corrections.
        correction: Result of the re-evaluation at the end, or None if the archive was not corrected.
        state: Final state of the algorithm, or None if the run was read from a folder.
    """

    folder: Path | None
    config: RunConfig
    provenance: Provenance
    outcome: RunOutcome | None
    metrics: dict[str, np.ndarray]
    lanes: dict[str, np.ndarray]
    archive: Archive
    corrected: dict[str, np.ndarray]
    correction: Correction | None
    state: State | None = None

    @property
    def header(self) -> Header:
        """The content of `config.json`."""
        return Header(self.config, self.provenance, self.outcome)

    @property
    def stopped(self) -> str | None:
        """The reason why the run ended before its last generation, or None if the run was completed."""
        return None if self.outcome is None else self.outcome.stopped

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the run, or None if no signal ended it."""
        return None if self.outcome is None else self.outcome.signal

    @property
    def generations(self) -> int:
        """The number of completed generations."""
        return len(self.metrics.get("generation", ()))

    def plot(self, figure: str = "archive") -> Any:
        """Draw a figure of `memes.plot`: "archive", "curves" or "positions"."""
        known("figure", figure, ("archive", "curves", "positions"))
        return getattr(display.plots(), figure)(self)

    def _repr_html_(self) -> str:
        """Return HTML that shows the main results and a figure in a notebook."""
        html: str = display.plots().html(self)
        return html

    def __repr__(self) -> str:
        where = "" if self.folder is None else f" in '{self.folder}'"
        algorithm, task = self.config.algorithm_label, self.config.task_label
        name = f"{algorithm} on {task}, seed {self.config.seed}{where}"
        if not self.generations:
            return f"<Run: {name}, not begun>"
        scores = self.metrics["qd_score"][-1], self.metrics["coverage"][-1]
        shown = "QD-score {:.1f}, coverage {:.1%}".format(*scores)
        return f"<Run: {name}, {self.generations} generations, {shown}>"


def holds_run(path: Path) -> bool:
    """Return True if the folder already contains a run."""
    return os.path.exists(path / "config.json")


def check_link(path: Path) -> None:
    """Raise a `UsageError` if a path is a link."""
    require(not path.is_symlink(), f"'{path}' is a link, which memes does not follow")


def check_links(path: Path) -> None:
    """Raise a `UsageError` if a file or folder of a run is a link."""
    for name in (*CONTENT, ".lock"):
        check_link(path / name)


def check_free(path: Path, overwrite: bool = False) -> None:
    """Raise a `UsageError` if a new run cannot be written to `path`.

    If `overwrite` is True, the new run may replace another run. Files that no run has written are never
    replaced.
    """
    check_place(path)
    there = next(p for p in (path, *path.absolute().parents) if os.path.exists(p))
    require(there.is_dir(), f"out must be a folder, but '{there}' is a file")
    place = Path(os.path.realpath(path))
    require(
        not (place.name in FOLDERS and holds_run(place.parent)),
        f"out must not be a folder of another run, but '{path}' belongs to the run in '{place.parent}'; "
        "choose another folder",
    )
    writable = os.access(there, os.W_OK | os.X_OK)
    require(writable, f"out cannot be written: there is no permission for '{there}'")
    check_links(path)
    for name in (*CONTENT, ".lock"):
        wanted = "folder" if name in FOLDERS else "file"
        fits = (path / name).is_dir() == (wanted == "folder") or not os.path.exists(path / name)
        require(fits, f"out: '{path / name}' must be a {wanted}; choose another folder")
    if holds_run(path):
        choose = "choose another folder, or overwrite the run"
        require(overwrite, f"out must not contain a run yet, but '{path}' does; {choose}")
        load_config(path)  # This call raises an error if config.json is invalid.
        return
    require(
        not (path / "checkpoints").exists(),
        f"out must not contain checkpoints of another run, but '{path}' does; choose another folder",
    )
    taken = next(_own_files(path), None)
    require(
        taken is None,
        f"out must not contain files with the names of run files, but '{path}' contains '{taken}' and "
        "no run; choose another folder",
    )


def check_not_of_run(file: Path, name: str) -> None:
    """Raise a `UsageError` if the path of a file is reserved for a file of an existing run.

    Args:
        file: The file.
        name: Name of the argument in the error message.
    """
    place = Path(os.path.realpath(file.parent))
    for folder, names in OWN:
        run = place if folder == "." else place.parent
        of_run = place == run / folder and bool(names.fullmatch(file.name)) and holds_run(run)
        require(not of_run, f"{name} must not be a file of a run, but '{file}' belongs to '{run}'")


def check_place(path: Path) -> None:
    """Raise a `UsageError` if an output folder is the root folder, or is or contains the home folder."""
    place, home = Path(os.path.realpath(path)), Path(os.path.expanduser("~"))
    homes = (home := Path(os.path.realpath(home)), *home.parents) if home.is_absolute() else ()
    above = place == place.parent or place in homes
    require(
        not above,
        f"out must not be the root folder, the home folder or a folder above it, got '{path}'; choose "
        "a subfolder",
    )


def check_beside(out: Path, seeds: Sequence[int] | None, overwrite: bool) -> None:
    """Raise a `UsageError` if new runs in `out` would conflict with existing runs there.

    A run directly in `out` would hide existing runs in subfolders of `out`. Runs of several seeds would
    be mixed with existing runs of other seeds.
    """
    check_place(out)
    if seeds is None:
        below = next(_runs_below(out), None)
        require(
            below is None or holds_run(out),
            f"out must not contain other runs, but '{out}' contains '{below}'; choose another folder",
        )
        return
    for seed in seeds:
        check_link(out / f"seed-{seed}")
    inside = [each for each in sorted(out.iterdir()) if holds_run(each)] if out.is_dir() else []
    require(not holds_run(out), f"out must not contain a run, but '{out}' does; choose another folder")
    stay = [each.name for each in inside if each.name not in {f"seed-{seed}" for seed in seeds}]
    require(
        not overwrite or not stay,
        f"out: {', '.join(stay)} in '{out}' would not be overwritten, and would mix with the new runs; "
        "choose another folder, or the same seeds",
    )


def _runs_below(out: Path, depth: int = 2) -> Iterator[Path]:
    """Yield the run folders that are in a folder or in its subfolders, down to `depth` levels."""
    with suppress(OSError):  # some folders cannot be read
        for each in sorted(out.iterdir()) if depth else ():
            if each.is_dir() and not each.is_symlink():
                if holds_run(each):
                    yield each
                yield from _runs_below(each, depth - 1)


def _own_files(path: Path) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders that have the names of run files."""
    for folder, names in OWN:
        place = path / folder
        if place.is_dir():
            yield from (file for file in sorted(place.iterdir()) if names.fullmatch(file.name))


def remove_run(path: Path) -> None:
    """Remove the files of a run from a folder, and keep all other files.

    Nothing is removed if the folder contains no run. A `UsageError` is raised if the folder's
    config.json was not written by a run.
    """
    if not holds_run(path):
        return
    load_config(path)
    for folder, names in OWN:
        remove_files(path / folder, names)
        if folder != ".":
            with suppress(OSError):  # rmdir fails if the folder is missing or not empty
                (path / folder).rmdir()


def remove_unfinished(path: Path) -> None:
    """Remove the unfinished files that killed processes have left in a run folder.

    A run writes config.json first. If the folder contains no run, only config.json can be unfinished.
    """
    check_links(path)
    for folder, names in OWN if holds_run(path) else OWN[-1:]:
        remove_files(path / folder, names, unfinished=True)


def save_config(path: Path, header: Header) -> None:
    """Write `config.json`. Values that JSON does not support are written as text."""
    save_text(path / "config.json", json.dumps(header.entries(), indent=2, default=plain))


def save_metrics(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Write a new `metrics.csv` with the given columns."""
    replace_file(path / "metrics.csv", lambda file: file.write(_lines(columns)))


def append_metrics(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Append rows to `metrics.csv`, with an empty field for NaN.

    The rows are given as columns of equal length.
    """
    file = path / "metrics.csv"
    size = file.stat().st_size
    append(file, _lines(columns, head=size == 0), at=size)


def _lines(columns: Mapping[str, Iterable[float]], head: bool = True) -> bytes:
    """Format a table as lines of CSV, with or without the header."""
    rows = ([_field(value) for value in row] for row in zip(*columns.values(), strict=True))
    table = [[*columns], *rows] if head and columns else rows
    return "".join(f"{','.join(row)}\n" for row in table).encode()


def _field(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.9g}"


def save_corrected(path: Path, columns: Mapping[str, Iterable[float]]) -> None:
    """Write a new `corrected.csv`, or remove the file if there are no rows."""
    file, lines = path / "corrected.csv", _lines(columns)
    if lines.count(b"\n") > 1:
        replace_file(file, lambda stream: stream.write(lines))
    else:
        file.unlink(missing_ok=True)


def load_corrected(path: Path) -> dict[str, np.ndarray]:
    """Read `corrected.csv` into one array per column, or return {} if there is no such file."""
    file = path / "corrected.csv"
    return _by_generation(file, read_table(file, ("generation",))) if file.exists() else {}


def save_lanes(path: Path, lanes: dict[str, Any]) -> None:
    """Write the records of lanes (arrays [G, L, ...]) and the names of all enum members to a file."""
    codes = {key: [code.name.lower() for code in enum] for key, enum in CODES.items()}
    save_npz(path, **codes, **lanes)


def load_config(folder: Path) -> Header:
    """Read the `config.json` of a run, even if the run has not finished."""
    inner = [] if holds_run(folder) else sorted(filter(holds_run, folder.glob("seed-*")))
    several = f"contains several runs: choose one, such as '{inner[0]}'" if inner else ""
    require(
        holds_run(folder),
        f"'{folder}' {several or 'does not contain a run: it has no config.json'}",
    )
    check_links(folder)
    file = folder / "config.json"
    entries = read_json(file)
    with reading(file):
        return header_of(entries, file)


def load_run(path: str | Path) -> Run:
    """Read a run from its folder."""
    folder = as_path(path)
    header, file = load_config(folder), folder / "archive.npz"
    require(file.exists(), f"the run in '{folder}' has no archive.npz yet; 'memes resume' continues it")
    metrics = read_metrics(folder / "metrics.csv")
    lanes = read_lanes(folder / "lanes.npz")
    corrected, correction, archive = load_corrected(folder), load_correction(folder), load_archive(file)
    check_names(folder / "config.json", header.config.feature_names, archive.feature.shape[1])
    return Run(folder, *header, metrics, lanes, archive, corrected, correction)


def read_lanes(file: Path) -> dict[str, np.ndarray]:
    """Read the records of lanes from `lanes.npz`."""
    lanes = load_npz(file, LANES)
    return check_lanes(file, {name: array for name, array in lanes.items() if name not in CODES})


def check_lanes(file: Path, lanes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the records of lanes, or raise a `UsageError` if their shapes do not match."""
    with reading(file):
        generations, *others = (lanes[name].shape for name in LANES)
        equal = len({len(array) for array in lanes.values()}) == len(set(others)) == 1
        if not equal or len(generations) != 1 or len(others[0]) != 2:
            raise ValueError("its arrays differ in their generations or lanes")
        return lanes


def load_metrics(file: str | Path) -> dict[str, np.ndarray]:
    """Read a `metrics.csv` file into one array per column, with NaN for empty fields."""
    return read_table(as_path(file, "file"))


def read_metrics(file: Path) -> dict[str, np.ndarray]:
    """Read the `metrics.csv` of a run, and check that the generations increase."""
    return _by_generation(file, read_table(file, METRICS))


def _by_generation(file: Path, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    generation = columns["generation"]
    whole = (generation >= 1) & (generation <= MOST) & (generation % 1 == 0)
    require(
        bool(whole.all() and (np.diff(generation) > 0).all()),
        f"generation in '{file}' must be increasing whole numbers",
    )
    return columns
