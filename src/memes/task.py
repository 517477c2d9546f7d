"""Tasks: a task maps each genotype to a fitness and a feature.

A task is an instance of `Task`, not a subclass. Build one from two functions, `init` and `evaluate`, or
wrap an existing task with `noisy` or `estimates.resampled`.
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

# Tasks compute matrix products in full float32, without TF32 or bfloat16 passes.
PRECISION = "highest"


class Evaluation(NamedTuple):
    """The results of evaluating n genotypes, or M genotypes of each of L lanes.

    Attributes:
        fitness: The fitness of each genotype.
        feature: The features of each genotype.
        extras: Further arrays [n, ...] by name, which the archive stores for each elite.
        transitions: Transitions of a control task, with leaves [n, T, ...]. Only present if an algorithm
            requests them.
    """

    fitness: Float[Array, "*n"]
    feature: Float[Array, "*n k"]
    extras: dict[str, Array] = {}  # noqa: RUF012  (the default is never changed)
    transitions: Transition | None = None


# The result of `evaluate`: fitness[n], feature[n, k] and, if there are any, extras [n, ...] by name.
Evaluated = (
    Evaluation | tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, Mapping[str, ArrayLike]]
)


class Map(NamedTuple):
    """The walls of a task whose two features are a position. Figures show the walls behind the elites.

    Attributes:
        walls: Outlines of the walls seen from above, as polygons with corners (x, y). A thin wall has
            two corners.
        start: Start of the episodes.
        goal: The x coordinate beyond which an episode has passed the walls, or None if there is no such
            coordinate.
    """

    walls: tuple[tuple[tuple[float, float], ...], ...] = ()
    start: tuple[float, float] = (0.0, 0.0)
    goal: float | None = None


@runtime_checkable
class Evaluator(Protocol):
    """A callable that evaluates genotypes: a function, or a frozen dataclass that contains data.

    Evaluators that wrap other evaluators are frozen dataclasses, which can be compared and printed. Such
    an evaluator can be sent to workers if all of its fields can be sent.
    """

    def __call__(self, keys: Any, x: Any, /) -> Evaluated:
        """Evaluate the genotypes x[n, d] with one PRNG key per genotype."""


@dataclass(frozen=True)
class FactoredEvaluate:
    """An evaluator of whole genotypes that also accepts genotypes in factored form.

    Attributes:
        rows: `(keys[n], x[n, d]) -> Evaluation`, which evaluates whole genotypes.
        factors: `(keys[n], candidates, samples) -> Evaluation`, which evaluates genotypes in factored
            form. The results of the candidates come first, followed by those of the samples.
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
        name: Short name, which is used in files and figures.
        dim: Number of genotype entries, d.
        feature_low: Lower bound of each feature. Features outside the bounds are assigned to cells at
            the edge.
        feature_high: Upper bound of each feature.
        init: `(key, n) -> x[n, d]`, which draws random initial genotypes.
        evaluate: `(keys[n], x[n, d]) -> Evaluation` (or a plain tuple of `fitness[n]`, `feature[n, k]`
            and optionally a dictionary of extras `[n, ...]`). Each genotype has a separate PRNG key, so
            that its result does not depend on the other genotypes in the batch. An evaluator that
            accepts factored samples is a `FactoredEvaluate`.
        min_fitness: Fitness that adds 0 to the QD-score. A fitter elite adds the difference between its
            fitness and this value. A less fit elite adds 0.
        uncertain: Whether repeated evaluations of a genotype can differ.
        jit: Whether JAX compiles `evaluate`. If False, `evaluate` is an ordinary Python function. In
            this case, `x` is a NumPy array, and the results may be NumPy arrays or lists. The function
            `seeds_from_keys(keys)` converts the keys to integers.
        resolution: Number of grid cells per feature. If None, the grid has about 2 500 cells in total.
        cost: Number of evaluations of the underlying problem per evaluation of this task.
        single: The task that a `resampled` task evaluates repeatedly. Corrections use this task, because
            they measure the noise of single evaluations.
        gradients: `(keys[n], x[n, d]) -> (fitness gradients [n, d], feature gradients [n, k, d])`, for
            algorithms that use gradients. If None, JAX differentiates `evaluate`. JAX compiles this
            function even if it does not compile `evaluate`.
        evaluate_transitions: Like `evaluate`, but the result contains the `transitions` of every
            episode, for algorithms that learn from them. None if the task has no transitions.
        control: Environment and controller of a control task, for replays and policy gradients.
        map: The walls, if the features are a position.
        draw: `(x[d]) -> lines or figure`, which draws a genotype for `memes view`. Lines are arrays of
            points [n, 2] or [n, 3], and a figure is a matplotlib figure. This function is not needed for
            robots or for paths on a map.
        trees: Conversion between genotypes and pytrees, or None if genotypes are plain vectors.
            `trees.tree(x)` converts a genotype to its tree.
        feature_names: Name of each feature, with its unit if it has one, such as "final x (m)". Figures,
            tables and replays use these names. The default is "feature 1", "feature 2", ...
        extras: Shape and dtype of each extra that `evaluate` returns for a genotype, by name. If only a
            shape such as `()` is given, the dtype is float32. If this dictionary is empty, algorithms
            determine the extras by a trial evaluation.
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
            f"dim of task '{self.name}' must be {of_trees}, the number of entries of its trees, got "
            f"{self.dim}",
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
        # If `replace` has changed the number of features, the default names are numbered again.
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
    """Return the default names of k features: "feature 1", ..."""
    return tuple(f"feature {i + 1}" for i in range(k))


