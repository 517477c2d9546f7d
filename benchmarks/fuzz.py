"""Run commands on randomly damaged or forged run folders and TOML files, and with unusual arguments.

    python benchmarks/fuzz.py                           3 000 operations
    python benchmarks/fuzz.py --operations 100 --seed 7

An operation passes if the command ends within a minute of CPU time, prints no traceback, and changes
only files in the run folder. Error messages are allowed. The script prints the failed operations, the
exit codes of all commands and the maximum memory. Its exit code is 1 if any operation fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import memes
from memes.archive import Changes
from memes.commands import doctor, replay, view
from memes.commands.main import COMMANDS
from memes.commands.main import main as memes_command
from memes.reproduce.experiments import EXPERIMENTS
from memes.reproduce.sweep import plan
from memes.store import changes, checkpoint
from memes.store.summary import load_summary
from memes.view import browser

OLD = Path(__file__).parents[1] / "tests/data/run-0.1"
QUICK = [
    *("run", "noisy-arm", "--joints", "3", "--algorithm", "me", "--batch", "4", "--generations", "2"),
    *("--resolution", "4", "4", "--reevaluate-samples", "2", "--no-figures-draw", "--quiet", "--out"),
]
VIDEO = ["--seconds", "0.2", "--rate", "10", "--size", "64", "48", "--elites", "0"]
SECONDS, WAITING, MOST_MEMORY = 60, 300, 2.5  # CPU and wall-clock s per operation, GiB
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 3, 2**40, 10**30, 0.5, -1e300, float("nan"), float("inf"), "", "arm", "me",
    "\x1b[2J", "$x_{$", "<script>", "a/../b", "os:system", "\ud800", "\n", [], [1], [[1, 2]], [[]],
    {}, {"a": 1}, {"walls": 3}, {"generation": [1]}, [None], ["a"], "a" * 2000, [[[[1]]]],
)  # fmt: skip
WORDS = (
    "", "-", "--", "-h", "--help", "--lanes", "--seed", "--out", "--config", "--task", "nan", "-1", "0",
    "2.5", "x", "\x1b[31m", "$x$", "\udcff", "a.toml", "run", "own.py:task", "json:loads", ":", "..",
    "builtins:int", "/dev/null", "--scale", "laptop", "--seeds", "--quiet", "--centroids",
)  # fmt: skip
KEYS = ("lanes", "batch", "seed", "task", "algorithm", "out", "me.batch", "[me]", "odd", "resolution")
ENTRIES = (
    "1", "-1", "nan", '"x"', "[1, 2]", "[]", "{}", "true", "1e400", "[" * 5000, "9" * 5000, '"',
)  # fmt: skip


# Kinds of operations on a forged run, all with the same probability. "read" uses the functions of the
# library, and the other kinds are commands.
KINDS = ("read", *COMMANDS)
TURNS = 3  # iterations of the page's loop


class TookTooLongError(BaseException):
    """An operation exceeded its time limit."""


def damage(draw: random.Random, file: Path) -> None:
    """Truncate a file, or change some of its bytes."""
    content = bytearray(file.read_bytes())
    kind = draw.choice(["cut", "flip", "insert", "replace"])
    place = draw.randrange(len(content) + 1)
    if kind == "cut":
        del content[place:]
    elif kind == "insert":
        content[place:place] = draw.randbytes(draw.randrange(1, 20))
    elif kind == "replace":
        content[:] = draw.randbytes(draw.randrange(200))
    elif content:
        content[place % len(content)] ^= draw.randrange(1, 256)
    file.write_bytes(content)


def forge_json(draw: random.Random, file: Path) -> None:
    """Replace an entry of a JSON file with an unusual value, or remove the entry."""
    content = json.loads(file.read_text())
    within = content
    while True:
        keys = list(within) if isinstance(within, dict) else list(range(len(within)))
        if not keys:
            break
        key = draw.choice(keys)
        if isinstance(within[key], (dict, list)) and within[key] and draw.random() < 0.6:
            within = within[key]
            continue
        if draw.random() < 0.2:
            del within[key]
        else:
            within[key] = draw.choice(ODD)
        break
    text = json.dumps(content)
    file.write_text("[" * 50_000 + text if draw.random() < 0.02 else text)


def forge_table(draw: random.Random, file: Path) -> None:
    """Change, remove or add fields of a table."""
    rows = [line.split(",") for line in file.read_text().splitlines()]
    kind, column = draw.choice(["field", "drop", "add", "rows", "head"]), draw.randrange(len(rows[0]))
    if kind == "drop":
        rows = [row[:column] + row[column + 1 :] for row in rows]
    elif kind == "rows":
        rows = rows[: draw.randrange(len(rows))]
    else:
        row = rows[0] if kind == "head" else draw.choice(rows)
        odd = str(draw.choice(("nan", "inf", "1e300", "-1", "x", "", "1e400", "\0", '"', "9" * 5000)))
        row[column : column + (kind != "add")] = [odd]
    file.write_text("\n".join(",".join(row) for row in rows) + "\n")


def forge_arrays(draw: random.Random, file: Path) -> None:
    """Change the shape, the type or the values of an array, or remove the array."""
    with np.load(file) as data:
        arrays = dict(data)
    name = draw.choice(list(arrays))
    array = arrays.pop(name)
    changes: list[Callable[[], Any]] = [
        lambda: array[..., None],
        lambda: array[:-1] if array.ndim else array[None],
        lambda: np.full(array.shape, draw.choice([np.nan, np.inf, -1, 1e300, 0, 2**40])),
        lambda: np.full(array.shape, "x"),
        lambda: np.zeros((0, 2)),
        lambda: np.array([30_000, 20_000]),
        lambda: np.array([3_000, 2_000]),
        lambda: np.zeros(10**7, np.int8),
        lambda: array.astype(complex) if array.dtype.kind in "if" else array,
        lambda: np.array(99),
    ]
    if draw.random() < 0.9:
        arrays[name] = draw.choice(changes)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez_compressed(file, **arrays)


def forge_changes(draw: random.Random, file: Path) -> None:
    """Forge a file of archive changes: write unusual values in the correct format."""
    head, _, data = file.read_bytes().partition(b"\n")
    about = json.loads(head)
    rows = changes.load_changes(file.parent)
    kind = draw.choice(["head", "cells", "order", "numbers", "many", "rest"])
    if kind == "head":
        about[draw.choice(["features", "format_version", "thinned", "more"])] = draw.choice(ODD)
        head = json.dumps(about).encode()
    elif kind == "rest":
        data += draw.randbytes(draw.randrange(1, 100))
    else:
        columns = {name: np.array(column) for name, column in rows._asdict().items()}
        if kind == "many":
            columns = {name: np.repeat(column, 100, axis=0) for name, column in columns.items()}
        name = {"cells": "cell", "order": "generation"}.get(kind, draw.choice(Changes._fields))
        if len(columns[name]):
            odd = draw.choice([0, -1, 1, 10**6, 2**31 - 1])
            columns[name][draw.randrange(len(columns[name])) :] = odd
        data = changes._bytes(Changes(**columns))
    file.write_bytes(head + b"\n" + data)


def forge_checkpoint(draw: random.Random, file: Path) -> None:
    """Write a checkpoint with an unusual array or unusual metadata, but with a correct digest."""
    with np.load(file) as data:
        arrays = dict(data)
    about = json.loads(str(arrays.pop("about")))
    if draw.random() < 0.3:
        about[draw.choice(list(about))] = draw.choice(ODD)
    name = draw.choice(list(arrays))
    array = arrays[name]
    if name != "log":
        odd = draw.choice([0, -1, 1, np.nan, np.inf, 10**6, 2**31 - 1])
        with np.errstate(all="ignore"):
            arrays[name] = np.full(array.shape, odd).astype(array.dtype)
    log = checkpoint._log(file, arrays["log"].itemsize)
    if draw.random() < 0.4:
        rows = forge_log(draw, np.frombuffer(log, arrays["log"].dtype))
        arrays["log"], log = rows[:0], rows.tobytes()
        (file.parent / checkpoint.LOG).write_bytes(log)
    known = checkpoint.hashlib.blake2b(log, digest_size=16)
    about["digest"] = checkpoint._digest(arrays, known)
    np.savez(file, about=np.array(json.dumps(about)), **arrays)


def forge_log(draw: random.Random, rows: np.ndarray) -> np.ndarray:
    """Change the values, the type or the shape of a column of a log, or remove or add a column."""
    parts = {
        part: {name: rows[part][name] for name in rows[part].dtype.names} for part in checkpoint.PARTS
    }
    part = parts[draw.choice(checkpoint.PARTS)]
    name = draw.choice(list(part))
    column = part.pop(name)
    odd = draw.choice([0, -1, np.nan, np.inf, 10**6, 2**31 - 1])
    changed: list[Callable[[], Any]] = [
        lambda: np.full(column.shape, odd).astype(column.dtype),
        lambda: column[::-1],
        lambda: column[..., None],
        lambda: np.repeat(column[..., None], 3, axis=-1),
        lambda: column.astype(draw.choice(["f8", "i1", "c16", "U3", "?", "V0"])),
    ]
    kind = draw.choice(["change", "change", "drop", "rename"])
    if kind != "drop":
        part[name if kind == "change" else draw.choice(["", "more", "about", "a" * 300])] = (
            draw.choice(changed)() if kind == "change" else column
        )
    kinds = [(p, [(n, c.dtype, c.shape[1:]) for n, c in cs.items()]) for p, cs in parts.items()]
    forged = np.zeros(len(rows), kinds)
    for p, columns in parts.items():
        for n, c in columns.items():
            forged[p][n] = c
    return forged


def forge_summaries(draw: random.Random, run: Path, folder: Path) -> None:
    """Write summaries for some of the runs that `plan` returns, and forge one of these summaries."""
    folder.mkdir()
    about = json.loads((run / "summary.json").read_text())
    for item in draw.sample(plan([*EXPERIMENTS], ["hexapod"], "laptop"), 4):
        own = {"task": item.task, "label": item.label, "generations": item.generations}
        for seed in item.seeds[:3]:
            summary = about | own | {"seed": seed, "scale": "laptop", "options": {}}
            file = folder / f"{item.name}-seed-{seed}.json"
            file.write_text(json.dumps(summary))
    forge_json(draw, draw.choice(sorted(folder.iterdir())))


def misplace(draw: random.Random, file: Path, outside: Path) -> None:
    """Replace a file by a link, a pipe or a folder, or remove the file."""
    kind = draw.choice(["link", "link to itself", "link to a folder", "pipe", "folder", "nothing"])
    shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink(missing_ok=True)
    if kind == "link":
        file.symlink_to(outside / "valuable")
    elif kind == "link to itself":
        file.symlink_to(file)
    elif kind == "link to a folder":
        file.symlink_to(outside)
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()


def forge(draw: random.Random, folder: Path, outside: Path) -> None:
    """Damage or forge one file of a run folder."""
    kinds = {".json": forge_json, ".csv": forge_table, ".npz": forge_arrays, ".bin": forge_changes}
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        places = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink()]
        name = draw.choice([".lock", "checkpoints", "figures", "config.json.tmp", "more"])
        file = draw.choice([*places, folder / name])
        sound = file.is_file() and not file.is_symlink()
        kind = draw.random()
        if not sound or kind < 0.15:
            misplace(draw, file, outside)
        elif kind < 0.35 or file.suffix not in kinds:
            damage(draw, file)
        else:
            sealed = file.parent.name == "checkpoints" and draw.random() < 0.7
            with contextlib.suppress(Exception):
                (forge_checkpoint if sealed else kinds[file.suffix])(draw, file)  # fails if too damaged


def toml(draw: random.Random) -> str:
    """Return the text of a random TOML file, which may be invalid."""
    return "\n".join(f"{draw.choice(KEYS)} = {draw.choice(ENTRIES)}" for _ in range(draw.randrange(4)))


def command(draw: random.Random) -> list[str]:
    """Return a random command for the forged run in `run`, or a command with unusual arguments."""
    kind = draw.choice(KINDS)
    words = {
        "read": ["read", "run"],
        "compare": ["compare", "run", "--out", draw.choice(["comparison", "run", "."])],
        "merge": [
            *("merge", "run", draw.choice(["run/archive.npz", "run/corrected.npz", "r*", "."])),
            *("--out", draw.choice(["merged.npz", "run/archive.npz", "run"])),
            *draw.choice([[], ["--corrected"]]),
        ],
        "plot": ["plot", draw.choice(["run", ".", "r*"])],
        "resume": ["resume", "run", "--quiet", "--generations", draw.choice(["3", "31"])],
        "reevaluate": ["reevaluate", "run", "--quiet", "--samples", "2"],
        "replay": ["replay", "run", *draw.choice([["--sheet", "sheet.png"], ["--video", "a.gif"], []])],
        "view": ["view", *draw.choice([["run"], ["."], ["run", "r*"]])],
        "list": ["list"],
        "doctor": ["doctor"],
        "reproduce": [
            *("reproduce", draw.choice(["all", "local"]), "--report-only", "--summaries"),
            draw.choice(["run", "summaries", "summaries", "summaries"]),
            *("--out", draw.choice(["reproduction", "run", "."]), "--scale", "laptop"),
        ],
        "export": [
            *("export", "run", "--to", draw.choice(["csv", "npz", "parquet", "tensorboard", "policy"])),
            *draw.choice([[], [], ["--out", "run"], ["--out", "new"], ["--out", "."]]),
        ],
        "video": ["video", "run", "--out", "video.gif", *VIDEO],
        "run": [*QUICK, "out", *draw.choice([[], ["--config", "a.toml"]])],
        "completion": ["completion", draw.choice(["bash", "zsh"])],
        "check": ["check", "noisy-arm", "--joints", "3", "--genotypes", "4"],
    }[kind]
    odd = 0.9 if kind in ("run", "list", "doctor", "check") else 0.1
    for _ in range(draw.randrange(1, 4) if draw.random() < odd else 0):
        words.insert(draw.randrange(1, len(words) + 1), draw.choice(WORDS))
    return words


@contextlib.contextmanager
def briefly() -> Any:
    """Let `memes view` stop after a few iterations, and skip the slow self-check of `memes doctor`."""

    def browse(*arguments: Any, **options: Any) -> None:
        turns = iter(range(TURNS))
        options["going"] = lambda: next(turns, None) is not None
        browser.browse(*arguments, **options)

    before = view.browse, replay.browse, doctor.self_check
    view.browse, replay.browse, doctor.self_check = browse, browse, dict
    try:
        yield
    finally:
        view.browse, replay.browse, doctor.self_check = before


def read(run: str) -> int:
    """Read all files of a run with the functions of the library, and return an exit code."""
    readers: tuple[Callable[[str], object], ...] = (
        memes.load_run, memes.load_archive, memes.load_changes, load_summary,
    )  # fmt: skip
    codes = []
    for load in readers:
        try:
            load(run)
            codes.append(0)
        except memes.UsageError:
            codes.append(2)
    return max(codes)


def perform(words: list[str]) -> tuple[int | str | None, str]:
    """Run a command, and return its exit code and output. Only `SystemExit` is caught."""

    def late(signum: int, frame: object) -> None:
        raise TookTooLongError

    printed = io.StringIO()
    before = {each: signal.signal(each, late) for each in (signal.SIGALRM, signal.SIGPROF)}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # CPU time, because other programs may be running
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(),
            briefly(),
        ):
            warnings.simplefilter("ignore")  # matplotlib cannot draw some characters
            code: int | str | None = read(words[1]) if words[0] == "read" else memes_command(words)
    except SystemExit as asked:
        code = asked.code
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        for each, handler in before.items():
            signal.signal(each, handler)
    return code, printed.getvalue()


def templates(folder: Path) -> list[Path]:
    """Return two undamaged run folders, written by this version and by an older version of memes."""
    new = folder / "new"
    assert perform([*QUICK, str(new)])[0] == 0
    return [new, OLD]


def content(folder: Path) -> dict[str, bytes | None]:
    """Return all files of a folder with their contents, and all subfolders."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def operate(draw: random.Random, originals: list[Path], scratch: Path) -> tuple[list[str], Any, str]:
    """Run a command on a forged run. Return the command, its exit code, and the failure, if any."""
    outside, here = scratch / "outside", scratch / "here"
    shutil.rmtree(here, ignore_errors=True)
    outside.mkdir(exist_ok=True)
    (outside / "valuable").write_text("valuable")
    (outside / "00000001.npz.tmp").write_text("valuable")
    before = content(outside)
    original = draw.choice(originals)
    shutil.copytree(original, here / "run")
    forge(draw, here / "run", outside)
    (here / "a.toml").write_text(toml(draw))
    words, wrong, code, back = command(draw), "", None, Path.cwd()
    if "summaries" in words:
        forge_summaries(draw, original, here / "summaries")
    os.chdir(here)
    try:
        code, printed = perform(words)
        if "Traceback" in printed or code not in (0, 1, 2):
            wrong = printed
        obeyed = {c for c in "\x1b\u202e" if c in printed} - set("".join(words))
        wrong = wrong or (f"printed {obeyed}" if obeyed else "")
    except TookTooLongError:
        wrong = "took too long:\n" + traceback.format_exc()
    except Exception:
        wrong = traceback.format_exc()
    finally:
        os.chdir(back)
    if content(outside) != before:
        wrong = f"{wrong}\nwrote outside"
    return words, code, wrong


