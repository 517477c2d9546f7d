"""Checkpoints, which contain all data that a run needs to continue as if it had not been stopped.

A checkpoint is one npz file of plain arrays. The file is written under a temporary name and then
renamed, so that a checkpoint is never incomplete. The file contains the state of the algorithm and a
description of the cells. The name of each array is its path in the state, such as
`state.archive.fitness`. Random keys are not saved, because they are derived from the seed.

All checkpoints of a run share a log of metrics and lanes, with one row per generation. A checkpoint uses
the rows up to its own generation. It contains a digest of its arrays and of these rows, so that damaged
or edited files are detected. If a checkpoint is damaged, the previous one is used.

Orbax is not used. An Orbax checkpoint is a folder of shards, with a protocol that detects incomplete
folders. A state of this library has only a few dozen arrays on one machine. For such a state, it is
simpler to rename a single file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from memes.algorithm import State
from memes.archive import Archive
from memes.errors import UsageError, require
from memes.metrics import column_kinds
from memes.store.archives import ELITE, EXTRA, archive_from, arrays_of, start_jax
from memes.store.files import append, open_regular, read_arrays, reading, replace_file
from memes.store.folder import CHECKPOINTS, Run, check_lanes, load_corrected
from memes.store.schema import Header, RunConfig

FORMAT_VERSION = 4  # Up to version 3 (memes 0.2), arrays were identified by position.
KEEP = 2  # Number of checkpoints to keep. The older one is used if the newer one is damaged.
LOG = "log.bin"
PARTS = ("metrics", "lanes")  # The log contains these parts of a run.
STATE, ARCHIVE = "state.", "state.archive."  # The names of arrays begin with these prefixes.
EXTRAS = f"{ARCHIVE}extras['"


class Logged(NamedTuple):
    """The saved part of a run's log.

    Attributes:
        rows: Number of saved rows.
        digest: Digest of these rows, a `hashlib` object that can be updated.
    """

    rows: int
    digest: Any


def logged(run: Run) -> Logged:
    """Return the saved part of the log of a run that is new or was read from a checkpoint."""
    return Logged(run.generations, hashlib.blake2b(_rows(run, 0).tobytes(), digest_size=16))


def save(run: Run, before: Logged) -> Logged:
    """Write a checkpoint of a run into its folder, and remove old checkpoints.

    Args:
        run: The run.
        before: The part of the log that is already saved.

    Returns:
        The saved part of the log, which is the whole log after this call.
    """
    assert run.folder is not None
    rows = _rows(run, before.rows)
    now = Logged(run.generations, before.digest.copy())
    now.digest.update(rows.tobytes())
    state = jax.device_get(_by_path(run.state))
    arrays = {"log": rows[:0], **arrays_of(run.archive.cells), **state}
    about = {
        "format_version": FORMAT_VERSION,
        "identity": identity(run.config),
        "generations": run.config.generations,
        "digest": _digest(arrays, now.digest),
    }
    path = run.folder / "checkpoints"
    path.mkdir(exist_ok=True)
    append(path / LOG, rows.tobytes(), at=before.rows * rows.itemsize)
    replace_file(
        path / f"{run.generations:08d}.npz",
        lambda file: np.savez(file, about=np.array(json.dumps(about)), **arrays),
    )
    # Checkpoints of later generations are also removed. The run would have continued from them, if they
    # were not damaged.
    kept = [each for each in _newest_first(run.folder) if int(each.stem) <= run.generations][:KEEP]
    for old in {*_newest_first(run.folder)} - {*kept}:
        old.unlink(missing_ok=True)
    return now


def _rows(run: Run, first: int) -> np.ndarray:
    """Return the log of a run from row `first` on, as a structured array with fields `[part][name]`."""
    parts = {part: getattr(run, part) for part in PARTS}
    fields = [
        (part, [(name, column.dtype, column.shape[1:]) for name, column in columns.items()])
        for part, columns in parts.items()
    ]
    rows = np.zeros(run.generations - first, fields)
    for part, columns in parts.items():
        for name, column in columns.items():
            rows[part][name] = column[first:]
    return rows


def identity(config: RunConfig) -> str:
    """Return a string with the settings that must be the same in a run and in its checkpoints."""
    names = ("task", "algorithm", "options", "seed", "cells", "dim")
    found = {name: getattr(config, name) for name in names}
    if config.shards != 1:
        found["shards"] = config.shards
    return json.dumps(found, sort_keys=True, default=str)


def load(
    folder: Path, header: Header, blank: Callable[[int], State], say: Callable[[str], None]
) -> Run | None:
    """Read a run from its newest intact checkpoint.

    Args:
        folder: The run's folder.
        header: The content of the run's `config.json`, possibly with a new number of generations.
        blank: `(generations) -> State`, which makes the initial state of a run.
        say: Function that prints messages about skipped checkpoints.

    Returns:
        The run, or None if there are no checkpoints.

    Raises:
        UsageError: If there are checkpoints, but none of them can be used.
    """
    for file in _newest_first(folder):
        try:
            with reading(file):
                about, arrays, log = _read(file)
                if log:
                    check_lanes(file, log["lanes"])
        except UsageError as error:
            say(f"{error}; looking for an older checkpoint")
            continue
        _check_version(file, about["format_version"])
        require(about["identity"] == identity(header.config), f"'{file}' is a checkpoint of another run")
        with reading(file):
            state = _fitted(file, arrays, about["generations"], header.config.generations, blank)
        metrics, lanes = (log[part] for part in PARTS)
        corrected = load_corrected(folder)
        return Run(folder, *header, metrics, lanes, state.archive, corrected, None, state)
    require(
        not _newest_first(folder),
        f"no checkpoint in '{folder / 'checkpoints'}' can be read; remove all of them to start again",
    )
    return None


def newest(folder: Path) -> Path | None:
    """Return the newest checkpoint file of a run, or None if there are no checkpoints."""
    return next(iter(_newest_first(folder)), None)


def load_elites(file: Path) -> Archive:
    """Read the archive of a checkpoint.

    The task and the algorithm are not needed. Unknown arrays are ignored.
    """
    start_jax()
    with reading(file):
        about, arrays, _ = _read(file)
        _check_version(file, about["format_version"])
        elites = {name: arrays[ARCHIVE + name] for name in ELITE}
        for path, array in arrays.items():
            if path.startswith(EXTRAS):
                elites[EXTRA + path.removeprefix(EXTRAS).removesuffix("']")] = array
        cell = np.flatnonzero(elites["fitness"] > -np.inf)
        data = {name: column[cell] for name, column in elites.items()}
        cells = {name: array for name, array in arrays.items() if not name.startswith(STATE)}
        return archive_from(cells | data | {"cell": cell}, file)


def load_lanes(file: Path) -> dict[str, np.ndarray]:
    """Read a checkpoint's records of lanes, as arrays [G, L, ...] by name."""
    kind = read_arrays(file, ("log",), only=("log",))["log"].dtype
    with reading(file):
        return check_lanes(file, _parts(_log(file, kind.itemsize), kind)["lanes"])


