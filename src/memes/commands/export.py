"""`memes export`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from memes.errors import require
from memes.store.folder import check_place, load_run
from memes.store.formats import export_run
from memes.store.sanitize import printable


def export(
    run: Path,
    *,
    to: Literal["csv", "npz", "parquet", "tensorboard"],
    out: Path | None = None,
) -> None:
    """Write a saved run in a format of other programs: its metrics, its elites and its corrections.

    Args:
        run: Folder of the run.
        to: The format: csv or parquet, one file per table; npz, one file for all; tensorboard,
            an event file of the metrics. Genotypes and long extras are in parquet and npz.
        out: Folder for the files, which must not contain files with these names; by default export/ in
            the folder of the run, whose files are replaced.
    """
    saved = load_run(run)
    if out is not None:
        require(not out.is_symlink(), f"out: '{out}' is a link, which memes does not follow")
        require(not out.exists() or out.is_dir(), f"out must be a folder, but '{out}' is a file")
        require(out.absolute().parent.is_dir(), f"out: there is no folder '{out.parent}'")
        check_place(out)
    for file in export_run(saved, to, out or run / "export", replace=out is None):
        print(printable(str(file)))
