"""Parts that presets share: the options of a search, and the record of all options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

import optax

from memes.algorithm import Algorithm
from memes.errors import positive, require
from memes.hints import check_fields
from memes.parameters import flat, recordable
from memes.strategies import Strategy, evosax, openai_es
from memes.strategies.noise import Noise, gaussian, low_rank
from memes.task import Task

RANK = 4  # of low-rank noise, unless said otherwise


@dataclass(frozen=True)
class Search:
    """The search distribution of each lane.

    Attributes:
        samples: Samples of each lane in a generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Of Adam, which moves each mean.
        l2: Pull of the means towards zero.
        noise: Of the samples: gaussian, or low-rank, whose matrices are of the given rank. In Python
            also a function, as those of `memes.strategies.noise`.
        rank: Of low-rank noise.
        strategy: Search distribution of each lane: openai-es, or one of evosax by name, such as
            sep-cma-es or snes, to which learning_rate, l2 and noise do not apply. In Python also a
            `Strategy`, to which none of these options applies.
        optimiser: Any optimiser of optax in place of Adam; learning_rate does not apply to it.
    """

    samples: int = 512
    sigma: float = 0.02
    learning_rate: float = 0.01
    l2: float = 0.0
    noise: Literal["gaussian", "low-rank"] | Noise = "gaussian"
    rank: int = RANK
    strategy: str | Strategy = "openai-es"
    optimiser: optax.GradientTransformation | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        positive(learning_rate=self.learning_rate)
        require(
            self.noise == "low-rank" or self.rank == RANK,
            f"rank is that of noise 'low-rank', got {self.rank} with {_named(self.noise)}",
        )
        require(
            self.strategy == "openai-es" or self.optimiser is None,
            f"optimiser is that of strategy 'openai-es', got one with {_named(self.strategy)}",
        )

    def strategy_for(self, task: Task) -> Strategy:
        """Build the strategy; low-rank noise has the shapes of the task's matrices, if it has any."""
        if isinstance(self.strategy, Strategy):
            return self.strategy
        if self.strategy != "openai-es":
            return evosax(self.strategy, samples=self.samples, sigma=self.sigma)
        return openai_es(
            samples=self.samples,
            sigma=self.sigma,
            optimiser=self.optimiser or optax.adam(self.learning_rate),
            l2=self.l2,
            noise=self._noise_for(task),
        )

    def _noise_for(self, task: Task) -> Noise:
        if self.noise == "low-rank":
            return low_rank(self.rank, task.control and task.control.controller.blocks)
        return gaussian if isinstance(self.noise, str) else self.noise


def _named(given: object) -> str:
    return f"'{given}'" if isinstance(given, str) else "an object"


def recorded(build: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Make a preset of a function: it is `flat`, and its algorithm carries its name and its options."""
    function = flat(build)
    signature = inspect.signature(function)

    @wraps(function)
    def build_and_record(*arguments: Any, **keywords: Any) -> Algorithm:
        algorithm = function(*arguments, **keywords)
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        options = {k: recordable(v) for k, v in bound.arguments.items() if k not in ("task", "cells")}
        return algorithm._replace(name=build.__name__.replace("_", "-"), options=options)

    return build_and_record
