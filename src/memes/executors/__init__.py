"""Executors that evaluate tasks elsewhere: processes of this machine, and other people's clusters."""

from __future__ import annotations

from concurrent.futures import Executor

from memes.errors import at_least, known, require
from memes.executors.clusters import CLUSTERS
from memes.executors.processes import Processes
from memes.validation import checked

MOST_WORKERS = 10_000  # processes of one machine


@checked
def workers(which: int | str, *, timeout: float | None = None) -> Executor:
    """Build the executor that words such as `8` or `ray:ADDRESS` describe; use it with `with`.

    Args:
        which: A number of processes, or `ray`, `ray:ADDRESS`, `dask:ADDRESS` or `mpi`.
        timeout: Seconds after which a process that has not finished its rows is killed; None waits.
    """
    require(timeout is None or timeout > 0, f"simulator_timeout must be positive, got {timeout}")
    word = str(which)
    if word.lstrip("+-").isdigit():
        at_least(1, workers=int(word))
        require(int(word) <= MOST_WORKERS, f"workers must be at most {MOST_WORKERS:,}, got {word}")
        return Processes(int(word), timeout=timeout)
    kind, _, address = word.partition(":")
    known("kind of workers", kind, CLUSTERS, ", or a number of processes")
    require(timeout is None, f"simulator_timeout is for processes; {kind} has time limits of its own")
    return CLUSTERS[kind](address)
