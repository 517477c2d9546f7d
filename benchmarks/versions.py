"""Compare the time per generation of this version with that of an older version, loaded from a wheel.

    python benchmarks/versions.py memes_qd-0.2.0-py3-none-any.whl
    python benchmarks/versions.py OLD.whl --cases ant hexapod --generations 50 --turns 5
    python benchmarks/versions.py OLD.whl --cases arm-laptop arm-me --cpu --most 1.5

Each version runs in a separate process, which compiles the case. Then the two processes take turns and
compute equal numbers of generations. The older version must be 0.2 or newer, and uses the packages of
the current environment. With `--most 1.5`, the exit code is 1 if this version takes more than 1.5 times
as long per generation as the older version.
"""

import dataclasses
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal

import numpy as np
import tyro


def preset(name: str, task: str, *, new: dict | None = None, **options) -> Callable:
    """Return a function that builds a case from a preset.

    `new` contains options that older versions may lack. An option is omitted if the version lacks it.
    """

    def build() -> tuple[object, Callable]:
        import memes

        built = getattr(memes.presets, name)
        known = {k: v for k, v in (new or {}).items() if k in inspect.signature(built).parameters}
        return generations(built(getattr(memes.tasks, task)(), **options, **known))

    return build


def lanes_and_offspring() -> tuple[object, Callable]:
    """Build a case with 24 lanes and 64 offspring, in which each candidate is evaluated 64 times."""
    import memes
    from memes import emitters, history, objectives, resets, strategies
    from memes.estimates import Candidates

    task, candidates = memes.tasks.ant(), Candidates(64)
    lanes = {"lanes": 12}
    if hasattr(emitters, "ES"):
        lanes |= {"strategy": strategies.OpenAIES(samples=448), "reset": resets.Stagnation(32)}
        parts = emitters.ES(objectives.Fitness(), **lanes), emitters.ES(objectives.Novelty(), **lanes)
        emitter, seen = emitters.Parallel((*parts, emitters.Isoline(64, line=0.5))), history.FIFO()
    else:  # version 0.2, whose parts are functions
        lanes |= {"strategy": strategies.openai_es(samples=448), "reset": resets.stagnation(32)}
        parts = emitters.es(objectives.fitness(), **lanes), emitters.es(objectives.novelty(), **lanes)
        emitter, seen = emitters.parallel(*parts, emitters.isoline(64, line=0.5)), history.fifo()
    return generations(memes.compose(task, emitter, history=seen, candidates=candidates))


def generations(algorithm) -> tuple[object, Callable]:
    """Return the initial state, and a function `(state, count)` that computes `count` generations."""
    import jax
    import jax.numpy as jnp

    key, run_key = jax.random.split(jax.random.key(0))

    def advance(state, count):
        def step(_, state):
            return algorithm.step(jax.random.fold_in(run_key, state.generation), state)[0]

        return jax.lax.fori_loop(0, count, step, state)

    state = jax.jit(algorithm.init)(key)
    compiled = jax.jit(advance, donate_argnums=0).lower(state, jnp.int32(1)).compile()
    return state, lambda state, count: jax.block_until_ready(compiled(state, jnp.int32(count)))


def correction(samples: int = 512) -> tuple[object, Callable]:
    """Build a case that corrects an archive of the Ant, in which all 1 296 cells are occupied."""
    import jax
    import jax.numpy as jnp

    import memes
    from memes.archive import add, empty
    from memes.cells import centres, grid

    try:
        from memes.estimates import estimates, reevaluator
    except ImportError:  # version 0.2
        from memes.correction import estimates, reevaluator
    from memes.task import Evaluation

    task = memes.tasks.ant()
    cells, key = grid(task), jax.random.key(0)
    feature = jnp.asarray(centres(cells), jnp.float32)
    found = Evaluation(jnp.zeros(cells.count), feature)
    x, everyone = task.init(key, cells.count), jnp.ones(cells.count, bool)
    number = jnp.zeros(cells.count, jnp.int32)
    archive, _ = add(empty(cells, task.dim), x, found, everyone, lane=number, generation=number)
    assert archive.occupied.all()
    again = reevaluator(task, samples, statistic=jnp.nanmedian, rows=16_384, most=cells.count)

    def correct(state, count):
        for _ in range(count):
            state = list(estimates(again, key, archive, task))
        return state

    return None, correct


