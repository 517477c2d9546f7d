"""The run loop: chunks of generations on the device, everything else between them on the host."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from memes.algorithm import Algorithm, State
from memes.errors import RunError, in_a_line, require
from memes.hints import checked
from memes.runner.configuration import check_history, check_numbers, check_same, configure
from memes.runner.device import Programs, calls, fitting, remaining
from memes.runner.log import Log, Record
from memes.runner.observers.corrections import Corrections, corrected_at, wanted
from memes.runner.progress import Reporter
from memes.runner.simulators import on_host, surviving
from memes.store import checkpoint
from memes.store.checkpoint import Checkpoint, Checkpointer
from memes.store.files import intact, only_writer
from memes.store.folder import Run, check_free, holds_run, load_config, plain
from memes.store.provenance import describe, now
from memes.store.summary import write_summary

# What is said to the first Ctrl-C: during the run, and during the correction after it.
STOPPING = "stopping after this call of the device; Ctrl-C again stops at once, without saving"
SKIPPING = "skipping the rest of the re-evaluation"


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
    reevaluate_every: int | None = None,
    reevaluate_samples: int = 512,
    statistic: str = "median",
    progress: bool = True,
    settings: dict[str, Any] | None = None,
    programs: Programs | None = None,
) -> Run:
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
            metrics are written, once a call. None is a fiftieth of the run, at most 100, or one
            generation for a task with `jit=False`.
        checkpoint_every: Generations between checkpoints, from which `resume` goes on; 0 is never.
            None is after each call of the device, unless the one before is still being written.
        chunk: How many rows to evaluate at a time; None is all, or fewer if they need more memory than
            there is.
        reevaluate_every: Generations between corrections of the archive, on an uncertain task. The
            archive at the end is corrected in any case; None corrects it alone, 0 not even that.
        reevaluate_samples: How often an elite is evaluated again for a correction.
        statistic: What an elite's evaluations are summed up by: median or mean.
        progress: Whether to show progress.
        settings: Anything JSON that should be written into `config.json`.
        programs: What other seeds of the same algorithm have compiled; what is missing is added.
    """
    algorithm = callbacks_outside(algorithm)
    config = configure(
        algorithm,
        generations=generations,
        seed=seed,
        generations_per_call=generations_per_call,
        checkpoint_every=checkpoint_every,
        chunk=chunk,
        reevaluate_every=reevaluate_every,
        reevaluate_samples=reevaluate_samples,
        statistic=statistic,
        settings=settings,
    )
    path = None if out is None else Path(out)
    with _in_words(path, algorithm):
        if path is None:
            return _run(algorithm, config, None, progress, programs)
        check_free(path)
        path.mkdir(parents=True, exist_ok=True)
        with only_writer(path):
            check_free(path)
            return _run(algorithm, config, path, progress, programs)


@checked
def resume(
    algorithm: Algorithm,
    path: str | Path,
    *,
    generations: int | None = None,
    progress: bool = True,
    programs: Programs | None = None,
) -> Run:
    """Go on with a run that was interrupted or killed, as if it had never stopped.

    Args:
        algorithm: What the run is of: the same algorithm, task and cells, with the same options.
        path: The run's folder.
        generations: For how long in all; None is what was asked of the run.
        progress: Whether to show progress.
        programs: As in `run`.
    """
    folder = Path(path)
    config = load_config(folder)
    about = json.loads(json.dumps(describe(algorithm), default=plain))
    with intact(folder / "config.json"):
        check_numbers(config, f" in '{folder / 'config.json'}'")
        total = config["generations"] if generations is None else generations
        check_numbers(config | {"generations": total})
        done = config.get("generations_done", 0)
        uncorrected = wanted(algorithm.task, config) and not corrected_at(folder, done)
        require(
            done < total or (done == total and uncorrected),
            f"generations must be more than the {done} after which the run in '{folder}' ended, "
            f"got {total}",
        )
        check_same(about, config, folder)
        config |= {"generations": total, "resumed": [*config.get("resumed", []), now()]}
    check_history(algorithm, total)
    for old in ("finished", "generations_done"):
        config.pop(old, None)
    with _in_words(folder, algorithm), only_writer(folder):
        return _run(callbacks_outside(algorithm), config, folder, progress, programs)


