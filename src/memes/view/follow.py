"""Polling of a run folder before, during and after the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.archive import Archive, Changes
from memes.cells import MAX_CELLS, Cells, Grid
from memes.errors import UsageError, require
from memes.estimates import Correction
from memes.store import changes as store
from memes.store.archives import load_archive, load_correction
from memes.store.checkpoint import load_elites, load_lanes, newest
from memes.store.folder import (
    Run,
    check_links,
    holds_run,
    load_config,
    read_lanes,
    read_metrics,
)
from memes.store.sanitize import printable
from memes.store.schema import Header, RunConfig, check_names
from memes.view import elites

Sign = tuple[int, int, int] | None  # signature that changes with the content of a file


class Snapshot(NamedTuple):
    """The content of a run folder at one time.

    Attributes:
        folder: The folder.
        header: Content of `config.json`; None if there is no run yet.
        metrics: Columns of `metrics.csv` by name, [G].
        lanes: Arrays of the lanes by name, [G, L, ...]; empty before the first checkpoint.
        changes: Changes of the archive; None if they are unknown.
        cells: Cells of the archive; None if they are unknown.
        correction: Result of re-evaluation; None if there is none.
        trouble: Error message of the last attempt to read the folder; empty if it succeeded.
    """

    folder: Path
    header: Header | None = None
    metrics: Mapping[str, np.ndarray] = MappingProxyType({})
    lanes: Mapping[str, np.ndarray] = MappingProxyType({})
    changes: Changes | None = None
    cells: Cells | None = None
    correction: Correction | None = None
    trouble: str = ""

    @property
    def started(self) -> str | None:
        """The start time, which distinguishes the run from other runs in the same folder."""
        return None if self.header is None else self.header.provenance.started

    @property
    def generations(self) -> int:
        """The number of recorded generations."""
        return len(self.metrics.get("generation", ()))

    @property
    def k(self) -> int:
        """The number of features of the cells; 0 if they are unknown."""
        return 0 if self.cells is None else len(self.cells.low)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features; empty if there is no run yet."""
        return () if self.header is None else self.header.config.names(self.k)


class Follower:
    """Reads a run folder. Each poll reads only the files that have changed since the last poll."""

    def __init__(self, folder: Path) -> None:
        self.name = printable("/".join(folder.absolute().parts[-2:]))  # short name for menus
        self.latest = Snapshot(folder)
        self._signs: dict[str, Sign] = {}
        self._elites: tuple[Any, Archive] | None = None
        self._origins: tuple[Archive, Correction, np.ndarray] | None = None

    def poll(self, strict: bool = False, whole: bool = True) -> Snapshot:
        """Read the files that have changed.

        Args:
            strict: Whether to raise an error if a file cannot be read. If False, `trouble` is set, and
                the previous content is kept.
            whole: Whether to read all files. If False, only `config.json` and `metrics.csv` are read.
        """
        try:
            found = self._read(whole)
            self.latest = found._replace(trouble="") if found.trouble else found
        except (UsageError, OSError) as error:
            if strict:
                raise
            self._signs.clear()
            if str(error) != self.latest.trouble:
                self.latest = self.latest._replace(trouble=str(error))
        return self.latest

    def elites(self) -> Archive:
        """Read the elites with their genotypes, from the archive or the newest checkpoint."""
        return self._elites_of(self.latest)

    def origins(self) -> np.ndarray:
        """Return the original cell of each elite in the corrected archive, as `elites.origins` does."""
        archive, correction = self.elites(), self.latest.correction
        require(correction is not None, "the archive has not been re-evaluated")
        assert correction is not None
        known = self._origins
        if known is None or known[0] is not archive or known[1] is not correction:
            known = archive, correction, elites.origins(archive, correction.archive)
            self._origins = known
        return known[2]

    def holds(self, cell: int) -> int | None:
        """Return the corrected archive's cell that contains the elite, or None if the elite was lost."""
        found = np.flatnonzero(self.origins() == cell)
        return int(found[0]) if found.size else None

    def _elites_of(self, now: Snapshot) -> Archive:
        check_links(now.folder)
        file = _genotypes(now)
        require(
            file is not None, f"'{now.folder}' has neither an archive nor a checkpoint with genotypes"
        )
        assert file is not None
        sign = (file, _sign(file))
        if self._elites is None or self._elites[0] != sign:
            over = file.name == "archive.npz"
            self._elites = sign, load_archive(file) if over else load_elites(file)
        return self._elites[1]

    def as_run(self) -> Run:
        """Return the current content of the folder, including the elites, as a run."""
        now = self.latest
        metrics, lanes = dict(now.metrics), dict(now.lanes)
        return Run(now.folder, *_header(now), metrics, lanes, self.elites(), {}, now.correction)

    def _read(self, whole: bool) -> Snapshot:
        now = self.latest
        if not holds_run(now.folder):
            require(now.header is None, f"the run in '{now.folder}' is gone")
            return now
        check_links(now.folder)
        before = now
        now = self._renewed(now, "header", "config.json", load_config)
        if before.started is not None and now.started != before.started:  # the folder has a new run
            self._signs.clear()
            now = Snapshot(now.folder, now.header)
        now = self._renewed(now, "metrics", "metrics.csv", lambda at: read_metrics(at / "metrics.csv"))
        if not whole:
            return now
        now = self._renewed(now, "correction", "corrected.npz", load_correction)
        if not (now.folder / "corrected.npz").exists():  # deleted when a run continues
            now = now._replace(correction=None) if now.correction is not None else now
        saved = _genotypes(now)
        if now.cells is None:
            known: Cells | None = _cells(_header(now).config)
            known = self._elites_of(now).cells if known is None and saved is not None else known
            now = now._replace(cells=known)
        if (now.folder / store.NAME).exists():
            now = self._renewed(now, "changes", store.NAME, store.load_changes)
        else:
            now = self._renewed(now, "changes", "archive.npz", lambda at: _as_changes(load_archive(at)))
        if saved is not None and saved.name == "archive.npz":
            now = self._renewed(now, "lanes", "lanes.npz", lambda at: read_lanes(at / "lanes.npz"))
        elif saved is not None:
            now = self._renewed(now, "lanes", f"checkpoints/{saved.name}", lambda at: load_lanes(saved))
        return _sane(now)

    def _renewed(self, now: Snapshot, part: str, name: str, read: Callable[[Path], Any]) -> Snapshot:
        """Read a part of a snapshot again if its file exists and has changed."""
        sign = _sign(now.folder / name)
        if sign is None or self._signs.get(name) == sign:
            return now
        found = read(now.folder)
        self._signs[name] = sign
        return now._replace(**{part: found})


