"""The command `memes`. What is slow to import is imported by the command that needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memes.errors import RunError, UsageError, known, require
from memes.version import __version__

if TYPE_CHECKING:
    from memes.store.folder import Run

INTERRUPTED = 130  # the exit code

HELP = """\
usage: memes COMMAND ...

Quality-diversity search with many evolution strategies at once.

  memes run TASK [OPTIONS]   run an algorithm on a task (memes run arm --scale laptop)
  memes list                 the tasks and the algorithms
  memes resume RUN           go on with a run that was interrupted or killed
  memes reevaluate RUN       evaluate the elites of a saved run again: what of them was luck
  memes plot RUN...          draw the figures of saved runs again
  memes compare RUN...       compare runs: tables, tests and figures over their seeds
  memes replay RUN           play an elite of a saved run: in the browser, or as a video or a picture
  memes reproduce EXPERIMENT run the paper's experiments and judge its claims; --list shows them
  memes doctor               what this machine has, what is missing, and a check of ten seconds
  memes --version            the version

'memes COMMAND --help' explains a command and its options."""


def run(arguments: list[str]) -> None:
    """Run an algorithm on a task."""
    from jax import default_backend

    from memes.commands import settings as s

    parsed = s.parse(arguments, "memes run")
    algorithm = s.build(parsed)
    from memes.runner.loop import run as run_algorithm

    settings = parsed.settings
    if settings.scale == "paper" and not settings.quiet and default_backend() == "cpu":
        print("no GPU found: '--scale laptop' is the quicker choice on a CPU", file=sys.stderr)
    result = run_algorithm(
        algorithm,
        generations=settings.generations,
        seed=settings.seed,
        out=s.output_folder(parsed),
        generations_per_call=settings.generations_per_call,
        checkpoint_every=settings.checkpoint_every,
        chunk=settings.chunk,
        reevaluate_every=settings.reevaluate_every,
        reevaluate_samples=settings.reevaluate_samples,
        statistic=settings.statistic,
        progress=not settings.quiet,
        settings=s.recorded(parsed),
    )
    _conclude(result, settings.generations)


def resume(arguments: list[str]) -> None:
    """Go on with a run that was interrupted or killed."""
    require(bool(arguments), "RUN is missing: 'memes resume RUN' needs a run folder")
    import tyro

    from memes.commands import settings as s
    from memes.commands.rebuild import algorithm_of

    parsed = tyro.cli(s.ResumeSettings, prog="memes resume", args=arguments)
    algorithm = algorithm_of(parsed.run, parsed.task)
    from memes.runner.loop import resume as resume_run
    from memes.store.folder import load_config

    result = resume_run(algorithm, parsed.run, generations=parsed.generations, progress=not parsed.quiet)
    _conclude(result, load_config(parsed.run)["generations"])


def _conclude(result: Run, generations: int) -> None:
    """Say how a run ended."""
    last = {name: column[-1] for name, column in result.metrics.items()}
    if last["generation"] < generations:
        print(
            f"interrupted after {int(last['generation'])} of {generations} generations; "
            f"'memes resume {result.folder}' goes on"
        )
    print(
        f"QD-score {last['qd_score']:.1f}, coverage {last['coverage']:.1%}, "
        f"max fitness {last['max_fitness']:.4g} after {int(last['generation'])} generations, "
        f"{int(last['evaluations']):,} evaluations and {last['seconds']:.1f} s"
    )
    if result.correction is not None:
        row = {name: column[-1] for name, column in result.corrected.items()}
        print(
            f"corrected by {result.correction.samples} evaluations of each elite: "
            f"QD-score {row['qd_score']:.1f}, coverage {row['coverage']:.1%}, "
            f"max fitness {row['max_fitness']:.4g}; {row['qd_score_loss']:.1%} of the QD-score is lost"
        )
    print(f"saved to {result.folder}; see {result.folder}/figures/archive.png")


def list_names(arguments: list[str]) -> None:
    """Show the tasks and the algorithms, a line each."""
    require(not arguments, f"memes list takes no arguments, got '{' '.join(arguments)}'")
    from memes.presets import PRESETS
    from memes.tasks import TASKS

    tasks = {name: _first_line(make) for name, make in TASKS.items()}
    algorithms = {name: preset.summary for name, preset in PRESETS.items()}
    for title, entries in (("tasks", tasks), ("algorithms", algorithms)):
        print(f"{title}:")
        for name, summary in entries.items():
            print(f"  {name:18} {summary}")


def reevaluate(arguments: list[str]) -> None:
    """Evaluate the elites of a saved run again."""
    from memes.commands.reevaluate import reevaluate as reevaluate_run

    reevaluate_run(arguments)


def plot(arguments: list[str]) -> None:
    """Draw the figures of each run folder again: archive.png, curves.png, and positions.png on a map."""
    require(bool(arguments), "RUN is missing: 'memes plot RUN...' needs at least one run folder")
    from memes.analysis.figures import save_figures
    from memes.store.folder import load_run

    for run in [load_run(folder) for folder in arguments]:  # all are read before the first is drawn
        for file in save_figures(run):
            print(file)


def compare(arguments: list[str]) -> None:
    """Compare saved runs: tables, tests and figures over their seeds."""
    from memes.commands.compare import compare as compare_runs

    compare_runs(arguments)


def replay(arguments: list[str]) -> None:
    """Play an elite of a saved run."""
    from memes.commands.replay import replay as replay_elite

    replay_elite(arguments)


def reproduce(arguments: list[str]) -> None:
    """Run the paper's experiments, and judge its claims."""
    from memes.commands.reproduce import reproduce as reproduce_experiments

    reproduce_experiments(arguments)


