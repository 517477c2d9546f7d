"""The run loop: calls of the device, and observers between them."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np

from memes.algorithm import Algorithm, State
from memes.errors import RunError, at_least, in_a_line, require
from memes.hints import check_types, checked
from memes.runner.device import (
    MOST,
    Program,
    Record,
    compile_fitting,
    first_state,
    keep_compiled,
    keys_of,
    most_together,
)
from memes.runner.observers.base import Moment, Observer, Stage, Watch
from memes.runner.observers.progress import standing
from memes.runner.progress import Reporter
from memes.runner.records import extended, new_run, totals_of
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

# What is said to the first Ctrl-C: during the run, and while it is finished.
STOPPING = "stopping after this call of the device; Ctrl-C again stops at once, without saving"
SKIPPING = "skipping the rest of the re-evaluation"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
GROWTH = 4  # a call of the device has at most so many times the generations of the one before
# The least of each setting that is a number. Those of a `config.json` are checked as well.
LEAST = {
    "generations": 1,
    "seed": 0,
    "call_seconds": 0,
    "chunk": 1,
    "together": 1,
    "seeds_together": 1,
}
NEEDED = ("generations", "seed", "call_seconds")
UNRECORDED = {"call_seconds": 1.0, "chunk": None}  # by version 0.1
SEEDS = 2**32


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
    chosen = [seed] if seeds is None else list(seeds)
    require(len(chosen) >= 1, "seeds must name at least one")
    require(len(set(chosen)) == len(chosen), f"seeds must differ, got {', '.join(map(str, chosen))}")
    numbers = {
        "generations": generations,
        "chunk": chunk,
        "together": together,
        "call_seconds": call_seconds,
    }
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


def check_numbers(given: dict[str, Any], where: str = "") -> None:
    """Raise a `UsageError` that names what is no number, or too small."""
    for name, least in LEAST.items():
        value, hint = given.get(name), float if name == "call_seconds" else int
        if value is not None or name in NEEDED:
            check_types({f"{name}{where}": value}, {f"{name}{where}": hint})
            in_range = name != "seed" or 0 <= given[name] < SEEDS
            require(in_range, f"seed{where} must lie in [0, 2^32), got {value}")
            at_least(least, **{f"{name}{where}": given[name]})


def check_same(described: dict[str, Any], config: dict[str, Any], folder: Path) -> None:
    """Raise a `UsageError` unless an algorithm, as described, is that of a run's `config.json`."""
    compared = (
        "algorithm", "task_name", "dim", "cells", "feature_low", "feature_high", "min_fitness",
        "batch_size",
    )  # fmt: skip
    pairs = [(name, described[name], config.get(name)) for name in compared]
    pairs += [(name, found, config["options"].get(name)) for name, found in described["options"].items()]
    for name, found, expected in pairs:
        require(found == expected, f"{name} of the run in '{folder}' is {expected}, got {found}")


def check_observers(observers: Sequence[Any]) -> None:
    """Raise a `UsageError` that names what cannot watch a run."""
    for observer in observers:
        can_watch = callable(getattr(observer, "watch", None)) and not isinstance(observer, type)
        require(can_watch, f"observers must each have a method watch, got {observer!r}")


def settings_of(observers: Sequence[Observer]) -> dict[str, Any]:
    """The settings of observers as `config.json` has them: by prefix, or by the observer's name."""
    found: dict[str, Any] = {}
    for observer in observers:
        own: tuple[Field[Any], ...] = fields(observer) if is_dataclass(observer) else ()
        values = {field.name: getattr(observer, field.name) for field in own}
        prefix = getattr(observer, "prefix", None)
        if prefix is not None:
            found |= {f"{prefix}_{name}": value for name, value in values.items()}
        else:
            found.setdefault("observers", {})[type(observer).__name__] = values
    return found


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
            runs, interrupted = _run_group(program, algorithm, runs, observers, report, shared)
            over |= dict(zip(group, runs, strict=True))
            if interrupted:
                break
    return [over[i] for i in sorted(over)]


def _groups(runs: Sequence[Run], size: int) -> list[list[int]]:
    """Which runs go side by side: at most so many, all of which have come equally far."""
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


class _Member:
    """One of the runs that go side by side, with those who watch it."""

    def __init__(self, run: Run, stage: Callable[[Callable[[str], None]], Stage]) -> None:
        self.run = run
        self.stopped: str | None = None  # why, if it was
        self._totals = totals_of(run)
        self._stage = stage(self._stop)
        self._watches: list[Watch] = []

    def _stop(self, reason: str) -> None:
        self._stage.say(f"stopping: {reason}")
        self._stage.report.end(self.run.config["seed"])
        self.stopped = reason

    def begin(self, observers: Sequence[Observer]) -> None:
        self._save_config()
        self._watches = [observer.watch(self._stage) for observer in observers]
        for watch in self._watches:
            self.run = watch.begin(self.run) or self.run

    def due(self, generation: int) -> bool:
        return self.stopped is None and any(watch.due(generation) for watch in self._watches)

    def see(self, state: State, record: Record, seconds: float) -> None:
        """Take in further generations, unless it was stopped; there is one at least."""
        if self.stopped is not None and self.run.generations:
            return
        before = self.run.generations
        self.run, self._totals = extended(self.run, self._totals, state, record, seconds)
        for watch in self._watches:
            self.run = watch.see(Moment(self.run, self.run.generations - before)) or self.run

    def finish(self) -> Run:
        """Let the observers finish. What `config.json` says of the end comes last: that all is there."""
        about = {
            "finished": now(),
            "generations_done": self.run.generations,
            "seconds": float(self.run.metrics["seconds"][-1]),
            "stopped": self.stopped,
        }
        self.run = self.run._replace(config=self.run.config | about)
        for watch in self._watches:
            self.run = watch.finish(self.run) or self.run
        self._save_config()
        return self.run

    def _save_config(self) -> None:
        if self.run.folder is not None:
            save_config(self.run.folder, self.run.config)


