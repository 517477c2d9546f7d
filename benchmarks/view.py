"""Measure how much `memes view` slows down a run, and how long clicks and recolouring take.

    python benchmarks/view.py                     on this machine, at laptop scale
    python benchmarks/view.py --scale paper       on a GPU: the Ant of the paper

The script compares the times of runs with and without the page of `memes view`. Runs without the page
have no change log, so neither the device nor the host records changes. The two kinds of runs alternate.
If other programs use the machine, the times of complete runs are not precise. The script therefore also
measures the CPU seconds of individual parts.

At both scales, the script also measures how long the change log takes to process arrays of the same size
as in a run of the paper's Ant. It divides this time by the time of the Ant's generations on an H200.
To measure the slowdown in complete runs of the paper's Ant, use `--scale paper` on a GPU.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from timing import about, interleaved

import memes
from memes.analysis.render import ColourScale, TileLayout, is_nested, layout
from memes.cells import Cells
from memes.runner import change_log, device
from memes.runner.observers import Update
from memes.store import changes as store
from memes.store import folder as folders
from memes.store.folder import Run
from memes.view import archive_panel, colours
from memes.view.browser import SIDE
from memes.view.drawings import drawer
from memes.view.follow import Follower

GENERATION = 0.0372  # seconds per generation of the paper's Ant on an H200, from docs/speed.md
CALL = 27  # generations per device call, which takes about a second on an H200
SCALES = {
    "laptop": {"lanes": 8, "samples": 32, "generations": 100},
    "paper": {"lanes": 32, "samples": 512, "generations": 250},
}


@contextmanager
def recorded(most: int):
    """Set the maximum number of changes that are recorded per generation."""
    before = device.MOST_CHANGES
    device.MOST_CHANGES = change_log.MOST_CHANGES = most
    yield
    device.MOST_CHANGES = change_log.MOST_CHANGES = before


def run(task: memes.Task, folder: Path, generations: int, noted: bool, **options: int) -> float:
    """Run MEMES, and return the time in seconds without compilation."""
    algorithm = memes.presets.memes(task, **options)
    observers = [memes.Figures(draw=False), memes.Corrections(every=0)]
    observers.append(memes.ChangeLog() if noted else memes.ChangeLog(rows=0))
    with recorded(device.MOST_CHANGES if noted else 0):
        start = time.perf_counter()
        found = memes.run(
            algorithm,
            generations=generations,
            out=folder,
            overwrite=True,
            observers=observers,
            progress=False,
        )
        return time.perf_counter() - start - found.provenance.compile_seconds


@contextmanager
def page(folder: Path):
    """Follow a folder with `memes view` in a separate process."""
    command = [sys.executable, "-m", "memes", "view", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if not process.stdout.readline():
                raise SystemExit("memes view has ended before it printed an address")
            yield
        finally:
            process.terminate()


def ratios(task: memes.Task, place: Path, repeats: int, **options: int) -> list[float]:
    """For each repetition, return the ratio of the run times with and without `memes view`."""
    turns = []
    for turn in range(1 + repeats):
        both, seconds = (True, False) if turn % 2 else (False, True), {}
        for noted in both:
            folder = place / f"noted-{noted}"
            with page(folder) if noted else nullcontext():
                seconds[noted] = run(task, folder, noted=noted, **options)
        turns.append(seconds[True] / seconds[False])
    return turns[1:]  # without the first turn, which fills caches


def generations(task: memes.Task, n: int, repeats: int, **options: int) -> float:
    """Return the ratio of the device times of n generations with and without recorded changes."""
    algorithm = memes.presets.memes(task, **options)
    init, key = device.keys_of(0)
    state = device.first_state(algorithm)(init, n)
    advance = {}
    for most in (0, device.MOST_CHANGES):
        with recorded(most):
            advance[str(most)] = partial(
                device.compile_run(algorithm, device.ALONE, 1, n)[0], key, state, n
            )
    without, with_changes = interleaved(advance, repeats).values()
    return float(np.median(with_changes.seconds / without.seconds))


def cpu_seconds(function: Callable[[], object]) -> float:
    """Measure the CPU seconds of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def found(calls: int, cells: int, k: int) -> Iterator[memes.Changes]:
    """Yield artificial changes for each device call. Real runs have fewer changes."""
    random = np.random.default_rng(0)
    for call in range(calls):
        generation = np.repeat(np.arange(CALL * call, CALL * (call + 1), dtype=np.int32), 32)
        rows = memes.Changes(
            generation,
            random.integers(0, cells, generation.size, dtype=np.int32),
            np.tile(np.arange(32, dtype=np.int32), CALL),
            random.normal(size=generation.size).astype(np.float32),
            random.uniform(size=(generation.size, k)).astype(np.float32),
        )
        yield memes.Changes(*(column.reshape(CALL, 32, *column.shape[1:]) for column in rows))