def genotype(archive: Archive, cell: int) -> Array:
    """Return the genotype [d] of a cell's elite.

    Raises:
        UsageError: If the archive comes from a checkpoint that is older than the elite.
    """
    newer = f"the elite of cell {cell} is newer than the last checkpoint: wait for the next one"
    require(cell < archive.cells.count and bool(archive.occupied[cell]), newer)
    return archive.genotypes[cell]


def _genotypes(now: Snapshot) -> Path | None:
    """Return the file with the newest genotypes. During the run, this file is a checkpoint."""
    archive, saved = now.folder / "archive.npz", newest(now.folder)
    over = now.header is not None and now.header.outcome is not None
    return archive if archive.exists() and (over or saved is None) else saved


def _sign(file: Path) -> Sign:
    try:
        about = file.stat(follow_symlinks=False)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino


def _header(now: Snapshot) -> Header:
    """Return the content of `config.json`, or raise a `UsageError` if there is no run yet."""
    require(now.header is not None, f"'{now.folder}' does not contain a run yet")
    assert now.header is not None
    return now.header


def _cells(config: RunConfig) -> Grid | None:
    """Return the grid described in `config.json`, or None if the cells are not a grid."""
    shape = config.cells
    if not (isinstance(shape, tuple) and shape):
        return None
    bounds = config.feature_low, config.feature_high
    sound = all(len(each) == len(shape) for each in bounds)
    low, high = np.asarray(bounds, np.float32) if sound else np.zeros((2, 1), np.float32)
    count = float(np.prod(np.array(shape, float)))
    require(
        min(shape) >= 1 and count <= MAX_CELLS and bool((low < high).all()),
        f"cells and the bounds of features in 'config.json' do not describe a grid, got {shape}",
    )
    return Grid(jnp.asarray(low), jnp.asarray(high), shape)


def _as_changes(archive: Archive) -> Changes:
    """Return the last change of each cell according to the archive."""
    return store.joined(store.unrecorded(archive, np.full(archive.cells.count, -1)))


def _sane(now: Snapshot) -> Snapshot:
    """Drop changes of cells that do not exist in the archive.

    Raises:
        UsageError: If a file belongs to another archive.
    """
    if now.cells is None:
        return now
    k, count = now.k, now.cells.count
    check_names(now.folder / "config.json", _header(now).config.feature_names, k)
    if now.correction is not None:
        corrected, cell = now.correction.archive, now.correction.elite_cell
        same = (corrected.cells.count, corrected.feature.shape[1]) == (count, k)
        same &= bool(((cell >= 0) & (cell < count)).all()) and len(
            now.correction.fitness_variance
        ) == len(cell)
        require(
            same,
            f"'{now.folder / 'corrected.npz'}' belongs to another archive "
            f"({corrected.cells.count} cells)",
        )
    if now.changes is None:
        return now
    require(
        now.changes.feature.shape[1] == k,
        f"'{now.folder / store.NAME}' has {now.changes.feature.shape[1]} features, not {k}",
    )
    outside = now.changes.cell >= count
    return now._replace(changes=store.select(now.changes, ~outside)) if outside.any() else now
