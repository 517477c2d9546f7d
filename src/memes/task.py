"""Tasks: a task maps genotypes to a fitness and a feature.

A task is data, not a class to inherit from: build a `Task` from two functions, `init` and `evaluate`,
or wrap an existing one with `noisy` and `estimates.resampled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Key

from memes.control.perturbations import Pairs, Repeats, by_chunks, no_pairs
from memes.control.perturbations import rows as rows_of
from memes.control.rollouts import Control, Transition
from memes.errors import LARGEST_FLOAT, LONGEST_NAME, UsageError, at_least, require
from memes.executors.seeds import seeds_from_keys as seeds_from_keys
from memes.pytrees import TreeGenotypes, concatenate, in_chunks
from memes.validation import check_arguments, check_types, checked, fits, short

# Matrix products of tasks run in full float32: no TF32, no bfloat16 passes.
PRECISION = "highest"


class Evaluation(NamedTuple):
    """The outcome of evaluating n genotypes, or M of each of L lanes.

    Attributes:
        fitness: The fitness.
        feature: The features.
        extras: Any further arrays [n, ...] by name, which the archive stores for each elite.
        transitions: Transitions of a control task, leaves [n, T, ...], if an algorithm asks for them.
    """

    fitness: Float[Array, "*n"]
    feature: Float[Array, "*n k"]
    extras: dict[str, Array] = {}  # noqa: RUF012  (nobody changes it)
    transitions: Transition | None = None


# The result of an `evaluate`: fitness[n], feature[n, k] and, if there are any, extras [n, ...] by name.
Evaluated = (
    Evaluation | tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, Mapping[str, ArrayLike]]
)


class Map(NamedTuple):
    """The walls of a task whose two features are a position; figures draw them below the elites.

    Attributes:
        walls: Outlines of the walls seen from above, polygons of corners (x, y); two for a thin wall.
        start: Start of the episodes.
        goal: The x beyond which an episode has passed the walls; None if there is no such line.
    """

    walls: tuple[tuple[tuple[float, float], ...], ...] = ()
    start: tuple[float, float] = (0.0, 0.0)
    goal: float | None = None


@runtime_checkable
class Evaluator(Protocol):
    """Evaluates genotypes: any function, or a frozen dataclass with the data that it needs.

    Wrappers of other evaluators are such dataclasses. They can be compared and printed, and sent to
    workers if their fields can.
    """

    def __call__(self, keys: Any, x: Any, /) -> Evaluated:
        """Evaluate x[n, d], with one PRNG key [n] per genotype."""


@dataclass(frozen=True)
class FactoredEvaluate:
    """An evaluator of whole genotypes that also accepts genotypes in factors.

    Attributes:
        rows: `(keys[n], x[n, d]) -> Evaluation`.
        factors: `(keys[n], candidates, samples) -> Evaluation`, the same for the evaluations of repeated
            candidates followed by those of mirrored samples.
    """

    rows: Evaluator
    factors: Callable[[Array, Repeats, Pairs], Evaluated]

    def __call__(self, keys: Array, x: Any) -> Evaluated:
        """Evaluate whole genotypes."""
        return self.rows(keys, x)


@dataclass(frozen=True, repr=False)
class Task:
    """A quality-diversity problem.

    Attributes:
        name: Short name, used in files and figures.
        dim: Number of genotype entries, d.
        feature_low: Lower bound of each feature. Features outside the bounds fall into border cells.
        feature_high: Upper bound of each feature.
        init: `(key, n) -> x[n, d]`, random initial genotypes.
        evaluate: `(keys[n], x[n, d]) -> Evaluation` (or a plain tuple of `fitness[n]`, `feature[n, k]`
            and optionally a dictionary of extras `[n, ...]`). Each genotype has a PRNG key, so its
            result depends on neither batch nor chunk. An evaluator that accepts samples in factors is a
            `FactoredEvaluate`.
        min_fitness: Fitness that adds 0 to the QD-score, so that every fitter elite adds a positive
            amount. Elites below it add nothing.
        uncertain: Whether evaluations of equal genotypes can differ.
        jit: False for an ordinary Python `evaluate`: it is called outside JAX's compilation with a NumPy
            `x`, and may return NumPy arrays or lists. `seeds_from_keys(keys)` gives it integers.
        resolution: Number of grid cells per feature; None chooses about 2 500 cells in total.
        cost: Evaluations of the underlying problem per evaluation of this task.
        single: The task that a `resampled` task evaluates repeatedly. Corrections use it, because the
            noise of single evaluations matters.
        gradients: `(keys[n], x[n, d]) -> (of the fitness [n, d], of each feature [n, k, d])`, for
            algorithms that use gradients. With None, JAX differentiates `evaluate`. It is compiled even
            if `evaluate` is not.
        evaluate_transitions: Like `evaluate`, with the `transitions` of every episode, for algorithms
            that learn from them; None if there are none.
        control: Environment and controller of a control task, for replays and policy gradients.
        map: The walls, if the features are a position.
        draw: `(x[d]) -> lines or figure` of a genotype, which `memes view` shows: lines of points [n, 2]
            or [n, 3], or a matplotlib figure. Robots and paths on a map are shown without it.
        trees: Conversion between genotypes and pytrees; None if genotypes are plain vectors.
            `trees.tree(x)` is the tree of a genotype, such as an elite.
        feature_names: Name of each feature, with its unit if it has one, such as "final x (m)"; figures,
            tables and replays use them. The default is "feature 1", "feature 2", ...
        extras: Shape and dtype of each extra that `evaluate` returns for a genotype, by name; a shape
            alone, such as `()`, is of float32. If this is empty, algorithms find the extras by a trial.
    """

    name: str
    dim: int
    feature_low: Sequence[float]
    feature_high: Sequence[float]
    init: Callable[[Array, int], ArrayLike]
    evaluate: Evaluator
    min_fitness: float = 0.0
    uncertain: bool = False
    jit: bool = True
    resolution: tuple[int, ...] | None = None
    cost: int = 1
    single: Task | None = None
    evaluate_transitions: Evaluator | None = None
    control: Control | None = None
    map: Map | None = None
    draw: Callable[[np.ndarray], Any] | None = None
    feature_names: Sequence[str] = ()
    trees: TreeGenotypes | None = None
    gradients: Callable[[Array, Array], tuple[ArrayLike, ArrayLike]] | None = None
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        good = isinstance(self.name, str) and 0 < len(self.name) <= LONGEST_NAME
        require(
            good,
            f"name of a task must be str of 1 to {LONGEST_NAME} characters, got {short(self.name)}",
        )
        for name, arguments in {"init": ("key", "n"), "evaluate": ("keys", "x")}.items():
            named = f"{name} of task '{self.name}'"
            require(callable(getattr(self, name)), f"{named} must be a function")
            check_arguments(named, getattr(self, name), *arguments)
        hints = {"dim": int, "cost": int, "min_fitness": float, "uncertain": bool, "jit": bool}
        for name, hint in (hints | {"resolution": tuple[int, ...] | None}).items():
            named, value = f"{name} of task '{self.name}'", getattr(self, name)
            check_types({named: value}, {named: hint})
            if hint is int:
                at_least(1, **{named: value})
        of_trees = self.dim if self.trees is None else self.trees.dim
        require(
            self.dim == of_trees,
            f"dim of task '{self.name}' must be {of_trees}, as its trees have, got {self.dim}",
        )
        least = self.min_fitness
        require(
            abs(least) <= LARGEST_FLOAT,
            f"min_fitness of task '{self.name}' must be a finite number, got {least}",
        )
        shapes = np.shape(self.feature_low), np.shape(self.feature_high)
        require(
            shapes[0] == shapes[1] and len(shapes[0]) == 1 and shapes[0][0] >= 1,
            f"feature_low and feature_high of task '{self.name}' must have one entry for each feature, "
            f"got shapes {shapes[0]} and {shapes[1]}",
        )
        for i, (low, high) in enumerate(zip(self.feature_low, self.feature_high, strict=True)):
            numbers = fits(low, float) and fits(high, float)
            require(
                numbers
                and max(abs(low), abs(high), high - low) <= LARGEST_FLOAT
                and bool(np.float32(low) < np.float32(high)),
                f"feature_low must be below feature_high in task '{self.name}', both within float32, "
                f"got [{low}, {high}] for feature {i}",
            )
        object.__setattr__(self, "feature_names", self._checked_names())
        object.__setattr__(self, "extras", self._checked_extras())

    def _checked_names(self) -> tuple[str, ...]:
        named, given = f"feature_names of task '{self.name}'", self.feature_names
        check_types({named: given}, {named: tuple[str, ...]})
        # If `replace` changes the number of features, they are numbered again.
        if tuple(given) == numbered(len(given)):
            return numbered(self.feature_dim)
        require(
            len(given) == self.feature_dim and all(given),
            f"{named} must be a name for each of its {self.feature_dim} features, got {list(given)}",
        )
        return tuple(given)

    def _checked_extras(self) -> dict[str, jax.ShapeDtypeStruct]:
        named = f"extras of task '{self.name}'"
        require(isinstance(self.extras, Mapping), f"{named} must be a dict, got {short(self.extras)}")
        return {name: extra_like(named, name, each) for name, each in self.extras.items()}

    @property
    def feature_dim(self) -> int:
        """Number of features, k."""
        return len(self.feature_low)

    def __repr__(self) -> str:
        kind = "uncertain" if self.uncertain else "deterministic"
        return f"Task('{self.name}', dim={self.dim}, features={self.feature_dim}, {kind})"


def numbered(k: int) -> tuple[str, ...]:
    """Name k features by their numbers: "feature 1", ..."""
    return tuple(f"feature {i + 1}" for i in range(k))


# Genotypes; NumPy arrays if a task is not compiled.
Genotypes = Float[Array | np.ndarray, "n d"]


def evaluate(
    task: Task,
    keys: Key[Array, " n"],
    x: Genotypes | Repeats,
    *,
    transitions: bool = False,
    chunk: int | None = None,
) -> Evaluation:
    """Evaluate genotypes with one key per evaluation; checks shapes, and returns float32.

    Args:
        task: The task.
        keys: One PRNG key per evaluation.
        x: The genotypes, or genotypes that are evaluated several times.
        transitions: Whether to return the transitions of a control task; they need memory.
        chunk: Maximum number of evaluations at a time, if memory is short; None evaluates all at once.
    """
    if isinstance(x, Repeats):
        if x.count > 1 and takes_factors(task) and not transitions:
            return evaluate_factors(task, keys, x, no_pairs(task.dim), chunk=chunk)
        x = rows_of(x)
    function = task.evaluate_transitions if transitions else task.evaluate
    assert function is not None, "the algorithm checks this"
    if not task.jit:
        parts = [
            as_evaluation(task, len(x[i]), function(keys[i], np.asarray(x[i])))
            for i in slices(x.shape[0], chunk)
        ]
        return concatenate(parts)

    def evaluate_rows(keys: Array, x: Array) -> Evaluation:
        with jax.default_matmul_precision(PRECISION):
            return as_evaluation(task, x.shape[0], function(keys, x))

    return in_chunks(evaluate_rows, chunk, keys, jnp.asarray(x))


def takes_factors(task: Task) -> bool:
    """Return True if the task can evaluate genotypes in factors."""
    return task.jit and isinstance(task.evaluate, FactoredEvaluate)


def evaluate_factors(
    task: Task,
    keys: Key[Array, " n"],
    candidates: Repeats,
    samples: Pairs,
    *,
    chunk: int | None = None,
) -> Evaluation:
    """Evaluate candidates followed by samples in factors, like `evaluate`."""
    function = task.evaluate
    assert isinstance(function, FactoredEvaluate), "the caller checks this"

    def evaluate_some(keys: Array, candidates: Repeats, samples: Pairs) -> Evaluation:
        with jax.default_matmul_precision(PRECISION):
            return as_evaluation(task, keys.shape[0], function.factors(keys, candidates, samples))

    return by_chunks(evaluate_some, chunk, keys, candidates, samples)


def slices(n: int, size: int | None) -> list[slice]:
    """Return consecutive slices of n rows, with `size` rows each except for the last; None is all."""
    return [slice(start, min(start + (size or n), n)) for start in range(0, n, size or n)]


def as_evaluation(task: Task, n: int, result: Any) -> Evaluation:
    """Check the result of an `evaluate`, or one given to `tell`, and convert it to float32 arrays."""
    require(
        isinstance(result, Evaluation) or (isinstance(result, tuple) and len(result) in (2, 3)),
        f"evaluate of task '{task.name}' must return (fitness, feature), got {type(result).__name__}",
    )
    fitness = _as_array(task, "fitness", result[0], (n,))
    feature = _as_array(task, "feature", result[1], (n, task.feature_dim))
    extras = _as_extras(task, n, result[2] if len(result) > 2 else {})
    transitions = result.transitions if isinstance(result, Evaluation) else None
    return Evaluation(fitness, feature, extras, transitions)


def _as_extras(task: Task, n: int, extras: Any) -> dict[str, Array]:
    """Check the extras of n rows, and make them arrays of at most 32 bits per number."""
    which = f"extras of task '{task.name}'"
    require(isinstance(extras, Mapping), f"{which} must be a dict of arrays, got {short(extras)}")
    found = {}
    for name, given in extras.items():
        value = np.asarray(given) if not task.jit and isinstance(given, (list, tuple)) else given
        require(
            hasattr(value, "dtype") and np.shape(value)[:1] == (n,),
            f"{which} must have an array [{n}, ...] for '{name}', a row per genotype, got "
            f"{np.shape(value) if hasattr(value, 'dtype') else type(given).__name__}",
        )
        found[name] = jnp.asarray(value, extra_like(which, name, value).dtype)
    return _declared(task, found) if task.extras else found


def rows_like(extras: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """Return shape and dtype of a row of each of some extras."""
    return {name: _shaped(each.shape[1:], each.dtype) for name, each in extras.items()}


def _shaped(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def with_extras(task: Task, extras: Mapping[str, jax.ShapeDtypeStruct]) -> Task:
    """Let a task that declares no extras declare these; any other stays as it is."""
    if task.extras or not extras:
        return task
    single = task.single and with_extras(task.single, extras)
    return replace(task, extras=extras, single=single)


def lost(task: Task, n: int, like: Mapping[str, Any] | None = None) -> Evaluation:
    """Return the evaluation of n rows that a simulator lost: NaN, and zeros where NaN is not possible.

    Args:
        task: The task.
        n: The number of rows.
        like: Extras of other rows; by default those that the task declares.
    """

    def blank(each: Any) -> Array:
        value = jnp.nan if jnp.issubdtype(each.dtype, jnp.inexact) else 0
        return jnp.full((n, *each.shape), value, each.dtype)

    fitness = blank(jax.ShapeDtypeStruct((), jnp.float32))
    feature = blank(jax.ShapeDtypeStruct((task.feature_dim,), jnp.float32))
    declared = task.extras if like is None else rows_like(like)
    return Evaluation(fitness, feature, {name: blank(each) for name, each in declared.items()})


def _declared(task: Task, found: dict[str, Array]) -> dict[str, Array]:
    """Check the extras of some rows against those that the task declares, in whose order they come."""
    which = f"extras of task '{task.name}'"
    require(
        found.keys() == task.extras.keys(),
        f"{which} must be {', '.join(task.extras)}, got {', '.join(found) or 'none'}",
    )
    for name, like in task.extras.items():
        shape, dtype = found[name].shape[1:], found[name].dtype
        require(
            shape == like.shape and np.can_cast(dtype, like.dtype, "same_kind"),
            f"{which} must have {like.dtype}{list(like.shape)} for '{name}', got {dtype}{list(shape)}",
        )
    return {name: found[name].astype(like.dtype) for name, like in task.extras.items()}


# 64 bits become 32, as in all arrays of an algorithm.
IN_32_BITS = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
OWN_FIELDS = ("cell", "genotype", "genotypes", "fitness", "feature", "generation", "lane")


def extra_like(which: str, name: Any, like: Any) -> jax.ShapeDtypeStruct:
    """Return shape and dtype of an extra, of a row if `like` is a shape."""
    named = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()
    require(
        named and not set("/\\'\"").intersection(name) and name not in OWN_FIELDS,
        f"{which} must have printable names without slashes and quotes, other than those of the fields "
        f"of an elite, got {short(name)}",
    )
    if isinstance(like, tuple):
        like = jax.eval_shape(lambda: jnp.zeros(like))
    dtype = getattr(like, "dtype", None)
    require(
        getattr(dtype, "kind", "") in tuple("biufc"),  # not bfloat16 and keys, which no file holds
        f"{which} must have numbers or truth values of NumPy's types for '{name}', got {dtype}",
    )
    return _shaped(like.shape, np.dtype(IN_32_BITS.get(str(dtype), dtype)))


def _as_array(task: Task, what: str, part: Any, shape: tuple[int, ...]) -> Array:
    """Convert a part of the result of `evaluate` to float32; lists are allowed if it is not compiled."""
    must = f"evaluate of task '{task.name}' must return {what} as"
    if not task.jit and isinstance(part, (list, tuple)):
        try:
            part = np.asarray(part, np.float32)
        except ValueError as error:
            raise UsageError(f"{must} numbers of shape {shape}: {error}") from None
    listed = isinstance(part, (list, tuple, dict))
    require(not listed, f"{must} one array, got a {type(part).__name__}; use jnp.stack")
    _require_array(task, "evaluate", what, part, shape)
    return jnp.asarray(part, jnp.float32)


def initial(task: Task, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
    """Draw `n` genotypes from `task.init`, checked for shape, in float32."""
    x = task.init(key, n)
    _require_array(task, "init", "genotypes", x, (n, task.dim))
    return jnp.asarray(x, jnp.float32)


def _require_array(task: Task, function: str, what: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise a `UsageError` unless the value has real numbers and the required shape."""
    found = np.shape(value)
    require(
        found == shape,
        f"{function} of task '{task.name}' must return {what} of shape {shape}, got {found}",
    )
    dtype = getattr(value, "dtype", None) or np.asarray(value).dtype
    require(
        any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)),
        f"{function} of task '{task.name}' must return {what} of real numbers, got dtype {dtype}",
    )


