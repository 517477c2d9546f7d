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
    """The purpose of a candidate."""

    EXPLOIT = 0
    EXPLORE = 1
    VARIATION = 2


class Comparison(NamedTuple):
    """The result of comparing each evaluation with a judge's state, independently of other evaluations.

    Attributes:
        status: The `Status` that each evaluation would get from the judge.
        value: The fitness of each evaluation minus the fitness that the evaluation has to exceed. If the
            judge is an archive and the cell is empty, the value is the fitness.
    """

    status: Int[Array, "*n"]
    value: Float[Array, "*n"]


class Parents(NamedTuple):
    """The individuals from which selectors choose. Unused rows have a `fitness` of -inf."""

    genotypes: Float[Array, "p d"]
    fitness: Float[Array, " p"]
    feature: Float[Array, "p k"]
    generation: Int[Array, " p"]

    @property
    def occupied(self) -> Bool[Array, " p"]:
        """The rows that contain an individual."""
        return self.fitness > -jnp.inf


@dataclass(frozen=True)
class Context:
    """The data of a generation that parts of an algorithm may read.

    Attributes:
        task: The task.
        generation: Number of the generation.
        archive: The archive. During `tell`, it includes the candidates of this generation.
        parents: The individuals from which selectors choose: the elites of the archive or the
            individuals of the judge. During `tell`, they include the candidates of this generation.
        past: The history. During `tell`, it includes the candidates of this generation.
        compare: `(evaluation[*n]) -> Comparison`, which compares evaluations with the judge's state
            before this generation.
        transitions: Transitions of all evaluations during `tell`, if the emitter learns from
            transitions.
    """

    task: Task
    generation: Int[Array, ""]
    archive: Archive
    parents: Archive | Parents
    past: Past
    compare: Callable[[Evaluation], Comparison]
    transitions: Transition | None = None
