"""Settings of a run: whether they can be, and as `config.json` has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Any

from memes.errors import at_least, require
from memes.hints import check_types
from memes.runner.observers.base import Observer

# The least of each setting that is a number. Those of a `config.json` are checked as well.
LEAST = {
    "generations": 1,
    "seed": 0,
    "call_seconds": 0,
    "chunk": 1,
    "together": 1,
    "seeds_together": 1,
}
NEEDED = ("generations", "seed", "call_seconds")
SEEDS = 2**32


def check_numbers(given: dict[str, Any], where: str = "") -> None:
    """Raise a `UsageError` that names what is no number, or too small."""
    for name, least in LEAST.items():
        value, hint = given.get(name), float if name == "call_seconds" else int
        if value is not None or name in NEEDED:
            check_types({f"{name}{where}": value}, {f"{name}{where}": hint})
            in_range = name != "seed" or 0 <= given[name] < SEEDS
            require(in_range, f"seed{where} must lie in [0, 2^32), got {value}")
            if name != "seed":
                at_least(least, **{f"{name}{where}": given[name]})


def check_same(described: dict[str, Any], config: dict[str, Any], folder: Path) -> None:
    """Raise a `UsageError` unless an algorithm, as described, is that of a run's `config.json`."""
    compared = (
        "algorithm", "task_name", "dim", "cells", "feature_low", "feature_high", "min_fitness",
        "batch_size",
    )  # fmt: skip
    pairs = [(name, described[name], config.get(name)) for name in compared]
    pairs += [(name, found, config["options"].get(name)) for name, found in described["options"].items()]
    for name, found, expected in pairs:
        require(found == expected, f"{name} of the run in '{folder}' is {expected}, got {found}")


def check_observers(observers: Sequence[Any]) -> None:
    """Raise a `UsageError` that names what cannot watch a run."""
    for observer in observers:
        can_watch = callable(getattr(observer, "watch", None)) and not isinstance(observer, type)
        require(can_watch, f"observers must each have a method watch, got {observer!r}")


def settings_of(observers: Sequence[Observer]) -> dict[str, Any]:
    """The settings of observers as `config.json` has them: by prefix, or by the observer's name."""
    found: dict[str, Any] = {}
    for observer in observers:
        own: tuple[Field[Any], ...] = fields(observer) if is_dataclass(observer) else ()
        values = {field.name: getattr(observer, field.name) for field in own}
        prefix = getattr(observer, "prefix", None)
        if prefix is not None:
            found |= {f"{prefix}_{name}": value for name, value in values.items()}
        else:
            found.setdefault("observers", {})[type(observer).__name__] = values
    return found
