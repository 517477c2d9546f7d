"""How things are timed: a first call that compiles, then turns taken by all that are compared."""

import importlib.metadata
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

import memes


class Timing(NamedTuple):
    """Seconds of the first call and of each later one, [repeats], and what the last one returned."""

    first: float
    seconds: np.ndarray
    result: object

    @property
    def median(self) -> float:
        """Of the later calls."""
        return float(np.median(self.seconds))


def interleaved(functions: dict[str, Callable[[], object]], repeats: int = 3) -> dict[str, Timing]:
    """Call all functions in turn, `repeats` times after a first round; each call waits for the device.

    What else the machine does in the meantime meets all of them alike.
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
    """The device, and the versions of those of the packages that are installed."""
    versions = {"memes": memes.__version__}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    device = jax.devices()[0]
    cores = {"cores": len(os.sched_getaffinity(0))} if device.platform == "cpu" else {}
    return {"device": device.device_kind, **cores, "versions": versions}
