"""Runs that go side by side, with those who watch them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from typing import Any

from memes.algorithm import Algorithm, State
from memes.runner.calls import calls
from memes.runner.device import Program, Record
from memes.runner.interrupts import interruptible
from memes.runner.observers.base import Moment, Observer, Stage, Watch
from memes.runner.observers.progress import standing
from memes.runner.progress import Reporter
from memes.runner.records import extended, totals_of
from memes.store.folder import Run, save_config
from memes.store.provenance import now

# What is said to the first Ctrl-C: during the run, and while it is finished.
STOPPING = "stopping after this call of the device; Ctrl-C again stops at once, without saving"
SKIPPING = "skipping the rest of the re-evaluation"


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


def run_group(
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
        with interruptible(report.say, STOPPING) as heard[0]:
            for each in members:
                each.begin(observers)
            report.begin(config["generations"], {run.config["seed"]: standing(run) for run in runs})

            def due(generation: int) -> bool:
                return any(each.due(generation) for each in members)

            def going() -> bool:
                return heard[0]() is None and any(each.stopped is None for each in members)

            for call in calls(program, key, state, done, config, due, going):
                for each, state, record in zip(members, call.states, call.records, strict=False):
                    each.see(state, record, call.seconds / len(members))
            signalled = heard[0]()
            for each in members:
                if each.run.generations < config["generations"]:
                    each.stopped = each.stopped or signalled
        with interruptible(report.say, SKIPPING) as heard[0]:
            return [each.finish() for each in members], signalled is not None