def doctor(arguments: list[str]) -> None:
    """Show versions, devices, memory and what is missing, and try the library for ten seconds."""
    require(not arguments, f"memes doctor takes no arguments, got '{' '.join(arguments)}'")
    from memes.commands.doctor import report, self_check

    for line in report():
        print(line)
    failed = []
    for name, check in self_check().items():
        try:
            print(f"{name}: {check()}")
        except Exception as error:  # whatever it is, it is what the doctor looks for
            failed.append(name)
            print(f"{name}: FAILED: {type(error).__name__}: {error}")
    if failed:
        raise RunError(f"the self-check failed: {', '.join(failed)}")


def _set_defaults() -> None:
    """Settings of the libraries below, which read them as they are imported; those of the user win.

    What JAX compiles is kept for later runs. OpenBLAS, which decomposes the matrices of CMA-ES, has one
    thread: its threads wait for each other, a hundred times longer than they work if cores are shared.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "memes" / "xla"
    defaults = {"OPENBLAS_NUM_THREADS": "1", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    try:
        cache.mkdir(parents=True, exist_ok=True)
        defaults["JAX_COMPILATION_CACHE_DIR"] = str(cache)
    except OSError:
        pass  # a home that cannot be written: nothing is kept
    os.environ.update(defaults | os.environ)


class Command(NamedTuple):
    """A command: what runs it, and how it is used; None where its own `--help` knows better."""

    function: Callable[[list[str]], None]
    usage: str | None


COMMANDS = {
    "run": Command(run, None),
    "list": Command(list_names, "memes list"),
    "resume": Command(resume, None),
    "reevaluate": Command(reevaluate, None),
    "reproduce": Command(reproduce, None),
    "doctor": Command(doctor, "memes doctor"),
    "plot": Command(plot, "memes plot RUN..."),
    "compare": Command(compare, None),
    "replay": Command(replay, None),
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code. A wrong use is one sentence and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help"):
        print(HELP)
        return 0 if words else 2
    if words[0] == "--version":
        print(f"memes {__version__}")
        return 0
    try:
        command = COMMANDS[known("command", words[0], COMMANDS)]
        if command.usage and {"-h", "--help"} & set(words[1:]):
            print(f"usage: {command.usage}\n\n{command.function.__doc__}")
        else:
            _set_defaults()
            command.function(words[1:])
    except UsageError as error:
        print(f"memes: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"memes: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("memes: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def _first_line(documented: object) -> str:
    return (documented.__doc__ or "").strip().partition("\n")[0]


def script() -> None:
    """The command as a process."""
    code = main()
    if code == INTERRUPTED:
        # An orderly end would wait for what the device still computes.
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    script()
