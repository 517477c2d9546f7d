"""Export of a policy to a file that NumPy can read."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from memes.archive import Archive
from memes.control.tree_policies import identity
from memes.errors import require
from memes.store.files import replace_file
from memes.store.folder import check_links
from memes.task import Task

# The names of activations in files.
ACTIVATIONS: dict[Any, str] = {jax.nn.relu: "relu", jnp.tanh: "tanh", identity: "identity"}
NAME = "policy.npz"


def export_policy(
    archive: Archive, cell: int, task: Task, folder: Path, *, replace: bool = True
) -> Path:
    """Write the policy of an elite into a folder, which is made if it does not exist.

    The file contains:

    - the arrays `weights_0` [in, out], `bias_0` [out], `weights_1`, ... of the layers,
    - the number of `layers`,
    - the names of the `hidden` and `output` activation functions,
    - the `cell`, `fitness` and `feature` of the elite.

    Args:
        archive: The archive.
        cell: The cell of the elite.
        task: The task of the archive.
        folder: The folder for the file `policy.npz`.
        replace: Whether to replace an existing file. If False, an existing file raises a `UsageError`.

    Returns:
        The path of the file.
    """
    network = None if task.control is None else task.control.controller.network
    require(
        network is not None,
        f"task '{task.name}' has no policy that is a perceptron in float32, and other policies cannot "
        "be exported; export the genotypes with npz",
    )
    assert network is not None
    unknown = [each for each in (network.hidden, network.output) if each not in ACTIVATIONS]
    require(
        not unknown,
        f"activations of the policy must be {', '.join(ACTIVATIONS.values())} to be exported, got "
        f"{unknown}; export the genotypes with npz",
    )
    check_links(folder)
    file = folder / NAME
    require(
        replace or not file.exists(),
        f"out must not contain '{NAME}', but '{folder}' does; choose another folder",
    )
    arrays: dict[str, Any] = {
        "layers": len(network.sizes) - 1,
        "hidden": ACTIVATIONS[network.hidden],
        "output": ACTIVATIONS[network.output],
        "cell": cell,
        "fitness": np.asarray(archive.fitness)[cell],
        "feature": np.asarray(archive.feature)[cell],
    }
    genotype, start = np.asarray(archive.genotypes)[cell], 0
    for i, (rows, columns) in enumerate(itertools.pairwise(network.sizes)):
        middle, end = start + rows * columns, start + rows * columns + columns
        arrays[f"weights_{i}"] = genotype[start:middle].reshape(rows, columns)
        arrays[f"bias_{i}"] = genotype[middle:end]
        start = end
    folder.mkdir(exist_ok=True)
    replace_file(file, partial(_save, arrays))
    return file


def _save(arrays: dict[str, Any], file: IO[bytes]) -> None:
    np.savez(file, **arrays)
