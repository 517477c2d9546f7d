"""Measurement of the time per generation of algorithms that take turns on one device.

The times of algorithms that take turns are comparable. In contrast, the times of separate runs can
differ because the code or the load of the device has changed between the runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from memes.reproduce.sweep import Item
from memes.runner.device import MOST, compile_fitting, first_state, keys_of
from memes.runner.device_use import announced, count, place_of
from memes.runner.scheduling import wait
from memes.store.files import check_entries, read_json, reading, save_text
from memes.store.provenance import describe
from memes.store.schema import Provenance, read

FORMAT, FORMAT_VERSION = "memes-times", 1
TURNS = 10
TURN_SECONDS = 1.0  # approximate duration of a turn
ABOUT = ("device", "versions", "commit", "started", "processes_on_device")
ENTRIES: dict[str, Any] = {
    "task": str, "scale": str, "generations": int, "about": dict,
    "seconds": dict[str, tuple[float, ...]],
}  # fmt: skip


class Times(NamedTuple):
    """Times of algorithms on a task.

    Attributes:
        task: Name of the task.
        scale: Scale of the defaults.
        generations: Number of generations of a run.
        about: Provenance of the times. Files contain only the entries that `ABOUT` lists.
        seconds: Seconds per generation in each turn, by label.
    """

    task: str
    scale: str
    generations: int
    about: Provenance
    seconds: Mapping[str, Sequence[float]]


def measure(items: Sequence[Item], say: Callable[[str], None]) -> Times:
    """Measure the time per generation of algorithms on one task, in turns of about one second each."""
    place = place_of(jax.devices()[0])
    seconds: dict[str, list[float]] = {item.label: [] for item in items}
    with ExitStack() as stack:
        if place is not None:
            stack.enter_context(announced(place))
        advances: dict[str, Callable[[], float]] = {}
        about = Provenance()
        for item in items:
            say(f"{item.task} {item.label}: compiling for the measurement in turns")
            advances[item.label], about = _advancing(item)
        sharing = 1 if place is None else count(place)
        for turn in range(TURNS):
            say(f"{items[0].task}: turn {turn + 1} of {TURNS}")
            for label, advance in advances.items():
                seconds[label].append(advance())
        sharing = max(sharing, 1 if place is None else count(place))
    first = items[0]
    about = replace(about, processes_on_device=sharing)
    return Times(first.task, first.parsed.choice.scale, first.generations, about, seconds)


def _advancing(item: Item) -> tuple[Callable[[], float], Provenance]:
    """Compile an item for the measurement.

    Returns:
        A pair `(turn, provenance)`. The function `turn` computes one turn and returns its seconds per
        generation.
    """
    algorithm = item.parsed.build()
    program = compile_fitting(algorithm, 1, item.generations, lambda sentence: None)
    key = program.keys([0])
    state = program.join([first_state(algorithm)(keys_of(0)[0], item.generations)])

    def advance(n: int) -> float:
        nonlocal state
        start = time.perf_counter()
        state, record = program.advance(key, state, n)
        wait(record)
        return (time.perf_counter() - start) / n

    advance(1)
    n = int(np.clip(TURN_SECONDS / advance(3), 3, MOST))
    return lambda: advance(n), describe(algorithm).provenance


def save_times(path: Path, times: Times) -> None:
    """Write times to a JSON file."""
    about = {name: getattr(times.about, name) for name in ABOUT}
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **times._asdict(), "about": about}
    save_text(path, json.dumps(content, indent=1))


def load_times(folder: Path) -> list[Times]:
    """Read all times in a folder, or return [] if there are no times."""
    found = []
    for file in sorted(folder.glob("*.json")):
        content = read_json(file)
        with reading(file):
            check_entries(file, content, ENTRIES)
            content["about"] = read(Provenance, content["about"], file)
            found.append(Times(*(content[name] for name in Times._fields)))
    return found
