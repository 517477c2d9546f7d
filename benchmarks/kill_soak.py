"""Kill a run again and again at random moments, resume it, and compare it with one left in peace.

    python benchmarks/kill_soak.py                  50 kills, some minutes
    python benchmarks/kill_soak.py --kills 5 --algorithm cma-me
    python benchmarks/kill_soak.py --kills 5 --task noisy-arm

Moments are drawn over the whole life of the process: while it starts, compiles, computes, writes a log,
writes a checkpoint and, on an uncertain task, re-evaluates its elites. Prints what each kill met, and
whether the two runs end with the same bytes.
"""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tyro


@dataclasses.dataclass
class Settings:
    """How often to kill what."""

    kills: int = 50
    task: str = "arm"
    algorithm: str = "memes"
    generations: int = 6000
    seed: int = 0
    """Of the moments, not of the run."""


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "memes.cli", *map(str, words)]


def state_of(folder: Path) -> str:
    """What a kill left: rows of the log, checkpoints, and files in the middle of being written."""
    metrics = folder / "metrics.csv"
    rows = len(metrics.read_bytes().splitlines()) - 1 if metrics.exists() else 0
    checkpoints = sorted(int(f.stem) for f in folder.glob("checkpoints/*.npz"))
    unfinished = [f.name for f in folder.rglob("*.tmp")]
    return f"{rows} rows, checkpoints {checkpoints}, unfinished files {unfinished}"


def finished(folder: Path) -> bool:
    """Whether all is written but, perhaps, the figures."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    table = folder / "corrected.csv"
    rows = table.read_text().splitlines() if table.exists() else [""]
    corrected = rows[-1].startswith(f"{config.get('generations')},")
    return "finished" in config and (corrected or config["reevaluate_every"] == 0)


def differences(one: Path, other: Path) -> list[str]:
    """The files of two runs that differ; in metrics.csv the column of seconds aside."""
    names = ["archive.npz", "lanes.npz"]
    names += [n for n in ("corrected.npz", "corrected.csv") if (one / n).exists()]
    found = [n for n in names if (one / n).read_bytes() != (other / n).read_bytes()]
    tables = [
        [line.split(",") for line in (f / "metrics.csv").read_text().splitlines()] for f in (one, other)
    ]
    seconds = tables[0][0].index("seconds")
    bare = [[row[:seconds] + row[seconds + 1 :] for row in table] for table in tables]
    return found + ["metrics.csv"] * (bare[0] != bare[1])


def main(s: Settings) -> None:
    draw = random.Random(s.seed)
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": f"{scratch}/cache",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        words = ["run", s.task, "--algorithm", s.algorithm, "--scale", "laptop", "--quiet"]
        words += ["--generations", s.generations, "--generations-per-call", 10]
        words += ["--joints", 20, "--samples", 16] if "arm" in s.task and s.algorithm == "memes" else []
        words += ["--reevaluate-every", s.generations // 20]
        whole, cut = Path(scratch) / "whole", Path(scratch) / "cut"
        start = time.perf_counter()
        subprocess.run(command(*words, "--out", whole), env=environment, check=True)
        life = time.perf_counter() - start
        print(f"one run in peace: {life:.1f} s")
        kills, unfinished = 0, 0
        while not finished(cut):
            new = not (cut / "config.json").exists()
            process = subprocess.Popen(
                command(*words, "--out", cut) if new else command("resume", cut, "--quiet"),
                env=environment,
            )
            if kills < s.kills:
                try:
                    process.wait(draw.uniform(0, min(life, 8)))
                except subprocess.TimeoutExpired:
                    process.kill()
            if process.wait() == 0:
                break
            if process.returncode != -signal.SIGKILL:
                sys.exit(f"after {kills} kills the run cannot go on: exit code {process.returncode}")
            kills += 1
            unfinished += bool(list(cut.rglob("*.tmp")))
            print(f"kill {kills:3}: {state_of(cut)}", flush=True)
        found = differences(whole, cut)
        print(f"{kills} kills, {unfinished} of them in the middle of a file")
        print(f"the runs differ in {', '.join(found)}" if found else "the runs end with the same bytes")
    sys.exit(bool(found))


if __name__ == "__main__":
    main(tyro.cli(Settings))
