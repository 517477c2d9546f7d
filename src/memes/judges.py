"""Judges: they decide whether a candidate made progress, and what samples are ranked against.

The archive is the result of a run, and each of its cells keeps the fittest. A judge may be more lenient:
MEMES-all ignores the samples, and CMA-MAE raises its thresholds slowly. The fields of a `Comparison`
have the meaning that they have in pyribs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, PyTree

from memes import archive as archives
from memes.archive import Archive, Entries, Status
from memes.cells import Cells
from memes.context import Comparison
from memes.errors import in_unit_interval, require
from memes.task import Evaluation
from memes.validation import check_fields


@runtime_checkable
class Judge(Protocol):
    """The rule by which candidates make progress. `archive` is the one before the generation."""

    def init(self, cells: Cells) -> PyTree:
        """Return the first state."""

    def compare(self, state: PyTree, archive: Archive, evaluation: Evaluation) -> Comparison:
        """Compare evaluations [*n] with the present state, each by itself; objectives rank by it."""

    def update(
        self, state: PyTree, archive: Archive, candidates: Entries, added: Int[Array, " n"]
    ) -> tuple[PyTree, Int[Array, " n"]]:
        """Return the next state and the `Status` of each candidate; `added` is the archive's status."""


@dataclass(frozen=True)
class SameArchive:
    """The archive itself: a candidate makes progress if it enters the archive."""

    def init(self, cells: Cells) -> tuple[()]:
        """Return an empty state."""
        return ()

    def compare(self, state: tuple[()], archive: Archive, evaluation: Evaluation) -> Comparison:
        """Compare evaluations with the elites of their cells."""
        elite = archive.fitness[archive.cells.index(evaluation.feature)]
        new = elite == -jnp.inf
        better = jnp.where(evaluation.fitness > elite, Status.IMPROVED, Status.REJECTED)
        value = evaluation.fitness - jnp.where(new, 0.0, elite)
        return Comparison(jnp.where(new, Status.NEW, better), value)

    def update(
        self, state: tuple[()], archive: Archive, candidates: Entries, added: Int[Array, " n"]
    ) -> tuple[tuple[()], Int[Array, " n"]]:
        """Return the status that the archive gave."""
        return state, added


@dataclass(frozen=True)
class CandidateArchive:
    """A second archive that only candidates enter, for algorithms that offer samples too (MEMES-all).

    The mean of a lane rarely exceeds the best of all samples. Compared with the result archive, nearly
    every lane would be reset.
    """

    def init(self, cells: Cells) -> Archive:
        """Return an empty archive without genotypes."""
        return archives.empty(cells, 0)

    def compare(self, state: Archive, archive: Archive, evaluation: Evaluation) -> Comparison:
        """Compare evaluations with the best candidates of their cells."""
        return SameArchive().compare((), state, evaluation)

    def update(
        self, state: Archive, archive: Archive, candidates: Entries, added: Int[Array, " n"]
    ) -> tuple[Archive, Int[Array, " n"]]:
        """Offer the candidates to the second archive."""
        _, evaluation, offered, lane = candidates
        return archives.add(
            state, jnp.zeros((lane.size, 0)), evaluation, offered, lane=lane, generation=0
        )


@dataclass(frozen=True)
class Thresholds:
    """A threshold per cell that rises slowly towards the fitness of what exceeds it.

    It is the acceptance rule of CMA-MAE (Fontaine and Nikolaidis, 2023). A candidate of fitness f in
    cell e is accepted if f > t_e, and then t_e becomes (1 - a) t_e + a f. For n candidates of one batch
    that are accepted in the same cell, t_e becomes (1 - a)^n t_e + (1 - (1 - a)^n) times the mean of
    their fitness, which does not depend on their order (pyribs does the same).

    Attributes:
        learning_rate: The rate a. With 1 the rule is that of an archive, with 0 thresholds stay.
        threshold_min: First threshold of each cell.
    """

    learning_rate: float = 0.01
    threshold_min: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        in_unit_interval(learning_rate=self.learning_rate)
        least = self.threshold_min
        require(abs(least) < archives.LIMIT, f"threshold_min must be finite, got {least}")

    def init(self, cells: Cells) -> Float[Array, " c"]:
        """Return the lowest threshold for every cell."""
        return jnp.full(cells.count, self.threshold_min, jnp.float32)

    def compare(self, state: Float[Array, " c"], archive: Archive, evaluation: Evaluation) -> Comparison:
        """Compare evaluations with the thresholds of their cells."""
        cell = archive.cells.index(evaluation.feature)
        accepted = jnp.where(archive.occupied[cell], Status.IMPROVED, Status.NEW)
        status = jnp.where(evaluation.fitness > state[cell], accepted, Status.REJECTED)
        return Comparison(status, evaluation.fitness - state[cell])

    def update(
        self, state: Float[Array, " c"], archive: Archive, candidates: Entries, added: Int[Array, " n"]
    ) -> tuple[Float[Array, " c"], Int[Array, " n"]]:
        """Raise the thresholds of the cells in which candidates are accepted."""
        evaluation = candidates.evaluation
        valid = candidates.offered & archives.finite(evaluation)
        status = jnp.where(valid, self.compare(state, archive, evaluation).status, Status.REJECTED)
        accepted = status != Status.REJECTED
        cell = jnp.where(accepted, archive.cells.index(evaluation.feature), state.size)
        # A sum per candidate over its cell, not a scatter: floats must be added in a fixed order.
        together = (cell[:, None] == cell) & accepted
        count = jnp.sum(together, axis=1)
        mean = jnp.sum(jnp.where(together, evaluation.fitness, 0.0), axis=1) / jnp.maximum(count, 1)
        kept = (1 - self.learning_rate) ** count
        raised = kept * state.at[cell].get(mode="fill", fill_value=0.0) + (1 - kept) * mean
        return state.at[cell].set(raised, mode="drop"), status.astype(jnp.int32)
