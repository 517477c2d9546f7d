"""The run folder: everything a reader needs, in plain files. Nothing is pickled.

config.json     settings, seed, package versions, device, times
metrics.csv     a row for each generation
lanes.npz       what each lane did in each generation
changes.bin     a row for each change of a cell
archive.npz     the elites
corrected.npz   what is left of them after re-evaluation, if the task is uncertain
corrected.csv   a row for each such correction
summary.json    the run in a few numbers, for comparisons
checkpoints/    what `memes resume` needs
figures/        pictures of the above
tensorboard/    metrics, if they are tracked there
export/         tables and arrays in other formats, if they are asked for
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

from memes.algorithm import State
from memes.archive import LIMIT, Archive, Status
from memes.context import Kind
from memes.errors import LONGEST_NAME, MOST, known, require
from memes.estimates import Correction
from memes.resets import Reason
from memes.store.archives import (
    FORMAT_VERSION,
    check_version,
    load_archive,
    load_correction,
    load_npz,
    save_npz,
)
from memes.store.files import (
    append,
    as_path,
    check_entries,
    intact,
    read_json,
    read_table,
    remove_files,
    replace_file,
    save_text,
)
from memes.task import numbered

CONTENT = (
    "config.json", "metrics.csv", "lanes.npz", "changes.bin", "archive.npz", "corrected.npz",
    "corrected.csv", "summary.json", "checkpoints", "figures", "tensorboard", "export",
)  # fmt: skip
# The names of all files that memes writes into a run folder and into the folders in it. config.json is
# removed last: it says that there is a run.
CHECKPOINTS = re.compile(r"[0-9]{8,}\.npz")
EVENTS = r"events\.out\.tfevents\.[0-9]+\.[0-9]+\.[0-9a-f]{8}"
TABLES = r"(metrics|archive|corrections|corrected_archive)\.(csv|parquet)|run\.npz"
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
ENDED = {"finished", "generations_done", "seconds", "stopped", "signal"}  # what a config says of the end
# Codes whose names `lanes.npz` holds beside the lanes.
CODES: dict[str, type[IntEnum]] = {"kinds": Kind, "reasons": Reason, "statuses": Status}
# What is read of `config.json`, of a map in it, of each row of `metrics.csv`, and of lanes.
ENTRIES: dict[str, Any] = {
    "task": str, "task_name": str | None, "algorithm": str, "label": str | None,
    "scale": str | None, "seed": int, "options": dict | None, "map": dict | None,
    "feature_names": tuple[str, ...] | None, "chunk": int | None, "code": dict | None,
    "versions": dict | None, "device": str | None,
}  # fmt: skip
Points = tuple[tuple[float, ...], ...]
MAP = {"walls": tuple[Points, ...], "start": tuple[float, ...], "goal": float | None}
METRICS = ("generation", "evaluations", "seconds", "qd_score", "coverage", "max_fitness")
LANES = ("generation", "kind", "age", "reset")


class Run(NamedTuple):
    """A run: what `memes.run` returns, and what `load_run` reads from a folder.

    Attributes:
        folder: Where it is saved; None if it is only in memory.
        config: What `config.json` holds, or would.
        metrics: The columns of `metrics.csv`, each [G].
        lanes: What each lane did in each generation, arrays [G, L, ...] by name.
        archive: The elites.
        corrected: The columns of `corrected.csv`, with a row for each correction; empty without any.
        correction: What re-evaluation left of the archive at the end; None if it was not corrected.
        state: That of the algorithm at the end; None if the run was read from a folder.
    """

    folder: Path | None
    config: dict[str, Any]
    metrics: dict[str, np.ndarray]
    lanes: dict[str, np.ndarray]
    archive: Archive
    corrected: dict[str, np.ndarray]
    correction: Correction | None
    state: State | None = None

    @property
    def generations(self) -> int:
        """How many generations were done."""
        return len(self.metrics.get("generation", ()))

    def plot(self, figure: str = "archive") -> Any:
        """Draw a figure of `memes.plot`: "archive", "curves" or "positions"."""
        import memes  # through which everything may be asked for

        return getattr(memes.plot, known("figure", figure, ("archive", "curves", "positions")))(self)

    def _repr_html_(self) -> str:
        """Show the run in a notebook: numbers and a picture."""
        import memes

        return memes.plot.html(self)

    def __repr__(self) -> str:
        where = "" if self.folder is None else f" in '{self.folder}'"
        algorithm, task = algorithm_label(self.config), task_label(self.config)
        name = f"{algorithm} on {task}, seed {self.config['seed']}{where}"
        if not self.generations:
            return f"<Run: {name}, not begun>"
        scores = self.metrics["qd_score"][-1], self.metrics["coverage"][-1]
        shown = "QD-score {:.1f}, coverage {:.1%}".format(*scores)
        return f"<Run: {name}, {self.generations} generations, {shown}>"


def holds_run(path: Path) -> bool:
    """Does the folder hold a run already?"""
    return os.path.exists(path / "config.json")


def check_link(path: Path) -> None:
    """Raise a `UsageError` if a path is a link."""
    require(not path.is_symlink(), f"'{path}' is a link, which memes does not follow")


def check_links(path: Path) -> None:
    """Raise a `UsageError` if something that a run has in its folder is a link."""
    for name in (*CONTENT, ".lock"):
        check_link(path / name)


def check_free(path: Path, overwrite: bool = False) -> None:
    """Raise a `UsageError` unless a new run can be written to `path`, perhaps in place of another.

    Files that no run has written are never replaced.
    """
    check_place(path)
    there = next(p for p in (path, *path.absolute().parents) if os.path.exists(p))
    require(there.is_dir(), f"out must be a folder, but '{there}' is a file")
    place = Path(os.path.realpath(path))
    require(
        not (place.name in FOLDERS and holds_run(place.parent)),
        f"out must not be a folder of another run, but '{path}' is one of '{place.parent}'; choose "
        "another folder",
    )
    writable = os.access(there, os.W_OK | os.X_OK)
    require(writable, f"out cannot be written: there is no permission for '{there}'")
    check_links(path)
    if holds_run(path):
        choose = "choose another folder, or overwrite the run"
        require(overwrite, f"out must not hold a run yet, but '{path}' does; {choose}")
        load_config(path)  # refuses what is no run
        return
    require(
        not (path / "checkpoints").exists(),
        f"out must not hold checkpoints of another run, but '{path}' does; choose another folder",
    )
    taken = next(_own_files(path), None)
    require(
        taken is None,
        f"out must not hold files with the names of a run's, but '{path}' holds '{taken}' and no run; "
        "choose another folder",
    )


def check_place(path: Path) -> None:
    """Raise a `UsageError` if a folder for output is the root or the home folder, or one above it."""
    place, home = Path(os.path.realpath(path)), Path(os.path.expanduser("~"))
    homes = (home := Path(os.path.realpath(home)), *home.parents) if home.is_absolute() else ()
    above = place == place.parent or place in homes
    require(
        not above,
        f"out must not be the root folder, the home folder or one above it, got '{path}'; choose a "
        "folder inside",
    )


def check_beside(out: Path, seeds: Sequence[int] | None, overwrite: bool) -> None:
    """Raise a `UsageError` if a run of `out`, or runs of seeds in it, would hide or mix with others."""
    check_place(out)
    if seeds is None:
        below = next(_runs_below(out), None)
        require(
            below is None or holds_run(out),
            f"out must not have other runs inside, but '{out}' has '{below}'; choose another folder",
        )
        return
    for seed in seeds:
        check_link(out / f"seed-{seed}")
    inside = [each for each in sorted(out.iterdir()) if holds_run(each)] if out.is_dir() else []
    require(not holds_run(out), f"out must not hold a run, but '{out}' does; choose another folder")
    stay = [each.name for each in inside if each.name not in {f"seed-{seed}" for seed in seeds}]
    require(
        not overwrite or not stay,
        f"out: {', '.join(stay)} of '{out}' would stay beside the runs that overwrite others; "
        "choose another folder, or the same seeds",
    )


def _runs_below(out: Path, depth: int = 2) -> Iterator[Path]:
    """List the runs in a folder, and in the folders in it, as `runs/arm-memes/seed-0` is in `runs`."""
    with suppress(OSError):  # some folders cannot be read
        for each in sorted(out.iterdir()) if depth else ():
            if each.is_dir() and not each.is_symlink():
                if holds_run(each):
                    yield each
                yield from _runs_below(each, depth - 1)


def _own_files(path: Path) -> Iterator[Path]:
    """List what a folder and the folders in it have under the names that a run writes."""
    for folder, names in OWN:
        place = path / folder
        if place.is_dir():
            yield from (file for file in sorted(place.iterdir()) if names.fullmatch(file.name))


def remove_run(path: Path) -> None:
    """Remove the files of a run from a folder, if it holds one, and nothing else."""
    if not holds_run(path):
        return
    check_links(path)
    for folder, names in OWN:
        remove_files(path / folder, names)
        if folder != ".":
            with suppress(OSError):  # it is not there, or something else is in it
                (path / folder).rmdir()


def remove_unfinished(path: Path) -> None:
    """Remove the files of a run that killed processes had not finished.

    If a folder holds no run, config.json is the only one that it can have.
    """
    check_links(path)
    for folder, names in OWN if holds_run(path) else OWN[-1:]:
        remove_files(path / folder, names, unfinished=True)


def save_config(path: Path, config: dict[str, Any]) -> None:
    """Write `config.json`. What JSON does not know is written as it prints."""
    entries = {"format_version": FORMAT_VERSION, **config}
    save_text(path / "config.json", json.dumps(entries, indent=2, default=plain))


def plain(value: Any) -> Any:
    """Turn a value that JSON does not know into one that it knows."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)