def _run_group(
    program: Program,
    algorithm: Algorithm,
    runs: list[Run],
    observers: Sequence[Observer],
    report: Reporter,
    shared: dict[Hashable, Any],
) -> tuple[list[Run], bool]:
    """Run some seeds side by side until all are over; also says whether it was interrupted."""
    config, done = runs[0].config, runs[0].generations
    filled = runs + runs[-1:] * (program.seeds - len(runs))
    state = program.join([run.state for run in filled if run.state is not None])
    key = program.keys([run.config["seed"] for run in filled])
    heard: list[Callable[[], str | None]] = [lambda: None]

    def once(name: Hashable, make: Callable[[], Any]) -> Any:
        if name not in shared:
            shared[name] = make()
        return shared[name]

    with ExitStack() as stack:

        def member(run: Run) -> _Member:
            name = f"seed {run.config['seed']}: " if len(runs) > 1 else ""
            return _Member(
                run,
                lambda stop: Stage(
                    algorithm,
                    run.config,
                    run.folder,
                    report,
                    say=lambda sentence: report.say(f"{name}{sentence}"),
                    stop=stop,
                    interrupted=lambda: heard[0]() is not None,
                    once=once,
                    closing=stack.callback,
                ),
            )

        members = [member(run) for run in runs]
        with _interruptible(report.say, STOPPING) as heard[0]:
            for each in members:
                each.begin(observers)
            report.begin(config["generations"], {run.config["seed"]: standing(run) for run in runs})

            def due(generation: int) -> bool:
                return any(each.due(generation) for each in members)

            def going() -> bool:
                return heard[0]() is None and any(each.stopped is None for each in members)

            for call in _calls(program, key, state, done, config, due, going):
                for each, state, record in zip(members, call.states, call.records, strict=False):
                    each.see(state, record, call.seconds / len(members))
            signalled = heard[0]()
            for each in members:
                if each.run.generations < config["generations"]:
                    each.stopped = each.stopped or signalled
        with _interruptible(report.say, SKIPPING) as heard[0]:
            return [each.finish() for each in members], signalled is not None


class _Call(NamedTuple):
    """A call of the device that is over: the state and the record of each seed."""

    states: list[State]
    records: list[Record]
    seconds: float


def _calls(
    program: Program,
    key: jax.Array,
    state: State,
    done: int,
    config: dict[str, Any],
    due: Callable[[int], bool],
    going: Callable[[], bool],
) -> Iterator[_Call]:
    """Call the device for the generations that are left, about `call_seconds` at a time.

    It ends early, though not before the first generation, once `going` says no.

    It works on the next call while the host looks at the one before; unless somebody is due to look, who
    may need the device.
    """
    generations, aim = config["generations"], config["call_seconds"]
    size, free = 1, 0.0

    def start(state: State) -> tuple[float, int, State, Record]:
        left = min(size, generations - done)
        n = next((i for i in range(1, left) if due(done + i)), left)
        return time.perf_counter(), n, *program.advance(key, state, n)

    ahead = None
    while done < generations and (done == 0 or going()):
        began, n, state, record = ahead or start(state)
        done += n
        may_go_on = program.algorithm.task.jit and done < generations and not due(done)
        ahead = start(state) if may_go_on else None
        _wait(record)
        now = time.perf_counter()
        seconds, free = now - max(began, free), now
        size = int(np.clip(aim / max(seconds / n, 1e-9), 1, min(GROWTH * n, MOST)))
        yield _Call(program.states(state), program.records(record, n), seconds)


def _wait(record: Record) -> None:
    """Wait for the device, with open ears: Python hears no signal while it waits inside of JAX."""
    leaf: Any = jax.tree.leaves(record)[-1]
    while hasattr(leaf, "is_ready") and not leaf.is_ready():
        time.sleep(0.002)


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


@contextmanager
def _interruptible(say: Callable[[str], None], sentence: str) -> Iterator[Callable[[], str | None]]:
    """Let the first Ctrl-C or SIGTERM only be named by the yielded function; the second interrupts."""
    seen: str | None = None

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = signal.Signals(signum).name
        say(sentence)
        for each, handler in before.items():
            signal.signal(each, handler)

    before: dict[signal.Signals, Any] = {}
    try:
        for each in SIGNALS:
            before[each] = signal.signal(each, note)
    except ValueError:  # not in the main thread, where signals do not arrive anyway
        yield lambda: None
        return
    try:
        yield lambda: seen
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
