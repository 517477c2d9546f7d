"""Functions that collect the provenance of a run: its task, device, versions and commit."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

import jax

from memes.algorithm import Algorithm
from memes.cells import Grid
from memes.store.schema import Header, Provenance, RunConfig
from memes.task import PRECISION
from memes.version import __version__


def describe(algorithm: Algorithm) -> Header:
    """Return the content of `config.json` for a new run on this machine, without the run's settings."""
    task, cells, device = algorithm.task, algorithm.cells, jax.devices()[0]
    packages = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "optax")}
    config = RunConfig(
        task=task.name,
        task_name=task.name,
        algorithm=algorithm.name,
        seed=0,
        options=algorithm.options,
        cells=cells.shape if isinstance(cells, Grid) else cells.count,
        dim=task.dim,
        feature_low=tuple(map(float, task.feature_low)),
        feature_high=tuple(map(float, task.feature_high)),
        feature_names=tuple(task.feature_names),
        min_fitness=task.min_fitness,
        uncertain=task.uncertain,
        map=task.map,
        batch_size=algorithm.batch_size,
    )
    provenance = Provenance(
        started=now(),
        device=f"{device.platform}: {device.device_kind}",
        precision=PRECISION,
        versions={"memes": __version__, "python": platform.python_version(), **packages},
        commit=library_commit(),
        git_commit=_git("rev-parse", "HEAD"),
    )
    return Header(config, provenance)


def now() -> str:
    """Return the current time in UTC, rounded down to seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def library_commit() -> str | None:
    """Return the commit of this library, which is read from its wheel or its checkout.

    If the checkout has uncommitted changes, the result ends with "-dirty". If the commit is unknown, the
    result is None.
    """
    package = Path(__file__).parents[1]
    written = package / "commit.txt"
    if written.exists():
        return written.read_text().strip()
    checkout = package.parents[1]
    if not (checkout / ".git").exists():
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*", folder=checkout)


def _git(*words: str, folder: Path | None = None) -> str | None:
    """Return the output of a git command, or None if the command fails.

    Args:
        *words: Arguments of git.
        folder: Folder in which git runs. If None, git runs in the working directory.
    """
    command = ["git", *words]
    try:
        found = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