CASES = {
    "arm": preset("memes", "arm"),
    "ant": preset("memes", "ant"),
    "ant-laptop": preset("memes", "ant", lanes=8, samples=64),
    "ant-128-lanes": preset("memes", "ant", lanes=128),
    "ant-half-noise": preset("memes", "ant", new={"noise_dtype": "bfloat16"}),
    "memes-sampling": preset("memes", "ant", candidate_samples=64, samples=448),
    "me-sampling": preset("me_sampling", "ant"),
    "me-sampling-laptop": preset("me_sampling", "ant", batch=64),
    "lanes-and-offspring": lanes_and_offspring,
    "correction": correction,
    "hexapod": preset("memes", "hexapod"),
    "arm-laptop": preset("memes", "arm", lanes=8, samples=64),
    "arm-me": preset("me", "arm", batch=1024),
    "ant-me": preset("me", "ant", batch=256),
    "ant-trap": preset("memes", "ant_trap"),
    "ant-trap-me": preset("me", "ant_trap"),
}
SLOW = {"correction": 20}  # a correction takes about as long as 20 generations of other cases


@dataclasses.dataclass
class Settings:
    """Settings of the comparison."""

    wheel: tyro.conf.Positional[Path]
    """Wheel of the older version."""
    cases: tuple[Literal[*CASES], ...] = ("arm", "ant", "ant-128-lanes", "hexapod")
    generations: int = 20
    """Generations per turn."""
    turns: int = 3
    cpu: bool = False
    """Compare CPU time (all threads) instead of wall-clock time, which other programs affect more."""
    most: float | None = None
    """Fail if this version takes more than `most` times as long as the older version."""


def work(case: str) -> None:
    """Compile a case, and run generations on request.

    Each line of stdin contains a number of generations. The function runs these generations, and prints
    the wall-clock and CPU seconds.
    """
    import memes

    start = time.perf_counter()
    state, advance = CASES[case]()
    state = advance(state, 1)
    print(json.dumps({"version": memes.__version__, "compile": time.perf_counter() - start}), flush=True)
    for line in sys.stdin:
        start = time.perf_counter(), time.process_time()
        state = advance(state, int(line))
        print(json.dumps([time.perf_counter() - start[0], time.process_time() - start[1]]), flush=True)


def worker(case: str, source: Path | None) -> subprocess.Popen:
    """Start a process that runs a case with the version at `source` (this version if None)."""
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if source:  # use a separate cache, because compiled code may depend on the version
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
    """Send a number of generations to a worker."""
    stream: IO[bytes] = process.stdin
    stream.write(f"{generations}\n".encode())
    stream.flush()


def answer(process: subprocess.Popen) -> object:
    """Read the next line of a worker's output."""
    stream: IO[bytes] = process.stdout
    line = stream.readline()
    if not line:
        raise SystemExit(f"a worker has ended with exit code {process.wait()}")
    return json.loads(line)


def compared(case: str, old: Path, settings: Settings) -> tuple[str, float]:
    """Return the table row of a case as text, and the median ratio of older to newer times."""
    processes = [worker(case, old), worker(case, None)]
    began = [answer(process) for process in processes]
    seconds, count = np.empty((settings.turns, 2)), -(-settings.generations // SLOW.get(case, 1))
    for turn in seconds:
        for i, process in enumerate(processes):
            ask(process, count)
            turn[i] = answer(process)[settings.cpu]
    for process in processes:
        process.communicate()
    times = np.median(seconds, 0) / count * 1e3
    ratio = np.median(seconds[:, 0] / seconds[:, 1])
    cells = [
        f"{about['version']}: {ms:.3g} ms, compiled in {about['compile']:.1f} s"
        for about, ms in zip(began, times, strict=True)
    ]
    return f"| {case} | {' | '.join(cells)} | {ratio:.2f} |", ratio


def main() -> None:
    """Compare the versions on all cases."""
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
            f"this version takes more than {settings.most:g} times as long: {', '.join(slow)}"
        )


if __name__ == "__main__":
    main()
