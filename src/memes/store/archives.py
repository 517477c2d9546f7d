"""Files of archives: the elites of a run, and the corrected archive."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from memes.archive import Archive, empty
from memes.cells import CVT, MAX_CELLS, Cells, Grid
from memes.errors import require
from memes.estimates import Correction
from memes.store.files import as_path, check_memory, read_arrays, reading, replace_file

FORMAT_VERSION = 1
ELITE = ("genotypes", "fitness", "feature", "generation", "lane")  # data of each elite

KINDS = "bifuU"  # allowed types of entries: bool, integers, floats and text


def save_archive(path: str | Path, archive: Archive, **about: Any) -> None:
    """Write the occupied cells, and the data needed to rebuild the empty ones, to an npz file."""
    cells, cell = archive.cells, np.flatnonzero(np.asarray(archive.occupied))
    if isinstance(cells, Grid):
        about["grid_shape"] = np.asarray(cells.shape)
    elif isinstance(cells, CVT):
        about["centroids"] = np.asarray(cells.centroids)
    else:
        raise TypeError(f"cannot save an archive with cells of type {type(cells).__name__}")
    bounds = {"feature_low": np.asarray(cells.low), "feature_high": np.asarray(cells.high)}
    elites = {name: np.asarray(getattr(archive, name))[cell] for name in ELITE}
    save_npz(Path(path), **bounds, cell=cell, **elites, **about)


def load_archive(path: str | Path) -> Archive:
    """Read an archive from a run folder or from an `archive.npz` file.

    Neither the task nor the code that made it is needed. Cells without an elite have fitness -inf.
    """
    file = as_path(path)
    file = file / "archive.npz" if file.is_dir() else file
    data = load_npz(file, ELITE)
    with reading(file):
        return archive_from(data, file)


def archive_from(data: dict[str, np.ndarray], file: Path) -> Archive:
    """Put elites into their cells; exceptions describe why that fails."""
    low, high, at = data["feature_low"], data["feature_high"], data["cell"]
    n, (_, dim), (_, k) = len(at), data["genotypes"].shape, data["feature"].shape
    fitting = low.shape == high.shape == (k,)
    if not (fitting and np.isfinite(high - low).all() and (low < high).all()):
        raise ValueError("its features have no bounds")
    cells: Cells
    if "centroids" in data:
        cells = CVT(jnp.asarray(low), jnp.asarray(high), jnp.asarray(data["centroids"]))
        sound = cells.centroids.shape[1:] == (k,)
    else:
        cells = Grid(jnp.asarray(low), jnp.asarray(high), tuple(map(int, data["grid_shape"])))
        sound = len(cells.shape) == k and min(cells.shape) >= 1
    if not (sound and 1 <= cells.count <= MAX_CELLS):
        raise ValueError(f"it must have 1 to {MAX_CELLS:,} cells for its {k} features")
    check_memory(file, 4 * cells.count * (dim + k + 3))
    whole = all(data[name].dtype.kind in "iu" for name in ("cell", "generation", "lane"))
    within = whole and bool(((at >= 0) & (at < cells.count)).all())
    if not within or {len(data[name]) for name in ELITE} != {n}:
        raise ValueError("its elites are not in its cells")
    blank = empty(cells, dim)
    elites = {name: getattr(blank, name).at[at].set(data[name]) for name in ELITE}
    return blank._replace(**elites)


def save_correction(path: Path, correction: Correction, **about: Any) -> None:
    """Write `corrected.npz`: the corrected archive, the means and variances of the illusory elites."""
    elites = {name: value for name, value in correction._asdict().items() if value is not None}
    save_archive(path / "corrected.npz", elites.pop("archive"), **elites, **about)


def load_correction(path: Path) -> Correction | None:
    """Read `corrected.npz`; None if there is no such file."""
    file = path / "corrected.npz"
    if not file.exists():
        return None
    data = load_npz(file, (*ELITE, "elite_cell", "fitness_variance", "feature_variance", "samples"))
    with reading(file):
        variances = data["fitness_variance"], data["feature_variance"]
        archive = archive_from(data, file)
        means = data.get("fitness_mean"), data.get("feature_mean")
        return Correction(archive, data["elite_cell"], *variances, int(data["samples"]), *means)


def save_npz(path: Path, **arrays: Any) -> None:
    """Write arrays to an npz file with the version of its format."""
    numbered = {"format_version": FORMAT_VERSION, **arrays}
    replace_file(path, lambda file: np.savez_compressed(file, **numbered))


def load_npz(file: Path, needed: Iterable[str]) -> dict[str, np.ndarray]:
    """Read arrays, including the needed ones, from a file whose format version is supported."""
    arrays = read_arrays(file, (*needed, "format_version"))
    with reading(file):
        check_version(int(arrays.pop("format_version")), file)
        odd = next((name for name, array in arrays.items() if array.dtype.kind not in KINDS), None)
        if odd is not None:
            raise ValueError(f"its {odd} has entries of type {arrays[odd].dtype}")
        return arrays


def check_version(version: int, file: Path | str) -> None:
    """Raise a `UsageError` if the format of a file is newer than this library."""
    require(
        version <= FORMAT_VERSION,
        f"'{file}' has format version {version}, newer than this memes can read ({FORMAT_VERSION})",
    )
