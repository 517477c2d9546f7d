"""The command `memes`. What is slow to import is imported by the command that needs it."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable

from memes.errors import UsageError, require
from memes.version import __version__

HELP = """\
usage: memes COMMAND ...

Quality-diversity search with many evolution strategies at once.

  memes run TASK [OPTIONS]   run an algorithm on a task (memes run arm --scale laptop)
  memes list                 the tasks and the algorithms
  memes plot RUN...          draw the figures of saved runs again
  memes --version            the version

'memes COMMAND --help' explains a command and its options."""


def run(arguments: list[str]) -> None:
    """memes run TASK [OPTIONS]"""
    from memes.experiment import settings as s

    parsed = s.parse(arguments, "memes run")
    algorithm = s.build(parsed)
    from memes.experiment.loop import run as run_algorithm

    settings = parsed.settings
    options = parsed.task_options | parsed.algorithm_options
    result = run_algorithm(
        algorithm,
        generations=settings.generations,
        seed=settings.seed,
        out=s.output_folder(settings),
        generations_per_call=settings.generations_per_call,
        progress=not settings.quiet,
        settings={
            "task": settings.task,
            "algorithm": settings.algorithm,
            "scale": settings.scale,
            "options": options,
        },
    )
    last = {name: column[-1] for name, column in result.metrics.items()}
    print(
        f"QD-score {last['qd_score']:.1f}, coverage {last['coverage']:.1%}, "
        f"max fitness {last['max_fitness']:.4g} after {int(last['generation'])} generations, "
        f"{int(last['evaluations']):,} evaluations and {last['seconds']:.1f} s\n"
        f"saved to {result.folder}; see {result.folder}/figures/archive.png"
    )


def list_names(arguments: list[str]) -> None:
    """memes list: the tasks and the algorithms, a line each."""
    if _wants_help(arguments, list_names):
        return
    from rich.console import Console
    from rich.table import Table

    from memes.presets import PRESETS
    from memes.tasks import TASKS

    tasks = {name: _first_line(make) for name, make in TASKS.items()}
    algorithms = {name: preset.summary for name, preset in PRESETS.items()}
    for title, entries in (("task", tasks), ("algorithm", algorithms)):
        table = Table(title, "what it is", box=None, title_justify="left")
        for name, summary in entries.items():
            table.add_row(name, summary)
        Console().print(table)


def plot(arguments: list[str]) -> None:
    """memes plot RUN...: draw figures/archive.png and figures/curves.png of each run folder again."""
    if _wants_help(arguments, plot):
        return
    require(bool(arguments), "RUN is missing: 'memes plot RUN...' needs at least one run folder")
    from memes.analysis.figures import draw_run

    for folder in arguments:
        for file in draw_run(folder):
            print(file)


COMMANDS: dict[str, Callable[[list[str]], None]] = {"run": run, "list": list_names, "plot": plot}


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
        if words[0] not in COMMANDS:
            near = difflib.get_close_matches(words[0], COMMANDS, n=1) or COMMANDS
            raise UsageError(f"unknown command '{words[0]}': did you mean {' or '.join(near)}?")
        COMMANDS[words[0]](words[1:])
    except UsageError as error:
        print(f"memes: {error}", file=sys.stderr)
        return 2
    return 0


def _wants_help(arguments: list[str], command: Callable[[list[str]], None]) -> bool:
    if not {"-h", "--help"} & set(arguments):
        return False
    print(f"usage: {command.__doc__}")
    return True


def _first_line(documented: object) -> str:
    return (documented.__doc__ or "").strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
