"""The run loop: chunks of generations on the device, everything else between them on the host."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.algorithm import Algorithm, Batch, Info, State
from memes.errors import RunError, in_a_line, require
from memes.experiment import checkpoint, memory
from memes.experiment.checkpoint import Checkpoint, Checkpointer
from memes.experiment.files import intact, only_writer
from memes.experiment.folder import check_free, holds_run, load_config, plain
from memes.experiment.log import Log, Record, Result
from memes.experiment.progress import Reporter
from memes.experiment.provenance import describe, now
from memes.experiment.simulators import on_host, surviving
from memes.hints import checked, fits
from memes.metrics import measure
from memes.task import Evaluation

LANE_FIELDS = (
    "lane",
    "kind",
    "offered",
    "fitness",
    "feature",
    "parent_feature",
    "status",
    "age",
    "stale",
    "reset",
)


# The settings that are whole numbers, and the least of each.
LEAST = {"seed": 0, "generations": 1, "generations_per_call": 1, "checkpoint_every": 0, "chunk": 1}
REQUIRED = {"seed", "generations"}  # the others may be None

# (key, state) -> (state, Record with a leading generation axis)
Advance = Callable[[Array, State], tuple[State, Record]]


@checked
def run(
    algorithm: Algorithm,
    *,
    generations: int,
    seed: int = 0,
    out: str | Path | None = None,
    generations_per_call: int | None = None,
    checkpoint_every: int | None = None,
    chunk: int | None = None,
    progress: bool = True,
    settings: dict[str, Any] | None = None,
) -> Result:
    """Run an algorithm and record what happens.

    The key of generation g is `fold_in(run_key, g)`: results do not depend on `generations_per_call`.
    A task with `jit=False` is evaluated on the host, one generation at a time. Ctrl-C and SIGTERM end
    the run after the generations computed so far, with everything saved.

    Args:
        algorithm: What to run; it knows its task.
        generations: For how long.
        seed: Seed of all randomness.
        out: Folder for the results; None keeps them in memory only.
        generations_per_call: Generations in one call of the device; the progress bar moves, and
            metrics are written, once a call. None is a twentieth of the run, at most 100, or one
            generation for a task with `jit=False`.
        checkpoint_every: Generations between checkpoints, from which `resume` goes on; 0 is never.
            None is after each call of the device, unless the one before is still being written.
        chunk: How many rows to evaluate at a time; None is all, or fewer if they need more memory than
            there is.
        progress: Whether to show progress.
        settings: Anything JSON that should be written into `config.json`.
    """
    numbers = {
        "seed": seed,
        "generations": generations,
        "generations_per_call": generations_per_call,
        "checkpoint_every": checkpoint_every,
        "chunk": chunk,
    }
    _check_numbers(numbers)
    _check_history(algorithm, generations)
    path = None if out is None else Path(out)
    algorithm = _on_host(algorithm)
    if generations_per_call is None and not algorithm.task.jit:
        generations_per_call = 1  # the simulator decides the pace; show every generation
    lengths = _chunks(generations, generations_per_call, checkpoint_every)
    config = {**describe(algorithm), **(settings or {}), **numbers, "generations_per_call": lengths[0]}
    with _in_words(path, algorithm):
        if path is None:
            return _run(algorithm, config, None, progress)
        check_free(path)
        path.mkdir(parents=True, exist_ok=True)
        with only_writer(path):
            check_free(path)
            return _run(algorithm, config, path, progress)


@checked
def resume(
    algorithm: Algorithm, path: str | Path, *, generations: int | None = None, progress: bool = True
) -> Result:
    """Go on with a run that was interrupted or killed, as if it had never stopped.

    Args:
        algorithm: What the run is of: the same algorithm, task and cells, with the same options.
        path: The run's folder.
        generations: For how long in all; None is what was asked of the run.
        progress: Whether to show progress.
    """
    folder = Path(path)
    config = load_config(folder)
    about = json.loads(json.dumps(describe(algorithm), default=plain))
    with intact(folder / "config.json"):
        _check_numbers(config, f" in '{folder / 'config.json'}'")
        total = config["generations"] if generations is None else generations
        _check_numbers(config | {"generations": total})
        done = config.get("generations_done", 0)
        require(
            done < total,
            f"generations must be more than the {done} after which the run in '{folder}' ended, "
            f"got {total}",
        )
        _check_same(about, config, folder)
        config |= {"generations": total, "resumed": [*config.get("resumed", []), now()]}
    _check_history(algorithm, total)
    for old in ("finished", "generations_done"):
        config.pop(old, None)
    with _in_words(folder, algorithm), only_writer(folder):
        return _run(_on_host(algorithm), config, folder, progress)


def _check_numbers(given: Mapping[str, Any], where: str = "") -> None:
    """Raise a `UsageError` that names what is no whole number, or too small."""
    for name, least in LEAST.items():
        value: Any = given.get(name)
        if value is None and name not in REQUIRED:
            continue
        require(fits(value, int), f"{name}{where} must be a whole number, got {value!r}")
        if name == "seed":
            require(0 <= value < 2**32, f"seed{where} must lie in [0, 2^32), got {value}")
        require(value >= least, f"{name}{where} must be at least {least}, got {value}")


def _check_same(about: dict[str, Any], config: dict[str, Any], folder: Path) -> None:
    """Raise a `UsageError` unless an algorithm, as described, is that of a run's `config.json`."""
    compared = (
        "algorithm", "task_name", "dim", "cells", "feature_low", "feature_high", "min_fitness",
        "batch_size",
    )  # fmt: skip
    pairs = [(name, about[name], config.get(name)) for name in compared]
    pairs += [(name, found, config["options"].get(name)) for name, found in about["options"].items()]
    for name, found, expected in pairs:
        require(
            found == expected or name == "generations",
            f"{name} of the run in '{folder}' is {expected}, got {found}",
        )


