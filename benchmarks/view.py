"""The cost of `memes view`: to the run that it watches, a click, and a recolouring of the archive.

    python benchmarks/view.py                     on this machine, at a laptop's scale
    python benchmarks/view.py --scale paper       on a GPU: the Ant of the paper

Runs with and without a chronicle take turns; without it neither the device nor the host notes a change.
Where a machine does other things, too, whole runs tell little: the parts are timed as well.
"""

import argparse
import json
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from timing import about, interleaved

import memes
from memes.runner import changes, device
from memes.store import changes as store
from memes.view import colours, layout
from memes.view.drawings import drawer

SCALES = {
    "laptop": {"lanes": 8, "samples": 32, "generations": 100},
    "paper": {"lanes": 32, "samples": 512, "generations": 400},
}


@contextmanager
def recorded(most: int):
    """Let so many changes be recorded in a generation."""
    before = device.MOST_CHANGES
    device.MOST_CHANGES = changes.MOST_CHANGES = most
    yield
    device.MOST_CHANGES = changes.MOST_CHANGES = before


def run(task: memes.Task, folder: Path, generations: int, noted: bool, **options: int) -> float:
    """Run MEMES, and return the seconds that it took, without compilation."""
    algorithm = memes.presets.memes(task, **options)
    observers = [memes.Figures(draw=False), memes.Corrections(every=0)]
    observers.append(memes.Chronicle() if noted else memes.Chronicle(rows=0))
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
        return time.perf_counter() - start - found.config["compile_seconds"]


def ratios(task: memes.Task, place: Path, repeats: int, **options: int) -> list[float]:
    """Return how much longer a run takes with a chronicle than without, in each of some turns."""
    turns = []
    for turn in range(1 + repeats):
        both = (True, False) if turn % 2 else (False, True)
        seconds = {noted: run(task, place / f"noted-{noted}", noted=noted, **options) for noted in both}
        turns.append(seconds[True] / seconds[False])
    return turns[1:]  # the first fills caches


def generations(task: memes.Task, n: int, repeats: int, **options: int) -> float:
    """Return how much longer n generations take on the device if changes are recorded."""
    algorithm = memes.presets.memes(task, **options)
    init, key = device.keys_of(0)
    state = device.first_state(algorithm)(init, n)
    advance = {}
    for most in (0, device.MOST_CHANGES):
        with recorded(most):
            advance[str(most)] = partial(device._compile(algorithm, 1, n)[0], key, state, n)
    without, with_changes = interleaved(advance, repeats).values()
    return float(np.median(with_changes.seconds / without.seconds))


def writing(folder: Path, repeats: int) -> float:
    """Time what the host does with the changes of a call: a row for each of 32 lanes, ten times."""
    rows = store.select(memes.load_changes(folder), slice(320))
    size, seconds = store.save_changes(folder, rows), []
    for _ in range(repeats):
        start = time.perf_counter()
        size = store.append_changes(folder, store.within(rows, 10**6), size)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def clicks(task: memes.Task, folder: Path, repeats: int) -> dict[str, float]:
    """Time the first simulation of an elite, and that of others after it."""
    archive, draw = memes.load_archive(folder), drawer(task)
    chosen = np.flatnonzero(np.asarray(archive.occupied))[: 1 + repeats]
    seconds = []
    for cell in chosen:
        start = time.perf_counter()
        draw(archive.genotypes[int(cell)], 0)
        seconds.append(time.perf_counter() - start)
    return {"first": seconds[0], "later": float(np.median(seconds[1:]))}


def recolouring(repeats: int) -> float:
    """Time what happens between a change of 2 500 cells and the message to the browser."""
    from viser._scene_api import _encode_image_binary

    cells, random = memes.cells.grid(memes.tasks.arm(), (50, 50)), np.random.default_rng(0)
    n = 60_000
    rows = memes.Changes(
        np.sort(random.integers(0, 2000, n)).astype(np.int32),
        random.integers(0, 2500, n).astype(np.int32),
        random.integers(0, 32, n).astype(np.int32),
        random.normal(size=n).astype(np.float32),
        random.uniform(size=(n, 2)).astype(np.float32),
    )
    at = layout.of(cells, (0, 1))

    def recolour() -> bytes:
        shown = colours.of_cells("fitness", 2500, store.standing(rows, 2000), 2000, None)
        image = colours.picture(at, shown, "fitness", lately=50.0, chosen=(1225, 1300))
        return _encode_image_binary(image, "png")[1]

    return interleaved({"recolour": recolour}, repeats)["recolour"].median


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=SCALES, default="laptop")
    parser.add_argument("--task", choices=("ant", "arm"), default="ant")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    task = memes.TASKS[given.task]()
    with tempfile.TemporaryDirectory() as place:
        turns = ratios(task, Path(place), given.repeats, **SCALES[given.scale])
        lanes = {name: n for name, n in SCALES[given.scale].items() if name != "generations"}
        found = {
            **about("viser", "mjviser"),
            "task": given.task,
            "scale": given.scale,
            "with over without a chronicle": {"median": float(np.median(turns)), "turns": turns},
            "generations that record changes, over those that do not": generations(
                task, 5, 4 * given.repeats, **lanes
            ),
            "seconds of writing, once a call": writing(Path(place, "noted-True"), 50),
            "seconds of a click": clicks(task, Path(place, "noted-True"), 20),
            "seconds of a recolouring": recolouring(20),
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
