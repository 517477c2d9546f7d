"""The command `memes run`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Timer
from typing import Any

from memes import api
from memes.algorithm import Algorithm
from memes.analysis.tables import counted
from memes.analysis.task_report import advise
from memes.errors import require
from memes.options.command_line import Parsed, parse
from memes.options.flags import value_of
from memes.options.names import is_own
from memes.runner.multihost import ProcessGroup, join_processes
from memes.runner.progress import Reporter, duration
from memes.store.folder import Run
from memes.store.sanitize import printable

CODES = {"SIGINT": 130, "SIGTERM": 143}  # Exit codes after signals.
LONGEST = 100  # Maximum length of the name of a task or algorithm in the name of a folder.
PATIENCE = 2.0  # Time in seconds after which `said_if_slow` prints a message.


def run(arguments: list[str]) -> int:
    """Run an algorithm on a task, and return the exit code."""
    from jax import default_backend

    start = Path.cwd()
    processes = join_from(arguments)
    parsed = parse(arguments, "memes run")
    choice, running = parsed.choice, dict(parsed.running)
    if running["evaluations"] is not None:
        require(
            value_of("generations", arguments) is None,
            "--generations and --evaluations both set the length of the run: give only one of them",
        )
        running["generations"] = None  # ignore the default of the scale
    report = Reporter(show=processes.leads and not choice.quiet)
    with ExitStack() as stack:
        executor = stack.enter_context(parsed.worker_options.executor())
        with said_if_slow(report.say, f"building {parsed.task} ..."):  # building may compile a simulator
            algorithm = parsed.build(executor)
        if choice.scale == "paper" and default_backend() == "cpu":
            report.say("no GPU found: '--scale laptop' is faster on a CPU")
        if choice.algorithm == "memes" and is_own(parsed.task):
            report.say(better_choice(parsed.task, algorithm, **running))
        if choice.seeds is not None:
            first = running.pop("seed")
            running["seeds"] = range(first, first + choice.seeds)
        label = choice.label or algorithm.name
        out = (choice.out and from_there(choice.out, start)) or stack.enter_context(
            output_folder((algorithm.task.name, label), parsed, start)
            if processes.leads
            else nullcontext(Path())  # only the first process writes files
        )
        if choice.view and processes.leads:
            # The browser page needs further libraries, which `memes.commands.view` imports.
            from memes.commands.view import viewed

            stack.enter_context(viewed(out, parsed.task))
        runs = api.run(
            algorithm,
            **running,
            out=out,
            observers=parsed.observers(),
            progress=not choice.quiet,
            metadata=parsed.recorded() | {"label": label},
        )
        processes.disconnect()
        if not processes.leads:
            return 0
        return conclude(runs if isinstance(runs, list) else [runs], choice.seeds or 1, out)


def better_choice(
    task: str, algorithm: Algorithm, *, generations: int, evaluations: int | None, **others: Any
) -> str:
    """Return a message that recommends an algorithm for a custom task.

    The default algorithm is the best choice only for long runs on uncertain tasks.
    """
    each = algorithm.batch_size * algorithm.task.cost
    budget = evaluations or generations * each
    advice = advise(
        algorithm.task,
        algorithm.cells.count,
        seconds=0.0,
        uncertain=algorithm.task.uncertain,
        gpu=False,
        evaluations=budget,
        includes_corrections=False,
    )
    return (
        f"for {budget:,} evaluations of this task '--algorithm {advice.algorithm}' may be better "
        f"({advice.reason}); 'memes check {task}' measures the task"
    )


@contextmanager
def said_if_slow(say: Callable[[str], None], sentence: str) -> Iterator[None]:
    """Print a message if the `with` block takes longer than `PATIENCE` seconds."""
    timer = Timer(PATIENCE, say, [sentence])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def join_from(words: list[str]) -> ProcessGroup:
    """Join the other processes of the run, if options or a launcher specify them."""

    def number(name: str) -> int | None:
        value = value_of(name, words)
        require(value is None or value.isdecimal(), f"{name} must be a whole number, got '{value}'")
        return None if value is None else int(value)

    return join_processes(
        coordinator=value_of("coordinator", words),
        processes=number("processes"),
        process=number("process"),
    )


def from_there(path: str | Path, start: Path) -> Path:
    """Resolve a path relative to `start`, because custom code may change the current folder."""
    return Path(path) if Path.cwd() == start else start / path


@contextmanager
def output_folder(names: Sequence[str], parsed: Parsed, start: Path) -> Iterator[Path]:
    """Make a new folder under runs/, named after a task and an algorithm.

    The folder is made immediately, so that no other command uses the same folder. It is removed at the
    end if it is empty.
    """
    runs = from_there("runs", start)
    base = runs / "-".join(re.sub(r"\W+", "-", name).strip("-")[:LONGEST] or "unnamed" for name in names)
    again = (base.with_name(f"{base.name}-take-{i}") for i in itertools.count(2))
    seed = () if parsed.choice.seeds is not None else (f"seed-{parsed.running['seed']}",)
    free = (path.joinpath(*seed) for path in itertools.chain([base], again))
    path = next(path for path in free if _made(path))
    try:
        yield path
    finally:
        with suppress(OSError):  # raised if a folder is not empty
            for folder in (path, *path.parents):
                folder.rmdir()
                if folder == runs:
                    break


def _made(path: Path) -> bool:
    """Make a folder, and return False if it already exists."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def conclude(runs: list[Run], wanted: int, out: str | Path) -> int:
    """Print the results of runs, and return the exit code.

    Args:
        runs: Runs that were started.
        wanted: Number of seeds, including seeds that were not started.
        out: Folder of the results.
    """
    for run in runs:
        last = {name: column[-1] for name, column in run.metrics.items()}
        name = f"seed {run.config.seed}: " if wanted > 1 else ""
        if run.stopped:
            print(
                f"{name}stopped after {run.generations} of {run.config.generations} generations "
                f"({run.stopped}); 'memes resume {printable(str(run.folder))}' continues it"
            )
        print(
            f"{name}QD-score {last['qd_score']:.1f}, coverage {last['coverage']:.1%}, "
            f"max fitness {last['max_fitness'] + 0.0:.4g} after {run.generations} generations, "
            f"{int(last['evaluations']):,} evaluations and {duration(last['seconds'])}"
        )
        if run.correction is not None:
            row = {name: column[-1] for name, column in run.corrected.items()}
            loss = row["qd_score_loss"]
            lost = f"; {loss:.1%} of the QD-score is lost" if math.isfinite(loss) else ""
            print(
                f"{name}corrected by {counted(run.correction.samples, 'evaluation')} of each elite: "
                f"QD-score {row['qd_score']:.1f}, coverage {row['coverage']:.1%}, "
                f"max fitness {row['max_fitness'] + 0.0:.4g}{lost}"
            )
    if len(runs) < wanted:
        print(
            f"{len(runs)} of {wanted} seeds were started; 'memes resume {out}' continues with the others"
        )
    figure, hint = f"{out}/figures/archive.png", f"; 'memes compare {out}' summarises them"
    if wanted == 1:
        hint = f"; see {figure}" if Path(figure).exists() else ""
    print(printable(f"saved to {out}{hint}"))
    signals = [run.signal for run in runs if run.signal]
    unfinished = len(runs) < wanted or any(run.stopped for run in runs)
    return CODES[signals[0]] if unfinished and signals else 0
