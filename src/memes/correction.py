"""Uncertain quality-diversity: what is left of an archive once its elites are evaluated again."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.archive import LIMIT, Archive, add, empty
from memes.errors import require
from memes.task import Evaluation, Task, evaluate


def reevaluate(
    archive: Archive,
    task: Task,
    samples: int = 512,
    *,
    key: Array | None = None,
    statistic: Callable[..., Array] = jnp.nanmedian,
    rows: int = 16_384,
) -> Archive:
    """The corrected archive: elites are evaluated again and compete anew for the cells.

    Args:
        archive: The archive as it was found.
        task: The task that its elites were found on.
        samples: Evaluations of each elite.
        key: PRNG key of the evaluations; None is `jax.random.key(0)`.
        statistic: Summary over an axis of an elite's fitness and of each of its features. It sees NaN
            where an evaluation was not finite, so use `nanmedian` (the default) or `nanmean`.
        rows: Evaluations at once; as many elites are taken together as this allows, but at least one.

    Returns:
        A new archive, of those elites that hold a cell by the statistic of their evaluations. Each keeps
        the generation and lane of its discovery.
    """
    require(samples >= 1, f"samples must be at least 1, got {samples}")
    require(rows >= 1, f"rows must be at least 1, got {rows}")
    require(
        archive.genotypes.shape[1] == task.dim,
        f"archive must hold genotypes of {task.dim} entries, as task '{task.name}' has, "
        f"got {archive.genotypes.shape[1]}",
    )
    elites = np.flatnonzero(np.asarray(archive.occupied))
    corrected = empty(archive.cells, archive.genotypes.shape[1])
    if elites.size == 0:
        return corrected
    run_key = jax.random.key(0) if key is None else key
    chunk = max(1, min(rows // samples, elites.size))

    def summarise(key: Array, cell: Array, x: Array) -> Evaluation:
        # Keys follow from the cell, so that the result does not depend on the chunks.
        keys = jax.vmap(lambda c: jax.random.split(jax.random.fold_in(key, c), samples))(cell)
        each = evaluate(task, keys.reshape(-1), jnp.repeat(x, samples, axis=0))

        def over_samples(values: Array) -> Array:
            values = jnp.where(jnp.abs(values) < LIMIT, values, jnp.nan)
            return statistic(values.reshape(chunk, samples, *values.shape[1:]), axis=1)

        return Evaluation(over_samples(each.fitness), over_samples(each.feature))

    summarise_chunk = jax.jit(summarise) if task.jit else summarise
    summaries = []
    for start in range(0, elites.size, chunk):
        cell = jnp.asarray(np.resize(elites[start : start + chunk], chunk))
        summaries.append(summarise_chunk(run_key, cell, archive.genotypes[cell]))
    summary = jax.tree.map(lambda *parts: jnp.concatenate(parts)[: elites.size], *summaries)

    offered = jnp.ones(elites.size, bool)
    corrected, _ = add(
        corrected,
        archive.genotypes[elites],
        summary,
        offered,
        lane=archive.lane[elites],
        generation=archive.generation[elites],
    )
    return corrected
