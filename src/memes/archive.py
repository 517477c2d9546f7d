"""The archive of elites: the best solution found so far in each cell of the feature space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Shaped

from memes.cells import Cells
from memes.errors import package, require
from memes.task import Evaluation, numbered


class Status(IntEnum):
    """The response of the archive to an offered evaluation."""

    REJECTED = 0
    IMPROVED = 1
    NEW = 2


class Archive(NamedTuple):
    """One elite per cell, for c cells; an empty cell has fitness -inf.

    `generation` and `lane` are those in which the elite was found (-1 if the cell is empty).
    """

    cells: Cells
    genotypes: Float[Array, "c d"]
    fitness: Float[Array, " c"]
    feature: Float[Array, "c k"]
    generation: Int[Array, " c"]
    lane: Int[Array, " c"]

    @property
    def occupied(self) -> Bool[Array, "*c"]:
        """The cells with an elite."""
        return self.fitness > -jnp.inf

    def columns(self, feature_names: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Make a table of the elites: columns of equal length by name, with one row per occupied cell.

        Features have their names, or numbers if no names are given.
        """
        at = np.flatnonzero(np.asarray(self.occupied))
        feature = np.asarray(self.feature)[at]
        names = tuple(feature_names) or numbered(feature.shape[1])
        require(
            len(names) == feature.shape[1],
            f"feature_names must be {feature.shape[1]} names, got {len(names)}",
        )
        own = {name: np.asarray(getattr(self, name))[at] for name in ("fitness", "generation", "lane")}
        table = {"cell": at, **own}
        for i, name in enumerate(names):
            table[name if name not in table else f"{name} [{i + 1}]"] = feature[:, i]
        return table

    def to_pandas(self, feature_names: Sequence[str] = ()) -> Any:
        """Make a `pandas.DataFrame` of the elites, without genotypes; needs pandas.

        Its index is the cell: `archive.genotypes[table.index]` are the genotypes of its rows.
        """
        pandas = package("pandas", "notebook", "to_pandas")
        return pandas.DataFrame(self.columns(feature_names)).set_index("cell")

    def _repr_html_(self) -> str | None:
        """Show the archive in a notebook: numbers and a picture."""
        if isinstance(self.fitness, jax.core.Tracer) or not hasattr(self.fitness, "max"):
            return None
        import memes  # provides the functions that draw

        return memes.plot.html(self)

    def __repr__(self) -> str:
        if isinstance(self.fitness, jax.core.Tracer) or not hasattr(self.fitness, "max"):
            return f"Archive{tuple(self)}"  # while a program is traced
        elites, best = int(self.occupied.sum()), float(self.fitness.max())
        of = f"genotypes={self.genotypes.shape}, feature={self.feature.shape}"
        return f"Archive({elites} elites of {self.fitness.size} cells, best fitness {best:.4g}, {of})"


class Entries(NamedTuple):
    """Evaluated genotypes [n, d]; those that are `offered` may enter an archive."""

    x: Shaped[Array, "n ..."]
    evaluation: Evaluation
    offered: Bool[Array, " n"]
    lane: Int[Array, " n"]


def empty(cells: Cells, dim: int) -> Archive:
    """Make an archive without elites for genotypes of `dim` entries."""
    c, k = cells.count, cells.low.shape[0]
    return Archive(
        cells=cells,
        genotypes=jnp.zeros((c, dim)),
        fitness=jnp.full(c, -jnp.inf),
        feature=jnp.zeros((c, k)),
        generation=jnp.full(c, -1, jnp.int32),
        lane=jnp.full(c, -1, jnp.int32),
    )


class Changes(NamedTuple):
    """Cells whose elite changed: n of them, ordered by generation (0 is the first) and then by cell."""

    generation: Int[Array | np.ndarray, "*n"]
    cell: Int[Array | np.ndarray, "*n"]
    lane: Int[Array | np.ndarray, "*n"]
    fitness: Float[Array | np.ndarray, "*n"]
    feature: Float[Array | np.ndarray, "*n k"]


# A larger number cannot be a measurement, and its square would overflow float32.
LIMIT = 1e15


class Fault(IntEnum):
    """The kind of fault that makes an evaluation invalid."""

    NAN = 0
    INFINITE = 1
    ABSURD = 2


