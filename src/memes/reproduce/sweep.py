"""The sweep, which computes and summarises the missing runs of experiments."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from memes import api
from memes.algorithm import Algorithm
from memes.analysis.end_of_run import Figures
from memes.errors import UsageError, install
from memes.options.command_line import Parsed, parse
from memes.reproduce.experiments import CHANGES, EXPERIMENTS, MOST_SEEDS, NEEDS, VARIANTS
from memes.runner.corrections import Corrections
from memes.runner.device import compile_fitting, keep_compiled, most_together
from memes.runner.observers import Callbacks, RunContext, Update
from memes.store.files import only_writer, remove_files
from memes.store.find import load_headers
from memes.store.folder import Run, holds_run, load_config, remove_run
from memes.store.schema import plain
from memes.store.summary import Summary, load_summary, save_summary, summarise
from memes.task import Task

# Number of corrections per run, and number of re-evaluations of each elite in corrections before the
# end. With this number of corrections, curves of corrected scores start at 2.5% of the evaluations.
POINTS, POINT_SAMPLES = 40, 64
SUMMARY = re.compile(r"[\w.-]+-seed-\d+\.json")  # This pattern matches the file names of summaries.
DONE = ".done"  # This suffix marks a folder of runs that is about to be removed.
TIME = "time"  # A sweep returns this value if it reached its time limit.


class Item(NamedTuple):
    """The runs of a variant on a task: their seeds, and the parsed command that starts them."""

    task: str
    label: str
    seeds: tuple[int, ...]
    parsed: Parsed

    @property
    def generations(self) -> int:
        """The number of generations."""
        return int(self.parsed.running["generations"])

    @property
    def name(self) -> str:
        """The name of the item in paths, including the number of generations."""
        return f"{self.label}-{self.generations}"


class TimeIsUpError(Exception):
    """The exception that is raised when a sweep has reached its time limit."""


class TimeLimit(NamedTuple):
    """The time limit of a sweep.

    Attributes:
        until: Value of `time.perf_counter` after which no run starts.
        stop_runs: Whether runs in progress are stopped at the limit.
    """

    until: float
    stop_runs: bool

    def check(self, starting: bool) -> None:
        """Raise a `TimeIsUpError` if the limit prevents a run from starting or continuing."""
        if (starting or self.stop_runs) and time.perf_counter() >= self.until:
            raise TimeIsUpError


class Keeper:
    """An observer that stops runs at a time limit, and saves the summaries of complete runs."""

    def __init__(self, item: Item, summaries: Path, limit: TimeLimit) -> None:
        self._item, self._summaries, self._limit = item, summaries, limit

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""

        def on_start(run: Run) -> None:
            self._limit.check(starting=True)

        def on_update(update: Update) -> None:
            self._limit.check(starting=False)

        def on_end(run: Run) -> None:
            if _complete(run.generations, run.corrected, self._item, context.algorithm.task):
                save_summary(
                    place_of_summary(self._summaries, self._item, run.config.seed), summarise(run)
                )

        return Callbacks(on_start=on_start, on_update=on_update, on_end=on_end)


def place_of_summary(summaries: Path, item: Item, seed: int) -> Path:
    """Return the path of an item's summary for a seed."""
    return summaries / f"{item.name}-seed-{seed}.json"


def _complete(done: int, corrections: Mapping[str, Any], item: Item, task: Task) -> bool:
    """Return True if a run has completed all generations and, on uncertain tasks, its correction."""
    corrected = not task.uncertain or item.generations in corrections.get("generation", ())
    return done >= item.generations and corrected


def plan(
    experiments: Sequence[str],
    tasks: Sequence[str],
    scale: str,
    *,
    labels: Sequence[str] = (),
    seeds: int | None = None,
    first_seed: int = 0,
    generations: int | None = None,
) -> list[Item]:
    """List the runs that experiments need, without duplicates.

    Args:
        experiments: Names of the experiments.
        tasks: Names of the tasks.
        scale: Scale of the defaults.
        labels: Labels of the variants to run. If empty, all variants are run.
        seeds: Number of seeds. If None, the experiment's number is used, with a maximum that depends on
            the scale.
        first_seed: The first of the consecutive seeds.
        generations: Number of generations. If None, the scale determines it.

    Returns:
        The items, each with a variant, a task and seeds.
    """
    most: dict[tuple[str, str], int] = {}
    for experiment in (EXPERIMENTS[name] for name in experiments):
        for task, label in product(tasks, experiment.labels):
            own = experiment.seeds_on.get(task, experiment.seeds)
            count = (seeds or min(own, MOST_SEEDS[scale])) if own else 0
            applies = task in experiment.tasks and task in VARIANTS[label].tasks
            if applies and (not labels or label in labels):
                most[task, label] = max(count, most.get((task, label), 0))
    return [
        Item(
            task,
            label,
            tuple(range(first_seed, first_seed + n)),
            _command(task, label, scale, generations),
        )
        for (task, label), n in most.items()
        if n
    ]


