"""Calls of the device, sized by time, and signals that are heard meanwhile."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import jax
import numpy as np

from memes.algorithm import State
from memes.runner.device import MOST, Program, Record
from memes.runner.team import present

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
    config: dict[str, Any],
    due: Callable[[int], bool],
    going: Callable[[], bool],
) -> Iterator[Call]:
    """Call the device for the generations that are left, about `call_seconds` at a time.

    It ends early, though not before the first generation, once `going` says no.

    It works on the next call while the host looks at the one before, where a call returns before it is
    computed (on CPUs; on GPUs the host counts the generations); unless somebody is due to look, who may
    need the device.
    """
    generations, aim = config["generations"], config["call_seconds"]
    size, free, returns_early, agree = 1, 0.0, False, present().agree

    def start(state: State) -> tuple[float, float, int, State, Record]:
        left = min(size, generations - done)
        n = agree(lambda: next((i for i in range(1, left) if due(done + i)), left))
        began = time.perf_counter()
        made = program.advance(key, state, n)
        return began, time.perf_counter(), n, *made

    ahead = None
    while done < generations and (done == 0 or agree(going)):
        began, returned, n, state, record = ahead or start(state)
        done += n
        may_go_on = returns_early and done < generations and not agree(due, done)
        ahead = start(state) if may_go_on else None
        wait(record)
        now = time.perf_counter()
        seconds, free = now - max(began, free), now
        if ahead is None:  # else a call that does not return would be timed with the next
            returns_early = bool(agree(bool, returned - began < (now - began) / 2))
        size = int(np.clip(aim / max(seconds / n, 1e-9), 1, min(GROWTH * n, MOST)))
        yield Call(program.states(state), program.records(record, n), seconds)


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
