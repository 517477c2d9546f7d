"""Runs on eight devices that a CPU is divided into: prints the digest of each. A process of its own."""

import hashlib
import json
import sys
from pathlib import Path

import jax
import numpy as np

import memes

task = memes.tasks.arm(joints=4)
cells = memes.cells.grid(task, (6, 6))
SEARCH = {"samples": 8, "fifo_size": 32, "stale_budget": 1}
RUNS = {
    "lanes": lambda: memes.presets.memes(task, cells, lanes=16, **SEARCH),
    "lanes whose samples are offered": lambda: memes.presets.memes(
        task, cells, lanes=16, offer_samples=True, **SEARCH
    ),
    "rows": lambda: memes.presets.me(task, cells, batch=32),
    "rows of a lane": lambda: memes.presets.me_es(task, cells, samples=32, every=2),
    "evaluation alone": lambda: memes.presets.memes(task, cells, lanes=6, **SEARCH),
    "kernels": lambda: memes.presets.memes(
        memes.tasks.ant(steps=5, hidden=(4,)), lanes=16, noise="low-rank", rank=1, **SEARCH
    ),
}
QUICK = ("lanes", "rows", "rows of a lane", "evaluation alone")
OPTIONS = {"generations": 5, "progress": False, "shards": 8}


def digest(run) -> str:
    """Digest all that a run computed."""
    found = hashlib.blake2b(digest_size=8)
    parts = jax.device_get((run.state, run.lanes, run.metrics | {"seconds": 0}))
    for leaf in jax.tree.leaves(parts):
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()


def refused(**options) -> str:
    """Return the sentence by which a run is refused."""
    try:
        memes.run(**options, generations=1, progress=False)
    except memes.UsageError as error:
        return str(error)
    return ""


def by_devices(name: str) -> dict:
    """Digest a run on one device and on eight; robots as for use, where compilers round alike."""
    jax.config.update("jax_disable_most_optimizations", name != "kernels")
    return {d: digest(memes.run(RUNS[name](), devices=d, **OPTIONS)) for d in (1, 8)}


def main(folder: Path) -> dict:
    """Run what needs little to compile."""
    found = {name: by_devices(name) for name in QUICK}
    lanes = RUNS["lanes"]()
    memes.run(lanes, out=folder, devices=8, **OPTIONS | {"generations": 2})
    again = memes.resume(lanes, folder, generations=5, devices=4, progress=False)
    found["lanes"]["resumed"] = digest(again)

    seeds = OPTIONS | {"seeds": range(3), "together": 3, "shards": 2}
    several = {d: memes.run(RUNS["rows"](), devices=d, **seeds) for d in (1, 2)}
    found["seeds"] = {d: "".join(map(digest, runs)) for d, runs in several.items()}
    found["refused"] = {
        "devices": refused(algorithm=lanes, devices=9),
        "shards": refused(algorithm=lanes, devices=4, shards=6),
    }
    return found


if __name__ == "__main__":
    name = sys.argv[1]
    print(json.dumps({name: by_devices(name)} if name in RUNS else main(Path(name))))
