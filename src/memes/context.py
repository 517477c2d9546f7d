"""The context of a generation: the data that parts of an algorithm may read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from memes.archive import Archive
from memes.control.rollouts import Transition
from memes.history import Past
from memes.task import Evaluation, Task


class Kind(IntEnum):
    """The purpose for which a candidate was made."""

    EXPLOIT = 0
    EXPLORE = 1
    VARIATION = 2


class Comparison(NamedTuple):
    """Evaluations compared with a judge, independently of each other.

    Attributes:
        status: The `Status` that the evaluation would get if it were offered alone.
        value: Fitness minus the fitness that it has to exceed; the fitness itself in an empty cell.
    """

    status: Int[Array, "*n"]
    value: Float[Array, "*n"]


class Parents(NamedTuple):
    """The individuals that selectors choose from; `fitness` is -inf in unused rows."""

    genotypes: Float[Array, "p d"]
    fitness: Float[Array, " p"]
    feature: Float[Array, "p k"]
    generation: Int[Array, " p"]

    @property
    def occupied(self) -> Bool[Array, " p"]:
        """The rows with an individual."""
        return self.fitness > -jnp.inf


@dataclass(frozen=True)
class Context:
    """The data of a generation that parts of an algorithm may read.

    Attributes:
        task: The task.
        generation: Number of the generation.
        archive: The archive; in a `tell` it includes this generation.
        parents: The individuals that selectors choose from: the archive, or those of the judge. In a
            `tell` they include this generation.
        past: The history; in a `tell` it includes this generation.
        compare: `(evaluation[*n]) -> Comparison` with the judge as it was before this generation.
        transitions: Transitions of all evaluations in a `tell`, if the emitter learns from them.
    """

    task: Task
    generation: Int[Array, ""]
    archive: Archive
    parents: Archive | Parents
    past: Past
    compare: Callable[[Evaluation], Comparison]
    transitions: Transition | None = None
