"""The runs that experiments need: those that there are, and how the others are run and summed up."""

from __future__ import annotations

import importlib.util
import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from memes import api
from memes.algorithm import Algorithm
from memes.analysis.observers import Figures
from memes.errors import install
from memes.reproduce.experiments import CHANGES, EXPERIMENTS, MOST_SEEDS, NEEDS, VARIANTS
from memes.runner.corrections import Corrections
from memes.runner.device import compile_fitting, keep_compiled, most_together
from memes.store.files import only_writer, remove_files
from memes.store.find import begun
from memes.store.folder import holds_run, load_config, plain, remove_run
from memes.store.summary import Summary, load_summary, save_summary
from memes.words.options import flag_words
from memes.words.settings import Parsed, parse

# Corrections on the way, for curves of corrected scores: how many, and of how many samples.
POINTS, POINT_SAMPLES = 10, 64
SUMMARY = re.compile(r"[\w.-]+-seed-\d+\.json")  # the names of summaries
DONE = ".done"  # ends the name of a folder of runs that is about to be removed


class Item(NamedTuple):
    """A variant on a task, the seeds it is run with, and the command that would run it."""

    task: str
    label: str
    seeds: tuple[int, ...]
    parsed: Parsed

    @property
    def generations(self) -> int:
        """For how long."""
        return int(self.parsed.running["generations"])

    @property
    def name(self) -> str:
        """The name of its files: runs of other lengths are other runs."""
        return f"{self.label}-{self.generations}"


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
    """List the runs that the experiments need on the tasks, each of them once.

    Without `labels` they are all that the experiments run, without `seeds` as many as the paper has, or
    fewer if the scale says so, and without `generations` as long as the scale says.
    """
    most: dict[tuple[str, str], int] = {}
    for experiment in (EXPERIMENTS[name] for name in experiments):
        count = seeds or min(experiment.seeds, MOST_SEEDS[scale])
        for task, label in product(tasks, experiment.labels):
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
    ]


def _command(task: str, label: str, scale: str, generations: int | None) -> Parsed:
    variant = VARIANTS[label]
    understood = partial(parse, program="memes reproduce", changes=CHANGES[scale].get(task))
    asked = generations or (variant.generations.get(task) if scale == "paper" else None)
    options = variant.options if asked is None else {**variant.options, "generations": asked}
    words = [task, "--algorithm", variant.algorithm, "--scale", scale]
    for option, value in options.items():
        words += flag_words(option, value)
    parsed = understood(words)
    for option, factor in variant.times.items():
        words += flag_words(option, int(factor * parsed.algorithm_options[option]))
    return understood(words) if variant.times else parsed


def is_of(summary: Summary, item: Item) -> bool:
    """Is a run what an item asks for, whatever its seed?"""
    asked = (item.task, item.label, item.parsed.choice.scale, item.generations)
    if (summary.task, summary.label, summary.scale, summary.generations) != asked:
        return False
    options = json.loads(json.dumps(item.parsed.options, default=plain))  # as summaries have them
    return all(options.get(name, value) == value for name, value in summary.options.items())


def existing(items: Sequence[Item], summaries: Sequence[Summary]) -> list[Summary]:
    """Those of the summaries that the items ask for, each seed once, in the order of the items."""
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
    together: int | None,
    keep_archives: bool,
    progress: bool,
    say: Callable[[str], None],
) -> str | None:
    """Run what is missing; a summary of each run goes to `out/summaries/TASK`.

    While the device is busy with an item, the host compiles the next one.

    Args:
        items: What is wanted.
        known: Reads what there is of it already.
        out: Folder for everything.
        together: As in `memes.run`.
        keep_archives: Keep the run folders, in `out/runs`.
        progress: Whether to show the progress of each item.
        say: Told of each item.

    Returns:
        The name of the signal that ended it, if one did.
    """
    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    keep_compiled()
    with only_writer(out), ThreadPoolExecutor(1) as compiler:
        for folder in out.glob(f"runs/*/*{DONE}"):  # whose removal was interrupted
            _remove(folder)
        todo = _missing(items, known(), say)  # now that nobody else adds to it
        ahead = [compiler.submit(_compiled, item, together) for item in todo[:1]]
        for i, item in enumerate(todo, 1):
            seeds = "1 seed" if len(item.seeds) == 1 else f"{len(item.seeds)} seeds"
            where, passed = f"[{i}/{len(todo)}] {item.task}", time.perf_counter() - start
            say(f"{where} {item.label}: {seeds}, {item.generations} generations; {passed:.0f} s so far")
            algorithm = ahead.pop().result()
            ahead += [compiler.submit(_compiled, item, together) for item in todo[i : i + 1]]
            folder = out / "runs" / item.task / item.name
            stopped = _run(item, algorithm, folder, out / "summaries" / item.task, together, progress)
            if stopped:
                return stopped
            if not keep_archives:
                _remove(folder.rename(folder.with_name(f"{folder.name}{DONE}")))
    return None


