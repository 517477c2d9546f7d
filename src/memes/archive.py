"""The archive of elites: the best solution found so far in each cell of the feature space."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, Key, Shaped

from memes import display
from memes.cells import Cells
from memes.errors import at_least, package, require
from memes.task import Evaluation, numbered
from memes.validation import check_types


class Status(IntEnum):
    """The archive's response to an offered evaluation."""

    REJECTED = 0
    IMPROVED = 1
    NEW = 2


Numbers = ArrayLike | Sequence[Any]  # arrays, numbers or lists of numbers


class Elite(NamedTuple):
    """One elite as numbers and NumPy arrays, or n elites as arrays with n rows.

    Attributes:
        cell: Cell of the elite.
        genotype: Genotype of the elite.
        fitness: Fitness of the elite.
        feature: Feature of the elite.
        generation: Generation in which the elite entered the archive.
        lane: Lane that proposed the elite.
        extras: Extra fields of the elite, by name.
    """

    cell: Int[np.ndarray, "*n"] | int
    genotype: Float[np.ndarray, "*n d"]
    fitness: Float[np.ndarray, "*n"] | float
    feature: Float[np.ndarray, "*n k"]
    generation: Int[np.ndarray, "*n"] | int
    lane: Int[np.ndarray, "*n"] | int
    extras: dict[str, np.ndarray]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Archive:
    """An archive that stores at most one elite in each of c cells. Its arrays have one row per cell.

    `len(archive)` is the number of elites, and iteration over an archive yields each `Elite`. Archives
    are immutable, so `add` and `merge` return a new archive. Methods that return elites or numbers
    cannot be called in compiled functions, because these methods read values from the arrays.

    Attributes:
        cells: The cells of the archive.
        genotypes: Genotypes of the elites; zeros in empty cells.
        fitness: Fitness of the elites; -inf in empty cells.
        feature: Features of the elites; zeros in empty cells.
        generation: Generation in which each elite entered the archive; -1 in cells that were always
            empty.
        lane: Lane that proposed each elite; -1 in empty cells.
        extras: Extra fields that the task returns, as arrays [c, ...] by name; zeros in empty cells.
    """

    cells: Cells
    genotypes: Float[Array, "c d"]
    fitness: Float[Array, " c"]
    feature: Float[Array, "c k"]
    generation: Int[Array, " c"]
    lane: Int[Array, " c"]
    extras: dict[str, Array] = field(default_factory=dict)

    @property
    def occupied(self) -> Bool[Array, "*c"]:
        """The cells that contain an elite."""
        return self.fitness > -jnp.inf

    def __len__(self) -> int:
        return int(self.occupied.sum())

    def __iter__(self) -> Iterator[Elite]:
        held, local = np.flatnonzero(np.asarray(self.occupied)), jax.device_get(self)
        return (local.elite(int(cell)) for cell in held)

    def elite(self, cell: int) -> Elite:
        """Return the elite of a cell.

        Args:
            cell: The index of the cell, which must contain an elite.
        """
        count = self.cells.count
        require(0 <= cell < count, f"cell must lie in 0 ... {count - 1}, got {cell}")
        require(bool(self.fitness[cell] > -jnp.inf), f"cell {cell} of the archive is empty")
        return self._at(cell)

    def best(self, where: Array | np.ndarray | None = None) -> Elite:
        """Return the elite with the highest fitness, or the first if several elites are equally fit.

        Args:
            where: The cells to choose from, bool[c], such as `archive.feature[:, 0] > 0.5`. If None, all
                cells are considered.
        """
        found, chosen = self._occupied("best"), np.ones(self.cells.count, bool)
        if where is not None:
            chosen = np.asarray(where)
            require(
                chosen.shape == (self.cells.count,) and chosen.dtype == bool,
                f"where must have one truth value per cell ({self.cells.count} cells), such as "
                f"archive.feature[:, 0] > 0.5; got {chosen.dtype}{list(chosen.shape)}",
            )
        found = found[chosen[found]]
        require(found.size > 0, "where must select a cell that contains an elite, got only empty cells")
        return self._at(int(found[np.argmax(np.asarray(self.fitness)[found])]))

    def nearest(self, feature: Numbers) -> Elite:
        """Return the elite whose feature is nearest to a given feature.

        To compute the distance, each feature is scaled so that its bounds are 0 and 1.

        Args:
            feature: The given feature [k].
        """
        low, high = np.asarray(self.cells.low), np.asarray(self.cells.high)
        wanted = np.asarray(feature)
        require(
            wanted.shape == low.shape,
            f"feature must have {low.size} entries, one per feature of the task, "
            f"got {wanted.size if wanted.ndim == 1 else list(wanted.shape)}",
        )
        given = " ".join(map(str, wanted))
        require(bool(np.isfinite(wanted).all()), f"feature must be finite, got {given}")
        found = self._occupied("nearest")
        apart = (np.asarray(self.feature)[found] - wanted) / (high - low)
        return self._at(int(found[np.argmin(np.sum(apart**2, axis=1))]))

    def sample(self, key: Key[Array, ""], n: int) -> Elite:
        """Draw n elites uniformly, with replacement. Each field of the returned `Elite` has n rows.

        Args:
            key: PRNG key.
            n: Number of elites.
        """
        at_least(1, n=n)
        is_key = isinstance(key, (jax.Array, np.ndarray))  # untyped keys are arrays of two numbers
        require(is_key, f"key must be a random key such as jax.random.key(0), got {key!r:.40}")
        found = self._occupied("sample")
        return self._at(found[np.asarray(jax.random.randint(key, (n,), 0, found.size))])

    def add(
        self,
        genotypes: Numbers,
        fitness: Numbers,
        feature: Numbers,
        *,
        extras: Mapping[str, Numbers] | None = None,
        generation: Numbers = -1,
        lane: Numbers = -1,
    ) -> tuple[Archive, Int[Array, " n"]]:
        """Offer one or several evaluated genotypes to the archive.

        Each cell accepts the fittest of its new genotypes if this genotype is fitter than the current
        elite.

        Args:
            genotypes: The genotypes [n, d]. For one genotype, omit the first axis of all arrays.
            fitness: Fitness of the genotypes [n].
            feature: Features of the genotypes [n, k].
            extras: Extra fields of the genotypes [n, ...], if the archive has extra fields.
            generation: The recorded generation: one number, or one number per genotype.
            lane: The recorded lane: one number, or one number per genotype.

        Returns:
            The new archive, and the `Status` of each genotype.
        """
        given = dict(extras or {})
        found = {"genotypes": genotypes, "fitness": fitness, "feature": feature}
        rows = {name: jnp.asarray(value, jnp.float32) for name, value in found.items()}
        if rows["genotypes"].ndim == 1:  # one genotype
            rows = {name: value[None] for name, value in rows.items()}
            given = {name: np.asarray(value)[None] for name, value in given.items()}
        n = len(rows["genotypes"]) if rows["genotypes"].ndim else 0
        shapes = (n, self.genotypes.shape[1]), (n,), (n, self.feature.shape[1])
        for (name, array), shape in zip(rows.items(), shapes, strict=True):
            require(array.shape == shape, f"{name} must have shape {shape}, got {array.shape}")
        more = {}
        self._require_extras("extras", given)
        for name, old in self.extras.items():
            more[name] = jnp.asarray(np.asarray(given[name]), old.dtype)
            shape = (n, *old.shape[1:])
            require(
                more[name].shape == shape,
                f"extras['{name}'] must have shape {shape}, got {more[name].shape}",
            )
        evaluation = Evaluation(rows["fitness"], rows["feature"], more)
        by, when = (jnp.broadcast_to(jnp.asarray(each, jnp.int32), n) for each in (lane, generation))
        after: tuple[Archive, Array] = _offer(
            self, rows["genotypes"], evaluation, jnp.ones(n, bool), lane=by, generation=when
        )
        return after

    def merge(self, other: Archive) -> Archive:
        """Offer all elites of another archive to this archive.

        The elites keep their generations and lanes. The archives may have different cells, because the
        feature of each elite determines its new cell. If two elites in a cell are equally fit, the elite
        of this archive is kept.

        Args:
            other: An archive with the same extras and the same sizes of genotypes and features.
        """
        check_types({"other": other}, {"other": Archive})
        for name in ("genotypes", "feature"):
            size, theirs = (getattr(each, name).shape[1] for each in (self, other))
            require(size == theirs, f"other must have {name} of {size} entries, got {theirs}")
        self._require_extras("other", other.extras)
        for name, old in self.extras.items():
            size, theirs = old.shape[1:], other.extras[name].shape[1:]
            require(size == theirs, f"other must have extras['{name}'] of shape {size}, got {theirs}")
        evaluation = Evaluation(other.fitness, other.feature, other.extras)
        after: tuple[Archive, Array] = _offer(
            self,
            other.genotypes,
            evaluation,
            other.occupied,
            lane=other.lane,
            generation=other.generation,
        )
        return after[0]

    def columns(self, feature_names: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Return a table of the elites: a dictionary of columns by name, with one row per elite.

        Extra fields with one number per elite are also columns.

        Args:
            feature_names: A name for each feature. The default is "feature 1", "feature 2", ...
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
        for name, values in self.extras.items():
            if is_column(values):
                table[name if name not in table else f"{name} [extra]"] = np.asarray(values)[at]
        return table

    def to_pandas(self, feature_names: Sequence[str] = ()) -> Any:
        """Return a `pandas.DataFrame` of the elites, without their genotypes. This requires pandas.

        Rows are indexed by the cells of the elites, so `archive.genotypes[table.index]` returns the
        genotypes.

        Args:
            feature_names: A name for each feature. The default is "feature 1", "feature 2", ...
        """
        pandas = package("pandas", "notebook", "to_pandas")
        return pandas.DataFrame(self.columns(feature_names)).set_index("cell")

    def plot(self, ax: Any = None) -> Any:
        """Plot the fitness of every elite over the features, as `memes.plot.archive` does.

        Args:
            ax: Matplotlib axes to draw into. If None, a new figure is made.

        Returns:
            The figure.
        """
        return display.plots().archive(self, ax=ax)

    def _at(self, cell: Any) -> Elite:
        """Return the elite of one cell, or the elites of several cells."""

        def rows(array: Array) -> np.ndarray:
            return np.asarray(array[cell])

        return Elite(
            cell=cell,
            genotype=rows(self.genotypes),
            fitness=rows(self.fitness),
            feature=rows(self.feature),
            generation=rows(self.generation),
            lane=rows(self.lane),
            extras={name: rows(values) for name, values in self.extras.items()},
        )

    def _occupied(self, method: str) -> Int[np.ndarray, " e"]:
        found = np.flatnonzero(np.asarray(self.occupied))
        require(found.size > 0, f"{method}: the archive is empty")
        return found

    def _require_extras(self, argument: str, given: Mapping[str, Any]) -> None:
        names, theirs = (", ".join(sorted(each)) or "none" for each in (self.extras, given))
        require(names == theirs, f"{argument} must have the archive's extras ({names}), got {theirs}")

    def _repr_html_(self) -> str | None:
        """Return HTML that shows a table and a figure of the archive in a notebook."""
        if isinstance(self.fitness, jax.core.Tracer) or not hasattr(self.fitness, "max"):
            return None
        html: str = display.plots().html(self)
        return html

    def __repr__(self) -> str:
        if isinstance(self.fitness, jax.core.Tracer) or not hasattr(self.fitness, "max"):
            parts = (f"{each.name}={getattr(self, each.name)}" for each in fields(self))
            return f"Archive({', '.join(parts)})"  # arrays without values, while JAX traces a function
        elites, best = len(self), float(self.fitness.max())
        of = f"genotypes={self.genotypes.shape}, feature={self.feature.shape}"
        if self.extras:
            of += f", extras: {', '.join(self.extras)}"
        return f"Archive({elites} elites of {self.fitness.size} cells, best fitness {best:.4g}, {of})"


def is_column(extra: Array | np.ndarray) -> bool:
    """Return True if an extra field has one real number or Boolean per elite."""
    return extra.ndim == 1 and extra.dtype.kind != "c"


class Entries(NamedTuple):
    """Evaluated genotypes. Only genotypes that are marked in `offered` may enter an archive.

    If a genotype was evaluated before, `again` is its index among the `parents` of the judge. For new
    genotypes, `again` is -1.
    """

    x: Shaped[Array, "n ..."]
    evaluation: Evaluation
    offered: Bool[Array, " n"]
    lane: Int[Array, " n"]
    again: Int[Array, " n"]


def empty(cells: Cells, dim: int, extras: Mapping[str, jax.ShapeDtypeStruct] | None = None) -> Archive:
    """Return an archive without elites.

    Args:
        cells: Cells of the archive.
        dim: Number of genotype entries.
        extras: Shape and dtype of each extra field of an elite, by name. For example, pass
            `task.extras`.
    """
    c, k = cells.count, cells.low.shape[0]
    return Archive(
        cells=cells,
        genotypes=jnp.zeros((c, dim)),
        fitness=jnp.full(c, -jnp.inf),
        feature=jnp.zeros((c, k)),
        generation=jnp.full(c, -1, jnp.int32),
        lane=jnp.full(c, -1, jnp.int32),
        extras={name: jnp.zeros((c, *each.shape), each.dtype) for name, each in (extras or {}).items()},
    )


class Changes(NamedTuple):
    """Changes of the elites, ordered by generation (starting at 0) and then by cell.

    If a cell becomes empty, its new fitness is -inf. Only cells of a `DeepArchive` can become empty.
    """

    generation: Int[Array | np.ndarray, "*n"]
    cell: Int[Array | np.ndarray, "*n"]
    lane: Int[Array | np.ndarray, "*n"]
    fitness: Float[Array | np.ndarray, "*n"]
    feature: Float[Array | np.ndarray, "*n k"]


# Numbers above this limit are treated as invalid. The squares of smaller numbers do not overflow
# float32.
LIMIT = 1e15


class Fault(IntEnum):
    """The kind of fault that makes an evaluation invalid."""

    NAN = 0
    INFINITE = 1
    ABSURD = 2


def finite(evaluation: Evaluation) -> Bool[Array, "*n"]:
    """Return True for each evaluation whose numbers are finite and below `LIMIT` in magnitude."""
    sound = jnp.abs(evaluation.feature) < LIMIT
    return (jnp.abs(evaluation.fitness) < LIMIT) & sound.all(axis=-1)


def faults(evaluation: Evaluation) -> Int[Array, " faults"]:
    """Count the evaluations with each `Fault`. An evaluation counts only under its worst fault."""
    size = jnp.abs(jnp.concatenate([evaluation.fitness[:, None], evaluation.feature], axis=1))
    nan = jnp.isnan(size).any(axis=1)
    infinite = jnp.isinf(size).any(axis=1) & ~nan
    absurd = ~finite(evaluation) & ~nan & ~infinite
    return jnp.stack([nan, infinite, absurd]).sum(axis=1, dtype=jnp.int32)


def outside(evaluation: Evaluation, cells: Cells) -> Int[Array, ""]:
    """Count the finite evaluations whose feature lies outside the bounds of the cells.

    The archive assigns such evaluations to cells at the edge.
    """
    feature = evaluation.feature
    beyond = ((feature < cells.low) | (feature > cells.high)).any(axis=-1)
    return jnp.sum(beyond & finite(evaluation), dtype=jnp.int32)


# A function `(x, row[w]) -> genotypes[w, d]` that returns the genotypes of the given rows.
Fetch = Callable[[Array, Array], Array]


def rows_at(x: Shaped[Array, "n ..."], row: Int[Array, " w"]) -> Shaped[Array, "w ..."]:
    """Return the given rows of `x`. An invalid index gives an arbitrary row.

    This function is the default `Fetch`.
    """
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
    """Offer evaluated genotypes to an archive.

    Each cell accepts the fittest of its new candidates if this candidate is strictly fitter than the
    current elite. If several candidates of one batch are equally fit, the cell accepts the first one.
    All other candidates are rejected. Candidates that are not `offered` and candidates with a non-finite
    fitness or feature are also rejected. The cost grows with the size of the batch, but not with the
    size of the archive.

    Args:
        archive: The archive before the offer.
        x: Genotypes [n, d] of the candidates, or other values that `fetch` converts to genotypes.
        evaluation: Fitness [n], feature [n, k], and the extra fields of the archive [n, ...].
        offered: Whether each candidate may enter the archive.
        lane: The lane of each candidate.
        generation: The generation: one number, or one number per candidate.
        fetch: `(x, row[w]) -> genotypes[w, d]`, which returns the genotypes of the rows that enter the
            archive.

    Returns:
        The archive after the offer, and the `Status` of each candidate.
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

    # At most min(n, c) candidates enter the archive. Only these candidates are gathered and written.
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
        extras={name: write(old, evaluation.extras[name]) for name, old in archive.extras.items()},
    )
    return after, status.astype(jnp.int32)


_offer = jax.jit(add)
