"""Checkpoints: all that a run needs to go on as if it had never stopped.

A checkpoint is one npz file of plain arrays, written aside and renamed, so that it is there as a whole
or not at all. It holds the state of the algorithm and the log so far; the keys of a run follow from its
seed. A digest of all arrays tells a damaged or edited file; then the one before is used.

Plain files rather than Orbax: a state is a few dozen arrays on one machine, and a file that is renamed
into place needs neither a folder of shards and metadata nor a protocol to tell whether it is complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import numpy as np

from memes.errors import UsageError, require
from memes.store.files import intact, read_arrays, replace_file

FORMAT_VERSION = 1
KEEP = 2  # the last ones; the older is there in case the newer is damaged


class History(NamedTuple):
    """The log of a run: `columns` of metrics.csv, `lanes` and running `totals`, arrays by name."""

    columns: dict[str, np.ndarray]
    lanes: dict[str, np.ndarray]
    totals: dict[str, np.ndarray]

    @property
    def generation(self) -> int:
        """How many generations it is of."""
        return len(self.columns["generation"])


class Checkpoint(NamedTuple):
    """The state after some generations, and the log up to there."""

    state: Any
    history: History


def save(folder: Path, checkpoint: Checkpoint, identity: str) -> None:
    """Write a checkpoint into `folder/checkpoints`, and remove those that are too old."""
    leaves = jax.device_get(jax.tree.leaves(checkpoint.state))
    arrays = {f"state/{i}": leaf for i, leaf in enumerate(leaves)}
    for part, named in checkpoint.history._asdict().items():
        arrays |= {f"{part}/{name}": array for name, array in named.items()}
    path = folder / "checkpoints"
    path.mkdir(exist_ok=True)

    def write(file: IO[bytes]) -> None:
        about = {"format_version": FORMAT_VERSION, "identity": identity, "digest": _digest(arrays)}
        np.savez(file, about=np.array(json.dumps(about)), **arrays)

    replace_file(path / f"{checkpoint.history.generation:08d}.npz", write)
    # A process that was killed may have left one that it had not finished.
    for old in [*_newest_first(folder)[KEEP:], *path.glob("*.tmp")]:
        old.unlink(missing_ok=True)


def load(
    folder: Path,
    like: Any,
    identity: str,
    say: Callable[[str], None],
) -> Checkpoint | None:
    """The newest intact checkpoint, or None if there is no checkpoint at all.

    Args:
        folder: The run's folder.
        like: A state of the algorithm that is resumed, or its shapes.
        identity: What the run is, as it was given to `save`.
        say: Told of checkpoints that are left out.
    """
    for file in _newest_first(folder):
        try:
            with intact(file):
                found = _read(file)
        except UsageError as error:
            say(f"{error}; looking for an older checkpoint")
            continue
        return _fitted(file, found, like, identity)
    require(
        not _newest_first(folder),
        f"no checkpoint in '{folder / 'checkpoints'}' can be read; remove them to start anew",
    )
    return None


def _newest_first(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("[0-9]*.npz"), reverse=True)


class _Raw(NamedTuple):
    about: dict[str, Any]
    leaves: list[np.ndarray]
    history: History


def _read(file: Path) -> _Raw:
    arrays = read_arrays(file)
    about = dict(json.loads(str(arrays.pop("about"))))
    parts: dict[str, dict[str, np.ndarray]] = {name: {} for name in ("state", *History._fields)}
    if about["format_version"] <= FORMAT_VERSION:  # of a newer one nothing else is known
        if about["digest"] != _digest(arrays):
            raise ValueError("it does not hold what was written")
        for name, array in arrays.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = array
        if len(parts["columns"]["generation"]) != int(file.stem):
            raise ValueError("it is not of the generation in its name")
    state = parts.pop("state")
    return _Raw(about, [state[str(i)] for i in range(len(state))], History(**parts))


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype} {arrays[name].shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _fitted(file: Path, raw: _Raw, like: Any, identity: str) -> Checkpoint:
    """What was read as a checkpoint of this run, or a `UsageError` that says why it is not one."""
    version = raw.about["format_version"]
    require(
        version <= FORMAT_VERSION,
        f"'{file}' has format version {version}, newer than this memes can read ({FORMAT_VERSION})",
    )
    require(raw.about["identity"] == identity, f"'{file}' is a checkpoint of another run")
    other = f"'{file}' is a checkpoint of another algorithm or task"
    shapes, tree = jax.tree.flatten(like)
    require([leaf.ndim for leaf in raw.leaves] == [leaf.ndim for leaf in shapes], other)
    leaves = [_with_room(leaf, like) for leaf, like in zip(raw.leaves, shapes, strict=True)]
    found = [(leaf.shape, leaf.dtype) for leaf in leaves]
    require(found == [(leaf.shape, leaf.dtype) for leaf in shapes], other)
    return Checkpoint(jax.tree.unflatten(tree, leaves), raw.history)


def _with_room(leaf: np.ndarray, like: Any) -> np.ndarray:
    """The rows that were saved, with as much room behind them as a run of another length has."""
    if leaf.ndim == 0 or leaf.shape[1:] != like.shape[1:]:
        return leaf
    kept = leaf[: like.shape[0]]
    return np.pad(kept, [(0, like.shape[0] - len(kept)), *[(0, 0)] * (leaf.ndim - 1)])


class Checkpointer:
    """Writes checkpoints in the background, one at a time."""

    def __init__(self, folder: Path, identity: str) -> None:
        self._folder = folder
        self._identity = identity
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether the last one is still being written."""
        return self._pending is not None and not self._pending.done()

    def start(self, checkpoint: Checkpoint) -> None:
        """Begin to write; waits for the one before, and raises what it raised."""
        self.wait()
        self._pending = self._thread.submit(save, self._folder, checkpoint, self._identity)

    def wait(self) -> None:
        """Wait until all is written; raises what went wrong."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Stop, without raising anything."""
        self._thread.shutdown(wait=True)
