"""Checkpoints: all that a run needs to go on as if it had never stopped.

A checkpoint is one npz file of plain arrays, written aside and renamed, so that it is there as a whole
or not at all. It holds the state of the algorithm, and the metrics and lanes so far; the keys of a run
follow from its seed. A digest of all arrays tells a damaged or edited file; then the one before is used.

Plain files rather than Orbax: a state is a few dozen arrays on one machine, and a file that is renamed
into place needs neither a folder of shards and metadata nor a protocol to tell whether it is complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from memes.algorithm import State
from memes.errors import UsageError, require
from memes.store.files import intact, read_arrays, replace_file
from memes.store.folder import Run, load_corrected

FORMAT_VERSION = 2
KEEP = 2  # the last ones; the older is there in case the newer is damaged


def save(run: Run) -> None:
    """Write a checkpoint of a run into its folder, and remove those that are too old."""
    assert run.folder is not None
    leaves = jax.device_get(jax.tree.leaves(run.state))
    parts: Any = {"state": dict(enumerate(leaves)), "metrics": run.metrics, "lanes": run.lanes}
    arrays = {f"{part}/{name}": array for part, of in parts.items() for name, array in of.items()}
    about = {
        "format_version": FORMAT_VERSION,
        "identity": identity(run.config),
        "generations": run.config["generations"],
        "digest": _digest(arrays),
    }
    path = run.folder / "checkpoints"
    path.mkdir(exist_ok=True)
    replace_file(
        path / f"{run.generations:08d}.npz",
        lambda file: np.savez(file, about=np.array(json.dumps(about)), **arrays),
    )
    # A process that was killed may have left one that it had not finished.
    for old in [*_newest_first(run.folder)[KEEP:], *path.glob("*.tmp")]:
        old.unlink(missing_ok=True)


def identity(config: dict[str, Any]) -> str:
    """All that must be equal for a checkpoint to belong to a run."""
    names = ("task", "algorithm", "options", "seed", "cells", "dim")
    return json.dumps({name: config.get(name) for name in names}, sort_keys=True, default=str)


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
                about, arrays = _read(file)
        except UsageError as error:
            say(f"{error}; looking for an older checkpoint")
            continue
        _check_version(file, about["format_version"])
        require(about["identity"] == identity(config), f"'{file}' is a checkpoint of another run")
        leaves = list(_part("state", arrays).values())
        with intact(file):
            state = _fitted(file, leaves, about["generations"], config["generations"], blank)
        metrics, lanes = _part("metrics", arrays), _part("lanes", arrays)
        corrected = load_corrected(folder)
        return Run(folder, config, metrics, lanes, state.archive, corrected, None, state)
    require(
        not _newest_first(folder),
        f"no checkpoint in '{folder / 'checkpoints'}' can be read; remove them to start anew",
    )
    return None


def _newest_first(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("[0-9]*.npz"), reverse=True)


def _read(file: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what is said of a checkpoint, and its arrays by part/name, as they were written."""
    arrays = read_arrays(file)
    about = dict(json.loads(str(arrays.pop("about"))))
    if about["format_version"] == FORMAT_VERSION:  # of another one nothing else is known
        if about["digest"] != _digest(arrays):
            raise ValueError("it does not hold what was written")
        if len(arrays["metrics/generation"]) != int(file.stem):
            raise ValueError("it is not of the generation in its name")
    return about, arrays


def _part(part: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    head = f"{part}/"
    return {name.removeprefix(head): of for name, of in arrays.items() if name.startswith(head)}


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {arrays[name].shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _check_version(file: Path, version: int) -> None:
    newer = f"newer than this memes can read ({FORMAT_VERSION})"
    older = "of an older memes: go on with that one, or start anew"
    which = newer if version > FORMAT_VERSION else older
    require(version == FORMAT_VERSION, f"'{file}' has format version {version}, {which}")


def _fitted(
    file: Path, leaves: list[np.ndarray], before: int, now: int, blank: Callable[[int], State]
) -> State:
    """Put saved leaves into a state of a run of `now` generations that was meant to have `before`.

    What grows with the length of a run is filled from its beginning, which is kept.
    """
    saved, tree = jax.tree.flatten(jax.eval_shape(lambda: blank(before)))
    require(
        [(leaf.shape, leaf.dtype) for leaf in leaves] == [(leaf.shape, leaf.dtype) for leaf in saved],
        f"'{file}' is a checkpoint of another algorithm or task",
    )

    def fit(leaf: np.ndarray, like: jax.Array) -> np.ndarray:
        if leaf.shape == like.shape:
            return leaf
        room = np.array(like)
        n = min(len(leaf), len(room))
        room[:n] = leaf[:n]
        return room

    state: State = jax.tree.unflatten(tree, leaves)
    fitted = state if before == now else jax.tree.map(fit, state, blank(now))
    on_device: State = jax.device_put(fitted)
    return on_device