def save_metrics(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Write `metrics.csv` anew with the rows that there are, perhaps none."""
    replace_file(path / "metrics.csv", lambda file: file.write(_lines(columns)))


def append_metrics(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Append the rows of equally long columns to `metrics.csv`. NaN becomes an empty field."""
    file = path / "metrics.csv"
    size = file.stat().st_size
    append(file, _lines(columns, head=size == 0), at=size)


def _lines(columns: Mapping[str, Iterable[float]], head: bool = True) -> bytes:
    """A table as it is written: its rows, perhaps below its head; nothing, if it has no columns."""
    rows = ([_field(value) for value in row] for row in zip(*columns.values(), strict=True))
    table = [[*columns], *rows] if head and columns else rows
    return "".join(f"{','.join(row)}\n" for row in table).encode()


def _field(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.9g}"


def save_corrected(path: Path, columns: Mapping[str, Iterable[float]]) -> None:
    """Write `corrected.csv` as a whole; there is none without rows."""
    file, lines = path / "corrected.csv", _lines(columns)
    if lines.count(b"\n") > 1:
        replace_file(file, lambda stream: stream.write(lines))
    else:
        file.unlink(missing_ok=True)


def load_corrected(path: Path) -> dict[str, np.ndarray]:
    """Read `corrected.csv` into an array for each column; nothing, if there is no such file."""
    file = path / "corrected.csv"
    return _by_generation(file, read_table(file, ("generation",))) if file.exists() else {}


def save_lanes(path: Path, lanes: dict[str, Any]) -> None:
    """Write what each lane did, arrays [G, L, ...], with the names of its codes."""
    codes = {key: [code.name.lower() for code in enum] for key, enum in CODES.items()}
    save_npz(path, **codes, **lanes)


# Options that earlier versions did not have, with the values that stand for what they did.
ONCE_ABSENT = {
    "candidate_samples": 1,
    "candidate_statistic": "median",
    "fifo_size": 50_000,  # of memes-me
    "noise_dtype": "float32",
    "statistic": "mean",  # of me-sampling
}


def load_config(folder: Path) -> dict[str, Any]:
    """Read what a run is, also if it did not finish."""
    require(holds_run(folder), f"'{folder}' does not hold a run: it has no config.json")
    check_links(folder)
    file = folder / "config.json"
    config = read_json(file)
    with intact(file):
        check_version(int(config["format_version"]), file)
        check_entries(file, config, ENTRIES)
        check_map(file, config)
        check_names(file, config)
        return config


def check_map(file: Path, entries: Mapping[str, Any]) -> None:
    """Raise a `UsageError` if a file has a map that cannot be drawn."""
    about = entries.get("map")
    if about is None:
        return
    check_entries(file, about, MAP)
    corners = [*about["walls"], [about["start"]], [[about["goal"] or 0.0] * 2]]
    sound = all(wall and np.shape(wall)[1:] == (2,) for wall in corners)
    sane = sound and all((np.abs(np.asarray(wall, float)) < LIMIT).all() for wall in corners)
    require(sane and set(about) == set(MAP), f"map in '{file}' cannot be drawn")


def check_names(file: Path, entries: Mapping[str, Any], k: int | None = None) -> None:
    """Raise a `UsageError` if a file has names that are none, or not one for each of k features."""
    names = entries.get("feature_names") or ()
    sane = all(0 < len(name) <= LONGEST_NAME for name in names) and len(names) in (0, k or len(names))
    require(sane, f"feature_names in '{file}' must be a name for each feature")


def task_label(config: Mapping[str, Any]) -> str:
    """The name of a run's task in tables and figures: that of a custom task is its own."""
    task = str(config["task"])
    return (config.get("task_name") or Path(task).name) if ":" in task else task


def algorithm_label(config: Mapping[str, Any]) -> str:
    """The name of a run's algorithm in tables and figures."""
    return str(config.get("label") or config["algorithm"])


def feature_names(recorded: Mapping[str, Any], k: int) -> tuple[str, ...]:
    """Read the names of k features; their numbers, where an older version recorded none."""
    return tuple(recorded.get("feature_names") or numbered(k))


def load_run(path: str | Path) -> Run:
    """Read a whole run folder."""
    folder = as_path(path)
    config, file = load_config(folder), folder / "archive.npz"
    require(file.exists(), f"the run in '{folder}' has no archive.npz yet; 'memes resume' goes on")
    metrics = read_metrics(folder / "metrics.csv")
    lanes = read_lanes(folder / "lanes.npz")
    corrected, correction, archive = load_corrected(folder), load_correction(folder), load_archive(file)
    check_names(folder / "config.json", config, archive.feature.shape[1])
    return Run(folder, config, metrics, lanes, archive, corrected, correction)


def read_lanes(file: Path) -> dict[str, np.ndarray]:
    """Read `lanes.npz` without the names of its codes."""
    lanes = load_npz(file, LANES)
    return check_lanes(file, {name: array for name, array in lanes.items() if name not in CODES})


def check_lanes(file: Path, lanes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what lanes did, if it is an array [G, L, ...] for each name."""
    with intact(file):
        generations, *others = (lanes[name].shape for name in LANES)
        equal = len({len(array) for array in lanes.values()}) == len(set(others)) == 1
        if not equal or len(generations) != 1 or len(others[0]) != 2:
            raise ValueError("its arrays are not of the same generations and lanes")
        return lanes


def load_metrics(file: str | Path) -> dict[str, np.ndarray]:
    """Read `metrics.csv` into an array for each column; empty fields become NaN."""
    return read_table(as_path(file, "file"))


def read_metrics(file: Path) -> dict[str, np.ndarray]:
    """Read the `metrics.csv` of a run, with a row for each generation, in their order."""
    return _by_generation(file, read_table(file, METRICS))


def _by_generation(file: Path, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    generation = columns["generation"]
    whole = (generation >= 1) & (generation <= MOST) & (generation % 1 == 0)
    require(
        bool(whole.all() and (np.diff(generation) > 0).all()),
        f"generation in '{file}' must be whole numbers that increase",
    )
    return columns
