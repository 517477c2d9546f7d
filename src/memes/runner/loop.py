"""Runs, for one seed or for many: from their settings to what is left of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from memes.algorithm import Algorithm, State
from memes.errors import RunError, in_a_line, require
from memes.hints import checked, number_of
from memes.runner.checks import check_numbers, check_observers, check_same, settings_of
from memes.runner.device import compile_fitting, first_state, keep_compiled, keys_of, most_together
from memes.runner.group import run_group
from memes.runner.observers.base import Observer
from memes.runner.progress import Reporter
from memes.runner.records import new_run
from memes.runner.simulators import on_host, surviving
from memes.store import checkpoint
from memes.store.files import intact, only_writer
from memes.store.folder import (
    Run,
    check_free,
    holds_run,
    load_config,
    load_corrected,
    plain,
    remove_run,
    save_config,
)
from memes.store.provenance import describe, now

UNRECORDED = {"call_seconds": 1.0, "chunk": None}  # by version 0.1


@checked
def run(
    algorithm: Algorithm,
    *,
    generations: int,
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    observers: Sequence[Any] = (),
    chunk: int | None = None,
    together: int | None = None,
    call_seconds: float = 1.0,
    progress: bool = True,
    about: dict[str, Any] | None = None,
) -> Run | list[Run]:
    """Run an algorithm, for one seed or for several, and record what happens.

    The key of generation g is `fold_in(run_key, g)`: results do not depend on how a run is cut into
    calls of the device. Ctrl-C and SIGTERM end the run after the generations computed so far, with
    everything saved.

    Seeds that run together are one batch on the device, a `vmap` of the whole run. Compilers round such
    a batch differently: a seed's numbers agree with those of a run of its own to rounding, which a long
    search can amplify into another, equally likely, course. Seeds that run one after the other are
    compiled once, and agree to the last bit.

    Args:
        algorithm: What to run; it knows its task. A task with `jit=False` is evaluated on the host.
        generations: For how many generations to run.
        seed: Seed of all randomness.
        seeds: Seeds of several runs, instead of `seed`; then there is a run for each of them.
        out: Folder for the results, or for a folder `seed-0`, ... of each seed; None keeps them in
            memory only.
        overwrite: Replace a run that the folder already holds.
        observers: What the run does besides advancing. They join the usual ones, and replace those of
            their own type.
        chunk: How many rows to evaluate at a time; None is all, or fewer if they do not fit into memory.
        together: How many seeds to run as one batch; None is as many as fit into memory, or one if the
            task has a simulator, which fills the device by itself.
        call_seconds: How long a call of the device takes, about. Progress moves, Ctrl-C is heard and
            metrics are written once a call.
        progress: Whether to show progress.
        about: Anything JSON that should be written into `config.json`.

    Returns:
        The run, or the runs in the order of their seeds; without those that an interrupt left undone.
    """
    algorithm = callbacks_outside(algorithm)
    chosen = [number_of(each) for each in ([seed] if seeds is None else seeds)]
    require(len(chosen) >= 1, "seeds must name at least one")
    require(len(set(chosen)) == len(chosen), f"seeds must differ, got {', '.join(map(str, chosen))}")
    given = {
        "generations": generations,
        "chunk": chunk,
        "together": together,
        "call_seconds": call_seconds,
    }
    numbers = {name: number_of(value) for name, value in given.items()}
    for each in chosen:
        check_numbers(numbers | {"seed": each})
    require(
        together in (None, 1) or algorithm.task.jit,
        f"together must be 1 for task '{algorithm.task.name}', which runs on the host, got {together}",
    )
    check_observers(observers)
    config = {**describe(algorithm), **(about or {}), **numbers, **settings_of(observers)}
    starts = []
    for each in chosen:
        folder = None if out is None else Path(out) if seeds is None else Path(out) / f"seed-{each}"
        if folder is not None:
            check_free(folder, overwrite)
        starts.append(_Start(config | {"seed": each}, folder))
    size = most_together(algorithm.task, len(chosen), together)
    with _in_words(out, algorithm), ExitStack() as stack:
        for start in starts:
            if start.folder is not None:
                start.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(only_writer(start.folder))
                check_free(start.folder, overwrite)
                remove_run(start.folder)
        runs = _run_all(algorithm, starts, observers, progress, size)
    return runs[0] if seeds is None else runs


@checked
def resume(
    algorithm: Algorithm,
    path: str | Path,
    *,
    generations: int | None = None,
    seeds: Sequence[int] | None = None,
    observers: Sequence[Any] = (),
    progress: bool = True,
) -> Run | list[Run]:
    """Go on with a run that was interrupted or killed, as if it had never stopped.

    Args:
        algorithm: What the run is of: the same algorithm, task and cells, with the same options.
        path: The run's folder, or one with the folders of several seeds.
        generations: For how many generations in all; None is what was asked of the run.
        seeds: Only these of several seeds; None is all.
        observers: As in `run`; the usual ones have the settings of the run.
        progress: Whether to show progress.

    Returns:
        The run, or the runs of those seeds that were not done.
    """
    check_observers(observers)
    folders = run_folders(path)
    one = folders == [Path(path)] and seeds is None
    if seeds is not None:
        folders = [folder for folder in folders if load_config(folder).get("seed") in seeds]
        require(bool(folders), f"seeds: '{path}' holds no run of {', '.join(map(str, seeds))}")
    algorithm = callbacks_outside(algorithm)
    described = json.loads(json.dumps(describe(algorithm), default=plain))
    starts = []
    for folder in folders:
        config = UNRECORDED | load_config(folder)
        with intact(folder / "config.json"):
            check_numbers(config, f" in '{folder / 'config.json'}'")
            done, total = config.get("generations_done", 0), config["generations"]
            total = total if generations is None else generations
            check_numbers(config | {"generations": total})
            left = done < total or (done == total and not _concluded(folder, config, algorithm, done))
            require(
                left or not one,
                f"generations must be more than the {done} after which the run in '{folder}' ended, "
                f"got {total}",
            )
            check_same(described, config, folder)
            config |= {"generations": total, "resumed": [*config.get("resumed", []), now()]}
            config |= settings_of(observers)
        for old in ("finished", "generations_done", "stopped"):
            config.pop(old, None)
        starts += [_Start(config, folder)] if left else []
    require(bool(starts), f"all runs in '{path}' are over; ask for more generations")
    lengths = {start.config["generations"] for start in starts}
    require(len(lengths) == 1, f"the runs in '{path}' differ in generations: resume them one by one")
    size = {start.config.get("seeds_together") or 1 for start in starts}
    require(len(size) == 1, f"the runs in '{path}' differ in seeds_together: resume them one by one")
    with _in_words(path, algorithm), ExitStack() as stack:
        for start in starts:
            stack.enter_context(only_writer(start.folder or Path()))
        runs = _run_all(algorithm, starts, observers, progress, size.pop(), exactly=True)
    return runs[0] if one else runs


def run_folders(path: str | Path) -> list[Path]:
    """The folders of the runs that a path means: itself, or those in it."""
    folder = Path(path)
    inside = [] if holds_run(folder) or not folder.is_dir() else sorted(folder.iterdir())
    found = [each for each in inside if holds_run(each)]
    return sorted(found, key=lambda each: load_config(each).get("seed", 0)) or [folder]


def callbacks_outside(algorithm: Algorithm) -> Algorithm:
    """With callbacks to Python, if there are any, outside of what is compiled; see `on_host`."""
    if algorithm.emitter.transitions:  # which only compiled tasks yield
        return algorithm
    return algorithm._replace(task=on_host(algorithm.task))


def _concluded(folder: Path, config: dict[str, Any], algorithm: Algorithm, generation: int) -> bool:
    """Does a run that is over have the correction that it should have?"""
    made = load_corrected(folder).get("generation", np.zeros(0))
    wanted = algorithm.task.uncertain and config.get("reevaluate_every") != 0
    return not wanted or (generation in made and (folder / "corrected.npz").exists())


class _Start(NamedTuple):
    """A run before it starts, or goes on."""

    config: dict[str, Any]
    folder: Path | None


def _run_all(
    algorithm: Algorithm,
    starts: list[_Start],
    observers: Sequence[Observer],
    progress: bool,
    size: int,
    exactly: bool = False,
) -> list[Run]:
    """Run the starts, as many side by side as is asked for, in groups that have come equally far."""
    generations, chunk = (starts[0].config[name] for name in ("generations", "chunk"))
    keep_compiled()
    with Reporter(show=progress) as report:
        task = algorithm.task
        here = task if task.jit else surviving(task, report.say, algorithm.batch_size)
        first = first_state(algorithm)
        begun = [_begun(first, start, report.say) for start in starts]
        program = compile_fitting(
            algorithm._replace(task=here, chunk=chunk), size, generations, report.say, exactly
        )
        about: dict[str, Any] = {"chunk": program.algorithm.chunk, "seeds_together": program.seeds}
        for start in starts:  # also of those that an interrupt leaves undone: so `resume` finds them
            if start.folder is not None:
                save_config(start.folder, start.config | about)
        seconds = program.seconds
        over: dict[int, Run] = {}
        shared: dict[Hashable, Any] = {}
        for group in _groups(begun, program.seeds):
            about["compile_seconds"], seconds = seconds, 0.0
            runs = [begun[i]._replace(config=begun[i].config | about) for i in group]
            runs, interrupted = run_group(program, algorithm, runs, observers, report, shared)
            over |= dict(zip(group, runs, strict=True))
            if interrupted:
                break
    return [over[i] for i in sorted(over)]


def _groups(runs: Sequence[Run], size: int) -> list[list[int]]:
    """The runs that go side by side: at most so many, all of which have come equally far."""
    far: dict[int, list[int]] = {}
    for i, run in enumerate(runs):
        far.setdefault(run.generations, []).append(i)
    return [same[i : i + size] for same in far.values() for i in range(0, len(same), size)]


def _begun(first: Callable[[jax.Array, int], State], start: _Start, say: Callable[[str], None]) -> Run:
    """A run as it stands: from the newest checkpoint in its folder, or from the start."""
    config, folder = start
    init_key, _ = keys_of(config["seed"])

    def blank(generations: int) -> State:
        return first(init_key, generations)

    found = None if folder is None else checkpoint.load(folder, config, blank, say)
    if folder is None or found is None:
        return new_run(config, blank(config["generations"]), folder=folder)
    run = new_run(
        config,
        found.state,
        folder=folder,
        metrics=found.metrics,
        lanes=found.lanes,
        corrected=load_corrected(folder),
    )
    say(f"going on after generation {run.generations}")
    require(
        run.generations <= config["generations"],
        f"generations must be at least the {run.generations} of the last checkpoint in '{folder}', "
        f"got {config['generations']}",
    )
    return run


@contextmanager
def _in_words(path: str | Path | None, algorithm: Algorithm) -> Iterator[None]:
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
        if path is not None and any(map(holds_run, run_folders(path))):
            sentence += f"; 'memes resume {path}' goes on from the last checkpoint"
        raise RunError(sentence) from error
