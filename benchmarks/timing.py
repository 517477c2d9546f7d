"""Timing of functions that are called in turn, after one warm-up call per function for compilation."""

import importlib.metadata
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

import memes


class Timing(NamedTuple):
    """Times of a function in seconds.

    Attributes:
        first: Time of the first call.
        seconds: Time of each later call, [repeats].
        result: Result of the last call.
    """

    first: float
    seconds: np.ndarray
    result: object

    @property
    def median(self) -> float:
        """Median time of the later calls, in seconds."""
        return float(np.median(self.seconds))


def interleaved(functions: dict[str, Callable[[], object]], repeats: int = 3) -> dict[str, Timing]:
    """Call all functions in turn: once for compilation, and then `repeats` times.

    Each call waits for the device. The functions take turns, so other load affects all of them.
    """
    timed = {name: ([], None) for name in functions}
    for _ in range(1 + repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            result = jax.block_until_ready(function())
            timed[name] = ([*timed[name][0], time.perf_counter() - start], result)
    return {
        name: Timing(seconds[0], np.array(seconds[1:]), result)
        for name, (seconds, result) in timed.items()
    }


def about(*packages: str) -> dict[str, object]:
    """Return the device, and the versions of all given packages that are installed."""
    versions = {"memes": memes.__version__}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    device = jax.devices()[0]
    cores = {"cores": len(os.sched_getaffinity(0))} if device.platform == "cpu" else {}
    return {"device": device.device_kind, **cores, "versions": versions}
