"""MAP-Elites and related algorithms, which use variation, CMA-ES or policy gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp

from memes import objectives, resets
from memes.algorithm import Algorithm, compose
from memes.cells import Cells
from memes.deep_archive import DeepArchive
from memes.emitters import CMA, Isoline, OneOf, Parallel, PolicyGradient, Reevaluation
from memes.emitters.td3 import TD3
from memes.errors import at_least, require
from memes.estimates import resampled
from memes.judges import DNSPopulation, Thresholds
from memes.selectors import UniformElites
from memes.strategies import Evosax, Strategy
from memes.strategies.evosax import WEIGHTED
from memes.task import Task
from memes.validation import check_fields


@dataclass(frozen=True, kw_only=True)
class MapElites:
    """MAP-Elites: random variation of elites.

    The offspring of the elites a and b is `a + iso * noise + line * z * (b - a)`. Here `noise` is a
    vector of normally distributed numbers, and z is a single normally distributed number. The default
    number of offspring equals the number of samples per generation of MEMES. Reference: Mouret and
    Clune, Illuminating Search Spaces by Mapping Elites, 2015, arXiv:1504.04909. Reference for the
    variation: Vassiliades and Mouret, Discovering the Elite Hypervolume by Leveraging Interspecies
    Correlation, GECCO 2018, arXiv:1804.03906.

    Attributes:
        batch: Number of offspring per generation.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the variation along the line between two parents.
    """

    batch: int = 16_384
    iso: float = 0.01
    line: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, batch=self.batch)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        emitter = Isoline(self.batch, iso=self.iso, line=self.line)
        return compose(task, emitter, cells=cells)


@dataclass(frozen=True, kw_only=True)
class Dns:
    """DNS: random variation of a population, whose survivors are selected by dominated novelty.

    The score of an individual i is the mean distance of its feature to the k nearest features of fitter
    individuals: `s_i = 1/k sum_{j in N_k(i)} |b_i - b_j|`. Here b is a feature, f is a fitness, and
    N_k(i) contains the k nearest individuals among {j : f_j > f_i}. If no individual is fitter, the
    score is infinite. The individuals with the highest scores survive. The archive stores the best
    offspring in each cell, but does not affect the search. Reference: Bahlous-Boldi, Faldor et al.,
    Dominated Novelty Search, GECCO 2025, arXiv:2502.00593.

    Attributes:
        batch: Number of offspring per generation.
        population_size: Number of individuals in the population.
        neighbours: Number k of fitter individuals from which a score is computed.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the variation along the line between two parents.
    """

    batch: int = 256
    population_size: int = 1024
    neighbours: int = 3
    iso: float = 0.01
    line: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, batch=self.batch, population_size=self.population_size)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        judge = DNSPopulation(self.population_size, self.neighbours)
        emitter = Isoline(self.batch, iso=self.iso, line=self.line)
        return compose(task, emitter, cells=cells, judge=judge)


@dataclass(frozen=True, kw_only=True)
class MapElitesSampling:
    """ME-Sampling: MAP-Elites that evaluates every offspring several times.

    The archive compares the means or the medians of the evaluations. For example, the mean fitness is
    `(f_1 + ... + f_n) / n`. Reference: the baseline of Flageat, Lim and Cully, Enhancing MAP-Elites with
    Multiple Parallel Evolution Strategies, GECCO 2024, arXiv:2303.06137.

    Attributes:
        batch: Number of offspring per generation.
        resamples: Number of evaluations per offspring.
        statistic: Statistic that summarises the fitness and each feature over the evaluations: mean or
            median. An offspring is rejected if one of its evaluations is not finite.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the variation along the line between two parents.
    """

    batch: int = 512
    resamples: int = 32
    statistic: Literal["mean", "median"] = "mean"
    iso: float = 0.01
    line: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, batch=self.batch, resamples=self.resamples)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        statistics: dict[str, Any] = {"mean": jnp.mean, "median": jnp.median}
        several = resampled(task, self.resamples, statistics[self.statistic])
        emitter = Isoline(self.batch, iso=self.iso, line=self.line)
        return compose(several, emitter, cells=cells)


@dataclass(frozen=True, kw_only=True)
class ExtractMe:
    """Extract-ME: MAP-Elites that keeps several individuals per cell and evaluates some of them again.

    Each cell keeps up to `depth` individuals, ordered by the mean fitness `(f_1 + ... + f_n) / n` of
    their n evaluations. In each generation, a share of the evaluations is used to evaluate individuals
    again. An individual with rank r in its cell, starting at 0, is drawn with a probability proportional
    to `exp(-r)`, without replacement. After the evaluation, the means of the individual change, and the
    individual competes again with the others. Parents are elites, that is, individuals with rank 0.
    Reference: Flageat et al., Extract-QD Framework, GECCO 2025, arXiv:2502.06585.

    Attributes:
        batch: Number of evaluations per generation.
        proportion_reevaluated: Share of the evaluations that are used to evaluate individuals again.
        depth: Maximum number of individuals per cell.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the variation along the line between two parents.
    """

    batch: int = 16_384
    proportion_reevaluated: float = 0.25
    depth: int = 8
    iso: float = 0.01
    line: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(2, batch=self.batch)
        at_least(1, depth=self.depth)
        share = self.proportion_reevaluated
        require(0 < share < 1, f"proportion_reevaluated must lie in (0, 1), got {share}")

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        again = min(max(1, round(self.batch * self.proportion_reevaluated)), self.batch - 1)
        varied = Isoline(self.batch - again, iso=self.iso, line=self.line, selector=UniformElites())
        emitter = Parallel((Reevaluation(again), varied))
        return compose(task, emitter, cells=cells, judge=DeepArchive(self.depth))


@dataclass(frozen=True, kw_only=True)
class CmaMe:
    """CMA-ME: a pool of CMA-ES emitters that rank samples by how much they improve the archive.

    The emitters of the pool are active in turn. An emitter restarts from a random elite if none of its
    samples enters the archive. By default, all samples update the distribution of an emitter, as in
    QDax. With `parents="accepted"`, only samples that improve the archive update the distribution, as in
    the paper. The i-th best of n such samples has the weight log(n + 1/2) - log(i), divided by the sum
    of all weights. Reference: Fontaine et al., Covariance Matrix Adaptation for the Rapid Illumination
    of Behavior Space, GECCO 2020, arXiv:1912.02400.

    Attributes:
        pool: Number of emitters, one of which is active per generation.
        ranking: Ranking of the samples: by how much they improve the archive (imp), by fitness (opt) or
            by feature along a random direction (rnd).
        batch: Number of samples per generation, all of which are offered to the archive.
        sigma: Standard deviation of an emitter's first samples.
        strategy: Name of a search distribution from evosax. For many dimensions, sep-cma-es is much
            faster. In Python, the value can also be a `Strategy`, to which batch and sigma do not apply.
        parents: Samples that update the distribution: all samples (all), or samples that improve the
            archive (accepted). With accepted, the strategy must be cma-es or sep-cma-es.
    """

    pool: int = 15
    ranking: Literal["imp", "opt", "rnd"] = "imp"
    batch: int = 128
    sigma: float = 0.5
    strategy: str | Strategy = "cma-es"
    parents: Literal["all", "accepted"] = "all"

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, pool=self.pool)
        at_least(2, batch=self.batch)
        require(
            self.parents == "all" or isinstance(self.strategy, str),
            "parents must be 'all' if strategy is an object, got 'accepted'; name the strategy, or "
            "compose objectives.Accepted with Evosax(parents='positive')",
        )
        require(
            self.parents == "all" or self.strategy in WEIGHTED,
            f"parents must be 'all' for strategy '{self.strategy}', got 'accepted'; use the strategy "
            f"{' or '.join(WEIGHTED)}",
        )

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        ranked: dict[str, objectives.Objective] = {
            "imp": objectives.TwoStageImprovement(),
            "opt": objectives.Fitness(),
            "rnd": objectives.RandomDirection(task.feature_dim),
        }
        objective, strategy = ranked[self.ranking], self.strategy
        if isinstance(strategy, str):
            parents: Literal["all", "positive"] = "all" if self.parents == "all" else "positive"
            strategy = Evosax(strategy, samples=self.batch, sigma=self.sigma, parents=parents)
        if self.parents == "accepted":
            objective = objectives.Accepted(objective)
        emitter = OneOf(CMA(objective, strategy), self.pool)
        return compose(task, emitter, cells=cells)


@dataclass(frozen=True, kw_only=True)
class CmaMae:
    """CMA-MAE: CMA-ES emitters that compare samples with slowly rising thresholds.

    A sample with fitness f in cell e is accepted if f > t_e. The threshold t_e then becomes (1 - a) t_e
    + a f, where a is the learning rate. The samples of each emitter are ranked by f - t_e.
    The archive stores the best sample of each cell, even if it was not accepted. Reference: Fontaine and
    Nikolaidis, Covariance Matrix Adaptation MAP-Annealing, GECCO 2023, arXiv:2205.10752.

    Attributes:
        lanes: Number of emitters.
        samples: Number of samples per emitter and generation, all of which are offered to the archive.
        sigma: Standard deviation of an emitter's first samples.
        covariance: Covariance of the samples: full (CMA-ES) or separable (sep-CMA-ES). For many
            dimensions, separable is much faster.
        threshold_rate: Learning rate of the thresholds, a. With 1, a threshold is the best fitness in
            its cell, as in CMA-ME. With 0, the thresholds are constant.
        threshold_min: Initial threshold of each cell. The default is the task's min_fitness.
    """

    lanes: int = 15
    samples: int = 36
    sigma: float = 0.5
    covariance: Literal["full", "separable"] = "full"
    threshold_rate: float = 0.01
    threshold_min: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        names = {"full": "cma-es", "separable": "sep-cma-es"}
        strategy = Evosax(names[self.covariance], samples=self.samples, sigma=self.sigma)
        lowest = float(task.min_fitness) if self.threshold_min is None else self.threshold_min
        return compose(
            task,
            CMA(objectives.Improvement(), strategy, self.lanes, reset=resets.Never()),
            cells=cells,
            judge=Thresholds(self.threshold_rate, lowest),
        )


@dataclass(frozen=True, kw_only=True)
class PgaMe:
    """PGA-ME: random variation of elites, and policy-gradient steps that use a learned critic.

    A policy-gradient step increases the mean of `Q(s, a(s))` over observations s from past episodes.
    Here a(s) is the action of the offspring, and Q is the critic, which TD3 trains together with a
    greedy actor. The task must provide transitions, as all control tasks do. Reference: Nilsson and
    Cully, Policy Gradient Assisted MAP-Elites, GECCO 2021.

    Attributes:
        batch: Number of offspring per generation.
        proportion_gradient: Share of offspring made by policy gradients, including the greedy actor.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the variation along the line between two parents.
        gradient_steps: Number of policy-gradient steps from an elite to its offspring.
        gradient_learning_rate: Learning rate of Adam in the policy-gradient steps.
        td3: Settings of the critics and the greedy actor.
    """

    batch: int = 128
    proportion_gradient: float = 0.5
    iso: float = 0.01
    line: float = 0.1
    gradient_steps: int = 100
    gradient_learning_rate: float = 1e-3
    td3: TD3 = TD3()

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, batch=self.batch)
        share = self.proportion_gradient
        require(0 < share <= 1, f"proportion_gradient must lie in (0, 1], got {share}")

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        n_gradient = max(1, round(self.batch * self.proportion_gradient))
        n_varied = self.batch - n_gradient
        gradient = PolicyGradient(
            n_gradient,
            steps=self.gradient_steps,
            learning_rate=self.gradient_learning_rate,
            td3=self.td3,
        )
        varied = [Isoline(n_varied, iso=self.iso, line=self.line)] if n_varied else []
        return compose(task, Parallel((*varied, gradient)), cells=cells)