def _on_host(algorithm: Algorithm) -> Algorithm:
    """With callbacks to Python, if there are any, outside of what is compiled; see `on_host`."""
    if algorithm.emitter.transitions:  # which only compiled tasks yield
        return algorithm
    return algorithm._replace(task=on_host(algorithm.task))


def _run(algorithm: Algorithm, config: dict[str, Any], path: Path | None, progress: bool) -> Result:
    """The rest of a run: from the newest checkpoint in its folder, or from the start."""
    generations, every = config["generations"], config["checkpoint_every"]
    init_key, run_key = jax.random.split(jax.random.key(config["seed"]))
    identity = _identity(config)
    with Reporter(generations, show=progress) as report:
        state = jax.jit(algorithm.init)(init_key)
        start = _load(path, algorithm, state, identity, report.say)
        if start is not None:
            state = jax.device_put(start.state)
            report.say(f"going on after generation {start.history.generation}")
        done = 0 if start is None else start.history.generation
        require(
            done <= generations,
            f"generations must be at least the {done} of the last checkpoint in '{path}', "
            f"got {generations}",
        )
        lengths = _remaining(_chunks(generations, config["generations_per_call"], every), done)
        report.say(f"compiling {algorithm.task.name} for {jax.devices()[0].device_kind} ...")
        started = time.perf_counter()
        if not algorithm.task.jit:
            task = surviving(algorithm.task, report.say, algorithm.batch_size)
            algorithm = algorithm._replace(task=task)
        algorithm, advance = _fitting(algorithm, config["chunk"], lengths, run_key, state, report.say)
        copied = jax.jit(partial(jax.tree.map, jnp.copy))
        compile_seconds = time.perf_counter() - started
        report.say(f"compiled in {compile_seconds:.1f} s")

        config = config | {"compile_seconds": compile_seconds, "chunk": algorithm.chunk}
        log = Log(path, report, config, start and start.history)
        report.begin(done, 0 if start is None else int(start.history.columns["evaluations"][-1]))
        writer = None if path is None or every == 0 else Checkpointer(path, identity)
        unread: list[tuple[Record, State | None]] = []

        def read() -> None:
            record, copy = unread.pop(0)
            _wait(record)
            log.write(record)
            if writer is not None and copy is not None:
                writer.start(Checkpoint(copy, log.history()))

        try:
            with _interruptible(report.say) as interrupted:
                for i, n in enumerate(lengths):
                    state, record = advance[n](run_key, state)
                    last = i == len(lengths) - 1
                    done += n
                    wanted = writer is not None and _due(writer, every, done, last)
                    # The next call takes the state's memory over; a copy stays for the checkpoint.
                    unread.append((record, copied(state) if wanted else None))
                    # The device works on the newest chunk while the host reads the one before.
                    if len(unread) > 1:
                        read()
                    if interrupted():
                        if writer is not None:
                            unread[-1] = (unread[-1][0], copied(state))
                        break
                while unread:
                    read()
                if writer is not None:
                    writer.wait()
                return log.finish(state, algorithm)
        finally:
            log.close()
            if writer is not None:
                writer.close()