@dataclasses.dataclass
class Settings:
    """Settings of the test."""

    operations: int = 3000
    seed: int = 0
    seconds: float = float("inf")
    """Time limit in seconds."""


def main(s: Settings) -> int:
    codes: Counter[Any] = Counter()
    failed, longest, start = 0, 0.0, time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        originals = templates(Path(scratch))
        for i in range(s.operations):
            draw, began = random.Random(f"{s.seed}-{i}"), time.perf_counter()
            words, code, wrong = operate(draw, originals, Path(scratch))
            longest = max(longest, time.perf_counter() - began)
            codes[words[0], code] += 1
            if wrong:
                failed += 1
                print(f"operation {i}: {words}\n{wrong}", flush=True)
            if i % 100 == 99:
                print(f"{i + 1} operations, {time.perf_counter() - start:.0f} s", flush=True)
            if time.perf_counter() - start > s.seconds:
                print(f"stopped after {i + 1} operations: the time limit is {s.seconds} s", flush=True)
                break
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    for (name, code), n in sorted(codes.items(), key=str):
        print(f"{name:12}exit code {code}: {n}")
    print(f"{codes.total()} operations, {failed} failed; the longest {longest:.1f} s; {memory:.1f} GiB")
    return failed > 0 or memory > MOST_MEMORY


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Settings)))
