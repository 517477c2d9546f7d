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
PARTS = ("state", "metrics", "lanes")


def save(run: Run) -> None:
    """Write a checkpoint of a run into its folder, and remove those that are too old."""
    assert run.folder is not None
    leaves = jax.device_get(jax.tree.leaves(run.state))
    arrays = {f"state/{i}": leaf for i, leaf in enumerate(leaves)}
    arrays |= {f"metrics/{name}": column for name, column in run.metrics.items()}
    arrays |= {f"lanes/{name}": array for name, array in run.lanes.items()}
    path = run.folder / "checkpoints"
    path.mkdir(exist_ok=True)
    about = {
        "format_version": FORMAT_VERSION,
        "identity": identity(run.config),
        "generations": run.config["generations"],
        "digest": _digest(arrays),
    }
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
    folder: Path,
    config: dict[str, Any],
    blank: Callable[[int], State],
    say: Callable[[str], None],
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
                about, parts = _read(file)
        except UsageError as error:
            say(f"{error}; looking for an older checkpoint")
            continue
        _check(file, about, config)
        leaves = [parts["state"][str(i)] for i in range(len(parts["state"]))]
        state = _fitted(file, leaves, about["generations"], config["generations"], blank)
        metrics, lanes = parts["metrics"], parts["lanes"]
        corrected = load_corrected(folder)
        return Run(folder, config, metrics, lanes, state.archive, corrected, None, state)
    require(
        not _newest_first(folder),
        f"no checkpoint in '{folder / 'checkpoints'}' can be read; remove them to start anew",
    )
    return None


def _newest_first(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("[0-9]*.npz"), reverse=True)


def _read(file: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """Read what is said of a checkpoint, and its arrays by part and name."""
    arrays = read_arrays(file)
    about = dict(json.loads(str(arrays.pop("about"))))
    parts: dict[str, dict[str, np.ndarray]] = {name: {} for name in PARTS}
    if about["format_version"] == FORMAT_VERSION:  # of another one nothing else is known
        if about["digest"] != _digest(arrays):
            raise ValueError("it does not hold what was written")
        for name, array in arrays.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = array
        if len(parts["metrics"]["generation"]) != int(file.stem):
            raise ValueError("it is not of the generation in its name")
    return about, parts


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {arrays[name].shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _check(file: Path, about: dict[str, Any], config: dict[str, Any]) -> None:
    """Raise a `UsageError` that says why a checkpoint cannot be used for a run, if it cannot."""
    version = about["format_version"]
    newer = f"newer than this memes can read ({FORMAT_VERSION})"
    older = "of an older memes: go on with that one, or start anew"
    require(
        version == FORMAT_VERSION,
        f"'{file}' has format version {version}, {newer if version > FORMAT_VERSION else older}",
    )
    require(about["identity"] == identity(config), f"'{file}' is a checkpoint of another run")


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
