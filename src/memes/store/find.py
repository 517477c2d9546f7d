"""Runs on the disk: folders and summary files, by their paths or by patterns."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from memes.errors import require
from memes.store.files import as_path, intact, opened
from memes.store.folder import check_link, holds_run, load_config
from memes.store.schema import Header
from memes.store.summary import FILE, FORMAT, Summary, load_summary


def run_folders(path: str | Path) -> list[Path]:
    """The folders of the runs that a path means: itself, or those in it, in the order of their seeds."""
    folder = as_path(path)
    inside = folder.iterdir() if folder.is_dir() and not holds_run(folder) else ()
    runs = [each for each in sorted(inside) if not each.is_symlink() and holds_run(each)]
    found = {each: load_config(each).config.seed for each in runs}
    return sorted(found, key=found.__getitem__) or [folder]


def begun(path: str | Path) -> dict[Path, Header]:
    """What `config.json` holds of the runs that a path means, by folder.

    Of several seeds also of those that have none yet: their process was killed in between.
    """
    folders = run_folders(path)
    headers = {folder: load_config(folder) for folder in folders}
    for other, header in list(headers.items()) if folders != [Path(path)] else ():
        with intact(other / "config.json"):
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
    """List the run folders and summary files that are meant, each of them once, in the order given.

    Args:
        paths: Run folders, summary files, folders of either, or patterns such as `runs/arm-*`.
        argument: How errors call them.
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
    """Those of the places that can be read, one at least, and a sentence for each of the others.

    Runs that were stopped before their first archive, or still go on, have none.
    """
    kept: list[Path] = []
    notes = []
    for place in places:
        if holds_run(place) and not ((place / FILE).exists() or (place / "archive.npz").exists()):
            notes.append(
                f"'{place}' is left out: it has no archive yet; 'memes resume {place}' goes on."
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
            continue  # which may lead back here, or anywhere
        if entry.is_dir():
            yield from _runs_in(entry)
        elif entry.suffix == ".json" and entry.is_file() and _is_summary(entry):
            yield entry


def _is_summary(file: Path) -> bool:
    with opened(file) as stream:
        return FORMAT.encode() in stream.read(100)  # a folder may hold large files of other kinds
