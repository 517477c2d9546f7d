"""The command `memes`. What is slow to import is imported by the command that needs it."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from memes.errors import RunError, UsageError, in_a_line, known, require
from memes.runner.compilation_cache import compiled_programs
from memes.store.sanitize import printable
from memes.version import __version__

INTERRUPTED = 130  # the exit code
# Variables of libraries below, which do not start with a value that they do not know; and those with
# which nothing can be compiled, or every empty cell is a fault.
VARIABLES = ("JAX_", "MUJOCO_GL")
IMPOSSIBLE = ("JAX_DISABLE_JIT", "JAX_DEBUG_NANS", "JAX_DEBUG_INFS")
NARROWEST = 20  # columns of a terminal, in which a help can still be laid out
OVERVIEW = """usage: memes COMMAND ...

Quality-diversity search with many evolution strategies at once.

{}

'memes COMMAND --help' explains a command and its options."""

# The arguments of each command, as they are shown, and what it does. It is the function of that name in
# the module of that name; its parameters are its options.
COMMANDS = {
    "run": ("TASK [OPTIONS]", "run an algorithm on a task (memes run arm --scale laptop)"),
    "check": ("TASK [OPTIONS]", "evaluate a few genotypes: time, bounds, noise, which run suits"),
    "list": ("", "the tasks and the algorithms"),
    "resume": ("RUN", "go on with a run that was interrupted or killed"),
    "reevaluate": ("RUN", "evaluate the elites of a saved run again: what of them was luck"),
    "plot": ("RUN...", "draw the figures of saved runs again"),
    "compare": ("RUN...", "compare runs: tables, tests and figures over their seeds"),
    "merge": ("RUN... --out FILE", "merge the archives of runs: each cell keeps the fittest elite"),
    "view": ("RUN...", "show runs in the browser, live: click a cell and its elite moves"),
    "replay": ("RUN", "play an elite of a saved run: in the browser, or as a video or a picture"),
    "video": (
        "RUN --out FILE",
        "make a video of a saved run: the archive as it fills, elites beside it",
    ),
    "export": ("RUN --to FORMAT", "write a saved run as csv, parquet, npz or for TensorBoard"),
    "reproduce": ("EXPERIMENT", "run the paper's experiments and judge its claims; --list shows them"),
    "doctor": ("", "what this machine has, what is missing, and a check of ten seconds"),
}


def overview() -> str:
    """The help about all commands."""
    rows = [(f"memes {name} {usage}", summary) for name, (usage, summary) in COMMANDS.items()]
    lines = (f"  {usage:28} {summary}" for usage, summary in [*rows, ("memes version", "the version")])
    return OVERVIEW.format("\n".join(lines))


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code. A wrong use is one sentence and exit code 2.

    So is whatever else ends a command from outside, with exit code 1; only our own faults are not.
    """
    words = sys.argv[1:] if arguments is None else arguments
    _open_streams()
    try:
        with _plain_warnings():
            code = _call(words)
        sys.stdout.flush()  # a disk that is full is heard here
        return code
    except (UsageError, RunError, OSError, MemoryError, RecursionError, KeyboardInterrupt) as error:
        code, sentence = _explained(error)
    except Exception as error:
        culprit = _culprit(error)
        if culprit is None:
            raise
        said = str(error) and in_a_line(error)
        code, sentence = 2, f"{culprit}={os.environ[culprit]}: {said or 'this is not available here'}"
    _tell(sentence)
    return code


def _open_streams() -> None:
    """Print to nowhere where the shell has closed the output."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (until the process ends)


def _culprit(error: BaseException) -> str | None:
    """The variable that an exception of a library is about."""
    names = [name for name in os.environ if name.startswith(VARIABLES)]
    named = [name for name in names if name in str(error).upper()]  # JAX's flags are lower case
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, AssertionError) and Path(frame.filename).name == "xla_bridge.py":
        named += [name for name in names if name == "JAX_PLATFORMS"]
    return next(iter(named), None)


def _tell(sentence: str) -> None:
    with suppress(OSError):  # nobody may listen
        print(f"memes: {printable(sentence)}", file=sys.stderr, flush=True)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings are sentences too, without the line of code that gave them."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if category is UserWarning:
                _tell(str(message))
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        yield


def _explained(error: BaseException) -> tuple[int, str]:
    """The exit code and the sentence for what ended a command."""
    if isinstance(error, UsageError):
        return 2, str(error)
    if isinstance(error, RecursionError):
        return 2, "what was given is nested too deeply"
    if isinstance(error, MemoryError):
        return 1, f"there is not enough memory: {str(error) or 'a smaller problem may fit'}"
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, OSError):
        _drop_output()
        if isinstance(error, BrokenPipeError):
            return 1, "nobody reads the output any more"
        where = "the output" if error.filename is None else f"'{error.filename}'"
        return 1, f"cannot read or write {where}: {error.strerror or error}"
    return 1, str(error)


def _drop_output() -> None:
    """Forget what cannot be printed, or Python would try again when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _call(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else 2
    if words[0] in ("--version", "version"):
        print(f"memes {__version__}")
        return 0
    name, words = known("command", words[0], [*COMMANDS, "help", "version"]), words[1:]
    _set_defaults(name)
    try:
        return _run(name, words)
    except SystemExit:  # after a help, or words that tyro does not understand
        sys.stdout.flush()
        raise


def _run(name: str, words: list[str]) -> int:
    for variable in IMPOSSIBLE:
        off = os.environ.get(variable, "").lower() in ("", "0", "false", "f", "no", "n", "off")
        require(off, f"{variable}={os.environ.get(variable)}: memes does not run with it; unset it")
    if shutil.get_terminal_size().columns < NARROWEST:  # or the help would be laid out for minutes
        os.environ["COLUMNS"] = str(NARROWEST)
    function = getattr(import_module(f"memes.commands.{name}"), name)
    if name in ("run", "check"):  # whose options depend on the task
        return int(function(words))
    usage, _ = COMMANDS[name]
    given = words and (not words[0].startswith("-") or {"-h", "--help"} & set(words))
    require(
        bool(given) or not usage.startswith("RUN"),
        f"RUN is missing: it comes first in 'memes {name} {usage} [OPTIONS]'",
    )
    from memes.options.flags import call

    return call(function, words, f"memes {name}")


def _set_defaults(command: str) -> None:
    """Set what the libraries below read as they are imported; the user's settings win.

    What JAX compiles is kept for later runs. OpenBLAS, which decomposes the matrices of CMA-ES, has one
    thread: its threads wait for each other, a hundred times longer than they work if cores are shared.
    """
    defaults = {"OPENBLAS_NUM_THREADS": "1", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    if command == "view":  # beside a run that needs the accelerator for itself
        defaults["JAX_PLATFORMS"] = "cpu"
    cache = compiled_programs()
    if cache is not None:
        defaults["JAX_COMPILATION_CACHE_DIR"] = str(cache)
    os.environ.update(defaults | os.environ)


def script() -> None:
    """Run the command as a process."""
    code = main()
    module = sys.modules.get("memes.runner.multihost")
    team = module and module.present()
    if (code > 128 or (code and team and team.count > 1)) and not (team and team.over):
        # An orderly end would wait for what the device still computes, or for other processes.
        _drop_output()
        os._exit(code)
    sys.exit(code)
