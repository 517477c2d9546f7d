"""Gradients of a task's fitness and features with respect to the genotype."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key

from memes.errors import UsageError, require
from memes.task import PRECISION, Task, as_evaluation, initial

REMEDY = "give the task `gradients`, or use an algorithm without gradients, such as cma-mae"


class Gradients(NamedTuple):
    """The gradients of the fitness and of each of k features, at n genotypes with d entries."""

    fitness: Float[Array, "n d"]
    feature: Float[Array, "n k d"]


def gradients(task: Task, keys: Key[Array, " n"], x: Float[Array, "n d"]) -> Gradients:
    """Compute the gradients of a task at the given genotypes, with one key per evaluation.

    If the task has no `gradients`, JAX differentiates `task.evaluate` in reverse mode. The gradients
    at all genotypes are computed together, because the evaluation of a genotype does not depend on the
    other genotypes.
    """
    n, k = x.shape[0], task.feature_dim
    if task.gradients is not None:
        with jax.default_matmul_precision(PRECISION):
            found = task.gradients(keys, x)
        of_fitness, of_feature = (jnp.asarray(part, jnp.float32) for part in found)
        parts = ("fitness", of_fitness, (n, task.dim)), ("feature", of_feature, (n, k, task.dim))
        for what, part, shape in parts:
            require(
                part.shape == shape,
                f"gradients of task '{task.name}' must return {what} gradients of shape {shape}, "
                f"got {part.shape}",
            )
        return Gradients(of_fitness, of_feature)

    def outcome(x: Array) -> Array:
        with jax.default_matmul_precision(PRECISION):
            evaluation = as_evaluation(task, n, task.evaluate(keys, x))
        return jnp.concatenate([evaluation.fitness[:, None], evaluation.feature], axis=1)

    _, pull_back = jax.vjp(outcome, x)
    of_each = jnp.broadcast_to(jnp.eye(1 + k)[:, None], (1 + k, n, 1 + k))
    (along,) = jax.vmap(pull_back)(of_each)
    return Gradients(along[0], jnp.swapaxes(along[1:], 0, 1))


def require_gradients(task: Task) -> None:
    """Raise a `UsageError` with a suggested solution if the task has no gradients."""
    require(
        task.jit or task.gradients is not None,
        f"task '{task.name}' has jit=False, so JAX cannot differentiate it; {REMEDY}",
    )
    init_key, key = jax.random.split(jax.random.key(0))
    n = 2
    try:
        jax.eval_shape(lambda: gradients(task, jax.random.split(key, n), initial(task, init_key, n)))
    except UsageError:
        raise
    except (NotImplementedError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise UsageError(
            f"evaluate of task '{task.name}' cannot be differentiated ({reason}); {REMEDY}"
        ) from error
