"""Options of the search distribution of each lane. Several presets share these options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import optax

from memes.errors import positive, require
from memes.strategies import Evosax, Gaussian, LowRank, Noise, OpenAIES, Strategy
from memes.task import Task
from memes.validation import check_fields

RANK = 4  # default of low-rank noise


@dataclass(frozen=True)
class Search:
    """The options of the search distribution of each lane.

    Attributes:
        samples: Number of samples per lane and generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Learning rate of Adam, which updates each mean.
        l2: Strength of the L2 regularisation of the means.
        noise: Distribution of the samples: gaussian or low-rank. In Python, the value can also be a
            `Noise`.
        rank: Rank of the matrices of low-rank noise.
        noise_dtype: Type of the noise: float32 or bfloat16. On a GPU, bfloat16 halves the amount of
            memory that robot policies read.
        strategy: Search distribution of each lane: openai-es, or the name of an evosax strategy, such as
            sep-cma-es or snes. The options learning_rate, l2 and noise do not apply to evosax
            strategies. In Python, the value can also be a `Strategy`, to which none of the other options
            applies.
        optimiser: Function that returns an optax optimiser for a learning rate, such as `optax.sgd`. The
            default is `optax.adam`.
    """

    samples: int = 512
    sigma: float = 0.02
    learning_rate: float = 0.01
    l2: float = 0.0
    noise: Literal["gaussian", "low-rank"] | Noise = "gaussian"
    rank: int = RANK
    noise_dtype: Literal["float32", "bfloat16"] = "float32"
    strategy: str | Strategy = "openai-es"
    optimiser: Callable[[float], optax.GradientTransformation] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        positive(learning_rate=self.learning_rate)
        require(
            self.noise == "low-rank" or self.rank == RANK,
            f"rank applies only to noise 'low-rank', got {self.rank} with {_named(self.noise)}",
        )
        require(
            self.strategy == "openai-es" or self.noise_dtype == "float32",
            f"noise_dtype applies only to strategy 'openai-es', got {self.noise_dtype} with "
            f"{_named(self.strategy)}",
        )
        require(
            self.strategy == "openai-es" or self.optimiser is None,
            f"optimiser applies only to strategy 'openai-es', got one with {_named(self.strategy)}",
        )

    def strategy_for(self, task: Task) -> Strategy:
        """Build the strategy for a task.

        If the controller of the task has weight matrices, low-rank noise uses their shapes.
        """
        if not isinstance(self.strategy, str):
            return self.strategy
        if self.strategy != "openai-es":
            return Evosax(self.strategy, samples=self.samples, sigma=self.sigma)
        return OpenAIES(
            samples=self.samples,
            sigma=self.sigma,
            learning_rate=self.learning_rate,
            optimiser=self.optimiser or optax.adam,
            l2=self.l2,
            noise=self._noise_for(task),
            noise_dtype=self.noise_dtype,
        )

    def _noise_for(self, task: Task) -> Noise:
        if self.noise == "low-rank":
            return LowRank(self.rank, task.control and task.control.controller.blocks)
        return Gaussian() if isinstance(self.noise, str) else self.noise


def _named(given: object) -> str:
    return f"'{given}'" if isinstance(given, str) else "an object"