def _remove(folder: Path) -> None:
    """Remove the runs in a folder, and the folders that only they were in."""
    with suppress(OSError):  # where something else is left
        for place in folder.glob("seed-*"):
            remove_run(place)
            (place / ".lock").unlink(missing_ok=True)
            place.rmdir()
        folder.rmdir()
        folder.parent.rmdir()
        folder.parent.parent.rmdir()


def _missing(items: Sequence[Item], known: Sequence[Summary], say: Callable[[str], None]) -> list[Item]:
    """List the items with the seeds that are not done, if there are any and all is installed."""
    todo = []
    for item in items:
        done = {run.seed for run in known if is_of(run, item)}
        seeds = tuple(seed for seed in item.seeds if seed not in done)
        needed = [NEEDS[name] for name in (item.task, VARIANTS[item.label].algorithm) if name in NEEDS]
        lacking = [extra for module, extra in needed if importlib.util.find_spec(module) is None]
        if seeds and lacking:
            say(f"{item.task} {item.label} is left out: it needs {install(','.join(lacking))}")
        elif seeds:
            todo.append(item._replace(seeds=seeds))
    return todo


def _compiled(item: Item, together: int | None) -> Algorithm:
    """Build what an item runs, and compile it into JAX's cache, where the run finds it."""
    algorithm = item.parsed.build()
    most = most_together(algorithm.task, len(item.seeds), together)
    if algorithm.task.jit:
        compile_fitting(algorithm, most, item.generations, say=lambda sentence: None)
    return algorithm


def _run(
    item: Item, algorithm: Algorithm, folder: Path, summaries: Path, together: int | None, progress: bool
) -> str | None:
    """Run the seeds of an item, or go on with those that were stopped; returns as `sweep` does."""
    samples = item.parsed.observing["reevaluate_samples"]
    corrections = Corrections(
        samples=samples,
        every=max(1, item.generations // POINTS),
        every_samples=min(POINT_SAMPLES, samples),
    )
    summaries.mkdir(parents=True, exist_ok=True)
    remove_files(summaries, SUMMARY, unfinished=True)
    left = _take_over(item, folder, summaries, algorithm.task.uncertain)
    while left:
        together_before = _begun_together(folder, left)
        if together_before:
            runs = api.resume(algorithm, folder, seeds=together_before, progress=progress)
        else:
            runs = api.run(
                algorithm,
                generations=item.generations,
                seeds=left,
                together=together,
                devices=1,  # results depend on the number of shards, and must not on the machine
                out=folder,
                observers=[corrections, Figures(draw=False)],
                about=item.parsed.recorded() | {"label": item.label},
                progress=progress,
            )
        left = _take_over(item, folder, summaries, algorithm.task.uncertain)
        signals = [str(run.config["signal"]) for run in runs if run.config["signal"]]
        if left and signals:
            return signals[0]
    return None


def _begun_together(folder: Path, seeds: Sequence[int]) -> list[int]:
    """Those of the seeds that were begun, and can go on as one batch with the first of them."""
    any_begun = any(holds_run(folder / f"seed-{seed}") for seed in seeds)
    configs = begun(folder).values() if any_begun else ()
    batch = {c["seed"]: c.get("seeds_together") for c in configs if c["seed"] in seeds}
    return [seed for seed in batch if batch[seed] == next(iter(batch.values()))]


def _take_over(item: Item, folder: Path, summaries: Path, uncertain: bool) -> list[int]:
    """Copy the summaries of runs that are done, and corrected; returns the seeds that are left."""
    left = []
    for seed in item.seeds:
        place = folder / f"seed-{seed}"
        if holds_run(place) and load_config(place).get("generations_done", 0) >= item.generations:
            run = load_summary(place)
            if not uncertain or item.generations in run.corrections.get("generation", ()):
                save_summary(summaries / f"{item.name}-seed-{seed}.json", run)
                continue
        left.append(seed)
    return left
