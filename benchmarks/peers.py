"""Implementations from other libraries.

QDax provides MAP-Elites and ME-ES. pyribs provides CMA-ME, CMA-MAE and DNS.

Each function returns an implementation (`Contestant`), or raises an ImportError if the library is not
installed.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from memes import Task
from memes.cells import grid


class Contestant(NamedTuple):
    """An implementation to compare.

    Attributes:
        call: Function that does a fixed amount of work.
        outcome: Function that returns statistics of the last result of `call`.
    """

    call: Callable[[], Any]
    outcome: Callable[[Any], dict[str, float]]


def advancing(step: Callable[[Any, None], tuple[Any, Any]], carry: Any, generations: int) -> Callable:
    """Return a function that computes `generations` generations per call, in one compiled scan."""

    def advance(carry):
        return jax.lax.scan(lambda c, _: (step(c, None)[0], None), carry, length=generations)[0]

    # Compile only once. The first state may have weak types, which the returned state does not have.
    # `jax.jit` alone might therefore compile again in the second call.
    compiled = cache(lambda: jax.jit(advance).lower(carry).compile())

    def call():
        nonlocal carry
        carry = compiled()(carry)
        return carry

    return call


def qdax_me(task: Task, *, batch: int, generations: int) -> Contestant:
    """Return MAP-Elites from QDax with the variation, batch and grid of `presets.me`."""
    from qdax.core.emitters.mutation_operators import isoline_variation
    from qdax.core.emitters.standard_emitters import MixingEmitter

    def vary(x1, x2, key):
        return isoline_variation(x1, x2, key, iso_sigma=0.01, line_sigma=0.1)

    emitter = MixingEmitter(None, vary, variation_percentage=1.0, batch_size=batch)
    return _qdax(task, emitter, batch, generations)


def qdax_me_es(task: Task, *, samples: int, generations: int, capacity: int) -> Contestant:
    """Return ME-ES from QDax with the options of `presets.me_es`.

    The history contains at most `capacity` features.
    """
    from qdax.core.emitters.mees_emitter import MEESConfig, MEESEmitter

    config = MEESConfig(sample_number=samples, l2_coefficient=0.01)
    scoring = _scoring(task)
    return _qdax(task, MEESEmitter(config, capacity, scoring, task.feature_dim), 1, generations)


def _scoring(task: Task) -> Callable:
    def score(x: Array, key: Array) -> tuple[Array, Array, dict]:
        evaluation = task.evaluate(jax.random.split(key, x.shape[0]), x)
        return evaluation.fitness, evaluation.feature, {}

    return score


def _qdax(task: Task, emitter: Any, start: int, generations: int) -> Contestant:
    """Return MAP-Elites from QDax, with the given emitter and `start` initial genotypes."""
    from qdax.core.containers.mapelites_repertoire import compute_euclidean_centroids
    from qdax.core.map_elites import MAPElites
    from qdax.utils.metrics import default_qd_metrics

    centroids = compute_euclidean_centroids(grid(task).shape, task.feature_low, task.feature_high)
    search = MAPElites(_scoring(task), emitter, lambda repertoire: {})
    init_key, first_key, key = jax.random.split(jax.random.key(0), 3)
    repertoire, state, _ = search.init(task.init(first_key, start), centroids, init_key)

    def outcome(carry: tuple) -> dict[str, float]:
        found = default_qd_metrics(carry[0], -task.min_fitness)
        return {"QD-score": float(found["qd_score"]), "coverage": float(found["coverage"]) / 100}

    return Contestant(advancing(search.scan_update, (repertoire, state, key), generations), outcome)


def ribs_cma_me(task: Task, *, turns: int, pool: int, batch: int, sigma: float) -> Contestant:
    """Return CMA-ME from pyribs with the ranking, selection and restarts of `presets.cma_me`.

    `pool` is the number of emitters. In each iteration, all emitters propose genotypes.
    """
    from ribs.emitters import EvolutionStrategyEmitter

    archive = ribs_archive(task)
    starts = np.asarray(task.init(jax.random.key(0), pool))
    emitters = [
        EvolutionStrategyEmitter(
            archive,
            x0=x0,
            sigma0=sigma,
            ranker="2imp",
            selection_rule="mu",
            restart_rule="no_improvement",
            batch_size=batch,
            seed=seed,
        )
        for seed, x0 in enumerate(starts)
    ]
    return ribs_scheduled(task, archive, emitters, turns=turns, n=pool * batch)


def ribs_cma_mae(task: Task, *, turns: int, lanes: int, samples: int, sigma: float) -> Contestant:
    """Return CMA-MAE from pyribs with the thresholds, ranking and restarts of `presets.cma_mae`."""
    from ribs.emitters import EvolutionStrategyEmitter

    archive = ribs_archive(task, learning_rate=0.01, threshold_min=task.min_fitness)
    starts = np.asarray(task.init(jax.random.key(0), lanes))
    emitters = [
        EvolutionStrategyEmitter(
            archive,
            x0=x0,
            sigma0=sigma,
            ranker="imp",
            selection_rule="mu",
            restart_rule="basic",
            batch_size=samples,
            seed=seed,
        )
        for seed, x0 in enumerate(starts)
    ]
    return ribs_scheduled(
        task, archive, emitters, turns=turns, n=lanes * samples, result=ribs_archive(task)
    )


def ribs_dns(task: Task, *, turns: int, batch: int, iso: float, line: float) -> Contestant:
    """Make DNS from pyribs with the population size, neighbour count and variation of `presets.dns`."""
    from ribs.archives import DNSArchive
    from ribs.emitters import IsoLineEmitter

    population = DNSArchive(
        solution_dim=task.dim, measure_dim=task.feature_dim, capacity=1024, k_neighbors=3, seed=0
    )
    starts = np.asarray(task.init(jax.random.key(0), batch))
    emitter = IsoLineEmitter(
        population,
        initial_solutions=starts,
        iso_sigma=iso,
        line_sigma=line,
        batch_size=batch,
        seed=0,
    )
    return ribs_scheduled(task, population, [emitter], turns=turns, n=batch, result=ribs_archive(task))


def ribs_archive(task: Task, **options: float) -> Any:
    """Return a pyribs archive with the cells of the task's grid."""
    from ribs.archives import GridArchive

    return GridArchive(
        solution_dim=task.dim,
        dims=grid(task).shape,
        ranges=list(zip(task.feature_low, task.feature_high, strict=True)),
        qd_score_offset=task.min_fitness,
        **options,
    )


def ribs_scheduled(
    task: Task, archive: Any, emitters: list[Any], *, turns: int, n: int, result: Any = None
) -> Contestant:
    """Return an implementation that runs `turns` iterations of a pyribs scheduler per call.

    In each iteration, one compiled call evaluates the genotypes of all emitters.
    """
    from ribs.schedulers import Scheduler

    scheduler = Scheduler(archive, emitters, result_archive=result)
    keys = jax.random.split(jax.random.key(1), n)
    evaluate = jax.jit(lambda x: task.evaluate(keys, x)[:2])

    def call() -> Any:
        for _ in range(turns):
            fitness, feature = jax.device_get(evaluate(scheduler.ask().astype(np.float32)))
            scheduler.tell(fitness, feature)
        return ()

    def outcome(_: Any) -> dict[str, float]:
        found = (archive if result is None else result).stats
        return {"QD-score": float(found.qd_score), "coverage": float(found.coverage)}

    return Contestant(call, outcome)