def finite(evaluation: Evaluation) -> Bool[Array, "*n"]:
    """Find the rows whose fitness and feature are finite and not of absurd size."""
    sound = jnp.abs(evaluation.feature) < LIMIT
    return (jnp.abs(evaluation.fitness) < LIMIT) & sound.all(axis=-1)


def faults(evaluation: Evaluation) -> Int[Array, " faults"]:
    """Count the rows that are not `finite`, by their worst `Fault`."""
    size = jnp.abs(jnp.concatenate([evaluation.fitness[:, None], evaluation.feature], axis=1))
    nan = jnp.isnan(size).any(axis=1)
    infinite = jnp.isinf(size).any(axis=1) & ~nan
    absurd = ~finite(evaluation) & ~nan & ~infinite
    return jnp.stack([nan, infinite, absurd]).sum(axis=1, dtype=jnp.int32)


def outside(evaluation: Evaluation, cells: Cells) -> Int[Array, ""]:
    """Count the finite rows whose feature lies outside the bounds; they count for cells at the edge."""
    feature = evaluation.feature
    beyond = ((feature < cells.low) | (feature > cells.high)).any(axis=-1)
    return jnp.sum(beyond & finite(evaluation), dtype=jnp.int32)


# (x, row[w]) -> genotypes[w, d]
Fetch = Callable[[Array, Array], Array]


def rows_at(x: Shaped[Array, "n ..."], row: Int[Array, " w"]) -> Shaped[Array, "w ..."]:
    """Return some rows of `x`; the usual `Fetch`. An index beyond the last gives an arbitrary row."""
    return jnp.take(x, row, axis=0, mode="clip")


def add(
    archive: Archive,
    x: Shaped[Array, "n ..."],
    evaluation: Evaluation,
    offered: Bool[Array, " n"],
    *,
    lane: Int[Array, " n"],
    generation: Int[Array, "*"] | int,
    fetch: Fetch = rows_at,
) -> tuple[Archive, Int[Array, " n"]]:
    """Offer rows to the archive; each cell takes the fittest row if it is fitter than the present elite.

    An elite is replaced only by a strictly fitter row. Among equally fit rows of one batch the first is
    taken. Every other row is rejected, as are rows that are not `offered` and rows with a non-finite
    fitness or feature. The cost grows with the batch, and not with the archive.

    Args:
        archive: The archive before.
        x: Genotypes [n, d], or the values by which `fetch` finds them.
        evaluation: Their fitness [n] and feature [n, k].
        offered: The rows that may enter.
        lane: The lane of each row.
        generation: The generation; one number, or one per row.
        fetch: `(x, row[w]) -> genotypes[w, d]`, called only for rows that enter the archive.

    Returns:
        The archive after, and the `Status` of each row.
    """
    n, c = evaluation.fitness.shape[0], archive.fitness.shape[0]
    row = jnp.arange(n)
    valid = offered & finite(evaluation)
    cell = jnp.where(valid, archive.cells.index(evaluation.feature), c)

    fitness = jnp.where(valid, evaluation.fitness, -jnp.inf)
    best = archive.fitness.at[cell].max(fitness, mode="drop")
    incumbent = archive.fitness.at[cell].get(mode="fill", fill_value=jnp.inf)
    contender = (fitness > incumbent) & (fitness == best.at[cell].get(mode="fill", fill_value=0.0))
    first = jnp.full(c, n).at[cell].min(jnp.where(contender, row, n), mode="drop")
    won = contender & (row == first.at[cell].get(mode="fill", fill_value=-1))

    # At most min(n, c) rows enter: only these are gathered before the scatter that writes them.
    (winner,) = jnp.nonzero(won, size=min(n, c), fill_value=n)
    target = cell.at[winner].get(mode="fill", fill_value=c)

    def write(old: Array, new: Array, fetch: Fetch = rows_at) -> Array:
        return old.at[target].set(fetch(new, winner).astype(old.dtype), mode="drop")

    status = jnp.where(won, jnp.where(incumbent == -jnp.inf, Status.NEW, Status.IMPROVED), 0)
    after = Archive(
        cells=archive.cells,
        genotypes=write(archive.genotypes, x, fetch),
        fitness=write(archive.fitness, evaluation.fitness),
        feature=write(archive.feature, evaluation.feature),
        generation=write(archive.generation, jnp.broadcast_to(jnp.asarray(generation), n)),
        lane=write(archive.lane, lane),
    )
    return after, status.astype(jnp.int32)
