"""Ctrl-C and SIGTERM: a run hears them, and ends when it is ready to."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible(say: Callable[[str], None], sentence: str) -> Iterator[Callable[[], str | None]]:
    """Let the first Ctrl-C or SIGTERM only be named by the yielded function; the second interrupts."""
    seen: str | None = None

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = signal.Signals(signum).name
        say(sentence)
        for each, handler in before.items():
            signal.signal(each, handler)

    before: dict[signal.Signals, Any] = {}
    try:
        for each in SIGNALS:
            before[each] = signal.signal(each, note)
    except ValueError:  # not in the main thread, where signals do not arrive anyway
        yield lambda: None
        return
    try:
        yield lambda: seen
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
