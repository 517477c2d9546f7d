"""Runs what experiments need and nobody has run yet, and keeps a summary of each run."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from memes.algorithm import Algorithm
from memes.analysis.summary import FILE, Summary, load_summary, save_summary, summarise
from memes.experiment.files import only_writer
from memes.experiment.folder import SavedRun, holds_run, plain
from memes.experiment.log import Result
from memes.experiment.loop import Programs, resume, run
from memes.experiment.seeds import run_seeds, suits_batches
from memes.experiment.settings import Parsed, build, flag_words, parse, recorded
from memes.reproduce.experiments import CHANGES, EXPERIMENTS, MOST_SEEDS, VARIANTS


class Item(NamedTuple):
    """A variant on a task, the seeds it is run with, and the command that would run it."""

    task: str
    label: str
    seeds: tuple[int, ...]
    parsed: Parsed

    @property
    def generations(self) -> int:
        """For how long."""
        return self.parsed.settings.generations

    @property
    def name(self) -> str:
        """What its files are called: runs of other lengths are other runs."""
        return f"{self.label}-{self.generations}"


def plan(
    experiments: Sequence[str],
    tasks: Sequence[str],
    scale: str,
    seeds: int | None = None,
    generations: int | None = None,
) -> list[Item]:
    """What the experiments need on the tasks. What several of them need is there once.

    Args:
        experiments: Names in `EXPERIMENTS`.
        tasks: Names of tasks.
        scale: "paper" or "laptop".
        seeds: How many; None is as many as the paper has, or fewer if the scale says so.
        generations: For how long; None is as the scale says.
    """
    most: dict[tuple[str, str], int] = {}
    for name in experiments:
        experiment = EXPERIMENTS[name]
        count = seeds or min(experiment.seeds, MOST_SEEDS[scale])
        for task in (task for task in tasks if task in experiment.tasks):
            for label in experiment.labels:
                if task in VARIANTS[label].tasks:
                    most[task, label] = max(count, most.get((task, label), 0))
    return [
        Item(task, label, tuple(range(n)), _command(task, label, scale, generations))
        for (task, label), n in most.items()
    ]


def _command(task: str, label: str, scale: str, generations: int | None) -> Parsed:
    variant = VARIANTS[label]
    understood = partial(parse, program="memes reproduce", changes=CHANGES[scale].get(task))
    words = [task, "--algorithm", variant.algorithm, "--scale", scale]
    for option, value in variant.options.items():
        words += flag_words(option, value)
    asked = generations or (variant.generations.get(task) if scale == "paper" else None)
    if asked is not None:
        words += ["--generations", str(asked)]
    at_scale = understood(words).algorithm_options
    for option, factor in variant.times.items():
        words += flag_words(option, factor * at_scale[option])
    return understood(words)


def is_of(summary: Summary, item: Item) -> bool:
    """Whether a run is what an item asks for, whatever its seed."""
    settings = item.parsed.settings
    asked = (item.task, item.label, settings.scale, item.generations)
    options = json.loads(json.dumps(recorded(item.parsed)["options"], default=plain))
    found = json.loads(json.dumps(summary.options, default=plain))
    return (summary.task, summary.label, summary.scale, summary.generations) == asked and all(
        found[name] == options[name] for name in set(found) & set(options)
    )


def existing(items: Sequence[Item], summaries: Sequence[Summary]) -> list[Summary]:
    """Those of the summaries that the items ask for, each seed once, in the order of the items."""
    found = []
    for item in items:
        by_seed = {run.seed: run for run in reversed(summaries) if is_of(run, item)}
        found += [by_seed[seed] for seed in item.seeds if seed in by_seed]
    return found


def sweep(
    items: Sequence[Item],
    known: Sequence[Summary],
    out: Path,
    *,
    together: int | None,
    keep_archives: bool,
    progress: bool,
    say: Callable[[str], None],
) -> None:
    """Run what is missing; a summary of each run goes to `out/summaries/TASK`.

    Summaries of seeds that ran together are made while the device is busy with the next item.

    Args:
        items: What is wanted.
        known: What there is of it already.
        out: Folder for everything.
        together: As in `run_seeds`.
        keep_archives: Keep the run folders, in `out/runs`.
        progress: Whether to show the progress of each item.
        say: Told of each item.
    """
    missing = [item._replace(seeds=_missing(item, known)) for item in items]
    todo = [item for item in missing if item.seeds]
    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    with only_writer(out), ThreadPoolExecutor(max_workers=1) as writer:
        being_written: list[Future[None]] = []
        for i, item in enumerate(todo, 1):
            name = f"[{i}/{len(todo)}] {item.task} {item.label}"
            package = VARIANTS[item.label].needs
            if package is not None and importlib.util.find_spec(package) is None:
                say(f"{name}: left out, it needs 'pip install memes-qd[{package}]'")
                continue
            seeds = "1 seed" if len(item.seeds) == 1 else f"{len(item.seeds)} seeds"
            passed = time.perf_counter() - start
            say(f"{name}: {seeds} of {item.generations} generations; {passed:.0f} s so far")
            work = _Work(item, out, build(item.parsed), keep_archives, progress)
            (out / "summaries" / item.task).mkdir(parents=True, exist_ok=True)
            if together == 1 or not suits_batches(work.algorithm.task):
                _run_one_by_one(work)
                continue
            results = _run_together(work, together)
            for future in being_written:
                future.result()  # raises what went wrong
            being_written = [writer.submit(_write, work, result) for result in results]
        for future in being_written:
            future.result()


def _missing(item: Item, known: Sequence[Summary]) -> tuple[int, ...]:
    done = {run.seed for run in known if is_of(run, item)}
    return tuple(seed for seed in item.seeds if seed not in done)


class _Work(NamedTuple):
    """An item that is run now."""

    item: Item
    out: Path
    algorithm: Algorithm
    keep_archives: bool
    progress: bool

    @property
    def options(self) -> dict[str, Any]:
        """What `run` and `run_seeds` are told."""
        return {
            "generations": self.item.generations,
            "reevaluate_samples": self.item.parsed.settings.reevaluate_samples,
            "settings": recorded(self.item.parsed) | {"label": self.item.label},
            "progress": self.progress,
        }

    @property
    def folder(self) -> Path:
        """Where the run folders of its seeds are."""
        return self.out / "runs" / self.item.task / self.item.name

    def summary_file(self, seed: int) -> Path:
        """Where the summary of a seed is kept."""
        return self.out / "summaries" / self.item.task / f"{self.item.name}-seed-{seed}.json"


def _run_together(work: _Work, together: int | None) -> list[Result]:
    if not work.keep_archives:
        return run_seeds(work.algorithm, seeds=work.item.seeds, together=together, **work.options)
    for seed in work.item.seeds:  # left by a sweep that was killed; without checkpoints
        shutil.rmtree(work.folder / f"seed-{seed}", ignore_errors=True)
    return run_seeds(
        work.algorithm, seeds=work.item.seeds, together=together, out=work.folder, **work.options
    )


def _write(work: _Work, result: Result) -> None:
    names = ("config", "metrics", "lanes", "archive", "corrected", "correction")
    parts = {name: getattr(result, name) for name in names}
    summary = summarise(SavedRun(path=work.folder, **parts))
    save_summary(work.summary_file(summary.seed), summary)


def _run_one_by_one(work: _Work) -> None:
    """Run the seeds in folders of their own, which are left once there is a summary."""
    programs: Programs = {}
    for seed in work.item.seeds:
        folder = work.folder / f"seed-{seed}"
        save_summary(work.summary_file(seed), _run_alone(work, folder, seed, programs))
        if not work.keep_archives:
            shutil.rmtree(folder)


def _run_alone(work: _Work, folder: Path, seed: int, programs: Programs) -> Summary:
    """Run a seed, or go on with it where it was stopped. Ctrl-C during the run ends the sweep."""
    if _finished(work, folder) is None:
        if holds_run(folder):
            resume(work.algorithm, folder, progress=work.progress, programs=programs)
        else:
            run(work.algorithm, seed=seed, out=folder, programs=programs, **work.options)
    summary = _finished(work, folder)
    if summary is None:
        raise KeyboardInterrupt
    return summary


def _finished(work: _Work, folder: Path) -> Summary | None:
    """The summary of a run, if it has all of its generations, and is corrected where it has to be."""
    summary = load_summary(folder / FILE) if (folder / FILE).exists() else None
    if summary is None or summary.generations < work.item.generations:
        return None
    return summary if summary.corrected or not work.algorithm.task.uncertain else None
