"""Calls of the device, sized by time, and signals that are heard meanwhile."""

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
from memes.runner.multihost import present
from memes.store.schema import RunConfig

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GROWTH = 4  # a call of the device has at most so many times the generations of the one before


class Call(NamedTuple):
    """A call of the device that is over: the state and the record of each seed."""

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
    """Call the device for the generations that are left, about `call_seconds` at a time.

    It ends early, though not before the first generation, once `going` says no.

    The device works on the next call while the host looks at the one before, unless somebody is due to
    look, who may need the device, or the host itself evaluates. A thread makes the calls, since on GPUs
    a call returns only with its last generation: the host counts them.
    """
    generations, aim = config.generations, config.call_seconds
    size, agree, beside = 1, present().agree, program.algorithm.task.jit

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
            # Before the next call begins, behind which the device would put what this needs of it.
            call = Call(program.states(state), program.records(record, n), seconds)
            may_go_on = beside and done < generations and not agree(due, done)
            ahead = start(state) if may_go_on else None
            yield call


def wait(record: Record) -> None:
    """Wait for the device, with open ears: Python hears no signal while it waits inside of JAX."""
    last: list[Any] = jax.tree.leaves(record)[-1:]
    while any(hasattr(leaf, "is_ready") and not leaf.is_ready() for leaf in last):
        time.sleep(0.002)


@contextmanager
def interruptible(say: Callable[[str], None], sentence: str) -> Iterator[Callable[[], str | None]]:
    """Let the first Ctrl-C or SIGTERM only be named by the yielded function; the second interrupts."""
    seen: str | None = None
    before: dict[signal.Signals, Any] = {}

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    def note(signum: int, frame: object) -> None:
        nonlocal seen
        seen = signal.Signals(signum).name
        restore()  # first: the next signal may come while this is said
        say(sentence)

    with suppress(ValueError):  # not in the main thread, where signals do not arrive anyway
        for each in SIGNALS:
            before[each] = signal.signal(each, note)
    try:
        yield lambda: seen
    finally:
        restore()
