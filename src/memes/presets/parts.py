"""What presets share: their record, and parts by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import optax

from memes import strategies
from memes.algorithm import Algorithm
from memes.errors import require
from memes.hints import checked
from memes.strategies import Strategy
from memes.strategies.noise import Noise, gaussian, low_rank
from memes.task import Task

RANK = 4  # of low-rank noise, unless said otherwise


def recorded(build: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Let the algorithm that a preset builds carry its name and its hyper-parameters."""
    signature = inspect.signature(build)

    @wraps(build)
    def build_and_record(*arguments: Any, **keywords: Any) -> Algorithm:
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        options = {k: v for k, v in bound.arguments.items() if k not in ("task", "cells")}
        name = build.__name__.replace("_", "-")
        return checked(build)(*arguments, **keywords)._replace(name=name, options=options)

    return build_and_record


def noise_of(task: Task, noise: str, rank: int) -> Noise:
    """Noise by name, in the shapes of the task's matrices where it has any."""
    kinds: dict[str, Callable[[], Noise]] = {
        "gaussian": lambda: gaussian,
        "low-rank": lambda: low_rank(rank, task.control and task.control.controller.blocks),
    }
    require(noise in kinds, f"noise must be one of {', '.join(kinds)}, got '{noise}'")
    require(
        noise == "low-rank" or rank == RANK,
        f"rank is that of noise 'low-rank', got {rank} with '{noise}'",
    )
    return kinds[noise]()


def search_of(
    strategy: str,
    samples: int,
    sigma: float,
    learning_rate: float,
    l2: float,
    noise: Noise = gaussian,
) -> Strategy:
    """A search distribution by name: openai-es with Adam, or one of evosax."""
    if strategy != "openai-es":
        return strategies.evosax(strategy, samples=samples, sigma=sigma)
    require(
        0 < learning_rate < math.inf,
        f"learning_rate must be positive and finite, got {learning_rate}",
    )
    optimiser = optax.adam(learning_rate)
    return strategies.openai_es(samples=samples, sigma=sigma, optimiser=optimiser, l2=l2, noise=noise)
