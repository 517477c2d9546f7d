"""The run folder: everything a reader needs, in plain files. Nothing is pickled.

config.json     settings, seed, package versions, device, times
metrics.csv     a row for each generation
lanes.npz       what each lane did in each generation
archive.npz     the elites
figures/        pictures of the above
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from memes.archive import Archive, Status, empty
from memes.cells import CVT, Cells, Grid
from memes.context import Kind
from memes.errors import UsageError, require
from memes.resets import Reason

FORMAT_VERSION = 1


class SavedRun(NamedTuple):
    """A run as read from its folder; `metrics` and `lanes` are arrays by name."""

    path: Path
    config: dict[str, Any]
    metrics: dict[str, np.ndarray]
    lanes: dict[str, np.ndarray]
    archive: Archive


def holds_run(path: Path) -> bool:
    """Whether the folder already holds a run."""
    return (path / "config.json").exists()


def check_free(path: Path) -> None:
    """Raise a `UsageError` unless a new run can be written to `path`."""
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    require(there.is_dir(), f"out must be a folder, but '{there}' is a file")
    require(os.access(there, os.W_OK), f"out cannot be written: there is no permission for '{there}'")
    require(
        not holds_run(path),
        f"out must not hold a run yet, but '{path}' does; choose another folder or remove it",
    )


def save_config(path: Path, config: dict[str, Any]) -> None:
    """Write `config.json`. What JSON does not know is written as it prints."""
    text = json.dumps({"format_version": FORMAT_VERSION, **config}, indent=2, default=_plain)
    (path / "config.json").write_text(text + "\n")


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)


class MetricsWriter:
    """Appends rows to `metrics.csv`; the first one fixes the columns."""

    def __init__(self, path: Path) -> None:
        self._file = (path / "metrics.csv").open("w", newline="")
        self._csv = csv.writer(self._file)
        self._started = False

    def write(self, columns: dict[str, np.ndarray]) -> None:
        """Append the rows of equally long columns. NaN becomes an empty field."""
        if not self._started:
            self._csv.writerow(columns)
            self._started = True
        for row in zip(*columns.values(), strict=True):
            self._csv.writerow("" if np.isnan(value) else f"{value:.9g}" for value in row)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def save_archive(path: Path, archive: Archive, **about: Any) -> None:
    """Write the occupied cells, and what is needed to rebuild the empty ones, to an npz file."""
    cell = np.flatnonzero(np.asarray(archive.occupied))
    cells = archive.cells
    if isinstance(cells, Grid):
        about["grid_shape"] = np.asarray(cells.shape)
    elif isinstance(cells, CVT):
        about["centroids"] = np.asarray(cells.centroids)
    else:
        raise TypeError(f"cannot save an archive with cells of type {type(cells).__name__}")
    np.savez_compressed(
        path,
        format_version=FORMAT_VERSION,
        feature_low=np.asarray(cells.low),
        feature_high=np.asarray(cells.high),
        cell=cell,
        genotypes=np.asarray(archive.genotypes)[cell],
        fitness=np.asarray(archive.fitness)[cell],
        feature=np.asarray(archive.feature)[cell],
        generation=np.asarray(archive.generation)[cell],
        lane=np.asarray(archive.lane)[cell],
        **about,
    )


def save_lanes(path: Path, lanes: dict[str, Any]) -> None:
    """Write what each lane did, arrays [G, L, ...], with the names of its codes."""
    names = {"kinds": Kind, "reasons": Reason, "statuses": Status}
    codes: dict[str, Any] = {
        key: np.asarray([code.name.lower() for code in enum]) for key, enum in names.items()
    }
    np.savez_compressed(path, format_version=FORMAT_VERSION, **codes, **lanes)


def load_archive(path: str | Path) -> Archive:
    """Read an archive from a run folder or from an `archive.npz` file.

    It needs neither the task nor the code that made it. Cells without an elite have fitness -inf.
    """
    file = Path(path)
    data = _load_npz(file / "archive.npz" if file.is_dir() else file)
    low, high = jnp.asarray(data["feature_low"]), jnp.asarray(data["feature_high"])
    cells: Cells
    if "centroids" in data:
        cells = CVT(low, high, jnp.asarray(data["centroids"]))
    else:
        cells = Grid(low, high, tuple(int(s) for s in data["grid_shape"]))
    blank = empty(cells, data["genotypes"].shape[1])
    cell = data["cell"]
    names = ("genotypes", "fitness", "feature", "generation", "lane")
    filled = {name: getattr(blank, name).at[cell].set(data[name]) for name in names}
    return blank._replace(**filled)


def load_run(path: str | Path) -> SavedRun:
    """Read a whole run folder."""
    folder = Path(path)
    require(holds_run(folder), f"'{folder}' does not hold a run: it has no config.json")
    config = json.loads((folder / "config.json").read_text())
    require(
        (folder / "archive.npz").exists(), f"the run in '{folder}' did not finish: it has no archive.npz"
    )
    _check_version(config["format_version"], folder / "config.json")
    return SavedRun(
        folder,
        config,
        load_metrics(folder / "metrics.csv"),
        _load_npz(folder / "lanes.npz"),
        load_archive(folder),
    )


def load_metrics(file: str | Path) -> dict[str, np.ndarray]:
    """Read `metrics.csv` into an array for each column; empty fields become NaN."""
    with Path(file).open(newline="") as stream:
        header, *rows = csv.reader(stream)
    values = [[float(field) if field else np.nan for field in row] for row in rows]
    return dict(zip(header, np.asarray(values).reshape(-1, len(header)).T, strict=True))


def _load_npz(file: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(file, allow_pickle=False) as data:
            arrays = dict(data)
    except FileNotFoundError:
        raise UsageError(f"there is no file '{file}'") from None
    _check_version(int(arrays.pop("format_version")), file)
    return arrays


def _check_version(version: int, file: Path) -> None:
    require(
        version <= FORMAT_VERSION,
        f"'{file}' has format version {version}, newer than this memes can read ({FORMAT_VERSION})",
    )
