"""How fast a generation is, beside an older version from its wheel.

    python benchmarks/versions.py memes_qd-0.1.0-py3-none-any.whl
    python benchmarks/versions.py OLD.whl --cases ant hexapod --generations 50 --turns 5
    python benchmarks/versions.py OLD.whl --cases arm-laptop arm-me --cpu --most 1.5

Each version runs in a process of its own, which compiles an algorithm on a task. Then the two take turns
with as many generations each. The older version uses the packages that are installed here. With `--most`
the exit code is 1 if a generation of this version takes more than so many times as long.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import IO, Literal

import numpy as np
import tyro

# The algorithm, the task, and the options of the algorithm.
CASES = {
    "arm": ("memes", "arm", {}),
    "ant": ("memes", "ant", {}),
    "ant-laptop": ("memes", "ant", {"lanes": 8, "samples": 64}),
    "ant-128-lanes": ("memes", "ant", {"lanes": 128}),
    "hexapod": ("memes", "hexapod", {}),
    "arm-laptop": ("memes", "arm", {"lanes": 8, "samples": 64}),
    "arm-me": ("me", "arm", {"batch": 1024}),
    "ant-me": ("me", "ant", {"batch": 256}),
    "ant-trap": ("memes", "ant_trap", {}),
    "ant-trap-me": ("me", "ant_trap", {}),
}


@dataclasses.dataclass
class Settings:
    """The versions and cases to compare."""

    wheel: tyro.conf.Positional[Path]
    """Wheel of the older version."""
    cases: tuple[Literal[*CASES], ...] = ("arm", "ant", "ant-128-lanes", "hexapod")
    generations: int = 20
    """Generations in a turn."""
    turns: int = 3
    cpu: bool = False
    """Compare the CPU time of all threads, which depends less on what else the machine does."""
    most: float | None = None
    """Fail if this version takes more than so many times as long."""


def work(case: str) -> None:
    """Compile a case, then run as many generations as each line of stdin says; print the seconds.

    They are those of the clock and those of the CPU.
    """
    import jax
    import jax.numpy as jnp

    import memes

    preset, task, options = CASES[case]
    algorithm = getattr(memes.presets, preset)(getattr(memes.tasks, task)(), **options)
    key, run_key = jax.random.split(jax.random.key(0))

    def generations(state, count):
        def step(_, state):
            return algorithm.step(jax.random.fold_in(run_key, state.generation), state)[0]

        return jax.lax.fori_loop(0, count, step, state)

    start = time.perf_counter()
    state = jax.jit(algorithm.init)(key)
    run = jax.jit(generations, donate_argnums=0).lower(state, jnp.int32(1)).compile()
    state = jax.block_until_ready(run(state, jnp.int32(1)))
    print(json.dumps({"version": memes.__version__, "compile": time.perf_counter() - start}), flush=True)
    for line in sys.stdin:
        start = time.perf_counter(), time.process_time()
        state = jax.block_until_ready(run(state, jnp.int32(int(line))))
        print(json.dumps([time.perf_counter() - start[0], time.process_time() - start[1]]), flush=True)


def worker(case: str, source: Path | None) -> subprocess.Popen:
    """Start a process that works on a case with the version at `source`, or with the present one."""
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if source:  # whose compiled code is kept apart: it may have been made for another JAX
        path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
        environment |= {"PYTHONPATH": path, "XDG_CACHE_HOME": str(source / "cache")}
    command = [sys.executable, __file__, "--work", case]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def ask(process: subprocess.Popen, generations: int) -> None:
    """Let a worker run so many generations."""
    stream: IO[bytes] = process.stdin
    stream.write(f"{generations}\n".encode())
    stream.flush()


def answer(process: subprocess.Popen) -> object:
    """The next line of a worker."""
    stream: IO[bytes] = process.stdout
    line = stream.readline()
    if not line:
        raise SystemExit(f"a worker has ended with exit code {process.wait()}")
    return json.loads(line)


def compared(case: str, old: Path, settings: Settings) -> tuple[str, float]:
    """The row of a case, with milliseconds of a generation of both, and their ratio by turns."""
    processes = [worker(case, old), worker(case, None)]
    began = [answer(process) for process in processes]
    seconds = np.empty((settings.turns, 2))
    for turn in seconds:
        for i, process in enumerate(processes):
            ask(process, settings.generations)
            turn[i] = answer(process)[settings.cpu]
    for process in processes:
        process.communicate()
    times = np.median(seconds, 0) / settings.generations * 1e3
    ratio = np.median(seconds[:, 0] / seconds[:, 1])
    cells = [
        f"{about['version']}: {ms:.3g} ms, compiled in {about['compile']:.1f} s"
        for about, ms in zip(began, times, strict=True)
    ]
    return f"| {case} | {' | '.join(cells)} | {ratio:.2f} |", ratio


def main() -> None:
    """Compare the cases."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
        return
    settings = tyro.cli(Settings, description=__doc__)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(settings.wheel) as wheel:
            wheel.extractall(folder)
        print("| case | old | new | times as fast |\n|---|---|---|---|", flush=True)
        slow = []
        for case in settings.cases:
            row, ratio = compared(case, Path(folder), settings)
            print(row, flush=True)
            if settings.most is not None and 1 / ratio > settings.most:
                slow.append(f"{case} ({1 / ratio:.2f} times)")
    if slow:
        raise SystemExit(
            f"a generation takes more than {settings.most:g} times as long: {', '.join(slow)}"
        )


if __name__ == "__main__":
    main()
