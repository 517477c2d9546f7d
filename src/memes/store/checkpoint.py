"""Checkpoints: all that a run needs to go on as if it had never stopped.

A checkpoint is one npz file of plain arrays, written aside and renamed, so that it is there as a whole
or not at all. It holds the state of the algorithm, each array under its path in the state, such as
`state.archive.fitness`, and a description of the cells; the keys of a run follow from its seed. The
metrics and lanes so far are in a file that all checkpoints share and that only grows, with a row for
each generation: as many of them count as a checkpoint has generations. A digest of all arrays and of
these rows tells a damaged or edited file; then the checkpoint before is used.

Plain files rather than Orbax: a state is a few dozen arrays on one machine, and a file that is renamed
into place needs neither a folder of shards and metadata nor a protocol to tell whether it is complete.
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
from memes.store.archives import ELITE, EXTRA, archive_from, arrays_of
from memes.store.files import append, intact, opened, read_arrays, replace_file
from memes.store.folder import Run, check_lanes, load_corrected

FORMAT_VERSION = 4  # 3 (of version 0.2) and before named arrays by their position
KEEP = 2  # the last ones; the older is there in case the newer is damaged
LOG = "log.bin"
PARTS = ("metrics", "lanes")  # of a run, that its log holds
STATE, ARCHIVE = "state.", "state.archive."  # how the names of the arrays of these begin
EXTRAS = f"{ARCHIVE}extras['"


class Logged(NamedTuple):
    """The part of a run's log that is saved: how many rows, and their digest, which can be updated."""

    rows: int
    digest: Any


def logged(run: Run) -> Logged:
    """Return the part that is saved of the log of a run that was read from a checkpoint, or is new."""
    return Logged(run.generations, hashlib.blake2b(_rows(run, 0).tobytes(), digest_size=16))


def save(run: Run, before: Logged) -> Logged:
    """Write a checkpoint of a run into its folder, and remove those that are too old.

    Args:
        run: The run.
        before: What is saved of its log already.

    Returns:
        What is saved of it now: all.
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
        "generations": run.config["generations"],
        "digest": _digest(arrays, now.digest),
    }
    path = run.folder / "checkpoints"
    path.mkdir(exist_ok=True)
    append(path / LOG, rows.tobytes(), at=before.rows * rows.itemsize)
    replace_file(
        path / f"{run.generations:08d}.npz",
        lambda file: np.savez(file, about=np.array(json.dumps(about)), **arrays),
    )
    for old in _newest_first(run.folder)[KEEP:]:
        old.unlink(missing_ok=True)
    return now


def _rows(run: Run, first: int) -> np.ndarray:
    """The log of a run from a row on, as an array of structures: by part, and by name."""
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


def identity(config: dict[str, Any]) -> str:
    """All that must be equal for a checkpoint to belong to a run."""
    names = ("task", "algorithm", "options", "seed", "cells", "dim")
    found = {name: config.get(name) for name in names}
    if config.get("shards", 1) != 1:
        found["shards"] = config["shards"]
    return json.dumps(found, sort_keys=True, default=str)


def load(
    folder: Path, config: dict[str, Any], blank: Callable[[int], State], say: Callable[[str], None]
) -> Run | None:
    """Read the run up to the newest intact checkpoint; None if there is no checkpoint at all.

    Args:
        folder: The run's folder.
        config: The run's; its number of generations may be another one than when it was saved.
        blank: `(generations) -> State`, the first state of a run of such a length.
        say: Told of checkpoints that are left out.
    """
    for file in _newest_first(folder):
        try:
            with intact(file):
                about, arrays, log = _read(file)
        except UsageError as error:
            say(f"{error}; looking for an older checkpoint")
            continue
        _check_version(file, about["format_version"])
        require(about["identity"] == identity(config), f"'{file}' is a checkpoint of another run")
        with intact(file):
            state = _fitted(file, arrays, about["generations"], config["generations"], blank)
        metrics, lanes = (log[part] for part in PARTS)
        corrected = load_corrected(folder)
        return Run(folder, config, metrics, lanes, state.archive, corrected, None, state)
    require(
        not _newest_first(folder),
        f"no checkpoint in '{folder / 'checkpoints'}' can be read; remove them to start anew",
    )
    return None


def newest(folder: Path) -> Path | None:
    """Find the newest checkpoint of a run, if there is one."""
    return next(iter(_newest_first(folder)), None)


def load_elites(file: Path) -> Archive:
    """Read the archive of a checkpoint.

    It needs neither the task nor the algorithm, and ignores arrays that it does not know.
    """
    with intact(file):
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
    """Read what each lane did until a checkpoint, arrays [G, L, ...] by name."""
    kind = read_arrays(file, ("log",), only=("log",))["log"].dtype
    with intact(file):
        return check_lanes(file, _parts(_log(file, kind.itemsize), kind)["lanes"])


def _newest_first(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("[0-9]*.npz"), reverse=True)


def _by_path(state: Any) -> dict[str, Any]:
    """The arrays of a state by the names that they have in a checkpoint."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {f"state{jax.tree_util.keystr(path)}": leaf for path, leaf in leaves}


def _read(
    file: Path,
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Read what is said of a checkpoint, the arrays of its state, and the parts of its log."""
    arrays = read_arrays(file)
    about = dict(json.loads(str(arrays.pop("about"))))
    if about["format_version"] != FORMAT_VERSION:  # of another one nothing else is known
        return about, {}, {}
    kind = arrays["log"].dtype
    data = _log(file, kind.itemsize)
    if about["digest"] != _digest(arrays, hashlib.blake2b(data, digest_size=16)):
        raise ValueError("it does not hold what was written")
    del arrays["log"]
    return about, arrays, _parts(data, kind)


def _log(file: Path, size: int) -> bytes:
    """Read the rows, of such a size, of the log that a checkpoint counts."""
    shared, wanted = file.parent / LOG, int(file.stem) * size
    with intact(shared), opened(shared) as stream:
        if stream.seek(0, os.SEEK_END) < wanted:
            raise ValueError(f"it has fewer generations than {file.name}")
        stream.seek(0)
        return bytes(stream.read(wanted))


def _parts(data: bytes, kind: np.dtype[Any]) -> dict[str, dict[str, np.ndarray]]:
    rows = np.frombuffer(data, kind)
    return {
        part: {name: rows[part][name].copy() for name in rows[part].dtype.names or ()} for part in PARTS
    }


def _digest(arrays: dict[str, np.ndarray], log: Any) -> str:
    """The digest of some arrays, and of a log whose own digest is given."""
    digest = log.copy()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {arrays[name].shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return str(digest.hexdigest())


def _check_version(file: Path, version: int) -> None:
    newer = f"newer than this memes can read ({FORMAT_VERSION})"
    older = "of an older memes: go on with that one, or start anew"
    which = newer if version > FORMAT_VERSION else older
    require(version == FORMAT_VERSION, f"'{file}' has format version {version}, {which}")


def _fitted(
    file: Path, arrays: dict[str, np.ndarray], before: int, now: int, blank: Callable[[int], State]
) -> State:
    """Put saved arrays into a state of a run of `now` generations that was meant to have `before`.

    What grows with the length of a run is filled from its beginning, which is kept.
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
