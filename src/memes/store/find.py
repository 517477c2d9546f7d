"""Search for run folders and summary files, by paths or by patterns."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from memes.errors import require
from memes.store.files import as_path, open_regular, reading
from memes.store.folder import check_link, holds_run, load_config
from memes.store.schema import Header
from memes.store.summary import FILE, FORMAT, Summary, load_summary


def run_folders(path: str | Path) -> list[Path]:
    """List the run folders at a path, sorted by seed.

    If the path is itself a run folder, or contains no run folders, the list contains only this path.
    """
    folder = as_path(path)
    inside = folder.iterdir() if folder.is_dir() and not holds_run(folder) else ()
    runs = [each for each in sorted(inside) if not each.is_symlink() and holds_run(each)]
    found = {each: load_config(each).config.seed for each in runs}
    return sorted(found, key=found.__getitem__) or [folder]


def load_headers(path: str | Path) -> dict[Path, Header]:
    """Return the contents of `config.json` for each run folder at a path.

    If a process was killed before it wrote this file for a seed, the contents are derived from the file
    of another seed.
    """
    folders = run_folders(path)
    headers = {folder: load_config(folder) for folder in folders}
    for other, header in list(headers.items()) if folders != [Path(path)] else ():
        with reading(other / "config.json"):
            for seed in header.config.seeds or ():
                folder = other.with_name(f"seed-{seed}")
                check_link(folder)
                if folder.is_dir() and not holds_run(folder):
                    headers[folder] = Header(replace(header.config, seed=seed), header.provenance)
    return headers


def load_all(paths: Iterable[str | Path], argument: str = "RUN") -> list[Summary]:
    """Read the summaries of all runs that `find` finds."""
    return [load_summary(path) for path in find(paths, argument)]


def find(paths: Iterable[str | Path], argument: str = "RUN") -> list[Path]:
    """List run folders and summary files in the given order, without duplicates.

    Args:
        paths: Run folders, summary files, folders that contain them, or patterns such as `runs/arm-*`.
        argument: Name of the argument in error messages.
    """
    found: dict[Path, Path] = {}
    for word in paths:
        as_path(word, argument)
        places = [Path(word)] if Path(word).exists() else [Path(p) for p in sorted(glob.glob(str(word)))]
        require(bool(places), f"{argument}: there is no file or folder '{word}'")
        here = [run for place in places for run in _runs_in(place)]
        require(bool(here), f"{argument}: there is no run and no summary in '{word}'")
        for run in here:
            folder = run.parent if run.name == FILE and holds_run(run.parent) else run
            found.setdefault(Path(os.path.realpath(folder)), folder)
    return list(found.values())


def readable(places: Iterable[Path], argument: str = "RUN") -> tuple[list[Path], list[str]]:
    """Return the paths that can be read, and an error message for each path that cannot be read.

    Runs without an archive cannot be read, because they are in progress or were killed. If no path can
    be read, a `UsageError` is raised.
    """
    kept: list[Path] = []
    notes = []
    for place in places:
        if holds_run(place) and not ((place / FILE).exists() or (place / "archive.npz").exists()):
            notes.append(
                f"'{place}' is left out: it has no archive yet; 'memes resume {place}' continues it."
            )
        else:
            kept.append(place)
    require(bool(kept), f"{argument}: {' '.join(notes)}")
    return kept, notes


def _runs_in(place: Path) -> Iterator[Path]:
    if not place.is_dir() or holds_run(place):
        yield place
        return
    for entry in sorted(place.iterdir()):
        if entry.is_symlink():
            continue  # links may lead back to this folder, or outside it
        if entry.is_dir():
            yield from _runs_in(entry)
        elif entry.suffix == ".json" and entry.is_file() and _is_summary(entry):
            yield entry


def _is_summary(file: Path) -> bool:
    with open_regular(file) as stream:
        return FORMAT.encode() in stream.read(100)  # other files in a folder may be large
