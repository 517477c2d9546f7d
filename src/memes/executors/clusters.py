"""Executors for Ray, Dask and MPI. Each executor needs an optional package."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from memes.errors import RunError, UsageError, in_a_line, package, require
from memes.executors.processes import ENVIRONMENT


class Ray(Executor):
    """An executor for the workers of Ray, on a cluster or on this machine."""

    def __init__(self, address: str = "") -> None:
        self._ray = package("ray", "ray", "workers: 'ray'")
        self._mine = not self._ray.is_initialized()
        if self._mine:
            variables = ENVIRONMENT.copy()
            if not address:  # local workers must find the same modules as this process
                variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
            self._ray.init(
                address or None,
                runtime_env={"env_vars": variables},
                log_to_driver=False,
                include_dashboard=None if address else False,
            )

    def __str__(self) -> str:
        return f"{self._ray.cluster_resources().get('CPU', 0):.0f} workers of Ray"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a function call to the workers."""
        # Ray must not retry, because the caller retries.
        remote = self._ray.remote(fn).options(max_retries=0)
        future: Future[Any] = remote.remote(*args, **kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from the cluster, or stop the cluster if this process started it."""
        if self._mine:
            self._ray.shutdown()


class Dask(Executor):
    """An executor for the workers of the Dask cluster whose scheduler has the given address."""

    def __init__(self, address: str) -> None:
        require(
            bool(address), "workers: Dask needs the address of its scheduler, as in dask:tcp://host:8786"
        )
        distributed = package("distributed", "dask", "workers: 'dask'")
        try:
            self._client = distributed.Client(address, timeout=10)
        except (OSError, ValueError) as error:
            raise RunError(f"workers: no Dask scheduler answers at {address}") from error
        # Dask must not retry, because the caller retries. With `pure=True`, Dask would reuse the
        # failures of earlier calls with the same arguments.
        self._executor = self._client.get_executor(pure=False, retries=0)

    def __str__(self) -> str:
        return f"{len(self._client.nthreads())} workers of Dask"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a function call to the workers."""
        future: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from the cluster."""
        self._executor.shutdown(wait=wait)
        self._client.close()


class MPI(Executor):
    """An executor for the processes that `mpiexec` or `srun` has started."""

    def __init__(self, address: str = "") -> None:
        require(not address, f"workers: mpi takes no address, got '{address}'")
        try:
            futures = package("mpi4py.futures", "mpi", "workers: 'mpi'")
        except RuntimeError as error:
            raise UsageError(f"workers: 'mpi' finds no MPI: {in_a_line(error)}") from error
        self._executor = futures.MPIPoolExecutor(env=ENVIRONMENT)

    def __str__(self) -> str:
        return f"{self._executor.num_workers} workers of MPI"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a function call to the workers."""
        future: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from the workers."""
        self._executor.shutdown(wait=wait, cancel_futures=cancel_futures)


CLUSTERS: dict[str, Callable[[str], Executor]] = {"ray": Ray, "dask": Dask, "mpi": MPI}
