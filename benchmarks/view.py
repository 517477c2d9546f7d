"""What `memes view` costs: the run that it watches, a click, and a recolouring of the archive.

    python benchmarks/view.py                     on this machine, at a laptop's scale
    python benchmarks/view.py --scale paper       on a GPU: the Ant of the paper

Runs with and without a chronicle take turns; without it neither the device nor the host notes a change.
"""

import argparse
import json
import tempfile
import time
from contextlib import contextmanager
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
        found = {
            **about("viser", "mjviser"),
            "task": given.task,
            "scale": given.scale,
            "with over without a chronicle": {"median": float(np.median(turns)), "turns": turns},
            "seconds of a click": clicks(task, Path(place, "noted-True"), 20),
            "seconds of a recolouring": recolouring(20),
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