def observing(folder: Path, generations: int = 2000) -> dict[str, float]:
    """Measure the CPU time that the change log needs per device call, for the paper's Ant task."""
    algorithm = memes.presets.memes(memes.tasks.ant(), lanes=32)
    archive = memes.archive.empty(algorithm.cells, algorithm.task.dim)
    saved = Run(folder, {}, {}, {}, archive, {}, None)
    watch = memes.ChangeLog().watch(SimpleNamespace(folder=folder, algorithm=algorithm))
    watch.on_start(saved)
    every = found(generations // CALL, algorithm.cells.count, len(algorithm.cells.low))
    seconds = [cpu_seconds(partial(watch.on_update, Update(saved, CALL, rows))) for rows in every]
    call = float(np.median(seconds))
    return {"a call": call, "the longest": max(seconds), "of a generation": call / CALL / GENERATION}


def following(folder: Path, generations: int = 2000) -> dict[str, float]:
    """Measure the CPU time that `memes view` needs per device call, after `generations` generations."""
    saved = memes.load_run(folder)
    rows = {name: np.resize(column, generations) for name, column in saved.metrics.items()}
    folders.save_metrics(folder, rows)
    cells = saved.archive.cells
    *before, last = (
        store.within(each, cells.count)
        for each in found(generations // CALL, cells.count, len(cells.low))
    )
    size, follower = store.save_changes(folder, store.joined(*before)), Follower(folder)
    follower.poll(strict=True)
    shown = () if is_nested(cells) else (0, 1)
    frame, reading, painting = frame_of(cells, shown), [], []
    for _ in range(10):
        folders.append_metrics(folder, {name: column[:CALL] for name, column in rows.items()})
        size = store.append_changes(folder, last, size)
        reading.append(cpu_seconds(follower.poll))
        changes = follower.latest.changes
        painting.append(cpu_seconds(lambda changes=changes: recolour(cells, *frame, changes)))
    read = sum((folder / name).stat().st_size for name in ("metrics.csv", "changes.bin"))
    seconds = {"reading": reading, "painting": painting}
    return {name: float(np.median(each)) for name, each in seconds.items()} | {"bytes read": read}


def clicks(task: memes.Task, folder: Path, repeats: int) -> dict[str, float]:
    """Measure the CPU time and the wall-clock time to simulate the first elite and later elites."""
    archive, draw = memes.load_archive(folder), drawer(task)
    chosen = np.flatnonzero(np.asarray(archive.occupied))[: 1 + repeats]
    seconds, clock = [], []
    for cell in chosen:
        start = time.perf_counter()
        seconds.append(cpu_seconds(partial(draw, archive.genotypes[int(cell)], 0)))
        clock.append(time.perf_counter() - start)
    later = {"later": float(np.median(seconds[1:])), "later, wall-clock": float(np.median(clock[1:]))}
    return {"first": seconds[0], "first, wall-clock": clock[0]} | later


def frame_of(cells: Cells, features: tuple[int, ...]) -> tuple[TileLayout, np.ndarray]:
    """Compute the layout of the cells, and draw the frame around the archive (once per page)."""
    at, names = layout(cells, features, side=SIDE), memes.task.numbered(len(cells.low))
    return at, archive_panel.drawn(archive_panel.Frame(at, names, "fitness", ColourScale()), cells)


def recolour(cells: Cells, at: TileLayout, frame: np.ndarray, rows: memes.Changes) -> bytes:
    """Create the messages that show changed cells in the browser: an image and a title."""
    from viser._scene_api import _encode_image_binary

    generations = 2000
    shown = colours.of_cells(
        "fitness", cells.count, store.last_per_cell(rows, generations), generations, None
    )
    image = colours.picture(at, shown, "fitness", lately=50.0, chosen=(0, 1))
    title = f"{cells.count} cells after generation {generations}"
    around = archive_panel.titled(frame, title, at.aspect)
    return b"".join(_encode_image_binary(each, "png")[1] for each in (image, around))


def recolouring(repeats: int) -> float:
    """Measure the CPU seconds to create the messages for the browser after 2 500 cells have changed."""
    cells = memes.cells.grid(memes.tasks.arm(), (50, 50))
    rows = store.joined(*(store.within(each, 2500) for each in found(2000 // CALL, 2500, 2)))
    frame = frame_of(cells, (0, 1))
    return float(np.median([cpu_seconds(lambda: recolour(cells, *frame, rows)) for _ in range(repeats)]))


def main() -> None:
    """Measure all costs, and print them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=SCALES, default="laptop")
    parser.add_argument("--task", choices=("ant", "arm"), default="ant")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    task = memes.TASKS[given.task]()
    with tempfile.TemporaryDirectory() as place:
        turns = ratios(task, Path(place), given.repeats, **SCALES[given.scale])
        lanes = {name: n for name, n in SCALES[given.scale].items() if name != "generations"}
        measured = {
            **about("viser"),
            "task": given.task,
            "scale": given.scale,
            "run time with a page, relative to a run without a change log": {
                "median": float(np.median(turns)),
                "turns": turns,
            },
            "device time with recorded changes, relative to that without": generations(
                task, 5, 4 * given.repeats, **lanes
            ),
            "CPU seconds of the observer, with the paper's Ant": observing(Path(place)),
            "CPU seconds of a click": clicks(task, Path(place, "noted-True"), 20),
            "CPU seconds of recolouring 2 500 cells": recolouring(20),
            "CPU seconds of the page, after each call": following(Path(place, "noted-True")),
        }
    print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
