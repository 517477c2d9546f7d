"""Kill a run repeatedly at random times, resume it, and compare it with an uninterrupted run.

    python benchmarks/kill_soak.py                  50 kills, a few minutes
    python benchmarks/kill_soak.py --kills 5 --algorithm cma-me
    python benchmarks/kill_soak.py --kills 5 --task noisy-arm

A quarter of the kills happen while a process starts and compiles. All other kills happen within half a
second after the first checkpoint of the process. They can therefore interrupt computations, the writing
of files, and the re-evaluation of elites on uncertain tasks. If a run ends before all kills are done,
the script compares it with the uninterrupted run, and starts another run. The script prints the state
after each kill.
"""

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tyro


@dataclasses.dataclass
class Settings:
    """Settings of the kills and of the run."""

    kills: int = 50
    task: str = "arm"
    algorithm: str = "memes"
    generations: int = 3000
    seed: int = 0
    """Random seed for the times of the kills. It does not affect the run."""


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "memes", *map(str, words)]


def state_of(folder: Path) -> str:
    """Return the number of rows in metrics.csv and the list of checkpoints, as text."""
    metrics = folder / "metrics.csv"
    rows = len(metrics.read_bytes().splitlines()) - 1 if metrics.exists() else 0
    checkpoints = sorted(int(f.stem) for f in folder.glob("checkpoints/*.npz"))
    return f"{rows} rows, checkpoints {checkpoints}"


def unfinished(folder: Path) -> dict[str, int]:
    """Map the name of each temporary file to its modification time."""
    return {file.name: file.stat().st_mtime_ns for file in folder.rglob("*.tmp")}


def finished(folder: Path) -> bool:
    """Return True if all files except figures have been written."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    table = folder / "corrected.csv"
    rows = table.read_text().splitlines() if table.exists() else [""]
    corrected = rows[-1].startswith(f"{config.get('generations')},")
    return "finished" in config and (corrected or config["reevaluate_every"] == 0)


def differences(one: Path, other: Path) -> list[str]:
    """Return the files that differ between two runs. The column `seconds` of metrics.csv is ignored."""
    names = ["archive.npz", "lanes.npz"]
    names += [n for n in ("corrected.npz", "corrected.csv") if (one / n).exists()]
    found = [n for n in names if (one / n).read_bytes() != (other / n).read_bytes()]
    tables = [
        [line.split(",") for line in (f / "metrics.csv").read_text().splitlines()] for f in (one, other)
    ]
    seconds = tables[0][0].index("seconds")
    bare = [[row[:seconds] + row[seconds + 1 :] for row in table] for table in tables]
    return found + ["metrics.csv"] * (bare[0] != bare[1])


def until_next_checkpoint(process: subprocess.Popen[bytes], folder: Path) -> float:
    """Wait for a new checkpoint or the end of the process, and return the waiting time in seconds."""
    start, before = time.perf_counter(), set(folder.glob("checkpoints/*.npz"))
    while process.poll() is None and set(folder.glob("checkpoints/*.npz")) <= before:
        time.sleep(0.002)
    return time.perf_counter() - start


def main(s: Settings) -> None:
    draw = random.Random(s.seed)
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": f"{scratch}/cache",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        words = ["run", s.task, "--algorithm", s.algorithm, "--scale", "laptop", "--quiet"]
        words += ["--generations", s.generations, "--call-seconds", 0.05]
        words += ["--joints", 20, "--samples", 16] if "arm" in s.task and s.algorithm == "memes" else []
        words += ["--reevaluate-every", s.generations // 20]

        def start(*words: object) -> subprocess.Popen[bytes]:
            return subprocess.Popen(command(*words), env=environment, stdout=subprocess.DEVNULL)

        whole = Path(scratch) / "whole"
        # The uninterrupted run is started twice. The second time, it loads compiled programs from the
        # cache, as the killed runs do.
        for _ in range(2):
            shutil.rmtree(whole, ignore_errors=True)
            process = start(*words, "--out", whole)
            starting = until_next_checkpoint(process, whole)
            if process.wait() != 0:
                sys.exit(f"the uninterrupted run failed: exit code {process.returncode}")
        print(f"{starting:.1f} s until the first checkpoint", flush=True)

        kills = torn = runs = 0
        while kills < s.kills:
            runs += 1
            cut = Path(scratch) / f"cut-{runs}"
            while not finished(cut):
                before = unfinished(cut)
                new = not (cut / "config.json").exists()
                process = start(*words, "--out", cut) if new else start("resume", cut, "--quiet")
                if kills < s.kills:
                    if draw.random() < 0.25:
                        time.sleep(draw.uniform(0, starting))
                    else:
                        until_next_checkpoint(process, cut)
                        time.sleep(draw.uniform(0, 0.5))
                    process.kill()
                if process.wait() == 0:
                    break
                if process.returncode != -signal.SIGKILL:
                    sys.exit(f"after {kills} kills the run fails: exit code {process.returncode}")
                kills += 1
                halves = [name for name, since in unfinished(cut).items() if before.get(name) != since]
                torn += bool(halves)
                print(f"kill {kills:3}, run {runs}: {state_of(cut)}", *halves, flush=True)
            found = differences(whole, cut)
            if found:
                sys.exit(f"after {kills} kills the runs differ in {', '.join(found)}")
            print(f"run {runs} ends with the same bytes", flush=True)
        torn_files = f"{torn} of them while a file was written"
        print(f"{kills} kills in {runs} runs, {torn_files}: all files are equal")


if __name__ == "__main__":
    main(tyro.cli(Settings))