# Genotypes. They are NumPy arrays if the task is not compiled.
Genotypes = Float[Array | np.ndarray, "n d"]


def evaluate(
    task: Task,
    keys: Key[Array, " n"],
    x: Genotypes | Repeats,
    *,
    transitions: bool = False,
    chunk: int | None = None,
) -> Evaluation:
    """Evaluate genotypes with one key per evaluation.

    This function checks the shapes of the results, and converts the results to float32.

    Args:
        task: The task.
        keys: One PRNG key per evaluation.
        x: The genotypes. With `Repeats`, each genotype is evaluated several times.
        transitions: Whether to return the transitions of a control task, which need additional memory.
        chunk: Maximum number of evaluations at a time, which limits the memory. If None, all genotypes
            are evaluated together.
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
    """Return True if the task can evaluate factored genotypes."""
    return task.jit and isinstance(task.evaluate, FactoredEvaluate)


def evaluate_factors(
    task: Task,
    keys: Key[Array, " n"],
    candidates: Repeats,
    samples: Pairs,
    *,
    chunk: int | None = None,
) -> Evaluation:
    """Evaluate genotypes in factored form: first the candidates, and then the samples."""
    function = task.evaluate
    assert isinstance(function, FactoredEvaluate), "the caller checks this"

    def evaluate_some(keys: Array, candidates: Repeats, samples: Pairs) -> Evaluation:
        with jax.default_matmul_precision(PRECISION):
            return as_evaluation(task, keys.shape[0], function.factors(keys, candidates, samples))

    return by_chunks(evaluate_some, chunk, keys, candidates, samples)


def slices(n: int, size: int | None) -> list[slice]:
    """Divide n rows into consecutive slices of `size` rows. The last slice may be shorter.

    If `size` is None, return a single slice.
    """
    return [slice(start, min(start + (size or n), n)) for start in range(0, n, size or n)]


def as_evaluation(task: Task, n: int, result: Any) -> Evaluation:
    """Check a result of `evaluate` or an argument of `tell`, and convert it to float32 arrays."""
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
    """Check the extras of n rows, and convert them to arrays with at most 32 bits per number."""
    which = f"extras of task '{task.name}'"
    require(isinstance(extras, Mapping), f"{which} must be a dict of arrays, got {short(extras)}")
    found = {}
    for name, given in extras.items():
        value = np.asarray(given) if not task.jit and isinstance(given, (list, tuple)) else given
        require(
            hasattr(value, "dtype") and np.shape(value)[:1] == (n,),
            f"{which} must have an array [{n}, ...] for '{name}', one row per genotype, got "
            f"{np.shape(value) if hasattr(value, 'dtype') else type(given).__name__}",
        )
        found[name] = jnp.asarray(value, extra_like(which, name, value).dtype)
    return _declared(task, found) if task.extras else found


def rows_like(extras: Mapping[str, Any]) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shape and dtype of one row of each extra."""
    return {name: _shaped(each.shape[1:], each.dtype) for name, each in extras.items()}