def callbacks_outside(algorithm: Algorithm) -> Algorithm:
    """With callbacks to Python, if there are any, outside of what is compiled; see `on_host`."""
    if algorithm.emitter.transitions:  # which only compiled tasks yield
        return algorithm
    return algorithm._replace(task=on_host(algorithm.task))


def keys_of(seed: int) -> tuple[Array, Array]:
    """The key of a run's first state, and the key of its generations."""
    init_key, run_key = jax.random.split(jax.random.key(seed))
    return init_key, run_key


def _run(
    algorithm: Algorithm,
    config: dict[str, Any],
    path: Path | None,
    progress: bool,
    programs: Programs | None,
) -> Run:
    """The rest of a run: from the newest checkpoint in its folder, or from the start."""
    generations, every = config["generations"], config["checkpoint_every"]
    init_key, run_key = keys_of(config["seed"])
    identity, task = _identity(config), algorithm.task
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
        pauses = every, config.get("reevaluate_every")
        lengths = remaining(calls(generations, config["generations_per_call"], *pauses), done)
        report.say(f"compiling {algorithm.task.name} for {jax.devices()[0].device_kind} ...")
        started = time.perf_counter()
        if not algorithm.task.jit:
            task_here = surviving(task, report.say, algorithm.batch_size)
            algorithm = algorithm._replace(task=task_here)
        programs = {} if programs is None or not algorithm.task.jit else programs
        if frozenset(lengths) not in programs:
            programs[frozenset(lengths)] = fitting(
                algorithm, config["chunk"], lengths, run_key, state, report.say
            )
        algorithm, advance = programs[frozenset(lengths)]
        copied = jax.jit(partial(jax.tree.map, jnp.copy))
        compile_seconds = time.perf_counter() - started
        report.say(f"compiled in {compile_seconds:.1f} s")

        config = config | {"compile_seconds": compile_seconds, "chunk": algorithm.chunk}
        log = Log(path, report, config, start and start.history)
        corrections = Corrections(path, task, config, report)
        corrections.restart(done)
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
            with _interruptible(report.say, STOPPING) as interrupted:
                for i, n in enumerate(lengths):
                    if corrections.due(done):
                        while unread:
                            read()
                        with log.paused():
                            corrections.make(state.archive, done, interrupted)
                    if done and interrupted():  # without a generation there is nothing to save
                        break
                    state, record = advance[n](run_key, state)
                    last = i == len(lengths) - 1
                    done += n
                    saved = writer is not None and _due(writer, every, done, last)
                    # The next call takes the state's memory over; a copy stays for the checkpoint.
                    unread.append((record, copied(state) if saved else None))
                    # The device works on the newest chunk while the host reads the one before.
                    if len(unread) > 1:
                        read()
                while unread:
                    read()
                if writer is not None:
                    if interrupted():
                        writer.start(Checkpoint(state, log.history()))
                    writer.wait()
                result = log.finish(state, algorithm)
            with _interruptible(report.say, SKIPPING) as interrupted:
                return conclude(result, corrections, interrupted)
        finally:
            log.close()
            if writer is not None:
                writer.close()


def conclude(result: Run, corrections: Corrections, stopped: Callable[[], bool]) -> Run:
    """Correct the archive of a run that is over, and write and draw what sums it up."""
    generation = int(result.metrics["generation"][-1])
    correction = corrections.finish(result.archive, generation, stopped)
    result = result._replace(correction=correction, corrected=corrections.columns)
    if result.folder is not None:
        from memes.analysis.figures import save_figures  # matplotlib is slow to import

        write_summary(result)
        save_figures(result)
    return result


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


@contextmanager
def _interruptible(say: Callable[[str], None], sentence: str) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM only makes the yielded function return True; the second interrupts."""
    seen = False

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        say(sentence)
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
