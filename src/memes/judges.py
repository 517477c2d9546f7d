"""Judges: rules that determine whether a candidate makes progress. Some objectives also use these rules.

The archive is the result of a run, and each cell of the archive stores the fittest candidate. By
default, the archive is also the judge. Other judges use other rules:

- The judge of MEMES-all is a second archive that ignores samples.
- The judge of CMA-MAE has thresholds that rise slowly.
- The judge of dominated novelty search stores a population from which parents are selected.
- The judge of Extract-ME (`memes.deep_archive`) stores several individuals per cell, and determines the
  elites of the archive.

The fields `status` and `value` of a `Comparison` have the same meaning as in pyribs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, PyTree

from memes import archive as archives
from memes.archive import Archive, Entries, Fetch, Status, rows_at
from memes.cells import Cells
from memes.context import Comparison as Comparison
from memes.context import Parents
from memes.errors import at_least, in_unit_interval, require
from memes.history import HIGHEST, dominated_novelty
from memes.task import Evaluation
from memes.validation import check_fields


class Offer(NamedTuple):
    """The candidates of a generation.

    Attributes:
        candidates: The candidates and their evaluations.
        added: The `Status` that the archive gave to each candidate.
        generation: Number of the generation.
        fetch: A function `(candidates.x, row[w]) -> genotypes[w, d]`, as in `archive.add`.
    """

    candidates: Entries
    added: Int[Array, " n"]
    generation: Int[Array, ""] | int
    fetch: Fetch = rows_at


@runtime_checkable
class Judge(Protocol):
    """A rule that determines which candidates make progress.

    In all methods except `parents`, the argument `archive` is the archive before the generation.
    """

    def init(
        self, cells: Cells, dim: int, extras: Mapping[str, jax.ShapeDtypeStruct] | None = None
    ) -> PyTree:
        """Return the initial state for genotypes with `dim` entries.

        `extras` maps the name of each extra field of an elite to its shape and dtype.
        """

    def parents(self, state: PyTree, archive: Archive) -> Archive | Parents:
        """Return the individuals from which selectors choose.

        In this method, the argument `archive` is the archive after the generation.
        """

    def compare(self, state: PyTree, archive: Archive, evaluation: Evaluation) -> Comparison:
        """Compare each evaluation `[*n]` with the current state, independently of all other evaluations.

        Objectives use the comparison to rank samples.
        """

    def update(self, state: PyTree, archive: Archive, offer: Offer) -> tuple[PyTree, Int[Array, " n"]]:
        """Return the new state and the `Status` of each candidate."""

    def elites(
        self, state: PyTree, archive: Archive, generation: Int[Array, ""] | int
    ) -> Archive | None:
        """Return the archive after the generation, or None if the judge does not determine the elites.

        If the result is None, each cell of the archive keeps its fittest candidate.
        """


@dataclass(frozen=True)
class SameArchive:
    """The rule of a plain archive: a candidate makes progress if it enters the archive."""

    def init(
        self, cells: Cells, dim: int, extras: Mapping[str, jax.ShapeDtypeStruct] | None = None
    ) -> tuple[()]:
        """Return an empty state."""
        return ()

    def parents(self, state: tuple[()], archive: Archive) -> Archive:
        """Return the archive."""
        return archive

    def compare(self, state: tuple[()], archive: Archive, evaluation: Evaluation) -> Comparison:
        """Compare evaluations with the elites in their cells."""
        elite = archive.fitness[archive.cells.index(evaluation.feature)]
        new = elite == -jnp.inf
        better = jnp.where(evaluation.fitness > elite, Status.IMPROVED, Status.REJECTED)
        value = evaluation.fitness - jnp.where(new, 0.0, elite)
        return Comparison(jnp.where(new, Status.NEW, better), value)

    def update(
        self, state: tuple[()], archive: Archive, offer: Offer
    ) -> tuple[tuple[()], Int[Array, " n"]]:
        """Return the status that the archive gave to each candidate."""
        return state, offer.added

    def elites(self, state: tuple[()], archive: Archive, generation: Int[Array, ""] | int) -> None:
        """Return None, because the archive keeps the fittest candidates."""


@dataclass(frozen=True)
class CandidateArchive:
    """A second archive that contains no samples, for algorithms that also offer samples (MEMES-all).

    The mean of a lane is rarely fitter than the best sample in its cell. If means were compared with an
    archive that contains samples, nearly every lane would be reset.
    """

    def init(
        self, cells: Cells, dim: int, extras: Mapping[str, jax.ShapeDtypeStruct] | None = None
    ) -> Archive:
        """Return an empty archive without genotypes."""
        return archives.empty(cells, 0)

    def parents(self, state: Archive, archive: Archive) -> Archive:
        """Return the archive."""
        return archive

    def compare(self, state: Archive, archive: Archive, evaluation: Evaluation) -> Comparison:
        """Compare evaluations with the best candidates in their cells."""
        return SameArchive().compare((), state, evaluation)

    def update(self, state: Archive, archive: Archive, offer: Offer) -> tuple[Archive, Int[Array, " n"]]:
        """Offer the candidates to the second archive."""
        _, evaluation, offered, lane, _ = offer.candidates
        return archives.add(
            state, jnp.zeros((lane.size, 0)), evaluation, offered, lane=lane, generation=0
        )

    def elites(self, state: Archive, archive: Archive, generation: Int[Array, ""] | int) -> None:
        """Return None, because the archive keeps the fittest candidates."""


@dataclass(frozen=True)
class Thresholds:
    """A judge whose threshold in each cell rises slowly to the fitness of accepted candidates.

    This is the acceptance rule of CMA-MAE (Fontaine and Nikolaidis, 2023). A candidate with fitness f in
    cell e is accepted if f > t_e. The threshold t_e then becomes (1 - a) t_e + a f. If the cell accepts
    n candidates of the same batch, with mean fitness f', the threshold becomes
    (1 - a)^n t_e + (1 - (1 - a)^n) f'. This result does not depend on the order of the candidates, and
    is the same as in pyribs.

    Attributes:
        learning_rate: Learning rate `a` of the thresholds. With `a = 1`, a candidate is accepted under
            the same condition as in an archive. With `a = 0`, the thresholds are constant.
        threshold_min: Initial threshold of each cell.
    """

    learning_rate: float = 0.01
    threshold_min: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        in_unit_interval(learning_rate=self.learning_rate)
        least = self.threshold_min
        require(abs(least) < archives.LIMIT, f"threshold_min must be finite, got {least}")

    def init(
        self, cells: Cells, dim: int, extras: Mapping[str, jax.ShapeDtypeStruct] | None = None
    ) -> Float[Array, " c"]:
        """Return the initial threshold of every cell."""
        return jnp.full(cells.count, self.threshold_min, jnp.float32)

    def parents(self, state: Float[Array, " c"], archive: Archive) -> Archive:
        """Return the archive."""
        return archive

    def compare(self, state: Float[Array, " c"], archive: Archive, evaluation: Evaluation) -> Comparison:
        """Compare evaluations with the thresholds of their cells."""
        cell = archive.cells.index(evaluation.feature)
        accepted = jnp.where(archive.occupied[cell], Status.IMPROVED, Status.NEW)
        status = jnp.where(evaluation.fitness > state[cell], accepted, Status.REJECTED)
        return Comparison(status, evaluation.fitness - state[cell])

    def update(
        self, state: Float[Array, " c"], archive: Archive, offer: Offer
    ) -> tuple[Float[Array, " c"], Int[Array, " n"]]:
        """Raise the thresholds of the cells in which candidates are accepted."""
        evaluation = offer.candidates.evaluation
        valid = offer.candidates.offered & archives.finite(evaluation)
        status = jnp.where(valid, self.compare(state, archive, evaluation).status, Status.REJECTED)
        accepted = status != Status.REJECTED
        cell = jnp.where(accepted, archive.cells.index(evaluation.feature), state.size)
        # For each candidate, sum the fitness of the accepted candidates in its cell. A scatter-add to an
        # array of cells would have no fixed order of additions.
        together = (cell[:, None] == cell) & accepted
        count = jnp.sum(together, axis=1)
        mean = jnp.sum(jnp.where(together, evaluation.fitness, 0.0), axis=1) / jnp.maximum(count, 1)
        kept = (1 - self.learning_rate) ** count
        raised = kept * state.at[cell].get(mode="fill", fill_value=0.0) + (1 - kept) * mean
        return state.at[cell].set(raised, mode="drop"), status.astype(jnp.int32)

    def elites(
        self, state: Float[Array, " c"], archive: Archive, generation: Int[Array, ""] | int
    ) -> None:
        """Return None, because the archive keeps the fittest candidates."""


@dataclass(frozen=True)
class DNSPopulation:
    """The population of dominated novelty search (DNS), from which parents are selected.

    The score of an individual i is the mean distance of its feature to the k nearest features of fitter
    individuals: `s_i = 1/k sum_{j in N_k(i)} |b_i - b_j|`. Here N_k(i) contains the k nearest
    individuals among {j : f_j > f_i}. If no individual is fitter, the score is infinite. After each
    generation, the population and the candidates are scored together, and the `size` individuals with
    the highest scores survive. A candidate makes progress if it survives. Reference: Bahlous-Boldi et
    al., Dominated Novelty Search, GECCO 2025, arXiv:2502.00593.

    If fewer than k individuals are fitter, the mean is over all fitter individuals. If two individuals
    are equally fit, the earlier one counts as fitter, and members of the population come before
    candidates. Therefore, one of several identical individuals can survive.

    Attributes:
        size: Number of individuals in the population.
        neighbours: Number k of nearest fitter individuals that determine the score.
    """

    size: int = 1024
    neighbours: int = 3

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, **{"size of the population": self.size}, neighbours=self.neighbours)

    def init(
        self, cells: Cells, dim: int, extras: Mapping[str, jax.ShapeDtypeStruct] | None = None
    ) -> Parents:
        """Return a population without individuals."""
        return Parents(
            genotypes=jnp.zeros((self.size, dim)),
            fitness=jnp.full(self.size, -jnp.inf),
            feature=jnp.zeros((self.size, cells.low.shape[0])),
            generation=jnp.full(self.size, -1, jnp.int32),
        )

    def parents(self, state: Parents, archive: Archive) -> Parents:
        """Return the population."""
        return state

    def compare(self, state: Parents, archive: Archive, evaluation: Evaluation) -> Comparison:
        """Compare the scores of evaluations with the lowest score in the population.

        If the population is not full, every evaluation is accepted. The `value` is the score, or the
        largest float32 if the score is infinite.
        """
        population = Evaluation(state.fitness, state.feature)
        score = dominated_novelty(evaluation, population, self.neighbours)
        own = dominated_novelty(population, population, self.neighbours, itself=True)
        lowest = jnp.min(jnp.where(state.occupied, own, -jnp.inf))
        return Comparison(
            jnp.where(score > lowest, Status.NEW, Status.REJECTED), jnp.minimum(score, HIGHEST)
        )

    def update(self, state: Parents, archive: Archive, offer: Offer) -> tuple[Parents, Int[Array, " n"]]:
        """Select the individuals with the highest scores."""
        x, evaluation, offered, *_ = offer.candidates
        size, n = self.size, evaluation.fitness.shape[0]
        fitness = jnp.where(offered & archives.finite(evaluation), evaluation.fitness, -jnp.inf)
        everyone = Evaluation(
            jnp.concatenate([state.fitness, fitness]),
            jnp.concatenate([state.feature, evaluation.feature]),
        )
        score = dominated_novelty(everyone, everyone, self.neighbours, itself=True)
        _, best = lax.top_k(jnp.where(everyone.fitness > -jnp.inf, score, -jnp.inf), size)
        survives = jnp.zeros(size + n, bool).at[best].set(True) & (everyone.fitness > -jnp.inf)

        # Individuals of the population that survive keep their rows. The surviving candidates, at most
        # min(n, size), are written to the other rows.
        entrants = min(n, size)
        (row,) = jnp.nonzero(survives[size:], size=entrants, fill_value=n)
        (free,) = jnp.nonzero(~survives[:size], size=entrants, fill_value=size)
        target = jnp.where(row < n, free, size)

        def write(old: Array, new: Array, fetch: Fetch = rows_at) -> Array:
            return old.at[target].set(fetch(new, row).astype(old.dtype), mode="drop")

        after = Parents(
            genotypes=write(state.genotypes, x, offer.fetch),
            fitness=write(state.fitness, fitness),
            feature=write(state.feature, evaluation.feature),
            generation=write(state.generation, jnp.broadcast_to(jnp.asarray(offer.generation), n)),
        )
        return after, jnp.where(survives[size:], Status.NEW, Status.REJECTED).astype(jnp.int32)

    def elites(self, state: Parents, archive: Archive, generation: Int[Array, ""] | int) -> None:
        """Return None, because the archive keeps the fittest candidates."""