def _newest_first(folder: Path) -> list[Path]:
    """List the checkpoint files of a run from newest to oldest. Files with other names are ignored."""
    files = (folder / "checkpoints").glob("*.npz")
    found = [file for file in files if CHECKPOINTS.fullmatch(file.name)]
    return sorted(found, key=lambda file: int(file.stem), reverse=True)


def _by_path(state: Any) -> dict[str, Any]:
    """Return the arrays of a state by their names in a checkpoint."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {f"state{jax.tree_util.keystr(path)}": leaf for path, leaf in leaves}


def _read(
    file: Path,
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Read the metadata of a checkpoint, the arrays of its state, and the parts of its log."""
    arrays = read_arrays(file)
    about = dict(json.loads(str(arrays.pop("about"))))
    if about["format_version"] != FORMAT_VERSION:  # the content of other formats is unknown
        return about, {}, {}
    kind = arrays["log"].dtype
    data = _log(file, kind.itemsize)
    if about["digest"] != _digest(arrays, hashlib.blake2b(data, digest_size=16)):
        raise ValueError("its content differs from what was written")
    del arrays["log"]
    return about, arrays, _parts(data, kind)


def _log(file: Path, size: int) -> bytes:
    """Read the rows of the log up to the generation of a checkpoint. Each row has `size` bytes."""
    shared, wanted = file.parent / LOG, int(file.stem) * size
    with reading(shared), open_regular(shared) as stream:
        if stream.seek(0, os.SEEK_END) < wanted:
            raise ValueError(f"it has fewer generations than {file.name}")
        stream.seek(0)
        return bytes(stream.read(wanted))


