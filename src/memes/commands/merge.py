"""The command `memes merge`."""

from __future__ import annotations

from pathlib import Path

from memes.archive import Archive
from memes.errors import UsageError, require
from memes.store.archives import load_archive, save_archive
from memes.store.find import find, readable
from memes.store.folder import check_not_of_run, load_config
from memes.store.sanitize import printable


def merge(runs: tuple[str, ...], *, out: Path, corrected: bool = False) -> None:
    """Merge the archives of several runs of a task, and keep the fittest elite in each cell.

    The result has the cells of the first archive. Elites keep the generation and the lane of their
    original run. Use `memes.load_archive` to read the file.

    Args:
        runs: Run folders, folders of runs, patterns such as 'runs/arm-*', or files such as
            archive.npz.
        out: File to write, which must end with .npz and must not exist.
        corrected: Merge the corrected archives of the runs instead of the archives as found.
    """
    require(out.suffix == ".npz", f"out must be a file that ends with .npz, got '{out}'")
    require(not (out.exists() or out.is_symlink()), f"out: '{out}' exists; choose another file")
    require(out.absolute().parent.is_dir(), f"out: there is no folder '{out.parent}'")
    check_not_of_run(out, "out")
    places, unfinished = readable(find(runs))
    for note in unfinished:
        print(printable(note))
    tasks = {task: place for place in places if (task := _task(place)) is not None}
    named = (f"'{place}' is a run of {task}" for task, place in tasks.items())
    require(len(tasks) < 2, f"RUN: all runs must have the same task, but {', and '.join(named)}")
    merged: Archive | None = None
    for place in places:
        archive = load_archive(place / "corrected.npz" if corrected and place.is_dir() else place)
        try:
            after = archive if merged is None else merged.merge(archive)
        except UsageError as error:
            raise UsageError(f"RUN: '{place}' does not fit '{places[0]}': {error}") from error
        more = len(after) - (0 if merged is None else len(merged))
        print(printable(f"{place}: {len(archive):,} elites, {more:,} of them in new cells"))
        merged = after
    assert merged is not None
    save_archive(out, merged)
    print(printable(f"{out}: {len(merged):,} elites in {merged.cells.count:,} cells"))


def _task(place: Path) -> str | None:
    """Return the name of the task in a run folder, or None for a file."""
    if not place.is_dir():
        return None
    config = load_config(place).config
    return config.task_name or config.task
