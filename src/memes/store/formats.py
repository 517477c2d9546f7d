"""Export of the metrics, elites and corrections of a run to the formats of other programs."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from memes.archive import Archive, is_column
from memes.errors import known, package, require
from memes.store.files import replace_file
from memes.store.folder import Run, check_links
from memes.store.sanitize import spreadsheet
from memes.store.tensorboard import append_scalars, new_events

Table = dict[str, np.ndarray]


def export_run(run: Run, to: str, folder: Path, *, replace: bool = True) -> list[Path]:
    """Export a run to a folder, which is made if it does not exist.

    The formats `csv` and `parquet` write one file per table, and `npz` writes one file for all tables.
    The format `tensorboard` writes the metrics and the corrections by generation. Only `parquet` and
    `npz` include genotypes and extras with several numbers per elite. `parquet` stores such values as
    lists.

    Args:
        run: The run.
        to: The format.
        folder: The folder for the files.
        replace: Whether to replace existing files. If False, an existing file raises a `UsageError`.

    Returns:
        The paths of the files.
    """
    write = FORMATS[known("format", to, FORMATS)]
    check_links(folder)
    names = ["run.npz"] if to == "npz" else [f"{name}.{to}" for name in tables(run)]
    taken = next((name for name in names if (folder / name).exists()), None)
    require(
        replace or taken is None,
        f"out must not contain files that the export would replace, but '{folder}' contains '{taken}'; "
        "choose another folder",
    )
    folder.mkdir(exist_ok=True)
    return write(run, folder)


def tables(run: Run) -> dict[str, Table]:
    """Return the tables of a run by name. Only runs with corrections have tables of corrections."""
    names = run.config.names(run.archive.feature.shape[1])
    found = {"metrics": run.metrics, "archive": run.archive.columns(names)}
    if run.corrected:
        found["corrections"] = run.corrected
    if run.correction is not None:
        found["corrected_archive"] = run.correction.archive.columns(names)
    return found


def _wide(run: Run) -> dict[str, Table]:
    """Map the name of each table of elites to the arrays with several numbers per elite.

    The arrays are the genotypes [n, d], and the extras [n, ...] that are not columns of the table. The
    rows of the arrays and of the table have the same order.
    """
    archives: dict[str, Archive] = {"archive": run.archive}
    if run.correction is not None:
        archives["corrected_archive"] = run.correction.archive
    found = {}
    for name, each in archives.items():
        extras = {key: values for key, values in each.extras.items() if not is_column(values)}
        held = np.asarray(each.occupied)
        arrays = {"genotypes": each.genotypes, **extras}
        found[name] = {key: np.asarray(values)[held] for key, values in arrays.items()}
    return found


def _csv(run: Run, folder: Path) -> list[Path]:
    files = []
    for name, table in tables(run).items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(spreadsheet, table))
        whole = [column.dtype.kind in "iu" for column in table.values()]
        for row in zip(*table.values(), strict=True):
            writer.writerow(
                int(value) if exact else "" if np.isnan(value) else f"{value:.9g}"
                for value, exact in zip(row, whole, strict=True)
            )
        files.append(folder / f"{name}.csv")
        replace_file(files[-1], partial(_write, text.getvalue().encode()))
    return files


def _write(data: bytes, file: IO[bytes]) -> None:
    file.write(data)


def _parquet(run: Run, folder: Path) -> list[Path]:
    arrow, parquet = (package(name, "parquet", "parquet") for name in ("pyarrow", "pyarrow.parquet"))
    files, wide = [], _wide(run)
    for name, table in tables(run).items():
        columns = {head: arrow.array(column) for head, column in table.items()}
        for head, rows in wide.get(name, {}).items():
            size = math.prod(rows.shape[1:])
            if size and rows.dtype.kind != "c":  # Parquet does not support complex numbers
                flat = arrow.array(rows.ravel())
                column = arrow.FixedSizeListArray.from_arrays(flat, size)
                columns["genotype" if head == "genotypes" else head] = column
        files.append(folder / f"{name}.parquet")
        replace_file(files[-1], partial(parquet.write_table, arrow.table(columns)))
    return files


def _npz(run: Run, folder: Path) -> list[Path]:
    arrays: dict[str, Any] = {
        f"{name}/{head}": column for name, table in tables(run).items() for head, column in table.items()
    }
    arrays |= {
        f"{name}/{head}": rows for name, wide in _wide(run).items() for head, rows in wide.items()
    }
    file = folder / "run.npz"
    replace_file(file, lambda stream: np.savez_compressed(stream, **arrays))
    return [file]


def _tensorboard(run: Run, folder: Path) -> list[Path]:
    file = new_events(folder)
    ended = time.time() - float(run.metrics["seconds"][-1]) if run.generations else time.time()
    for prefix, table in (("", run.metrics), ("corrected/", run.corrected)):
        generations = table.get("generation", np.zeros(0))
        # The time of a correction is not recorded, so the time of its generation is used.
        at = generations
        if run.generations:
            at = np.interp(generations, run.metrics["generation"], run.metrics["seconds"])
        append_scalars(
            file,
            [
                (ended + seconds, int(generation), _finite(table, i, prefix))
                for i, (seconds, generation) in enumerate(zip(at, generations, strict=True))
            ],
        )
    return [file]


def _finite(table: Mapping[str, np.ndarray], i: int, prefix: str) -> dict[str, float]:
    row = {f"{prefix}{name}": float(column[i]) for name, column in table.items()}
    return {name: value for name, value in row.items() if np.isfinite(value)}


FORMATS: dict[str, Callable[[Run, Path], list[Path]]] = {
    "csv": _csv,
    "npz": _npz,
    "parquet": _parquet,
    "tensorboard": _tensorboard,
}
