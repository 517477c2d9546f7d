"""Simulators in plain Python that workers can import."""

import os
import signal
import sys
import time
from contextlib import suppress

import numpy as np

import memes


def hills(keys, x):
    """A fitness that depends on the key, and the first two entries."""
    luck = memes.seeds_from_keys(keys) / 2**32
    return np.sin(3 * x).sum(axis=1) + luck, x[:, :2]


def started_backend(keys, x):
    """A fitness of 1 where JAX has started a backend, and 2 where it is not kept to the CPU."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = bridge is not None and bridge.backends_are_initialized()
    elsewhere = os.environ.get("JAX_PLATFORMS") != "cpu"
    fitness, feature = hills(keys, x)
    return 0 * fitness + started + 2 * elsewhere, feature


class StuckError(Exception):
    """Cannot be restored from what it was pickled as."""

    def __init__(self, joint, angle):
        super().__init__(f"joint {joint} got stuck at {angle}")


def silent(keys, x):
    """Forgets to return anything."""


def misbehaving(keys, x):
    """Row by row, by the last entry: from 0.9 killed, from 0.8 hanging, from 0.7 raising."""
    worst = x[:, -1].max()
    if worst >= 0.9:
        os.kill(os.getpid(), signal.SIGKILL)
    if worst >= 0.8:
        time.sleep(60)
    if worst >= 0.7:
        raise StuckError(3, worst)
    return hills(keys, x)


def killed_once(keys, x):
    """Killed by the first call of all, which leaves a file behind."""
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
    """Ends the process for one row in six, and for all rows of a trial of three."""
    if (x[:, 0] > 0.5).any():
        _end()
    return hills(keys, x)


def ending_always(keys, x):
    """Ends the process."""
    _end()


def wrong(keys, x):
    """A mistake of its author."""
    return 1 / 0


def transposed(keys, x):
    """A fitness for each entry, not for each row."""
    return x.sum(axis=0), x[:, :2]


def task(evaluate=hills, **about):
    return memes.Task(
        "hills", 4, (0.0, 0.0), (1.0, 1.0), memes.uniform(4, 0.0, 0.6), evaluate, jit=False, **about
    )


hilly = task()
stuck = task(lambda keys, x: hills(keys, x) if len(x) < 8 else time.sleep(60))
