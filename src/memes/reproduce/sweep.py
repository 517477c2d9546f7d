"""Runs what experiments need and nobody has run yet, and keeps a summary of each run."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from memes import api
from memes.algorithm import Algorithm
from memes.analysis.observers import Figures
from memes.reproduce.experiments import VARIANTS
from memes.reproduce.plan import Item, is_of
from memes.runner.corrections import Corrections
from memes.runner.device import compile_fitting, keep_compiled, most_together
from memes.store.files import only_writer
from memes.store.folder import holds_run, load_config
from memes.store.summary import FILE, Summary, load_summary, save_summary

# Corrections on the way, for curves of corrected scores: how many, and of how many samples.
POINTS, POINT_SAMPLES = 10, 64


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

    While the device is busy with an item, the host compiles the next one.

    Args:
        items: What is wanted.
        known: What there is of it already.
        out: Folder for everything.
        together: As in `memes.run`.
        keep_archives: Keep the run folders, in `out/runs`.
        progress: Whether to show the progress of each item.
        say: Told of each item.
    """
    start = time.perf_counter()
    todo = [item for item in _missing(items, known) if _installed(item, say)]
    out.mkdir(parents=True, exist_ok=True)
    keep_compiled()
    with only_writer(out), ThreadPoolExecutor(1) as compiler:
        ahead = [compiler.submit(_prepared, item, out, together) for item in todo[:1]]
        for i, item in enumerate(todo, 1):
            seeds = "1 seed" if len(item.seeds) == 1 else f"{len(item.seeds)} seeds"
            where, passed = f"[{i}/{len(todo)}] {item.task}", time.perf_counter() - start
            say(f"{where} {item.label}: {seeds}, {item.generations} generations; {passed:.0f} s so far")
            work = ahead.pop().result()
            ahead += [compiler.submit(_prepared, item, out, together) for item in todo[i : i + 1]]
            _run(work, together, progress)
            if not keep_archives:
                _remove(work.folder, above=2)  # the task's folder, and 'runs'


def _missing(items: Sequence[Item], known: Sequence[Summary]) -> Iterator[Item]:
    """The items with the seeds that are not done, where there are any."""
    for item in items:
        done = {run.seed for run in known if is_of(run, item)}
        seeds = tuple(seed for seed in item.seeds if seed not in done)
        if seeds:
            yield item._replace(seeds=seeds)


def _installed(item: Item, say: Callable[[str], None]) -> bool:
    package = VARIANTS[item.label].needs
    if package is None or importlib.util.find_spec(package) is not None:
        return True
    say(f"{item.task} {item.label} is left out: it needs 'pip install memes-qd[{package}]'")
    return False


class _Work(NamedTuple):
    """An item that is ready to run, in a folder with one for each seed."""

    item: Item
    algorithm: Algorithm
    folder: Path
    summaries: Path


def _prepared(item: Item, out: Path, together: int | None) -> _Work:
    """Build what an item runs, and compile it into JAX's cache, where the run finds it."""
    algorithm = item.parsed.build()
    most = most_together(algorithm.task, len(item.seeds), together)
    if algorithm.task.jit:
        compile_fitting(algorithm, most, item.generations, say=lambda sentence: None)
    summaries = out / "summaries" / item.task
    summaries.mkdir(parents=True, exist_ok=True)
    return _Work(item, algorithm, out / "runs" / item.task / item.name, summaries)


def _run(work: _Work, together: int | None, progress: bool) -> None:
    """Run the seeds of an item, or go on with those that were stopped. Ctrl-C ends the sweep."""
    item, observing = work.item, work.item.parsed.observing
    corrections = Corrections(
        samples=observing["reevaluate_samples"],
        every=max(1, item.generations // POINTS),
        every_samples=min(POINT_SAMPLES, observing["reevaluate_samples"]),
    )
    left = _take_over(work)
    while left:
        begun = _begun_together(work.folder, left)
        if begun:
            runs = api.resume(work.algorithm, work.folder, seeds=begun, progress=progress)
        else:
            runs = api.run(
                work.algorithm,
                generations=item.generations,
                seeds=left,
                together=together,
                out=work.folder,
                observers=[corrections, Figures(draw=False)],
                about=item.parsed.recorded() | {"label": item.label},
                progress=progress,
            )
        asked, left = begun or left, _take_over(work)
        if any(run.config["stopped"] for run in runs) or len(runs) < len(asked):
            raise KeyboardInterrupt


def _begun_together(folder: Path, seeds: Sequence[int]) -> list[int]:
    """Those of the seeds that were begun, and can go on as one batch with the first of them."""
    folders = {seed: folder / f"seed-{seed}" for seed in seeds}
    batch = {s: load_config(f).get("seeds_together") for s, f in folders.items() if holds_run(f)}
    return [seed for seed in batch if batch[seed] == next(iter(batch.values()))]


def _take_over(work: _Work) -> list[int]:
    """Copy the summaries of runs that are done to the others; returns the seeds that are left."""
    return [seed for seed in work.item.seeds if not _taken_over(work, seed)]


def _taken_over(work: _Work, seed: int) -> bool:
    """Copy the summary of a run, if it has all of its generations, and is corrected."""
    file = work.folder / f"seed-{seed}" / FILE
    if not file.exists():
        return False
    summary, task = load_summary(file), work.algorithm.task
    corrected = not task.uncertain or work.item.generations in summary.corrections.get("generation", ())
    if summary.generations < work.item.generations or not corrected:
        return False
    save_summary(work.summaries / f"{work.item.name}-seed-{seed}.json", summary)
    return True


def _remove(folder: Path, above: int) -> None:
    """Remove a folder, and as many of those above it as hold nothing else."""
    shutil.rmtree(folder)
    with suppress(OSError):  # not empty
        for parent in folder.parents[:above]:
            parent.rmdir()
