"""The command `memes`.

Each command imports only the modules that it needs, because some imports are slow.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from memes.errors import RunError, UsageError, in_a_line, install, known, require
from memes.runner.compilation_cache import compiled_programs
from memes.store.sanitize import printable
from memes.version import __version__

INTERRUPTED = 130  # Exit code after Ctrl-C.
# Some libraries fail at import if an environment variable has an invalid value. The names of these
# variables begin with one of the prefixes `VARIABLES`. The environment variables in `IMPOSSIBLE` prevent
# compilation, or cause JAX to report every empty cell as an error.
VARIABLES = ("JAX_", "MUJOCO_GL")
IMPOSSIBLE = ("JAX_DISABLE_JIT", "JAX_DEBUG_NANS", "JAX_DEBUG_INFS")
OVERVIEW = """usage: memes COMMAND ...

Quality-diversity search with many evolution strategies at once.

{}

'memes COMMAND --help' explains a command and its options."""

# Arguments and summary of each command, as in the help. A command is a function in the module of the
# same name. The parameters of this function are the options of the command.
COMMANDS = {
    "run": ("TASK [OPTIONS]", "run an algorithm on a task (memes run arm --scale laptop)"),
    "check": ("TASK [OPTIONS]", "evaluate a few genotypes, report problems, and suggest a run"),
    "list": ("", "list the tasks and the algorithms"),
    "resume": ("RUN", "continue a run that was interrupted or killed"),
    "reevaluate": ("RUN", "re-evaluate the elites of a saved run, and print the archive loss"),
    "plot": ("RUN...", "draw the figures of saved runs again"),
    "compare": ("RUN...", "compare runs by tables, statistical tests and figures"),
    "merge": ("RUN... --out FILE", "merge archives of runs, and keep the fittest elite per cell"),
    "view": ("RUN...", "show runs live in the browser; click a cell to show its elite"),
    "replay": ("RUN", "play an elite of a saved run in the browser, or write a video or a picture"),
    "video": (
        "RUN --out FILE",
        "make a video of a saved run, which shows its growing archive and some elites",
    ),
    "export": (
        "RUN --to FORMAT",
        "write a saved run as csv, parquet or npz, for TensorBoard, or a policy for NumPy",
    ),
    "reproduce": ("EXPERIMENT", "run the paper's experiments and check its claims; --list shows them"),
    "completion": ("SHELL", "print a script that completes words in bash or zsh"),
    "doctor": ("", "show hardware, versions and missing packages, and test the library"),
}


def overview() -> str:
    """Return the help text that lists all commands."""
    rows = [(f"memes {name} {usage}", summary) for name, (usage, summary) in COMMANDS.items()]
    rows.append(("memes version", "print the version"))
    width = max(len(usage) for usage, _ in rows)
    lines = (f"  {usage:{width}}  {summary}" for usage, summary in rows)
    return OVERVIEW.format("\n".join(lines))


def main(arguments: list[str] | None = None) -> int:
    """Run a command, and return the exit code.

    The exit code is 2 after incorrect usage, and 1 after other failures, such as a full disk. In both
    cases, an error message is printed. Errors in the library itself are shown with a traceback.
    """
    words = sys.argv[1:] if arguments is None else arguments
    _open_streams()
    try:
        with _plain_warnings():
            code = _call(words)
        sys.stdout.flush()  # This call raises an error if the disk is full.
        return code
    except (UsageError, RunError, OSError, MemoryError, RecursionError, KeyboardInterrupt) as error:
        code, sentence = _explained(error)
    except Exception as error:
        culprit = _culprit(error)
        if culprit is None:
            raise
        value = os.environ[culprit]
        said = (str(error) and in_a_line(error)) or "this is not available here; unset the variable"
        if culprit == "JAX_PLATFORMS" and "cuda" in value:
            said += f", or use a machine with an NVIDIA GPU and the extra cuda: {install('cuda')}"
        code, sentence = 2, f"{culprit}={value}: {said}"
    if sentence:
        _tell(sentence)
    return code


def _open_streams() -> None:
    """If the shell has closed an output stream, replace the stream with os.devnull."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (open until the process ends)


def _culprit(error: BaseException) -> str | None:
    """Return the environment variable that caused an exception in a library, or None."""
    names = [name for name in os.environ if name.startswith(VARIABLES)]
    named = [name for name in names if name in str(error).upper()]  # JAX's flags are in lower case
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, AssertionError) and Path(frame.filename).name == "xla_bridge.py":
        named += [name for name in names if name == "JAX_PLATFORMS"]
    return next(iter(named), None)


def _tell(sentence: str) -> None:
    with suppress(OSError):  # the stream may be closed
        print(f"memes: {printable(sentence)}", file=sys.stderr, flush=True)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings without the lines of code that issued them."""
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
    """Return the exit code and the message for an exception that ended a command."""
    if isinstance(error, UsageError):
        return 2, str(error)
    if isinstance(error, RecursionError):
        return 2, "the input is nested too deeply"
    if isinstance(error, MemoryError):
        return 1, f"there is not enough memory: {str(error) or 'a smaller problem may fit'}"
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, OSError):
        _drop_output()
        if isinstance(error, BrokenPipeError):  # for example after 'memes list | head'
            return 1, ""
        where = "the output" if error.filename is None else f"'{error.filename}'"
        return 1, f"cannot read or write {where}: {error.strerror or error}"
    return 1, str(error)


def _drop_output() -> None:
    """Discard output that cannot be written. Otherwise, Python would try to write it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _call(words: list[str]) -> int:
    if words[:1] == ["help"] and len(words) == 2:
        words = [words[1], "--help"]
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
    except SystemExit:  # raised after a help text
        sys.stdout.flush()
        raise


def _run(name: str, words: list[str]) -> int:
    for variable in IMPOSSIBLE:
        off = os.environ.get(variable, "").lower() in ("", "0", "false", "f", "no", "n", "off")
        require(off, f"{variable}={os.environ.get(variable)}: memes does not run with it; unset it")
    module = import_module(f"memes.commands.{name}")
    function = getattr(module, name)
    if name in ("run", "check"):  # the options of these commands depend on the task
        return int(function(words))
    from memes.options.flags import call

    whose = getattr(module, "whose", lambda option: "")
    return call(function, words, f"memes {name}", whose)


def _set_defaults(command: str) -> None:
    """Set environment variables that libraries read at import, unless the user has set them.

    Programs that JAX compiles are cached for later runs. OpenBLAS, which decomposes the matrices of
    CMA-ES, uses one thread, because several threads can be a hundred times slower on shared cores.
    """
    defaults = {"OPENBLAS_NUM_THREADS": "1", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    if command == "view":  # the run needs the accelerator
        defaults["JAX_PLATFORMS"] = "cpu"
    cache = compiled_programs()
    if cache is not None:
        defaults["JAX_COMPILATION_CACHE_DIR"] = str(cache)
    os.environ.update(defaults | os.environ)


def script() -> None:
    """Run the command `memes`, and exit with its exit code."""
    code = main()
    module = sys.modules.get("memes.runner.multihost")
    group = module and module.process_group()
    if (code > 128 or (code and group and group.count > 1)) and not (group and group.over):
        # A normal exit would wait for unfinished device computations or for other processes.
        _drop_output()
        os._exit(code)
    sys.exit(code)