@checked
def uniform(dim: int, low: float, high: float) -> Callable[[Array, int], Array]:
    """Return an `init` that draws each of the `dim` entries from U[low, high]."""
    require(low < high, f"low must be below high, got low={low} and high={high}")
    return lambda key, n: jax.random.uniform(key, (n, dim), minval=low, maxval=high)


def rowwise(function: Callable[[Array, Any], Any], trees: TreeGenotypes | None = None) -> Evaluator:
    """Turn a function of one key and one genotype, `x[d] -> (fitness, feature[k])`, into `evaluate`.

    JAX maps it over the genotypes; a task with `jit=False` calls it once per genotype. The function may
    return a dictionary of extras in third place.

    Args:
        function: `(key, x[d]) -> (fitness, feature[k])`.
        trees: Conversion of genotypes to pytrees; the function then takes a tree instead of `x`.
    """
    return Rowwise(function, trees)


@dataclass(frozen=True)
class Rowwise:
    """An evaluator of single genotypes; see `rowwise`."""

    function: Callable[[Array, Any], Any]
    trees: TreeGenotypes | None = None

    def __post_init__(self) -> None:
        check_arguments("the function of rowwise", self.function, "key", "x")

    def __call__(self, keys: Array, x: Any) -> Any:
        """Evaluate each genotype separately."""
        if not isinstance(x, np.ndarray):
            return jax.vmap(self._evaluate)(keys, x)
        rows = [self._evaluate(key, row) for key, row in zip(keys, x, strict=True)]
        found = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
        extras = [row[2] for row in rows if len(row) > 2]
        if not extras:
            return found
        return *found, {name: np.array([each[name] for each in extras]) for name in extras[0]}

    def _evaluate(self, key: Array, x: Any) -> Any:
        return self.function(key, x if self.trees is None else self.trees.tree(x))


