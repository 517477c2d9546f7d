"""Run algorithms on eight simulated devices of one CPU, and print digests of their results.

The tests run this module in a separate process.
"""

import hashlib
import json
import tempfile
from pathlib import Path

import jax
import numpy as np

import memes
from folder_contents import contents
from memes.runner import change_log, device, sharding

task = memes.tasks.arm(joints=4)
cells = memes.cells.grid(task, (6, 6))
SEARCH = {"samples": 8, "fifo_size": 32, "stale_budget": 1}
RUNS = {
    "lanes": lambda: memes.presets.memes(task, cells, lanes=16, **SEARCH),
    "lanes whose samples are offered": lambda: memes.presets.memes(
        task, cells, lanes=16, offer_samples=True, **SEARCH
    ),
    "offspring": lambda: memes.presets.me(task, cells, batch=32),
    "samples of one lane": lambda: memes.presets.me_es(task, cells, samples=32, every=2),
    "indivisible lanes": lambda: memes.presets.memes(task, cells, lanes=6, **SEARCH),
    "kernels": lambda: memes.presets.memes(
        memes.tasks.ant(steps=5, hidden=(4,)), lanes=16, noise="low-rank", rank=1, **SEARCH
    ),
}
QUICK = ("lanes", "offspring", "samples of one lane", "indivisible lanes")
MANY, ONE = {"lanes": 16, **SEARCH}, {"samples": 32}
TIMED = {"lanes": 16, "samples": 8, "fifo_size": 32}
LEARNING = {"num_critic_training_steps": 4, "replay_size": 1000, "critic_hidden": (8,)}
# Options of a small version of each preset. CMA-ME cannot be divided completely into shards.
SIZES = {
    "memes": MANY,
    "memes-all": MANY,
    "memes-sampling": MANY | {"candidate_samples": 3},
    "memes-sequential": TIMED | {"every": 2},
    "memes-fixed-reset": TIMED | {"reset_every": 2},
    "memes-everything": MANY,
    "memes-elites": MANY,
    "memes-ga": MANY,
    "memes-hybrid": {"lanes": 16, "samples": 8, "batch": 160},
    "memes-me": {"lanes": 16, "samples": 8, "batch": 160},
    "me": {"batch": 32},
    "me-128": {"batch": 16},
    "me-sampling": {"batch": 16, "resamples": 3},
    "es": ONE,
    "ns-es": ONE,
    "nsr-es": ONE,
    "nsra-es": ONE,
    "me-es": ONE | {"every": 2},
    "cma-me": {"batch": 12, "pool": 2},
    "cma-mae": {"lanes": 8, "samples": 6},
    "cma-mega": {"lanes": 8, "samples": 6},
    "cma-maega": {"lanes": 8, "samples": 6},
    "dns": {"batch": 16, "population_size": 24},
    "extract-me": {"batch": 16, "depth": 2},
    "pga-me": LEARNING | {"batch": 16, "gradient_steps": 2, "transitions_batch": 8},
}
WITHOUT_ISOLATION, ODD_NUMBERS = "without isolation", "odd numbers"
OPTIONS = {"generations": 5, "progress": False, "shards": 8}


def digest(run) -> str:
    """Return a digest of everything that a run computed."""
    found = hashlib.blake2b(digest_size=8)
    parts = jax.device_get((run.state, run.lanes, run.metrics | {"seconds": 0}))
    for leaf in jax.tree.leaves(parts):
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()


def refused(**options) -> str:
    """Return the error message of a run that is rejected, or an empty string."""
    try:
        memes.run(**options, generations=1, progress=False)
    except memes.UsageError as error:
        return str(error)
    return ""


def preset(name: str) -> memes.Algorithm:
    """Build a small version of a preset for the arm.

    PGA-ME needs transitions, so it runs on the maze task.
    """
    small = memes.tasks.point_maze(steps=5, hidden=(4,)) if name == "pga-me" else task
    return memes.PRESETS[name].build(small, memes.cells.grid(small, (6, 6)), **SIZES[name])


def by_devices(name: str) -> dict:
    """Return the digests of a run on one device and of the same run on eight devices.

    Presets are compiled with all optimisations, as in normal use.
    """
    as_for_use = name == "kernels" or name in SIZES
    jax.config.update("jax_disable_most_optimizations", not as_for_use)
    algorithm = RUNS[name]() if name in RUNS else preset(name)
    return {d: digest_of_files(algorithm, d) for d in (1, 8)}


def digest_of_files(algorithm: memes.Algorithm, devices: int) -> str:
    """Return a digest of all results of a run on `devices` devices, and of all files of the run."""
    observers = [memes.Figures(draw=False), memes.Checkpoints(every=2)]
    with tempfile.TemporaryDirectory() as folder:
        run = memes.run(algorithm, devices=devices, out=folder, observers=observers, **OPTIONS)
        files = hashlib.blake2b(repr(contents(Path(folder))).encode(), digest_size=8)
    return digest(run) + files.hexdigest()


def without_isolation() -> dict:
    """Return digests of runs in which the compiler may fuse the shards with the surrounding program."""
    isolated = sharding.isolated
    sharding.isolated = lambda function, *trees, true: function(*trees)
    jax.config.update("jax_disable_most_optimizations", False)
    lanes = preset("memes")
    found = {d: digest(memes.run(lanes, devices=d, **OPTIONS)) for d in (1, 8)}
    sharding.isolated = isolated
    return found


def odd_numbers() -> dict:
    """Return digests of runs with 3, 5, 6 and 7 shards, on one device and on one device per shard."""
    found = {}
    for n in (3, 5, 6, 7):
        lanes = memes.presets.memes(task, cells, lanes=2 * n, **SEARCH)
        found[n] = [
            digest(memes.run(lanes, devices=d, **OPTIONS | {"shards": n, "generations": 3}))
            for d in (1, n)
        ]
    return found


def main(folder: Path) -> dict:
    """Run the cases that compile quickly."""
    # With this limit, the device cannot record all changed cells of most generations.
    device.MOST_CHANGES = change_log.MOST_CHANGES = 2
    found = {name: by_devices(name) for name in QUICK}
    lanes = RUNS["lanes"]()
    memes.run(lanes, out=folder, devices=8, **OPTIONS | {"generations": 2})
    again = memes.resume(lanes, folder, generations=5, devices=4, progress=False)
    computed = found["lanes"][1][: len(digest(again))]  # ignore the digest of the files
    found["resumed"] = {1: computed, 4: digest(again)}

    seeds = OPTIONS | {"seeds": range(3), "seeds_per_batch": 3, "shards": 2}
    several = {d: memes.run(RUNS["offspring"](), devices=d, **seeds) for d in (1, 2)}
    found["seeds"] = {d: "".join(map(digest, runs)) for d, runs in several.items()}
    found["refused"] = {
        "devices": refused(algorithm=lanes, devices=9),
        "shards": refused(algorithm=lanes, devices=4, shards=6),
    }
    return found


def report(name: str) -> None:
    """Print the digests of the runs called `name`. Any other `name` is the output folder of `main`."""
    apart = {WITHOUT_ISOLATION: without_isolation, ODD_NUMBERS: odd_numbers}
    if name in apart:
        print(json.dumps(apart[name]()))
        return
    names = {"presets": list(SIZES)}.get(name, [name])
    known = set(names) <= {*RUNS, *SIZES}
    print(json.dumps({name: by_devices(name) for name in names} if known else main(Path(name))))
