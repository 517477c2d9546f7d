"""The command `memes reproduce`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from jax import default_backend

from memes.commands.run import CODES
from memes.errors import RunError, at_least, known, require
from memes.reproduce import results
from memes.reproduce.experiments import EXPERIMENTS, TASKS, VARIANTS
from memes.reproduce.sweep import TIME, Item, existing, in_turns, plan, sweep
from memes.reproduce.turns import load_times, measure, save_times
from memes.runner.progress import Terminal
from memes.store.files import open_regular, reading
from memes.store.find import load_all
from memes.store.folder import check_link, check_place
from memes.store.summary import Summary

ALL = "all"
TITLE = b"# The paper's claims"  # start of claims.md
GOES_ON = "stopped; run the same command again to continue"
# Options of algorithms that determine the number of evaluations per generation.
SIZES = ("lanes", "samples", "batch", "resamples")


def reproduce(
    experiments: tuple[str, ...] = (),
    *,
    tasks: tuple[str, ...] = TASKS,
    labels: tuple[str, ...] = (),
    scale: Literal["paper", "laptop"] = "paper",
    seeds: int | None = None,
    first_seed: int = 0,
    generations: int | None = None,
    out: Path = Path("reproduction"),
    summaries: tuple[str, ...] = (),
    seeds_per_batch: int | None = None,
    minutes: float | None = None,
    stop_runs: bool = False,
    keep_archives: bool = False,
    runs_only: bool = False,
    report_only: bool = False,
    list: bool = False,
    quiet: bool = False,
) -> int:
    """Run the experiments of the paper, and check its claims.

    At the end, the command writes tables and figures for each experiment, and a verdict on each claim.
    Finished runs are not repeated. If a sweep was stopped or killed, the same command continues the
    sweep.

    Args:
        experiments: Names of experiments, or 'all'. --list shows the names.
        tasks: Tasks of the paper to run.
        labels: Run only the algorithms with these labels, for example to distribute a sweep over
            machines.
        scale: Settings of the runs. 'paper' uses the settings of the paper, for a GPU, and
            'laptop' uses much smaller settings.
        seeds: Number of seeds. The default is the number in the paper, which is 10 or 5.
        first_seed: Smallest seed.
        generations: Number of generations. The default depends on the scale.
        out: Folder for the results, with a subfolder per scale.
        summaries: Summaries of runs from other machines, as files, folders of files, or run folders.
        seeds_per_batch: Number of seeds that run as one batch. By default, a batch has as many seeds as
            fit into memory, or one seed if the task has a simulator.
        minutes: Time in minutes after which no new run is started. The same command continues the sweep
            later.
        stop_runs: Also stop the current run after --minutes. The run later continues from its
            checkpoint.
        keep_archives: Keep the run folders. Otherwise, only a summary of each run is kept.
        runs_only: Write no tables, figures or verdicts.
        report_only: Write tables, figures and verdicts for existing summaries, without new runs.
        list: List the experiments and their runs, and exit.
        quiet: Do not show progress.
    """
    names = _experiments(experiments or ((ALL,) if list else ()))
    for task in tasks:
        known("task", task, TASKS)
    for label in labels:
        known("label", label, VARIANTS)
    at_least(1, seeds=seeds, generations=generations, seeds_per_batch=seeds_per_batch)
    require(minutes is None or minutes > 0, f"minutes must be more than 0, got {minutes}")
    require(not (runs_only and report_only), "--runs-only and --report-only exclude each other")
    at_least(0, first_seed=first_seed)
    chosen = [task for task in TASKS if task in tasks]
    items = plan(
        names,
        chosen,
        scale,
        labels=labels,
        seeds=seeds,
        first_seed=first_seed,
        generations=generations,
    )
    folder = out / scale

    def done() -> Sequence[Summary]:
        here = folder / "summaries"
        own = [here] if any(here.rglob("*.json")) else []
        return load_all([*own, *summaries], argument="summaries")

    turns = in_turns(names, chosen, scale, labels)
    if list:
        _show_plan(names, items, existing(items, done()))
        for task, measured in turns.items():
            print(f"{task:10}in turns: {', '.join(item.label for item in measured)}")
        return 0
    require(
        bool(items or turns),
        f"tasks: no runs of {', '.join(names)} on {', '.join(chosen)}; --list shows all runs",
    )
    check_results(folder)
    if not report_only:
        done()  # report unreadable summaries before anything is written
        with _in_words(scale, folder, quiet) as say:
            stopped = sweep(
                items,
                done,
                folder,
                seeds_per_batch=seeds_per_batch,
                keep_archives=keep_archives,
                minutes=minutes,
                stop_runs=stop_runs,
                progress=not quiet,
                say=say,
            )
            if stopped == TIME:
                say(f"stopped after {minutes:g} minutes; run the same command again to continue")
            elif stopped:
                say(GOES_ON)
                return CODES[stopped]
            else:
                for task, measured in turns.items():
                    place = folder / "times" / f"{task}.json"
                    there = {each.task: each.seconds for each in load_times(place.parent)}
                    if not {item.label for item in measured} <= there.get(task, {}).keys():
                        place.parent.mkdir(parents=True, exist_ok=True)
                        save_times(place, measure(measured, say))
    found, times = existing(items, done()), load_times(folder / "times")
    if runs_only:
        print(f"{len(found)} of {sum(len(item.seeds) for item in items)} runs")
        return 0
    require(
        bool(found or times),
        f"summaries: found no runs of these experiments in '{folder}' or in --summaries",
    )
    judged = results.write(names, chosen, found, folder, times)
    results.show(judged, Terminal(highlight=False))
    wanted = sum(len(item.seeds) for item in items)
    print(f"{len(found)} of {wanted} runs; see {folder}/claims.md and the other folders there")
    return 0


def check_results(folder: Path) -> None:
    """Raise a `UsageError` if results cannot be written to a folder without replacing other files."""
    check_place(folder)
    check_place(folder.parent)
    for place, folders, _ in os.walk(folder):
        for name in folders:
            check_link(Path(place, name))
    file = folder / "claims.md"
    if file.exists():
        with reading(file), open_regular(file) as stream:
            own = stream.read(len(TITLE)) == TITLE
        require(
            own,
            f"out: '{file}' is not a file of a reproduction, but would be overwritten; choose another "
            "folder",
        )


@contextmanager
def _in_words(scale: str, folder: Path, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that prints messages of a sweep. If the sweep stops, explain how to continue."""
    errors = Terminal(stderr=True, highlight=False)
    if scale == "paper" and default_backend() == "cpu":
        errors.print("no GPU found: '--scale laptop' is faster on a CPU")

    def say(sentence: str) -> None:
        if not quiet:
            errors.print(sentence, markup=False, soft_wrap=True)

    try:
        yield say
    except KeyboardInterrupt:
        say(GOES_ON)
        raise
    except OSError as error:
        raise RunError(
            f"cannot write to '{error.filename or folder}': {error.strerror}; solve this problem, and "
            "run the same command again to continue"
        ) from error