def _load(
    path: Path | None, algorithm: Algorithm, like: State, identity: str, say: Callable[[str], None]
) -> Checkpoint | None:
    def adopt(state: State) -> State:
        return state._replace(history=algorithm.history.adopt(state.history))

    return None if path is None else checkpoint.load(path, like, identity, say, adopt)


def _wait(record: Record) -> None:
    """Wait for the device, with open ears: Python hears no signal while it waits inside of JAX."""
    leaf: Any = jax.tree.leaves(record)[-1]
    while hasattr(leaf, "is_ready") and not leaf.is_ready():
        time.sleep(0.002)


def _due(writer: Checkpointer, every: int | None, done: int, last: bool) -> bool:
    """Whether a checkpoint is made after so many generations."""
    return last or (not writer.busy if every is None else done % every == 0)


def _identity(config: dict[str, Any]) -> str:
    """What must be equal for a checkpoint to belong to a run."""
    names = ("task", "algorithm", "options", "seed", "cells", "dim")
    return json.dumps({name: config.get(name) for name in names}, sort_keys=True, default=str)


def _remaining(lengths: list[int], done: int) -> list[int]:
    """The calls of the device that are left after so many generations."""
    left = []
    for n in lengths:
        skipped = min(n, done)
        done -= skipped
        left += [n - skipped] if n > skipped else []
    return left


@contextmanager
def _in_words(path: Path | None, algorithm: Algorithm) -> Iterator[None]:
    """Turn what ends a run from outside into a sentence: a disk, a simulator or a device that fails."""
    try:
        yield
    except (OSError, RunError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, RunError):  # of a simulator
            sentence = str(error)
        elif isinstance(error, OSError):
            if path is None:
                raise
            sentence = f"cannot write to '{path}': {error.strerror or error}"
        else:
            sentence = f"task '{algorithm.task.name}' failed on the device: {in_a_line(error)}"
        if path is not None and holds_run(path):
            sentence += f"; 'memes resume {path}' goes on from the last checkpoint"
        raise RunError(sentence) from error


def _fitting(
    algorithm: Algorithm,
    chunk: int | None,
    lengths: list[int],
    key: Array,
    state: State,
    say: Callable[[str], None],
) -> tuple[Algorithm, dict[int, Advance]]:
    """The algorithm, evaluating in chunks if it has to, and what advances it; see `_compile`."""
    algorithm = algorithm._replace(chunk=chunk)
    advance = _compile(algorithm, set(lengths), key, state)
    room, rows = memory.available(), chunk or algorithm.batch_size
    while algorithm.task.jit:
        needs = [memory.needed(compiled) for compiled in advance.values()]
        if room is None or not needs or None in needs:
            break
        need = max(n for n in needs if n is not None)
        say(f"a generation needs {memory.in_words(need)} of the {memory.in_words(room)} that are free")
        if chunk is not None or need <= memory.SHARE * room or rows == 1:
            break
        rows = memory.smaller(rows, need, room)
        say(f"that is too much: evaluating {rows} of {algorithm.batch_size} rows at a time")
        algorithm = algorithm._replace(chunk=rows)
        advance = _compile(algorithm, set(lengths), key, state)
    return algorithm, advance


