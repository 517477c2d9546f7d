"""Checks that a task returns arrays of the correct shapes, and equal results for equal genotypes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.archive import finite
from memes.errors import UsageError
from memes.executors.blocks import Part
from memes.executors.remote_evaluation import RemoteEvaluator, attempting, joined, raised_by
from memes.task import Evaluation, Task, evaluate, initial, rows_like

ROWS = 8  # number of genotypes in a second trial, if all evaluations of the first trial fail


def check(task: Task) -> dict[str, jax.ShapeDtypeStruct]:
    """Check that a task returns arrays of the correct shapes.

    Returns:
        Shape and dtype of each extra field, for one genotype.

    Raises:
        UsageError: If an array has an incorrect shape.
    """
    # The number of genotypes differs from the lengths of other axes, so that transposed results are
    # detected.
    n = next(i for i in (2, 3, 4) if i not in (task.feature_dim, task.dim))

    def trial(n: int) -> tuple[Array, Array]:
        init_key, rows_key = jax.random.split(jax.random.key(0))
        return jax.random.split(rows_key, n), initial(task, init_key, n)

    if not task.jit:
        return _check_simulator(task, n, trial)
    try:
        return rows_like(jax.eval_shape(lambda: evaluate(task, *trial(n))).extras)
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        raise UsageError(
            f"evaluate of task '{task.name}' uses NumPy, 'if' or float() on values that JAX traces; "
            "use jax.numpy, such as jnp.where, or set jit=False"
        ) from error


def _check_simulator(
    task: Task, n: int, trial: Callable[[int], tuple[Array, Array]]
) -> dict[str, jax.ShapeDtypeStruct]:
    """Check a task with `jit=False` by evaluating n genotypes, in pairs of equal genotypes.

    As in a run, some evaluations may fail. If the task uses workers and all evaluations fail, the check
    evaluates other genotypes. A warning is printed if a task that is not declared uncertain returns
    different results for equal genotypes.
    """
    attempt, (keys, x) = attempting(task.evaluate, partial(evaluate, task)), trial(n)
    paired = n - n % 2
    parts, failure = attempt(keys, np.asarray(x.at[1:paired:2].set(x[0:paired:2])))
    if failure is not None and _all_lost(parts):
        parts = attempt(*trial(ROWS))[0] if isinstance(task.evaluate, RemoteEvaluator) else parts
        if _all_lost(parts):
            raise raised_by(task, failure) from None
        return _extras(parts)
    if not task.uncertain:
        fitness, feature = map(jnp.asarray, joined(task, parts)[:2])
        if not alike(*(Evaluation(fitness[i:paired:2], feature[i:paired:2]) for i in (0, 1))):
            warnings.warn(
                f"task '{task.name}' evaluates equal genotypes differently; with uncertain=True its "
                "archives are corrected",
                stacklevel=4,
            )
    return _extras(parts)


def _extras(parts: list[Part]) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shape and dtype of each extra field. At least one evaluation must have succeeded."""
    return rows_like(next(result for _, result in parts if result is not None).extras)


def _all_lost(parts: list[Part]) -> bool:
    return all(result is None for _, result in parts)


def alike(a: Evaluation, b: Evaluation) -> bool:
    """Return True if two evaluations of the same genotypes are equal up to rounding.

    Only genotypes whose evaluations are both valid are compared, because a deterministic simulator may
    still fail at random.
    """
    valid = np.asarray(finite(a) & finite(b))
    return all(
        np.allclose(np.asarray(p)[valid], np.asarray(q)[valid], rtol=1e-4, atol=1e-6)
        for p, q in zip(a[:2], b[:2], strict=True)
    )
