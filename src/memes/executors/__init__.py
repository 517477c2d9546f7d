"""Executors that evaluate tasks in other processes, on this machine or on a cluster."""

from __future__ import annotations

from concurrent.futures import Executor

from memes.errors import at_least, known, require
from memes.executors.clusters import CLUSTERS
from memes.executors.processes import Processes
from memes.validation import checked

MOST_WORKERS = 10_000  # maximum number of processes on one machine


@checked
def workers(which: int | str, *, timeout: float | None = None) -> Executor:
    """Build an executor from a description such as `8` or `ray:ADDRESS`.

    Use the executor in a `with` statement.

    Args:
        which: A number of processes, or `ray`, `ray:ADDRESS`, `dask:ADDRESS` or `mpi`.
        timeout: Maximum time in seconds for a block of genotypes. If a block takes longer, its process
            is killed. If None, processes are never killed.

    Returns:
        The executor.
    """
    require(timeout is None or timeout > 0, f"simulator_timeout must be positive, got {timeout}")
    word = str(which)
    if word.lstrip("+-").isdigit():
        at_least(1, workers=int(word))
        require(int(word) <= MOST_WORKERS, f"workers must be at most {MOST_WORKERS:,}, got {word}")
        return Processes(int(word), timeout=timeout)
    kind, _, address = word.partition(":")
    known("kind of workers", kind, CLUSTERS, ", or a number of processes")
    require(
        timeout is None,
        f"simulator_timeout is only for local processes; use the time limits of {kind} instead",
    )
    return CLUSTERS[kind](address)