def _parts(data: bytes, kind: np.dtype[Any]) -> dict[str, dict[str, np.ndarray]]:
    rows = np.frombuffer(data, kind)
    parts = {
        part: {name: rows[part][name].copy() for name in rows[part].dtype.names or ()} for part in PARTS
    }
    _check_log(**parts)
    return parts


def _check_log(metrics: dict[str, np.ndarray], lanes: dict[str, np.ndarray]) -> None:
    """Raise a `ValueError` if columns of a log are missing or unknown, or have a wrong type or shape."""
    kinds = {"generation": "i", **column_kinds(), "seconds": "f"}
    found = {name: column.dtype.kind if column.ndim == 1 else "" for name, column in metrics.items()}
    if kinds | found != kinds or {*kinds} - {*found, "outside_bounds"}:
        raise ValueError("its log does not have the columns of metrics.csv")
    numbers = np.arange(1, len(metrics["generation"]) + 1)
    if not all(np.array_equal(part["generation"], numbers) for part in (metrics, lanes)):
        raise ValueError("its log does not have one row per generation")
    if not np.isfinite(metrics["seconds"]).all():
        raise ValueError("its log has seconds that are not finite")
    if any(column.dtype.kind not in "biuf" for column in lanes.values()):
        raise ValueError("its log has lanes that are not numbers")


def _digest(arrays: dict[str, np.ndarray], log: Any) -> str:
    """Compute the joint digest of arrays and of a log, given the digest of the log."""
    digest = log.copy()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {arrays[name].shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return str(digest.hexdigest())


def _check_version(file: Path, version: int) -> None:
    newer = f"which is too new for this version of memes ({FORMAT_VERSION}); upgrade memes"
    older = "which an older version of memes wrote; continue with that version, or start again"
    which = newer if version > FORMAT_VERSION else older
    require(version == FORMAT_VERSION, f"'{file}' has format version {version}, {which}")


def _fitted(
    file: Path, arrays: dict[str, np.ndarray], before: int, now: int, blank: Callable[[int], State]
) -> State:
    """Build a state from saved arrays.

    When the state was saved, the run had a planned length of `before` generations. The new length is
    `now` generations. If the size of an array depends on the length, the saved values replace the first
    values of an array of the new size.
    """
    arrays = {name: array for name, array in arrays.items() if name.startswith(STATE)}
    like = jax.eval_shape(lambda: blank(before))
    expected = {name: (leaf.shape, leaf.dtype) for name, leaf in _by_path(like).items()}
    require(
        {name: (array.shape, array.dtype) for name, array in arrays.items()} == expected,
        f"'{file}' is a checkpoint of another algorithm or task",
    )

    def fit(leaf: np.ndarray, like: jax.Array) -> np.ndarray:
        if leaf.shape == like.shape:
            return leaf
        room = np.array(like)
        n = min(len(leaf), len(room))
        room[:n] = leaf[:n]
        return room

    state: State = jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in expected])
    fitted = state if before == now else jax.tree.map(fit, state, blank(now))
    on_device: State = jax.device_put(fitted)
    return on_device
