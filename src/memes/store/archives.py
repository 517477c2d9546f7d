"""Archive files, which store the elites of a run and the corrected archive."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from memes.archive import Archive, empty
from memes.cells import CVT, MAX_CELLS, Cells, Grid
from memes.errors import require
from memes.estimates import Correction
from memes.store.files import as_path, check_memory, read_arrays, reading, replace_file
from memes.store.sanitize import printable
from memes.task import extra_like, rows_like
from memes.validation import checked, short

FORMAT_VERSION = 1
ELITE = ("genotypes", "fitness", "feature", "generation", "lane")  # data of each elite

EXTRA, FIELD = (
    "extras/",
    "cells/",
)  # Prefixes of the names of extras, and of the names of fields of custom cells.
KINDS = "bifuU"  # Allowed types of array entries: bool, integers, floats and text.


@checked
def save_archive(path: str | Path, archive: Archive, **about: Any) -> None:
    """Write the occupied cells, and the data needed to rebuild the empty cells, to an npz file."""
    file = as_path(path)
    require(not file.is_dir(), f"path must be a file, but '{file}' is a folder")
    cells, cell = arrays_of(archive.cells), np.flatnonzero(np.asarray(archive.occupied))
    elites = {name: np.asarray(getattr(archive, name))[cell] for name in ELITE}
    extras = {EXTRA + name: np.asarray(values)[cell] for name, values in archive.extras.items()}
    save_npz(file, **cells, cell=cell, **elites, **extras, **about)


def arrays_of(cells: Cells) -> dict[str, np.ndarray]:
    """Return the arrays from which `cells_from` can rebuild the cells.

    For a custom class of cells, the arrays contain the name and the fields of the class.
    """
    found = {"feature_low": np.asarray(cells.low), "feature_high": np.asarray(cells.high)}
    if isinstance(cells, Grid):
        return found | {"grid_shape": np.asarray(cells.shape)}
    if isinstance(cells, CVT):
        return found | {"centroids": np.asarray(cells.centroids)}
    kind = type(cells)
    require(
        is_dataclass(cells),
        f"cells can be saved only if their class is a dataclass, but {kind.__name__} is not",
    )
    for field in fields(cast(Any, cells)):
        value = np.asarray(getattr(cells, field.name))
        require(
            value.dtype.kind in KINDS,
            f"cells of the class {kind.__name__} can be saved only if all fields are arrays, numbers or "
            f"text, but {field.name} is {short(getattr(cells, field.name))}",
        )
        found[FIELD + field.name] = value
    return found | {"cells_class": np.asarray(f"{kind.__module__}:{kind.__qualname__}")}


def cells_from(data: Mapping[str, np.ndarray], file: Path) -> Cells:
    """Make the cells that a file describes. If this fails, the exception explains the reason."""
    low, high = jnp.asarray(data["feature_low"]), jnp.asarray(data["feature_high"])
    if "cells_class" in data:
        return _custom_cells(data, file)
    if "centroids" in data:
        return CVT(low, high, jnp.asarray(data["centroids"]))
    return Grid(low, high, tuple(map(int, data["grid_shape"])))


def _custom_cells(data: Mapping[str, np.ndarray], file: Path) -> Cells:
    """Make cells of a custom class that the program has already imported.

    The module of the class is not imported here, because the file may come from an untrusted source.
    """
    name = printable(str(data["cells_class"]))
    module, _, inside = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in inside.split("."):
        # `getattr` is not used, because it can run code of the module or class.
        found = None if found is None else vars(found).get(part)
    sound = isinstance(found, type) and is_dataclass(found) and callable(getattr(found, "index", None))
    require(
        sound,
        f"'{file}' has cells of the class {name}, which this program has not imported; import the "
        "module that defines the class first",
    )
    given = {field.name: data[FIELD + field.name] for field in fields(found)}
    static = {field.name for field in fields(found) if field.metadata.get("static")}
    made: Cells = found(
        **{key: _static(array) if key in static else jnp.asarray(array) for key, array in given.items()}
    )
    return made


def _static(array: np.ndarray) -> Any:
    """Convert a saved array back to a number, a text or a nested tuple."""

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return tuples(array.tolist())


def load_archive(path: str | Path) -> Archive:
    """Read an archive from a run folder or from an `archive.npz` file.

    The task and its code are not needed. Cells without an elite have fitness -inf.
    """
    file = as_path(path)
    file = file / "archive.npz" if file.is_dir() else file
    data = load_npz(file, ELITE)
    start_jax()
    with reading(file):
        return archive_from(data, file)


def start_jax() -> None:
    """Start the JAX backend now, so that a failure to start it is not reported as a damaged file."""
    jax.default_backend()


def archive_from(data: dict[str, np.ndarray], file: Path) -> Archive:
    """Put elites into their cells. If this fails, the exception explains the reason."""
    low, high, at = data["feature_low"], data["feature_high"], data["cell"]
    n, (_, dim), (_, k) = len(at), data["genotypes"].shape, data["feature"].shape
    fitting = low.shape == high.shape == (k,)
    if not (fitting and np.isfinite(high - low).all() and (low < high).all()):
        raise ValueError("its features have no valid bounds")
    cells = cells_from(data, file)
    sound = np.shape(cells.low) == np.shape(cells.high) == (k,)
    if isinstance(cells, CVT):
        sound = cells.centroids.shape[1:] == (k,)
    elif isinstance(cells, Grid):
        sound = len(cells.shape) == k and min(cells.shape) >= 1
    if not (sound and 1 <= cells.count <= MAX_CELLS):
        raise ValueError(f"it must have 1 to {MAX_CELLS:,} cells for its {k} features")
    extras = {name.removeprefix(EXTRA): array for name, array in data.items() if name.startswith(EXTRA)}
    wide = sum(array.nbytes // max(n, 1) for array in extras.values())
    check_memory(file, cells.count * (4 * (dim + k + 3) + wide))
    whole = all(data[name].dtype.kind in "iu" for name in ("cell", "generation", "lane"))
    within = whole and bool(((at >= 0) & (at < cells.count)).all())
    if not within or {len(data[name]) for name in (*ELITE, *(EXTRA + name for name in extras))} != {n}:
        raise ValueError("its elites are not in its cells")
    like = rows_like(extras)
    for name, each in like.items():
        extra_like(f"extras in '{file}'", name, each)
    blank = empty(cells, dim, like)
    elites = {name: getattr(blank, name).at[at].set(data[name]) for name in ELITE}
    more = {name: blank.extras[name].at[at].set(array) for name, array in extras.items()}
    return replace(blank, **elites, extras=more)


def save_correction(path: Path, correction: Correction, **about: Any) -> None:
    """Write the corrected archive and the statistics of the re-evaluated elites to `corrected.npz`."""
    elites = {name: value for name, value in correction._asdict().items() if value is not None}
    save_archive(path / "corrected.npz", elites.pop("archive"), **elites, **about)


def load_correction(path: Path) -> Correction | None:
    """Read `corrected.npz`, or return None if there is no such file."""
    file = path / "corrected.npz"
    if not file.exists():
        return None
    data = load_npz(file, (*ELITE, "elite_cell", "fitness_variance", "feature_variance", "samples"))
    start_jax()
    with reading(file):
        variances = data["fitness_variance"], data["feature_variance"]
        archive = archive_from(data, file)
        means = data.get("fitness_mean"), data.get("feature_mean")
        return Correction(archive, data["elite_cell"], *variances, int(data["samples"]), *means)


def save_npz(path: Path, **arrays: Any) -> None:
    """Write arrays and the format version to an npz file."""
    numbered = {"format_version": FORMAT_VERSION, **arrays}
    replace_file(path, lambda file: np.savez_compressed(file, **numbered))


def load_npz(file: Path, needed: Iterable[str]) -> dict[str, np.ndarray]:
    """Read all arrays of a file, and check the format version and the presence of the needed arrays."""
    arrays = read_arrays(file, (*needed, "format_version"))
    with reading(file):
        check_version(int(arrays.pop("format_version")), file)
        others = {name: array for name, array in arrays.items() if not name.startswith(EXTRA)}
        odd = next((name for name, array in others.items() if array.dtype.kind not in KINDS), None)
        if odd is not None:
            raise ValueError(f"its {odd} has entries of type {arrays[odd].dtype}")
        return arrays


def check_version(version: int, file: Path | str) -> None:
    """Raise a `UsageError` if the format of a file is too new for this library."""
    require(
        version <= FORMAT_VERSION,
        f"'{file}' has format version {version}, which is too new for this version of memes (at most "
        f"{FORMAT_VERSION}); upgrade memes",
    )