def in_turns(
    experiments: Sequence[str], tasks: Sequence[str], scale: str, labels: Sequence[str] = ()
) -> dict[str, list[Item]]:
    """Return, for each task, the items of all experiments that measure times.

    Items whose packages are not installed are omitted.
    """
    found: dict[str, list[Item]] = {}
    for experiment in (EXPERIMENTS[name] for name in experiments if not EXPERIMENTS[name].seeds):
        for task, label in product(tasks, experiment.labels):
            applies = task in experiment.tasks and task in VARIANTS[label].tasks
            if applies and (not labels or label in labels) and not _lacking(task, label):
                item = Item(task, label, (0,), _command(task, label, scale, None))
                found.setdefault(task, []).append(item)
    return found


def _command(task: str, label: str, scale: str, generations: int | None) -> Parsed:
    variant = VARIANTS[label]
    words = [task, "--algorithm", variant.algorithm, "--scale", scale]
    parsed = parse(words, "memes reproduce", CHANGES[scale].get(task))
    asked = generations or (variant.generations.get(task) if scale == "paper" else None)
    length = {} if asked is None else {"generations": asked}
    options = {**parsed.algorithm_options, **variant.options}
    times = {name: int(factor * options[name]) for name, factor in variant.times.items()}
    return parsed._replace(running=parsed.running | length, algorithm_options=options | times)


def is_of(summary: Summary, item: Item) -> bool:
    """Return True if a run and an item have the same settings, regardless of the seed."""
    asked = (item.task, item.label, item.parsed.choice.scale, item.generations)
    if (summary.task, summary.label, summary.scale, summary.generations) != asked:
        return False
    options = json.loads(json.dumps(item.parsed.options, default=plain))  # in the form of summaries
    return all(options.get(name, value) == value for name, value in summary.options.items())


def existing(items: Sequence[Item], summaries: Sequence[Summary]) -> list[Summary]:
    """Return summaries that match items, in the order of the items and at most one per seed."""
    found = []
    for item in items:
        by_seed = {run.seed: run for run in reversed(summaries) if is_of(run, item)}
        found += [by_seed[seed] for seed in item.seeds if seed in by_seed]
    return found


def sweep(
    items: Sequence[Item],
    known: Callable[[], Sequence[Summary]],
    out: Path,
    *,
    seeds_per_batch: int | None,
    keep_archives: bool,
    minutes: float | None = None,
    stop_runs: bool = False,
    progress: bool,
    say: Callable[[str], None],
) -> str | None:
    """Compute the missing runs, and write the summary of each run to `out/summaries/TASK`.

    While the device computes an item, the host compiles the next item.

    Args:
        items: The required runs.
        known: Function that reads all existing summaries.
        out: Folder for all files.
        seeds_per_batch: Number of seeds that run as one batch, as in `memes.run`.
        keep_archives: Whether to keep the run folders in `out/runs`.
        minutes: Time in minutes after which no run starts. If None, there is no limit.
        stop_runs: Whether to stop the current run at the time limit.
        progress: Whether to show the progress of each item.
        say: Function that prints a line about each item.

    Returns:
        The name of the signal that ended the sweep, `TIME` if the sweep reached its time limit, or None
        if the sweep is complete.
    """
    start = time.perf_counter()
    limit = TimeLimit(math.inf if minutes is None else start + 60 * minutes, stop_runs)
    out.mkdir(parents=True, exist_ok=True)
    keep_compiled()
    with only_writer(out), ThreadPoolExecutor(1) as compiler:
        for folder in out.glob(f"runs/*/*{DONE}"):  # folders whose removal was interrupted
            _remove(folder)
        for summaries in {out / "summaries" / item.task for item in items}:
            remove_files(summaries, SUMMARY, unfinished=True)
        todo = _missing(items, known(), out, say)  # `known` requires the folder to be locked
        ahead = [compiler.submit(_compiled, item, seeds_per_batch) for item in todo[:1]]
        for i, item in enumerate(todo, 1):
            seeds = "1 seed" if len(item.seeds) == 1 else f"{len(item.seeds)} seeds"
            where, passed = f"[{i}/{len(todo)}] {item.task}", time.perf_counter() - start
            say(f"{where} {item.label}: {seeds}, {item.generations} generations; {passed:.0f} s so far")
            algorithm = ahead.pop().result()
            if time.perf_counter() < limit.until:
                ahead += [compiler.submit(_compiled, item, seeds_per_batch) for item in todo[i : i + 1]]
            folder, summaries = out / "runs" / item.task / item.name, out / "summaries" / item.task
            try:
                stopped = _run(item, algorithm, folder, summaries, seeds_per_batch, progress, limit)
            except TimeIsUpError:
                stopped = TIME
            if stopped:
                return stopped
            if not keep_archives:
                _remove(folder.rename(folder.with_name(f"{folder.name}{DONE}")))
            if i < len(todo) and not ahead:
                return TIME
    return None


