"""The deep archive of Extract-ME, which averages repeated evaluations of several individuals per cell.

Each cell contains up to `depth` individuals, ordered by the mean fitness of their evaluations. When an
individual is evaluated again, its mean fitness and mean feature change, so the individual may lose its
rank or move to another cell. The archive contains the first individual of each cell. Therefore, a cell
of this archive may get a less fit elite, and may even become empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from memes import archive as archives
from memes.archive import Archive, Fetch, Status, rows_at
from memes.cells import Cells
from memes.context import Comparison, Parents
from memes.errors import at_least
from memes.judges import Offer, SameArchive
from memes.task import Evaluation
from memes.validation import check_fields


class DeepState(NamedTuple):
    """The individuals of a deep archive. Rows `i * depth` to `(i + 1) * depth - 1` belong to cell i.

    Attributes:
        genotypes: Genotypes of the individuals.
        fitness: Mean fitness over the evaluations of each individual; -inf in unused rows.
        feature: Mean feature over the evaluations of each individual.
        evaluations: Number of evaluations of each individual.
        generation: Generation in which each individual was last evaluated; -1 in unused rows.
        lane: Lane that proposed each individual for its last evaluation.
        extras: Extra fields of each individual's last evaluation.
    """

    genotypes: Float[Array, "p d"]
    fitness: Float[Array, " p"]
    feature: Float[Array, "p k"]
    evaluations: Int[Array, " p"]
    generation: Int[Array, " p"]
    lane: Int[Array, " p"]
    extras: dict[str, Array]


@dataclass(frozen=True)
class DeepArchive:
    """A judge with several individuals per cell. Its archive contains the fittest one of each cell.

    A candidate makes progress if it becomes the fittest individual of its cell. `parents` returns all
    individuals. If an evaluation of an individual is not finite, this evaluation is ignored.

    Attributes:
        depth: Maximum number of individuals per cell.
    """

    depth: int = 8

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, depth=self.depth)

    def init(
        self, cells: Cells, dim: int, extras: Mapping[str, jax.ShapeDtypeStruct] | None = None
    ) -> DeepState:
        """Return a deep archive without individuals."""
        p = cells.count * self.depth
        return DeepState(
            genotypes=jnp.zeros((p, dim)),
            fitness=jnp.full(p, -jnp.inf),
            feature=jnp.zeros((p, cells.low.shape[0])),
            evaluations=jnp.zeros(p, jnp.int32),
            generation=jnp.full(p, -1, jnp.int32),
            lane=jnp.full(p, -1, jnp.int32),
            extras={
                name: jnp.zeros((p, *each.shape), each.dtype) for name, each in (extras or {}).items()
            },
        )

    def parents(self, state: DeepState, archive: Archive) -> Parents:
        """Return all individuals."""
        return Parents(state.genotypes, state.fitness, state.feature, state.generation)

    def compare(self, state: DeepState, archive: Archive, evaluation: Evaluation) -> Comparison:
        """Compare evaluations with the fittest individuals of their cells."""
        return SameArchive().compare((), archive, evaluation)

    def update(
        self, state: DeepState, archive: Archive, offer: Offer
    ) -> tuple[DeepState, Int[Array, " n"]]:
        """Average repeated evaluations, and keep the fittest individuals of each cell.

        If individuals are equally fit, individuals that were not evaluated in this generation precede
        candidates, and earlier candidates precede later candidates.
        """
        c, depth = archive.cells.count, self.depth
        p = c * depth
        x, evaluation, offered, lane, again = offer.candidates
        n = offered.shape[0]
        valid = offered & archives.finite(evaluation)
        repeated = valid & (again >= 0)

        count = jnp.where(repeated, state.evaluations[again], 0)
        share = 1 / (count + 1)  # weight of the new evaluation in the mean fitness and feature
        old_fitness = jnp.where(repeated, state.fitness[again], 0.0)
        old_feature = jnp.where(repeated[:, None], state.feature[again], 0.0)
        mean = Evaluation(
            old_fitness + share * (evaluation.fitness - old_fitness),
            old_feature + share[:, None] * (evaluation.feature - old_feature),
        )

        # Individuals that were evaluated again are removed from their rows, and compete as candidates.
        present = state.fitness.at[jnp.where(repeated, again, p)].set(-jnp.inf, mode="drop")
        fitness = jnp.concatenate([present, jnp.where(valid, mean.fitness, -jnp.inf)])
        cell = jnp.concatenate([jnp.arange(p) // depth, archive.cells.index(mean.feature)])
        survives = (fitness > -jnp.inf) & (rank_in_cell(cell, fitness, c) < depth)

        # Remaining individuals keep their rows. The survivors among the candidates fill free rows.
        kept, entrant = survives[:p], survives[p:]
        free_first = jnp.argsort(kept.reshape(c, depth), axis=1, stable=True)
        nth = rank_in_cell(cell[p:], jnp.where(entrant, fitness[p:], -jnp.inf), c)
        row = cell[p:] * depth + free_first[cell[p:], jnp.minimum(nth, depth - 1)]
        (winner,) = jnp.nonzero(entrant, size=min(n, p), fill_value=n)
        target = row.at[winner].get(mode="fill", fill_value=p)

        def write(old: Array, new: Array, fetch: Fetch = rows_at) -> Array:
            return old.at[target].set(fetch(new, winner).astype(old.dtype), mode="drop")

        after = DeepState(
            genotypes=write(state.genotypes, x, offer.fetch),
            fitness=write(jnp.where(kept, present, -jnp.inf), mean.fitness),
            feature=write(state.feature, mean.feature),
            evaluations=write(state.evaluations, count + 1),
            generation=write(
                jnp.where(kept, state.generation, -1), jnp.broadcast_to(jnp.asarray(offer.generation), n)
            ),
            lane=write(state.lane, lane),
            extras={name: write(old, evaluation.extras[name]) for name, old in state.extras.items()},
        )
        first = entrant & (self._first(after)[cell[p:]] == row)
        status = jnp.where(archive.occupied[cell[p:]], Status.IMPROVED, Status.NEW)
        return after, jnp.where(first, status, Status.REJECTED).astype(jnp.int32)

    def elites(self, state: DeepState, archive: Archive, generation: Int[Array, ""] | int) -> Archive:
        """Return the first individual of each cell."""
        row = self._first(state)
        fitness = state.fitness[row]
        held = fitness > -jnp.inf

        def take(values: Array) -> Array:
            shape = (-1,) + (1,) * (values.ndim - 1)
            return jnp.where(held.reshape(shape), values[row], jnp.zeros_like(values, shape=()))

        feature = take(state.feature)
        changed = (fitness != archive.fitness) | (feature != archive.feature).any(axis=1)
        changed |= held & (state.generation[row] == generation)
        return Archive(
            cells=archive.cells,
            genotypes=take(state.genotypes),
            fitness=fitness,
            feature=feature,
            generation=jnp.where(changed, generation, archive.generation),
            lane=jnp.where(held, state.lane[row], -1),
            extras={name: take(values) for name, values in state.extras.items()},
        )

    def _first(self, state: DeepState) -> Int[Array, " c"]:
        """Return the row of the fittest individual in each cell."""
        by_cell = state.fitness.reshape(-1, self.depth)
        return jnp.arange(by_cell.shape[0]) * self.depth + jnp.argmax(by_cell, axis=1)


def rank_in_cell(cell: Int[Array, " n"], fitness: Float[Array, " n"], cells: int) -> Int[Array, " n"]:
    """Return the rank of each individual by fitness within its cell, from 0 for the fittest.

    Individuals with equal fitness are ranked in the order of their indices. Individuals with fitness
    -inf are not ranked, and their entries in the result are arbitrary.
    """
    n = cell.shape[0]
    group = jnp.where(fitness > -jnp.inf, cell, cells)
    order = jnp.lexsort((-fitness, group))
    size = jnp.zeros(cells + 1, jnp.int32).at[group].add(1)
    start = jnp.cumsum(size) - size
    return jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32) - start[group[order]])