def _shaped(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def with_extras(task: Task, extras: Mapping[str, jax.ShapeDtypeStruct]) -> Task:
    """Return a task that declares these extras.

    A task that already declares extras is returned unchanged.
    """
    if task.extras or not extras:
        return task
    single = task.single and with_extras(task.single, extras)
    return replace(task, extras=extras, single=single)


def lost(task: Task, n: int, like: Mapping[str, Any] | None = None) -> Evaluation:
    """Return a placeholder for n evaluations that a simulator failed to complete.

    The placeholder consists of NaN, or of zeros for types without NaN.

    Args:
        task: The task.
        n: The number of evaluations.
        like: Extras with the required shapes and types. By default, the extras that the task declares
            are used.
    """

    def blank(each: Any) -> Array:
        value = jnp.nan if jnp.issubdtype(each.dtype, jnp.inexact) else 0
        return jnp.full((n, *each.shape), value, each.dtype)

    fitness = jnp.full(n, jnp.nan, jnp.float32)
    feature = jnp.full((n, task.feature_dim), jnp.nan, jnp.float32)
    declared = task.extras if like is None else rows_like(like)
    return Evaluation(fitness, feature, {name: blank(each) for name, each in declared.items()})


def _declared(task: Task, found: dict[str, Array]) -> dict[str, Array]:
    """Check extras against the task's declaration, and return them in the declared order."""
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


# 64-bit types are replaced by 32-bit types, as in all arrays of an algorithm.
IN_32_BITS = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
OWN_FIELDS = ("cell", "genotype", "genotypes", "fitness", "feature", "generation", "lane")


def extra_like(which: str, name: Any, like: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype that `like` describes: an array, a shape with a dtype, or a shape."""
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
        getattr(dtype, "kind", "") in tuple("biufc"),  # files cannot store bfloat16 or keys
        f"{which} must have numbers or truth values of NumPy's types for '{name}', got {dtype}",
    )
    return _shaped(like.shape, np.dtype(IN_32_BITS.get(str(dtype), dtype)))


def _as_array(task: Task, what: str, part: Any, shape: tuple[int, ...]) -> Array:
    """Convert a part of the result of `evaluate` to float32.

    Lists are allowed if `evaluate` is not compiled.
    """
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
    """Draw `n` genotypes from `task.init`, check their shape, and convert them to float32."""
    x = task.init(key, n)
    _require_array(task, "init", "genotypes", x, (n, task.dim))
    return jnp.asarray(x, jnp.float32)


def _require_array(task: Task, function: str, what: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise a `UsageError` unless the value consists of real numbers and has the required shape."""
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
    """Return an `init` function that draws each of the `dim` entries from U[low, high]."""
    require(low < high, f"low must be below high, got low={low} and high={high}")
    return lambda key, n: jax.random.uniform(key, (n, dim), minval=low, maxval=high)


def rowwise(function: Callable[[Array, Any], Any], trees: TreeGenotypes | None = None) -> Evaluator:
    """Convert a function of one key and one genotype to an `evaluate` function of several genotypes.

    JAX vectorises the function over the genotypes. If the task has `jit=False`, the function is called
    once per genotype instead.

    Args:
        function: `(key, x[d]) -> (fitness, feature[k])`. This function may return a dictionary of extras
            as a third value.
        trees: Conversion of genotypes to pytrees. If given, the function takes a tree instead of `x`.
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
        """Evaluate genotypes, and add noise to the results."""
        inner, fitness_keys, feature_keys = jax.vmap(lambda key: tuple(jax.random.split(key, 3)))(keys)
        exact, k = evaluate(self.task, inner, x), self.task.feature_dim
        noise = jax.vmap(jax.random.normal)(fitness_keys)
        shift = jax.vmap(lambda key: jax.random.normal(key, (k,)))(feature_keys)
        fitness, feature = exact.fitness + self.fitness * noise, exact.feature + self.feature * shift
        return Evaluation(fitness, feature, exact.extras)


@checked
def noisy(task: Task, *, fitness: float = 0.0, feature: float = 0.0) -> Task:
    """Make a task uncertain by adding Gaussian noise to its fitness and features.

    Args:
        task: The task to wrap, which may already be uncertain.
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