def _compile(
    algorithm: Algorithm, lengths: Iterable[int], key: Array, state: State
) -> dict[int, Advance]:
    """For each length n, a function that advances the run by n generations."""
    persistent = np.flatnonzero(algorithm.emitter.persistent)

    def record(state: State, info: Info) -> Record:
        lanes = {name: getattr(info, name)[persistent] for name in LANE_FIELDS}
        return Record(measure(state.archive, info, algorithm.task.min_fitness), lanes)

    if not algorithm.task.jit:
        step = _host_step(algorithm, record, key, state)
        return {n: partial(_loop, step, n) for n in lengths}

    def step_on_device(key: Array, state: State) -> tuple[State, Record]:
        state, info = algorithm.step(jax.random.fold_in(key, state.generation), state)
        return state, record(state, info)

    def scan(n: int, key: Array, state: State) -> tuple[State, Record]:
        return jax.lax.scan(lambda state, _: step_on_device(key, state), state, length=n)

    compiled = jax.jit(scan, static_argnums=0, donate_argnums=2)
    return {n: compiled.lower(n, key, state).compile() for n in lengths}


def _host_step(
    algorithm: Algorithm, record: Callable[[State, Info], Record], key: Array, state: State
) -> Advance:
    """One generation, with the evaluation on the host between a compiled ask and a compiled tell."""

    def ask(key: Array, state: State) -> tuple[State, Batch, Array]:
        ask_key, evaluate_key = jax.random.split(jax.random.fold_in(key, state.generation))
        return *algorithm.ask(ask_key, state), evaluate_key

    def tell(state: State, batch: Batch, evaluation: Evaluation) -> tuple[State, Record]:
        state, info = algorithm.tell(state, batch, evaluation)
        return state, record(state, info)

    n, k = algorithm.batch_size, algorithm.task.feature_dim
    evaluation = Evaluation(jnp.zeros(n), jnp.zeros((n, k)))
    asked, batch, _ = jax.eval_shape(ask, key, state)
    compiled_ask = jax.jit(ask).lower(key, state).compile()
    compiled_tell = jax.jit(tell, donate_argnums=0).lower(asked, batch, evaluation).compile()

    def step(key: Array, state: State) -> tuple[State, Record]:
        state, batch, evaluate_key = compiled_ask(key, state)
        told: tuple[State, Record] = compiled_tell(state, batch, algorithm.evaluate(evaluate_key, batch))
        return told

    return step


def _loop(step: Advance, n: int, key: Array, state: State) -> tuple[State, Record]:
    """What `lax.scan` does, on the host."""
    records = []
    for _ in range(n):
        state, last = step(key, state)
        records.append(last)
    return state, jax.tree.map(lambda *leaves: np.stack(leaves), *records)


def _chunks(generations: int, per_call: int | None, checkpoint_every: int | None = None) -> list[int]:
    """How many generations each call of the device computes. Each distinct number is compiled."""
    span = checkpoint_every or generations  # a checkpoint is made between two calls
    size = min(per_call or min(100, -(-generations // 20)), span, generations)
    if per_call is None:
        # Rather a somewhat smaller chunk than a remainder that must be compiled as well.
        size = next((s for s in range(size, size // 2, -1) if span % s == 0), size)
    lengths, done = [], 0
    while done < generations:
        lengths.append(min(size, span - done % span, generations - done))
        done += lengths[-1]
    return lengths


def _check_history(algorithm: Algorithm, generations: int) -> None:
    room = algorithm.history.keeps_all
    needed = generations * algorithm.emitter.candidates
    require(
        room is None or needed <= room,
        f"generations must be at most {(room or 0) // algorithm.emitter.candidates} for a history that "
        f"keeps everything and has room for {room} features, got {generations}; build the algorithm "
        f"with generations={generations}",
    )


@contextmanager
def _interruptible(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM only makes the yielded function return True; the second interrupts."""
    seen = False

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        say("stopping after this call of the device; Ctrl-C again stops at once, without saving")
        for each, handler in before.items():
            signal.signal(each, handler)

    before: dict[signal.Signals, Any] = {}
    try:
        for each in (signal.SIGINT, signal.SIGTERM):
            before[each] = signal.signal(each, note)
    except ValueError:  # not in the main thread, where signals do not arrive anyway
        yield lambda: False
        return
    try:
        yield lambda: seen
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
