"""Observers that pass the metrics of a run to a function or to a tool such as TensorBoard."""

from __future__ import annotations

import inspect
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from memes.errors import UsageError, in_a_line, install, require
from memes.runner.observers import Callbacks, RunContext, Update
from memes.store.folder import Run
from memes.store.schema import plain
from memes.store.tensorboard import append_scalars, new_events
from memes.validation import check_fields

EVENTS = "tensorboard"
NAMED = (EVENTS, "wandb")
Rows = list[tuple[int, dict[str, float]]]
Send = Callable[[Rows], object]


@dataclass(frozen=True)
class LogFunction:
    """Pass the metrics of each generation and of each correction to a function.

    Attributes:
        log: Function `(generation, metrics)`. `metrics` is a dict from column names of `metrics.csv` to
            numbers. After a correction, the names start with `corrected/`.
    """

    log: Callable[[int, dict[str, float]], object]

    def __post_init__(self) -> None:
        check_fields(self)

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""

        def send(rows: Rows) -> None:
            for generation, metrics in rows:
                self.log(generation, metrics)

        return _following(send)


@dataclass(frozen=True)
class Logger:
    """Pass the metrics of a run to TensorBoard, to Weights & Biases or to a similar tool.

    Attributes:
        to: Name of the tool. `tensorboard` writes event files into the folder of the run, and requires
            no package. Any other name is imported as a module with the functions `init`, `log` and
            `finish`, such as `wandb`.
    """

    to: str

    def __post_init__(self) -> None:
        check_fields(self)
        check_logger(self.to)

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""
        send, close = (_events if self.to == EVENTS else _module(self.to))(context)
        context.closing(close)
        return _following(lambda rows: send([(g, _finite(metrics)) for g, metrics in rows]))


def check_logger(name: str) -> None:
    """Raise a `UsageError` if a tool is not available."""
    try:
        there = name == EVENTS or find_spec(name) is not None
    except (ImportError, ValueError):
        there = False
    near = get_close_matches(name, [known for known in NAMED if known != name], n=1, cutoff=0.7)
    brings = install("track") if name in NAMED else f"'pip install {name}' may provide it"
    meant = f"did you mean '{near[0]}'?" if near else brings
    require(there, f"track: there is no module '{name}' here: {meant}")


def _following(send: Send) -> Callbacks:
    """Return callbacks that send the metrics of each generation and of each correction exactly once."""
    corrections = 0

    def on_start(run: Run) -> None:
        nonlocal corrections
        corrections = len(run.corrected.get("generation", ()))

    def corrected(run: Run) -> Rows:
        nonlocal corrections
        rows = _rows(run.corrected, corrections, "corrected/")
        corrections += len(rows)
        return rows

    def on_update(update: Update) -> None:
        send(_rows(update.rows) + corrected(update.run))

    def on_end(run: Run) -> None:
        send(corrected(run))

    return Callbacks(on_start=on_start, on_update=on_update, on_end=on_end)


def _rows(columns: Mapping[str, np.ndarray], first: int = 0, prefix: str = "") -> Rows:
    names = [f"{prefix}{name}" for name in columns]
    rows = list(zip(*columns.values(), strict=True))[first:]
    generations = columns.get("generation", np.zeros(0))[first:]
    return [
        (int(generation), dict(zip(names, map(float, row), strict=True)))
        for generation, row in zip(generations, rows, strict=True)
    ]


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _events(context: RunContext) -> tuple[Send, Callable[[], object]]:
    require(context.folder is not None, f"track: {EVENTS} needs a run with a folder; set out")
    assert context.folder is not None
    file = new_events(context.folder / EVENTS)

    def send(rows: Rows) -> None:
        append_scalars(file, [(time.time(), generation, metrics) for generation, metrics in rows])

    return send, lambda: None


def _module(name: str) -> Callable[[RunContext], tuple[Send, Callable[[], object]]]:
    """Return a function that starts logging through a `wandb`-compatible module.

    The functions of the module may accept fewer arguments than the functions of `wandb`.
    """

    def begin(context: RunContext) -> tuple[Send, Callable[[], object]]:
        tracker = import_module(name)
        entries = json.loads(json.dumps(context.header.entries(), default=plain))
        config = context.config
        group = f"{config.task_name}-{config.algorithm}"
        folder = None if context.folder is None else str(context.folder)
        given = {
            "project": "memes",
            "name": f"{group}-{config.seed}",
            "group": group,
            "config": entries,
            "dir": folder,
            "reinit": "create_new",  # parallel seeds are separate runs
        }
        try:
            opened = _call(tracker.init, given)
        except Exception as error:  # any exception is possible, e.g. if the user is not logged in
            raise UsageError(f"track: {name} failed to start: {in_a_line(error)}") from error
        log = getattr(opened, "log", None) or tracker.log
        close: Callable[[], object] = getattr(opened, "finish", None) or tracker.finish

        def send(rows: Rows) -> None:
            for generation, metrics in rows:
                _call(log, {"step": generation}, metrics)

        return send, close

    return begin


def _call(function: Callable[..., Any], keywords: Mapping[str, Any], *arguments: Any) -> Any:
    """Call a function, and pass only the keyword arguments that it accepts."""
    known = inspect.signature(function).parameters
    every = any(each.kind is each.VAR_KEYWORD for each in known.values())
    return function(*arguments, **{k: v for k, v in keywords.items() if every or k in known})
