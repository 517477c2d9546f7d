"""Simulators in plain Python that worker processes can import."""

import os
import signal
import sys
import time
from contextlib import suppress

import numpy as np

import memes


def hills(keys, x):
    """Return a noisy fitness, and the first two entries of each genotype as its feature."""
    noise = memes.seeds_from_keys(keys) / 2**32
    return np.sin(3 * x).sum(axis=1) + noise, x[:, :2]


def started_backend(keys, x):
    """Return a fitness from 0 to 3 that encodes the state of JAX.

    The fitness is the sum of two numbers: 1 if JAX has started a backend, and 2 if JAX is not limited to
    the CPU. Each number is 0 otherwise.
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = bridge is not None and bridge.backends_are_initialized()
    other_devices = os.environ.get("JAX_PLATFORMS") != "cpu"
    fitness, feature = hills(keys, x)
    return 0 * fitness + started + 2 * other_devices, feature


class StuckError(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, joint, angle):
        super().__init__(f"joint {joint} got stuck at {angle}")


def silent(keys, x):
    """Return nothing, by mistake."""


def misbehaving(keys, x):
    """Fail if the last entry of any genotype is large.

    If the largest of these entries is at least 0.9, the process is killed. If it is at least 0.8, the
    process hangs. If it is at least 0.7, the function raises an exception.
    """
    worst = x[:, -1].max()
    if worst >= 0.9:
        os.kill(os.getpid(), signal.SIGKILL)
    if worst >= 0.8:
        time.sleep(60)
    if worst >= 0.7:
        raise StuckError(3, worst)
    return hills(keys, x)


def killed_once(keys, x):
    """Kill the process in the first call. This call creates a file, so that later calls succeed."""
    with suppress(FileExistsError):
        os.close(os.open(os.environ["KILLED_ONCE"], os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    return hills(keys, x)


def _end():
    match os.environ["ENDS"]:
        case "interrupt":
            raise KeyboardInterrupt
        case "kill":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            os.kill(os.getpid(), signal.SIGSTOP)


def ending_often(keys, x):
    """End the process if the first entry of any genotype exceeds 0.5 (one genotype in six)."""
    if (x[:, 0] > 0.5).any():
        _end()
    return hills(keys, x)


def ending_always(keys, x):
    """End the process in every call."""
    _end()


def wrong(keys, x):
    """Raise an exception because of a bug."""
    return 1 / 0


def transposed(keys, x):
    """Return one fitness per column instead of one per genotype, by mistake."""
    return x.sum(axis=0), x[:, :2]


def task(evaluate=hills, **about):
    return memes.Task(
        "hills", 4, (0.0, 0.0), (1.0, 1.0), memes.uniform(4, 0.0, 0.6), evaluate, jit=False, **about
    )


hilly = task()
stuck = task(lambda keys, x: hills(keys, x) if len(x) < 8 else time.sleep(60))
