"""Runs what experiments need and nobody has run yet, and keeps a summary of each run."""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from memes.algorithm import Algorithm
from memes.commands.settings import build, recorded
from memes.reproduce.experiments import VARIANTS
from memes.reproduce.plan import Item, is_of
from memes.runner.device import Programs
from memes.runner.loop import resume, run
from memes.runner.seeds import Batch, compile_together, most_together, run_seeds
from memes.store.files import only_writer
from memes.store.folder import Run, holds_run
from memes.store.summary import FILE, Summary, load_summary, save_summary, summarise


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

    While the device is busy with an item, the host compiles the next one, and makes the summaries of
    the one before.

    Args:
        items: What is wanted.
        known: What there is of it already.
        out: Folder for everything.
        together: As in `run_seeds`.
        keep_archives: Keep the run folders, in `out/runs`.
        progress: Whether to show the progress of each item.
        say: Told of each item.
    """
    start = time.perf_counter()
    todo = [item for item in _missing(items, known) if _installed(item, say)]
    out.mkdir(parents=True, exist_ok=True)
    with only_writer(out), ThreadPoolExecutor(1) as compiler, ThreadPoolExecutor(1) as writer:
        ahead = [compiler.submit(_prepare, item, out, together, keep_archives) for item in todo[:1]]
        written: list[Future[None]] = []
        for i, item in enumerate(todo, 1):
            seeds = "1 seed" if len(item.seeds) == 1 else f"{len(item.seeds)} seeds"
            where, passed = f"[{i}/{len(todo)}] {item.task}", time.perf_counter() - start
            say(f"{where} {item.label}: {seeds}, {item.generations} generations; {passed:.0f} s so far")
            work = ahead.pop().result()
            ahead += [
                compiler.submit(_prepare, following, out, together, keep_archives)
                for following in todo[i : i + 1]
            ]
            if work.batch is None:
                _run_one_by_one(work, progress)
                continue
            results = _run_together(work, progress)
            for future in written:
                future.result()  # raises what went wrong
            written = [writer.submit(_write, work, result) for result in results]
        for future in written:
            future.result()


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
    """An item that is ready to run; without a batch, one seed after the other."""

    item: Item
    out: Path
    algorithm: Algorithm
    batch: Batch | None
    keep_archives: bool

    def options(self, progress: bool) -> dict[str, Any]:
        """What `run` and `run_seeds` are told."""
        return {
            "generations": self.item.generations,
            "reevaluate_samples": self.item.parsed.settings.reevaluate_samples,
            "settings": recorded(self.item.parsed) | {"label": self.item.label},
            "progress": progress,
        }

    def folder(self, seed: int) -> Path:
        """Where the run folder of a seed is."""
        return self.out / "runs" / self.item.task / self.item.name / f"seed-{seed}"

    def summary_file(self, seed: int) -> Path:
        """Where the summary of a seed is kept."""
        return self.out / "summaries" / self.item.task / f"{self.item.name}-seed-{seed}.json"


def _prepare(item: Item, out: Path, together: int | None, keep_archives: bool) -> _Work:
    """Build and compile what an item runs, while the device is busy with the one before."""
    algorithm = build(item.parsed)
    most = most_together(algorithm.task, len(item.seeds), together)
    batch = compile_together(algorithm, most, generations=item.generations, progress=False)
    (out / "summaries" / item.task).mkdir(parents=True, exist_ok=True)
    return _Work(item, out, algorithm, batch, keep_archives)


def _run_together(work: _Work, progress: bool) -> list[Run]:
    folder = None
    if work.keep_archives:
        for seed in work.item.seeds:  # left by a sweep that was killed; without checkpoints
            shutil.rmtree(work.folder(seed), ignore_errors=True)
        folder = work.folder(0).parent
    return run_seeds(
        work.algorithm,
        seeds=work.item.seeds,
        out=folder,
        batch=work.batch,
        **work.options(progress),
    )


def _write(work: _Work, result: Run) -> None:
    summary = summarise(result)
    save_summary(work.summary_file(summary.seed), summary)


def _run_one_by_one(work: _Work, progress: bool) -> None:
    """Run the seeds in folders of their own, which are left once there is a summary."""
    programs: Programs = {}
    for seed in work.item.seeds:
        summary = _run_alone(work, seed, programs, progress)
        save_summary(work.summary_file(seed), summary)
        if not work.keep_archives:
            _remove(work.folder(seed), above=3)  # the item's folder, the task's, and 'runs'


def _remove(folder: Path, above: int) -> None:
    """Remove a folder, and as many of those above it as hold nothing else."""
    shutil.rmtree(folder)
    with suppress(OSError):  # not empty
        for parent in folder.parents[:above]:
            parent.rmdir()


def _run_alone(work: _Work, seed: int, programs: Programs, progress: bool) -> Summary:
    """Run a seed, or go on with it where it was stopped. Ctrl-C during the run ends the sweep."""
    folder = work.folder(seed)
    if _finished(work, folder) is None:
        if holds_run(folder):
            resume(work.algorithm, folder, progress=progress, programs=programs)
        else:
            run(work.algorithm, seed=seed, out=folder, programs=programs, **work.options(progress))
    summary = _finished(work, folder)
    if summary is None:
        raise KeyboardInterrupt
    return summary


def _finished(work: _Work, folder: Path) -> Summary | None:
    """The summary of a run, if it has all of its generations, and is corrected where it has to be."""
    summary = load_summary(folder / FILE) if (folder / FILE).exists() else None
    if summary is None or summary.generations < work.item.generations:
        return None
    return summary if summary.corrections or not work.algorithm.task.uncertain else None
