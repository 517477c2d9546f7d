"""`memes reevaluate`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from memes.errors import require
from memes.runner.observers.corrections import corrected, save_correction
from memes.runner.progress import Reporter
from memes.store.files import only_writer
from memes.store.folder import load_run
from memes.store.summary import write_summary
from memes.words.rebuild import task_of

DESCRIPTION = """Evaluate the elites of a saved run again, and see what of its archive was luck.

What is left of the archive goes to corrected.npz and its measures to corrected.csv; archive.png shows \
it beside the archive as it was found."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to evaluate again, and how."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    samples: int = 512
    """How often each elite is evaluated again."""
    statistic: Literal["median", "mean"] = "median"
    """What an elite's evaluations are summed up by."""
    task: Annotated[
        str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the run's)")
    ] = None
    """The task as in 'memes run', for runs of a task of your own: its code is executed."""
    quiet: bool = False
    """Show no progress."""


def reevaluate(arguments: list[str]) -> None:
    """Evaluate the elites of a saved run again."""
    asks_for_help = bool({"-h", "--help"} & set(arguments))
    require(
        asks_for_help or (bool(arguments) and not arguments[0].startswith("-")),
        "RUN is missing: it comes first in 'memes reevaluate RUN [OPTIONS]'",
    )
    settings = tyro.cli(Settings, prog="memes reevaluate", description=DESCRIPTION, args=arguments)
    require(settings.samples >= 1, f"samples must be at least 1, got {settings.samples}")
    run = load_run(settings.run)
    task = task_of(run, settings.task)
    if not task.uncertain:
        print(f"task '{task.name}' is deterministic: every elite evaluates to what the archive says")
        return
    with only_writer(settings.run), Reporter(show=not settings.quiet) as report:
        # The archive that is there may be older than the log of a run that was killed.
        n = len(run.lanes["generation"])
        run = run._replace(metrics={name: column[:n] for name, column in run.metrics.items()})
        run = corrected(
            run,
            task,
            samples=settings.samples,
            statistic=settings.statistic,
            report=report,
            stopped=lambda: False,
        )
        save_correction(run, task, settings.statistic)
        write_summary(run)
        from memes.analysis.figures import save_figures  # matplotlib is slow to import

        save_figures(run)
    print(table({name: float(column[-1]) for name, column in run.corrected.items()}))
    print(f"saved to {run.folder}/corrected.npz; see {run.folder}/figures/archive.png")


def table(row: dict[str, float]) -> str:
    """A row of corrected.csv for the eye: illusory and corrected measures, and what is lost."""
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
