"""Algorithms for differentiable quality-diversity, which use the gradients of the task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import optax

from memes import objectives, resets
from memes.algorithm import Algorithm, compose
from memes.cells import Cells
from memes.emitters import GradientArborescence
from memes.judges import Thresholds
from memes.strategies import Evosax
from memes.task import Task
from memes.validation import check_fields

OPTIMISERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "sgd": optax.sgd,
    "adam": optax.adam,
}


@dataclass(frozen=True, kw_only=True)
class CmaMega:
    """CMA-MEGA: search along the gradients of fitness and features, with coefficients from CMA-ES.

    The samples around a solution m are `m + sum_j c_j g_j`. Here g_0 is the gradient of the fitness at
    m, and g_1, ..., g_k are the gradients of the features. Each gradient is divided by its norm. Samples
    are ranked by how much they improve the archive. CMA-ES adapts the distribution of the coefficients
    c_j to the ranks, and m moves towards the best half of the samples. A lane restarts from a random
    elite if none of its samples enters the archive. The task must be differentiable. Reference: Fontaine
    and Nikolaidis, Differentiable Quality Diversity, NeurIPS 2021, arXiv:2106.03894.

    Attributes:
        lanes: Number of solutions, each with a separate distribution.
        samples: Number of samples per solution and generation. Samples and solutions are offered to the
            archive.
        sigma: Initial standard deviation of the coefficients, in the units of the genotype.
        step_size: Learning rate of the optimiser that updates the solutions.
        optimiser: Optimiser that updates the solutions: sgd or adam.
    """

    lanes: int = 1
    samples: int = 35
    sigma: float = 10.0
    step_size: float = 1.0
    optimiser: Literal["sgd", "adam"] = "sgd"

    def __post_init__(self) -> None:
        check_fields(self)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        return compose(task, _emitter(self, objectives.TwoStageImprovement()), cells=cells)


@dataclass(frozen=True, kw_only=True)
class CmaMaega:
    """CMA-MAEGA: CMA-MEGA with the slowly rising thresholds of CMA-MAE.

    A sample with fitness f in cell e is accepted if f > t_e. The threshold t_e then becomes (1 - a) t_e
    + a f. The samples of each solution are ranked by f - t_e. The task must be differentiable.
    Reference: Fontaine and Nikolaidis, Covariance Matrix Adaptation MAP-Annealing, GECCO 2023,
    arXiv:2205.10752.

    Attributes:
        lanes: Number of solutions, each with a separate distribution.
        samples: Number of samples per solution and generation. Samples and solutions are offered to the
            archive.
        sigma: Initial standard deviation of the coefficients, in the units of the genotype.
        step_size: Learning rate of the optimiser that updates the solutions.
        optimiser: Optimiser that updates the solutions: sgd or adam.
        threshold_rate: Learning rate of the thresholds, a.
        threshold_min: Initial threshold of each cell. The default is the task's min_fitness.
    """

    lanes: int = 15
    samples: int = 35
    sigma: float = 10.0
    step_size: float = 1.0
    optimiser: Literal["sgd", "adam"] = "sgd"
    threshold_rate: float = 0.01
    threshold_min: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        emitter = replace(_emitter(self, objectives.Improvement()), reset=resets.Never())
        lowest = float(task.min_fitness) if self.threshold_min is None else self.threshold_min
        return compose(task, emitter, cells=cells, judge=Thresholds(self.threshold_rate, lowest))


def _emitter(options: CmaMega | CmaMaega, objective: objectives.Objective) -> GradientArborescence:
    """Return an emitter that learns only from samples with positive utility."""
    return GradientArborescence(
        objective,
        Evosax("cma-es", samples=options.samples, sigma=options.sigma, parents="positive"),
        options.lanes,
        step_size=options.step_size,
        optimiser=OPTIMISERS[options.optimiser],
    )
