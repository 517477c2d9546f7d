"""The command `memes export`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from memes.errors import require
from memes.options.from_run import task_from_run
from memes.store.folder import check_place, load_run
from memes.store.formats import export_run
from memes.store.policies import export_policy
from memes.store.sanitize import printable
from memes.view import elites


def export(
    run: Path,
    *,
    to: Literal["csv", "npz", "parquet", "tensorboard", "policy"],
    out: Path | None = None,
    cell: tuple[int, ...] | None = None,
    feature: tuple[float, ...] | None = None,
    task: str | None = None,
) -> None:
    """Write the metrics, elites and corrections of a saved run in a format for other programs.

    Args:
        run: Folder of the run.
        to: Format of the files. csv and parquet write one file per table, and npz writes one file.
            tensorboard writes the metrics as an event file. policy writes the neural network of one
            elite for use with NumPy. Only parquet and npz include genotypes and extras with several
            numbers per elite.
        out: Folder for the files. It must not contain files with the same names. By default, files are
            written to export/ in the folder of the run, where existing files are replaced.
        cell: Cell of the elite for --to policy, as an index or as grid coordinates. By default, the
            fittest elite is written.
        feature: For --to policy, select the elite whose feature is nearest to this feature.
        task: For --to policy, the name of the run's task, in the same form as for 'memes run'.
            Required if the task is custom. The code of the task is executed.
    """
    saved = load_run(run)
    if out is not None:
        require(not out.is_symlink(), f"out: '{out}' is a link, which memes does not follow")
        require(not out.exists() or out.is_dir(), f"out must be a folder, but '{out}' is a file")
        require(out.absolute().parent.is_dir(), f"out: there is no folder '{out.parent}'")
        check_place(out)
    if to == "policy":
        chosen = elites.choose(saved.archive, cell=cell, feature=feature)
        folder, rebuilt = out or run / "export", task_from_run(saved, task)
        file = export_policy(saved.archive, chosen, rebuilt, folder, replace=out is None)
        print(printable(str(file)))
        return
    given = {"cell": cell, "feature": feature, "task": task}
    wrong = next((name for name, value in given.items() if value is not None), None)
    require(wrong is None, f"{wrong} is for --to policy, got --to {to}; leave it out")
    for file in export_run(saved, to, out or run / "export", replace=out is None):
        print(printable(str(file)))