def _experiments(names: Sequence[str]) -> Sequence[str]:
    require(
        bool(names),
        f"EXPERIMENT is missing: name some of {', '.join(EXPERIMENTS)}, or '{ALL}'; --list shows them",
    )
    for name in names:
        known("experiment", name, [*EXPERIMENTS, ALL])
    return [name for name in EXPERIMENTS if ALL in names or name in names]


def _show_plan(names: Sequence[str], items: Sequence[Item], done: Sequence[Summary]) -> None:
    for name in names:
        print(f"{name:12}{EXPERIMENTS[name].title}")
    heads = ("task", "label", "generations", "seeds", "done", "per generation", "for")
    print("\n{:10}{:24}{:>11}{:>7}{:>6}  {:36}{}".format(*heads))
    for item in items:
        options = item.parsed.algorithm_options
        size = ", ".join(f"{name} {options[name]}" for name in SIZES if name in options)
        finished = sum((run.task, run.label) == (item.task, item.label) for run in done)
        asked = {name: EXPERIMENTS[name] for name in names}
        by = [name for name, of in asked.items() if item.label in of.labels and item.task in of.tasks]
        print(
            f"{item.task:10}{item.label:24}{item.generations:11,}{len(item.seeds):7}{finished:6}  "
            f"{size:36}{', '.join(by)}"
        )