def _remove(folder: Path) -> None:
    """Remove the runs in a folder, and then the folders that have become empty."""
    # Folders that contain other files, or that are not run folders, are kept.
    with suppress(OSError, UsageError):
        for place in folder.glob("seed-*"):
            remove_run(place)
            (place / ".lock").unlink(missing_ok=True)
            place.rmdir()
        folder.rmdir()
        folder.parent.rmdir()
        folder.parent.parent.rmdir()


def _missing(
    items: Sequence[Item], known: Sequence[Summary], out: Path, say: Callable[[str], None]
) -> list[Item]:
    """Return the items that have missing seeds, and keep only the missing seeds of each item.

    Items whose packages are not installed are omitted with a message. A run is also treated as missing
    if it was killed after its summary was written, but before its end was recorded.
    """
    todo = []
    for item in items:
        folder = out / "runs" / item.task / item.name
        ended = {seed: _ended(folder / f"seed-{seed}") for seed in item.seeds}
        done = {run.seed for run in known if is_of(run, item) and ended.get(run.seed)}
        seeds = tuple(seed for seed in item.seeds if seed not in done)
        lacking = _lacking(item.task, item.label)
        if seeds and lacking:
            say(f"{item.task} {item.label} is skipped: it needs {install(','.join(lacking))}")
        elif seeds:
            todo.append(item._replace(seeds=seeds))
    return todo


def _ended(place: Path) -> bool:
    """Return False if a folder contains a run whose end was not recorded."""
    return not holds_run(place) or load_config(place).outcome is not None


def _lacking(task: str, label: str) -> list[str]:
    """List the extras that a variant or a task needs and that are not installed."""
    needed = [NEEDS[name] for name in (task, VARIANTS[label].algorithm) if name in NEEDS]
    return [extra for module, extra in needed if importlib.util.find_spec(module) is None]


def _compiled(item: Item, seeds_per_batch: int | None) -> Algorithm:
    """Build and compile the algorithm of an item, so that the run finds the program in JAX's cache."""
    algorithm = item.parsed.build()
    most = most_together(algorithm.task, len(item.seeds), seeds_per_batch)
    if algorithm.task.jit:
        compile_fitting(algorithm, most, item.generations, say=lambda sentence: None)
    return algorithm


def _run(
    item: Item,
    algorithm: Algorithm,
    folder: Path,
    summaries: Path,
    seeds_per_batch: int | None,
    progress: bool,
    limit: TimeLimit,
) -> str | None:
    """Run the seeds of an item, and resume runs that were stopped.

    Returns:
        The name of the signal that ended the runs, or None.
    """
    keeper = Keeper(item, summaries, limit)
    samples = item.parsed.observing["reevaluate_samples"]
    corrections = Corrections(
        samples=samples,
        every=max(1, item.generations // POINTS),
        every_samples=min(POINT_SAMPLES, samples),
    )
    summaries.mkdir(parents=True, exist_ok=True)
    left = _take_over(item, folder, summaries, algorithm.task)
    while left:
        together_before = _begun_together(folder, left)
        if together_before:
            runs = api.resume(
                algorithm, folder, seeds=together_before, observers=[keeper], progress=progress
            )
        else:
            runs = api.run(
                algorithm,
                generations=item.generations,
                seeds=left,
                seeds_per_batch=seeds_per_batch,
                devices=1,  # More devices would change the results.
                out=folder,
                observers=[corrections, Figures(draw=False), keeper],
                metadata=item.parsed.recorded() | {"label": item.label},
                progress=progress,
            )
        left = _take_over(item, folder, summaries, algorithm.task)
        signals = [run.signal for run in runs if run.signal]
        if left and signals:
            return signals[0]
    return None


def _begun_together(folder: Path, seeds: Sequence[int]) -> list[int]:
    """Return the seeds of started runs that can be resumed together, because their batch sizes agree."""
    any_begun = any(holds_run(folder / f"seed-{seed}") for seed in seeds)
    configs = [header.config for header in load_headers(folder).values()] if any_begun else []
    batch = {each.seed: each.seeds_together for each in configs if each.seed in seeds}
    return [seed for seed in batch if batch[seed] == next(iter(batch.values()))]


def _take_over(item: Item, folder: Path, summaries: Path, task: Task) -> list[int]:
    """Save the summaries of finished and corrected runs, and return the remaining seeds."""
    left = []
    for seed in item.seeds:
        place = folder / f"seed-{seed}"
        outcome = load_config(place).outcome if holds_run(place) else None
        if outcome is not None and outcome.generations_done >= item.generations:
            run = load_summary(place)
            if _complete(run.generations, run.corrections, item, task):
                save_summary(place_of_summary(summaries, item, seed), run)
                continue
        left.append(seed)
    return left
