"""The command `memes reevaluate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import jax
import numpy as np

from memes.analysis.end_of_run import save_figures
from memes.archive import Archive
from memes.errors import at_least
from memes.executors.task_check import alike
from memes.options.from_run import task_from_run
from memes.options.workers import WorkerOptions
from memes.parameters import flat
from memes.runner.corrections import corrected, save_correction
from memes.runner.progress import Reporter
from memes.store.files import only_writer
from memes.store.folder import load_run, remove_unfinished
from memes.store.summary import write_summary
from memes.task import Task, evaluate

ELITES = 32  # number of elites that are evaluated twice to test whether a task is deterministic


@flat
def reevaluate(
    run: Path,
    *,
    samples: int = 512,
    statistic: Literal["median", "mean"] = "median",
    task: str | None = None,
    quiet: bool = False,
    worker_options: WorkerOptions = WorkerOptions(),
) -> None:
    """Re-evaluate the elites of a saved run, and print the archive loss.

    The corrected archive is written to corrected.npz, and its metrics are written to corrected.csv. The
    figure archive.png shows the illusory and the corrected archive.

    Args:
        run: Folder of the run.
        samples: Number of re-evaluations per elite.
        statistic: Statistic that summarises the evaluations of an elite.
        task: Task as in 'memes run'. Required if the task is custom. The code of the task is executed.
        quiet: Do not show progress.
        worker_options: Options of the workers that run the task's simulator.
    """
    at_least(1, samples=samples)
    saved, place = load_run(run), run.absolute()  # because a simulator may change the current folder
    with worker_options.executor() as executor:
        rebuilt = task_from_run(saved, task, executor)
        if not rebuilt.uncertain:
            if evaluates_alike(rebuilt, saved.archive):
                print(f"task '{rebuilt.name}' is deterministic: there is nothing to correct")
                return
            print(
                f"task '{rebuilt.name}' evaluates equal genotypes differently; with uncertain=True its "
                "archives are corrected in every run"
            )
        saved = saved._replace(folder=place)
        with only_writer(place), Reporter(show=not quiet) as report:
            remove_unfinished(place)
            # If a run was killed, its archive may be older than its metrics.
            n = len(saved.lanes["generation"])
            saved = saved._replace(metrics={name: column[:n] for name, column in saved.metrics.items()})
            done = corrected(
                saved,
                rebuilt,
                samples=samples,
                statistic=statistic,
                report=report,
                stopped=lambda: False,
            )
            save_correction(done, rebuilt, statistic)
            write_summary(done)
            save_figures(done)
    print(table({name: float(column[-1]) for name, column in done.corrected.items()}))
    print(f"saved to {run}/corrected.npz; see {run}/figures/archive.png")


def evaluates_alike(task: Task, archive: Archive) -> bool:
    """Return True if evaluations of a few elites give the same result for different keys."""
    x = np.asarray(archive.genotypes)[np.asarray(archive.occupied)][:ELITES]
    function = jax.jit(partial(evaluate, task)) if task.jit else partial(evaluate, task)
    if not len(x):
        return True
    first, second = (jax.random.split(jax.random.key(seed), len(x)) for seed in (0, 1))
    return alike(function(first, x), function(second, x))


def table(row: dict[str, float]) -> str:
    """Format a row of corrected.csv as a table with illusory metrics, corrected metrics and losses."""
    measures = {
        "QD-score": ("qd_score", ".1f"),
        "coverage": ("coverage", ".1%"),
        "max fitness": ("max_fitness", ".4g"),
    }
    lines = [f"{'':12}{'illusory':>12}{'corrected':>12}{'loss':>9}"]
    for label, (name, form) in measures.items():
        before, after = (f"{row[f'{which}{name}']:{form}}" for which in ("illusory_", ""))
        lines.append(f"{label:12}{before:>12}{after:>12}{row[f'{name}_loss']:>9.1%}")
    return "\n".join(lines)