@dataclass(frozen=True)
class Noisy:
    """An evaluator that adds Gaussian noise to the results of a task; see `noisy`."""

    task: Task
    fitness: float
    feature: float

    def __call__(self, keys: Array, x: Any) -> Evaluation:
        """Evaluate genotypes and add noise to the results."""
        inner, fitness_keys, feature_keys = jax.vmap(lambda key: tuple(jax.random.split(key, 3)))(keys)
        exact, k = evaluate(self.task, inner, x), self.task.feature_dim
        noise = jax.vmap(jax.random.normal)(fitness_keys)
        shift = jax.vmap(lambda key: jax.random.normal(key, (k,)))(feature_keys)
        fitness, feature = exact.fitness + self.fitness * noise, exact.feature + self.feature * shift
        return Evaluation(fitness, feature, exact.extras)


@checked
def noisy(task: Task, *, fitness: float = 0.0, feature: float = 0.0) -> Task:
    """Make any task uncertain: add Gaussian noise to its fitness and features.

    Args:
        task: The task to wrap; it may itself be uncertain.
        fitness: Standard deviation of the noise on the fitness.
        feature: Standard deviation of the noise on each feature.
    """
    at_least(0, fitness=fitness, feature=feature)

    return replace(
        task,
        name=f"noisy-{task.name}",
        evaluate=Noisy(task, fitness, feature),
        single=None,
        evaluate_transitions=None,
        uncertain=task.uncertain or fitness > 0 or feature > 0,
    )
