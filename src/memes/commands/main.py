"""The command `memes`. What is slow to import is imported by the command that needs it."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from memes.cache import compiled_programs
from memes.errors import RunError, UsageError, known, require
from memes.version import __version__

INTERRUPTED = 130  # the exit code
OVERVIEW = """usage: memes COMMAND ...

Quality-diversity search with many evolution strategies at once.

{}

'memes COMMAND --help' explains a command and its options."""

# The arguments of each command, as they are shown, and what it does. It is the function of that name in
# the module of that name; its parameters are its options.
COMMANDS = {
    "run": ("TASK [OPTIONS]", "run an algorithm on a task (memes run arm --scale laptop)"),
    "list": ("", "the tasks and the algorithms"),
    "resume": ("RUN", "go on with a run that was interrupted or killed"),
    "reevaluate": ("RUN", "evaluate the elites of a saved run again: what of them was luck"),
    "plot": ("RUN...", "draw the figures of saved runs again"),
    "compare": ("RUN...", "compare runs: tables, tests and figures over their seeds"),
    "replay": ("RUN", "play an elite of a saved run: in the browser, or as a video or a picture"),
    "reproduce": ("EXPERIMENT", "run the paper's experiments and judge its claims; --list shows them"),
    "doctor": ("", "what this machine has, what is missing, and a check of ten seconds"),
}


def overview() -> str:
    """The help about all commands."""
    rows = [(f"memes {name} {usage}", summary) for name, (usage, summary) in COMMANDS.items()]
    lines = (f"  {usage:26} {summary}" for usage, summary in [*rows, ("memes version", "the version")])
    return OVERVIEW.format("\n".join(lines))


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code. A wrong use is one sentence and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else 2
    if words[0] in ("--version", "version"):
        print(f"memes {__version__}")
        return 0
    try:
        return _call(known("command", words[0], COMMANDS), words[1:])
    except (UsageError, RunError) as error:
        print(f"memes: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("memes: interrupted", file=sys.stderr)
        return INTERRUPTED


def _call(name: str, words: list[str]) -> int:
    _set_defaults()
    function = getattr(import_module(f"memes.commands.{name}"), name)
    if name == "run":  # whose options depend on the task and on the algorithm
        return int(function(words))
    usage, _ = COMMANDS[name]
    given = words and (not words[0].startswith("-") or {"-h", "--help"} & set(words))
    require(
        bool(given) or not usage.startswith("RUN"),
        f"RUN is missing: it comes first in 'memes {name} {usage} [OPTIONS]'",
    )
    import tyro

    config = (tyro.conf.FlagCreatePairsOff,)
    return tyro.cli(function, prog=f"memes {name}", args=words, config=config) or 0


def _set_defaults() -> None:
    """Set what the libraries below read as they are imported; the user's settings win.

    What JAX compiles is kept for later runs. OpenBLAS, which decomposes the matrices of CMA-ES, has one
    thread: its threads wait for each other, a hundred times longer than they work if cores are shared.
    """
    defaults = {"OPENBLAS_NUM_THREADS": "1", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    cache = compiled_programs()
    if cache is not None:
        defaults["JAX_COMPILATION_CACHE_DIR"] = str(cache)
    os.environ.update(defaults | os.environ)


def script() -> None:
    """Run the command as a process."""
    code = main()
    if code > 128:  # of a signal
        # An orderly end would wait for what the device still computes.
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    script()
