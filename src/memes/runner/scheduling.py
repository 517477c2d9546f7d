"""Scheduling of device calls according to their duration, and handling of signals."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from memes.algorithm import State
from memes.runner.device import MOST, Program, Record
from memes.runner.multihost import process_group
from memes.store.schema import RunConfig

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GROWTH = 4  # a device call computes at most GROWTH times as many generations as the previous call


class Call(NamedTuple):
    """A finished device call, with the state and the record of each seed."""

    states: list[State]
    records: list[Record]
    seconds: float


def calls(
    program: Program,
    key: jax.Array,
    state: State,
    done: int,
    config: RunConfig,
    due: Callable[[int], bool],
    going: Callable[[], bool],
) -> Iterator[Call]:
    """Compute the remaining generations, and yield device calls of about `call_seconds` each.

    The computation stops early if `going` returns False, but not before the first generation.

    The device computes the next call while the host processes the previous call, with two exceptions. If
    the task is evaluated on the host, calls do not overlap. If an observer is due after a call, the next
    call waits for the observer, which may need the device. A separate thread makes the calls, because on
    GPUs a call returns only after its last generation.
    """
    generations, aim = config.generations, config.call_seconds
    size, agree, beside = 1, process_group().agree, program.algorithm.task.jit

    with ThreadPoolExecutor(1, "memes-device") as thread:

        def start(state: State) -> tuple[float, int, Callable[[], tuple[State, Record]]]:
            left = min(size, generations - done)
            n = agree(lambda: next((i for i in range(1, left) if due(done + i)), left))
            advance = partial(program.advance, key, state, n)
            return time.perf_counter(), n, thread.submit(advance).result if beside else advance

        ahead = None
        while done < generations and (done == 0 or agree(going)):
            began, n, made = ahead or start(state)
            state, record = made()
            wait(record)
            seconds = time.perf_counter() - began
            done += n
            size = int(np.clip(aim / max(seconds / n, 1e-9), 1, min(GROWTH * n, MOST)))
            # Transfer the results before the next call starts, because the device would delay later
            # transfers until the call ends.
            call = Call(program.states(state), program.records(record, n), seconds)
            may_go_on = beside and done < generations and not agree(due, done)
            ahead = start(state) if may_go_on else None
            yield call


def wait(record: Record) -> None:
    """Wait for the device in short intervals, because Python cannot handle signals inside JAX."""
    last: list[Any] = jax.tree.leaves(record)[-1:]
    while any(hasattr(leaf, "is_ready") and not leaf.is_ready() for leaf in last):
        time.sleep(0.002)


@contextmanager
def interruptible(say: Callable[[str], None], sentence: str) -> Iterator[Callable[[], str | None]]:
    """On the first Ctrl-C or SIGTERM, record the signal and print a message, but do not interrupt.

    The yielded function returns the name of the recorded signal, or None. A second signal interrupts the
    program.
    """
    seen: str | None = None
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    def note(signum: int, frame: object) -> None:
        nonlocal seen
        seen = signal.Signals(signum).name
        # Restore the handlers first, because the next signal may arrive while `say` prints.
        restore()
        say(sentence)

    with suppress(ValueError):  # `signal.signal` raises a ValueError outside the main thread
        for each in SIGNALS:
            before[each] = signal.signal(each, note)
    try:
        yield lambda: seen
    finally:
        restore()
