"""MAP-Elites and its kin: offspring of random elites, by variation, CMA-ES or policy gradients."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp

from memes import objectives, resets
from memes.algorithm import Algorithm, compose
from memes.cells import Cells
from memes.emitters import CMA, Isoline, OneOf, Parallel, PolicyGradient
from memes.emitters.td3 import TD3
from memes.errors import at_least, require
from memes.estimates import resampled
from memes.judges import DNSPopulation, Thresholds
from memes.presets.parts import recorded
from memes.strategies import Evosax, Strategy
from memes.task import Task


@recorded
def me(
    task: Task,
    cells: Cells | None = None,
    *,
    batch: int = 16_384,
    iso: float = 0.01,
    line: float = 0.1,
) -> Algorithm:
    """MAP-Elites: random variation of elites, as many a generation as MEMES has samples.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        batch: Offspring in a generation.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the part along the line between two parents.
    """
    at_least(1, batch=batch)
    return compose(task, Isoline(batch, iso=iso, line=line), cells=cells)


@recorded
def dns(
    task: Task,
    cells: Cells | None = None,
    *,
    batch: int = 256,
    population_size: int = 1024,
    neighbours: int = 3,
    iso: float = 0.01,
    line: float = 0.1,
) -> Algorithm:
    """DNS: random variation of a population that survives by dominated novelty.

    The score of an individual i is the mean distance of its feature to the k nearest features of fitter
    individuals, s_i = 1/k sum_{j in N_k(i)} |b_i - b_j| with N_k(i) within {j : f_j > f_i}, and infinite
    if nothing is fitter. The individuals with the highest scores survive. The cells do not affect the
    search: the archive returns the best offspring of each. Reference: Bahlous-Boldi, Faldor et al.,
    Dominated Novelty Search, GECCO 2025, arXiv:2502.00593.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        batch: Offspring in a generation.
        population_size: Individuals in the population.
        neighbours: Nearest fitter individuals that make up the score, k.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the part along the line between two parents.
    """
    at_least(1, batch=batch, population_size=population_size)
    judge = DNSPopulation(population_size, neighbours)
    return compose(task, Isoline(batch, iso=iso, line=line), cells=cells, judge=judge)


@recorded
def me_sampling(
    task: Task,
    cells: Cells | None = None,
    *,
    batch: int = 512,
    resamples: int = 32,
    statistic: Literal["mean", "median"] = "mean",
    iso: float = 0.01,
    line: float = 0.1,
) -> Algorithm:
    """MAP-Elites that evaluates every offspring many times.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        batch: Offspring in a generation.
        resamples: Evaluations of each offspring.
        statistic: How they become one estimate, for the fitness and for each feature. An offspring is
            rejected if one of its evaluations is not finite.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the part along the line between two parents.
    """
    at_least(1, batch=batch, resamples=resamples)
    statistics: dict[str, Any] = {"mean": jnp.mean, "median": jnp.median}
    several = resampled(task, resamples, statistics[statistic])
    return compose(several, Isoline(batch, iso=iso, line=line), cells=cells)


@recorded
def cma_me(
    task: Task,
    cells: Cells | None = None,
    *,
    pool: int = 15,
    ranking: Literal["imp", "opt", "rnd"] = "imp",
    batch: int = 128,
    sigma: float = 0.5,
    strategy: str | Strategy = "cma-es",
) -> Algorithm:
    """CMA-ME: CMA-ES emitters that take turns, each ranked by what its samples add to the archive.

    An emitter starts again from a random elite when none of its samples enters the archive. All samples
    update its distribution, where the original takes those that entered (docs/deviations.md).

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        pool: Emitters that take turns, one a generation.
        ranking: What samples are ranked by: how they improve the archive (imp), their fitness (opt) or
            their feature along a random direction (rnd).
        batch: Samples in a generation, all of them offered to the archive.
        sigma: Standard deviation of an emitter's first samples.
        strategy: Search distribution, one of evosax by name; sep-cma-es is far quicker in many
            dimensions. In Python also a `Strategy`, which has a batch and a sigma of its own.
    """
    at_least(1, pool=pool)
    at_least(2, batch=batch)
    ranked: dict[str, objectives.Objective] = {
        "imp": objectives.TwoStageImprovement(),
        "opt": objectives.Fitness(),
        "rnd": objectives.RandomDirection(task.feature_dim),
    }
    if isinstance(strategy, str):
        strategy = Evosax(strategy, samples=batch, sigma=sigma)
    return compose(task, OneOf(CMA(ranked[ranking], strategy), pool), cells=cells)


@recorded
def cma_mae(
    task: Task,
    cells: Cells | None = None,
    *,
    lanes: int = 15,
    samples: int = 36,
    sigma: float = 0.5,
    covariance: Literal["full", "separable"] = "full",
    threshold_rate: float = 0.01,
    threshold_min: float | None = None,
) -> Algorithm:
    """CMA-MAE: CMA-ES emitters that improve on thresholds, which rise slowly.

    A sample of fitness f in cell e is accepted if f > t_e, and then t_e becomes (1 - a) t_e + a f. The
    samples of each emitter are ranked by f - t_e. The archive returns the best of each cell, whether it
    was accepted or not. Reference: Fontaine and Nikolaidis, Covariance Matrix Adaptation MAP-Annealing,
    GECCO 2023.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        lanes: Number of emitters.
        samples: Samples of each emitter in a generation, all of them offered to the archive.
        sigma: Standard deviation of an emitter's first samples.
        covariance: Covariance of the samples: full (CMA-ES) or separable (sep-CMA-ES), which is far
            quicker in many dimensions.
        threshold_rate: Learning rate of the thresholds, a: 1 is CMA-ME, 0 optimises alone.
        threshold_min: First threshold of each cell; None is the task's min_fitness.
    """
    names = {"full": "cma-es", "separable": "sep-cma-es"}
    strategy = Evosax(names[covariance], samples=samples, sigma=sigma)
    lowest = float(task.min_fitness) if threshold_min is None else threshold_min
    return compose(
        task,
        CMA(objectives.Improvement(), strategy, lanes, reset=resets.Never()),
        cells=cells,
        judge=Thresholds(threshold_rate, lowest),
    )


@recorded
def pga_me(
    task: Task,
    cells: Cells | None = None,
    *,
    batch: int = 128,
    proportion_gradient: float = 0.5,
    iso: float = 0.01,
    line: float = 0.1,
    gradient_steps: int = 100,
    gradient_learning_rate: float = 1e-3,
    td3: TD3 = TD3(),
) -> Algorithm:
    """PGA-ME: random variation of elites, and elites moved by policy gradients of a learned critic.

    Args:
        task: What to optimise; it must yield transitions, as control tasks do.
        cells: The archive's cells; None is the task's grid.
        batch: Offspring in a generation.
        proportion_gradient: Share of them that policy gradients make, the greedy actor among them.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the part along the line between two parents.
        gradient_steps: Policy-gradient steps from an elite to its offspring.
        gradient_learning_rate: Of Adam in these steps.
        td3: How critics and greedy actor learn.
    """
    at_least(1, batch=batch)
    require(
        0 < proportion_gradient <= 1,
        f"proportion_gradient must lie in (0, 1], got {proportion_gradient}",
    )
    n_gradient = max(1, round(batch * proportion_gradient))
    gradient = PolicyGradient(
        n_gradient, steps=gradient_steps, learning_rate=gradient_learning_rate, td3=td3
    )
    varied = [Isoline(batch - n_gradient, iso=iso, line=line)] if n_gradient < batch else []
    return compose(task, Parallel((*varied, gradient)), cells=cells)
