"""What a run is asked to do: checked, and as `config.json` says it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memes.algorithm import Algorithm
from memes.errors import require
from memes.hints import fits
from memes.runner.device import calls
from memes.runner.observers.corrections import check_statistic
from memes.store.provenance import describe

# The settings that are whole numbers, and the least of each.
LEAST = {
    "seed": 0,
    "generations": 1,
    "generations_per_call": 1,
    "checkpoint_every": 0,
    "chunk": 1,
    "reevaluate_every": 0,
    "reevaluate_samples": 1,
}
REQUIRED = {"seed", "generations"}  # the others may be None


def configure(
    algorithm: Algorithm,
    *,
    generations: int,
    seed: int,
    generations_per_call: int | None,
    checkpoint_every: int | None,
    chunk: int | None,
    reevaluate_every: int | None,
    reevaluate_samples: int,
    statistic: str,
    settings: dict[str, Any] | None,
) -> dict[str, Any]:
    """What `config.json` says of a run when it starts, from the checked arguments of `run`."""
    numbers = {
        "seed": seed,
        "generations": generations,
        "generations_per_call": generations_per_call,
        "checkpoint_every": checkpoint_every,
        "chunk": chunk,
        "reevaluate_every": reevaluate_every if algorithm.task.uncertain else 0,
        "reevaluate_samples": reevaluate_samples,
    }
    check_numbers(numbers | {"reevaluate_every": reevaluate_every})
    check_statistic(statistic)
    if generations_per_call is None and not algorithm.task.jit:
        generations_per_call = 1  # the simulator decides the pace; show every generation
    lengths = calls(generations, generations_per_call, checkpoint_every, numbers["reevaluate_every"])
    return {
        **describe(algorithm),
        **(settings or {}),
        **numbers,
        "generations_per_call": lengths[0],
        "statistic": statistic,
    }


def check_numbers(given: Mapping[str, Any], where: str = "") -> None:
    """Raise a `UsageError` that names what is no whole number, or too small."""
    for name, least in LEAST.items():
        value: Any = given.get(name)
        if value is None and name not in REQUIRED:
            continue
        require(
            fits(value, int),
            f"{name}{where} must be a whole number, got {value!r}",
        )
        if name == "seed":
            require(0 <= value < 2**32, f"seed{where} must lie in [0, 2^32), got {value}")
        require(value >= least, f"{name}{where} must be at least {least}, got {value}")


def check_same(about: dict[str, Any], config: dict[str, Any], folder: Path) -> None:
    """Raise a `UsageError` unless an algorithm, as described, is that of a run's `config.json`."""
    compared = (
        "algorithm", "task_name", "dim", "cells", "feature_low", "feature_high", "min_fitness",
        "batch_size",
    )  # fmt: skip
    pairs = [(name, about[name], config.get(name)) for name in compared]
    pairs += [(name, found, config["options"].get(name)) for name, found in about["options"].items()]
    for name, found, expected in pairs:
        require(
            found == expected,
            f"{name} of the run in '{folder}' is {expected}, got {found}",
        )
