"""The main loop, which computes several runs and calls their observers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from memes.algorithm import Algorithm, State
from memes.archive import Fault
from memes.context import Kind
from memes.errors import require
from memes.metrics import Totals, accumulate
from memes.resets import Reason
from memes.runner.device import Program, Record, compile_fitting, first_state, keep_compiled, keys_of
from memes.runner.multihost import process_group
from memes.runner.observers import Callbacks, Observer, RunContext, Update, progress_of
from memes.runner.placement import Placement
from memes.runner.progress import Reporter
from memes.runner.scheduling import calls, interruptible
from memes.runner.simulators import surviving
from memes.store import checkpoint
from memes.store.folder import Run, save_config
from memes.store.provenance import now
from memes.store.schema import Header, RunOutcome

# A run that has not been started or resumed yet: the content of its `config.json`, and its folder.
Start = tuple[Header, Path | None]
# The first Ctrl-C prints `STOPPING` during the generations, and `SKIPPING` while the run finishes.
STOPPING = "stopping after this device call; Ctrl-C again stops at once, without saving"
SKIPPING = "skipping the rest of the re-evaluation"


def run_all(
    algorithm: Algorithm,
    starts: Sequence[Start],
    observers: Sequence[Observer],
    *,
    progress: bool,
    seeds_per_batch: int,
    placement: Placement,
    exactly: bool = False,
) -> list[Run]:
    """Start or resume several runs, and compute them in groups of at most `seeds_per_batch`.

    Runs in a group have completed the same number of generations. All runs must have the same
    `generations` and `chunk`. The argument `exactly` is passed to `compile_fitting`.

    Returns:
        The runs. Runs that an interrupt prevented from starting are omitted.
    """
    config = starts[0][0].config
    generations, chunk = config.generations, config.chunk
    shared: dict[Hashable, Any] = {}

    def once(name: Hashable, make: Callable[[], Any]) -> Any:
        if name not in shared:
            shared[name] = make()
        return shared[name]

    keep_compiled()
    with Reporter(show=progress) as report:
        task = algorithm.task
        here = task if task.jit else surviving(task, report.say, algorithm.batch_size)
        report.show_workers(task)
        first = first_state(algorithm, placement, seeds_per_batch)
        begun = [_start_or_resume(first, *start, report.say) for start in starts]
        fitting = replace(algorithm, task=here, chunk=chunk)
        program = compile_fitting(fitting, seeds_per_batch, generations, report.say, exactly, placement)
        fitted = partial(replace, chunk=program.algorithm.chunk, seeds_together=program.seeds)
        # Save the settings of all runs now, so that `resume` also finds runs that have not started.
        for header, folder in starts:
            _save_config(folder, header._replace(config=fitted(header.config)))
        seconds = program.seconds
        context = partial(RunContext, algorithm, report=report, once=once)
        over: dict[int, Run] = {}
        processes = process_group()
        run_group = partial(_run_group, program) if processes.leads else partial(_follow, program)
        done = [processes.agree(int, run.generations) for run in begun]
        for group in _groups(done, program.seeds):
            runs = [
                run._replace(
                    config=fitted(run.config),
                    provenance=replace(run.provenance, compile_seconds=seconds),
                )
                for run in (begun[i] for i in group)
            ]
            runs = run_group(runs, observers, context, report)
            over |= dict(zip(group, runs, strict=True))
            if processes.agree(bool, runs[-1].signal):
                break
            seconds = 0.0
    return [over[i] for i in sorted(over)]


def _start_or_resume(
    first: Callable[[jax.Array, int], State],
    header: Header,
    folder: Path | None,
    say: Callable[[str], None],
) -> Run:
    """Load a run from the newest checkpoint in its folder, or make a run with an initial state."""
    generations = header.config.generations
    blank = partial(first, keys_of(header.config.seed)[0])
    run = None if folder is None else checkpoint.load(folder, header, blank, say)
    if run is None:
        state = blank(generations)
        return Run(folder, *header, {}, {}, state.archive, {}, None, state)
    say(f"continuing after generation {run.generations}")
    require(
        run.generations <= generations,
        f"generations must be at least {run.generations}, as in the last checkpoint in '{folder}', "
        f"got {generations}",
    )
    return run


def _groups(done: Sequence[int], size: int) -> list[list[int]]:
    """Group runs that have completed the same number of generations. A group has at most `size` runs."""
    far: dict[int, list[int]] = {}
    for i, generations in enumerate(done):
        far.setdefault(generations, []).append(i)
    return [same[i : i + size] for same in far.values() for i in range(0, len(same), size)]


def _save_config(folder: Path | None, header: Header) -> None:
    if folder is not None:
        save_config(folder, header)


def _run_group(
    program: Program,
    runs: Sequence[Run],
    observers: Sequence[Observer],
    context: Callable[..., RunContext],
    report: Reporter,
) -> list[Run]:
    """Compute the runs of a group as one batch until all runs have finished."""
    config, done = runs[0].config, runs[0].generations
    process_group().agree(int, done)
    key, state = _joined(program, runs)
    heard: Callable[[], str | None]
    with ExitStack() as stack:
        context = partial(context, interrupted=lambda: heard(), closing=stack.callback)
        members = [_Member(run, context, report, named=len(runs) > 1) for run in runs]
        with interruptible(report.say, STOPPING) as heard:
            for member in members:
                member.begin(observers)
            report.begin(config.generations, {run.config.seed: progress_of(run) for run in runs})

            def due(generation: int) -> bool:
                return any(member.due(generation) for member in members)

            def going() -> bool:
                return heard() is None and any(member.stopped is None for member in members)

            for call in calls(program, key, state, done, config, due, going):
                for member, state, record in zip(members, call.states, call.records, strict=False):
                    member.see(state, record, call.seconds / len(members))
            signalled = heard()
        with interruptible(report.say, SKIPPING) as heard:
            return [member.finish(signalled) for member in members]


def _joined(program: Program, runs: Sequence[Run]) -> tuple[jax.Array, State]:
    """Put the keys and the states of runs on the devices.

    If there are fewer runs than the program was compiled for, the last run is repeated.
    """
    filled = [*runs, *[runs[-1]] * (program.seeds - len(runs))]
    states = process_group().broadcast([run.state for run in filled if run.state is not None])
    return program.keys([run.config.seed for run in filled]), program.join(states)


def _follow(
    program: Program,
    runs: Sequence[Run],
    observers: Sequence[Observer],
    context: Callable[..., RunContext],
    report: Reporter,
) -> list[Run]:
    """Compute the device calls that the first process requests, and discard the records of the calls."""
    del observers, context
    done = process_group().agree(int)
    key, state = _joined(program, runs)
    states: list[Any] = [run.state for run in runs]
    with interruptible(report.say, STOPPING):
        for call in calls(program, key, state, done, runs[0].config, lambda n: False, lambda: True):
            states = call.states
    return [
        run._replace(state=state, archive=state.archive)
        for run, state in zip(runs, states, strict=False)
    ]


class _Member:
    """A run of a group, with its observers."""

    def __init__(
        self, run: Run, context: Callable[..., RunContext], report: Reporter, named: bool
    ) -> None:
        self.run = run
        self.stopped: str | None = None  # the reason, if it was stopped
        self._totals = totals_of(run)
        seed = run.config.seed
        name = f"seed {seed}: " if named else ""

        def say(sentence: str) -> None:
            report.say(f"{name}{sentence}")

        def stop(reason: str) -> None:
            say(f"stopping: {reason}")
            report.end(seed)
            self.stopped = reason

        self._context = context(header=run.header, folder=run.folder, say=say, stop=stop)
        self._watches: list[Callbacks] = []

    def begin(self, observers: Sequence[Observer]) -> None:
        _save_config(self.run.folder, self.run.header)
        self._watches = [observer.watch(self._context) for observer in observers]
        for watch in self._watches:
            self.run = watch.on_start(self.run) or self.run

    def due(self, generation: int) -> bool:
        return self.stopped is None and any(watch.due(generation) for watch in self._watches)

    def see(self, state: State, record: Record, seconds: float) -> None:
        """Process the new generations of a device call.

        If the run was stopped, the new generations are ignored, unless they are the first generations of
        the run.
        """
        if self.stopped is not None and self.run.generations:
            return
        before = self.run.generations
        self.run, self._totals = _extended(self.run, self._totals, state, record, seconds)
        for watch in self._watches:
            update = Update(self.run, self.run.generations - before, record.changes)
            self.run = watch.on_update(update) or self.run

    def finish(self, signalled: str | None) -> Run:
        """Call `on_end` of all observers, and then write the outcome to `config.json`."""
        done = self.run.generations
        if self.run.metrics["coverage"][-1] > 0 and not self.run.metrics["qd_score"][-1]:
            least = self._context.algorithm.task.min_fitness
            self._context.say(
                f"the QD-score is 0, because no elite is fitter than the task's min_fitness, {least:g}: "
                "set it to the lowest fitness that the task can have"
            )
        outcome = RunOutcome(
            finished=now(),
            generations_done=done,
            seconds=float(self.run.metrics["seconds"][-1]),
            stopped=self.stopped or (signalled if done < self.run.config.generations else None),
        )
        self.run = self.run._replace(outcome=outcome)
        for watch in self._watches:
            self.run = watch.on_end(self.run) or self.run
        outcome = replace(self.run.outcome or outcome, signal=signalled or self._context.interrupted())
        self.run = self.run._replace(outcome=outcome)
        _save_config(self.run.folder, self.run.header)
        return self.run


def _extended(
    run: Run, totals: Totals, state: State, record: Record, seconds: float
) -> tuple[Run, Totals]:
    """Record a device call: add its record [G, ...] and its duration to the run and to the totals."""
    totals, measures = accumulate(totals, record.measures)
    n, done = len(measures["evaluations"]), run.generations
    new = np.arange(1, n + 1)
    clock = (run.metrics["seconds"][-1] if done else 0.0) + seconds * new / n
    metrics: dict[str, Any] = {"generation": done + new, **measures, "seconds": clock}
    lanes: dict[str, Any] = {"generation": done + new, **record.lanes}
    if done:
        for before, after in ((run.metrics, metrics), (run.lanes, lanes)):
            shapes = {name: column.shape[1:] for name, column in after.items()}
            require(
                all(column.shape[1:] == shapes.get(name) for name, column in before.items()),
                f"the log in '{run.folder}' belongs to another algorithm or task; start a new run",
            )
        metrics, lanes = (
            {name: np.concatenate([before[name], after[name]]) for name in before}
            for before, after in ((run.metrics, metrics), (run.lanes, lanes))
        )
    return run._replace(metrics=metrics, lanes=lanes, archive=state.archive, state=state), totals


def totals_of(run: Run) -> Totals:
    """Compute the totals over all generations of a run from the run's metrics and lane records."""
    if not run.generations:
        return Totals.zero()
    metrics, lanes = run.metrics, run.lanes
    ended = (lanes["kind"] == np.arange(len(Kind))[:, None, None]) & (lanes["reset"] != Reason.NONE)

    def last(prefix: str, names: type[Kind] | type[Reason] | type[Fault]) -> np.ndarray:
        columns = (metrics.get(f"{prefix}_{name.name.lower()}", [0])[-1] for name in names)
        return np.array([int(value) for value in columns])

    return Totals(
        samples=np.asarray(metrics["samples"][-1], np.int64),
        candidates=np.asarray(metrics["candidates"][-1], np.int64),
        additions=np.array([int(metrics[f"added_{kind.name.lower()}"].sum()) for kind in Kind]),
        resets=last("resets", Reason),
        lifespans=np.sum(np.where(ended, lanes["age"], 0), axis=(1, 2)),
        ended=ended.sum(axis=(1, 2)),
        faults=last("faults", Fault),
        outside=np.asarray(metrics.get("outside_bounds", [0])[-1], np.int64),
    )
