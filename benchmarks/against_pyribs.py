"""Compare the QD-scores of memes and pyribs on the arm and the sphere, at equal numbers of evaluations.

All algorithms use 540 evaluations per generation and 100 x 100 cells. Emitters start at the origin on
the sphere, and at random genotypes on the arm. Times include compilation. The script needs `pip install
ribs cma` and the extra `evosax`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from baselines import archives, projection, sphere, spread

import memes
from memes.emitters.gradients import gradients

SEEDS_APART = 1000  # emitter i of the run with seed s has the random seed 1000 s + i
EMITTERS, SAMPLES = 15, 36
ARM_SIGMA = 0.1  # initial sigma of the gradient coefficients on the arm


@dataclass(frozen=True)
class Settings:
    """Settings of the comparison."""

    cases: tuple[str, ...] = (
        *("cma-mae", "cma-mae-separable", "cma-mae-pycma", "dns"),
        *("cma-mega", "cma-maega", "cma-maega-pycma", "cma-me-accepted"),
        *("cma-mega-arm", "cma-maega-arm"),
    )
    dims: tuple[int, ...] = (20, 100)
    seeds: int = 5
    generations: int = 1000
    like_pyribs: bool = False
    """Replace the formulas of CMA-ES in evosax with the formulas of pyribs."""


@dataclass(frozen=True)
class Case:
    """An algorithm that both libraries implement.

    Attributes:
        ours: Function `(task, cells) -> Algorithm` that creates this library's algorithm.
        archive: Function `(shape) -> archive` that creates the pyribs archive of the emitters.
        emitter: Function `(archive, x0, seed) -> emitter` that creates a pyribs emitter.
        emitters: Number of emitters.
        gradients: Whether the emitters need gradients at their means.
        task: Function `(dimensions) -> task` that creates the task.
        starts: Function `(task, seed, emitters) -> x0[emitters, d]` that returns the initial means of
            the pyribs emitters.
    """

    ours: Callable[[memes.Task, Any], memes.Algorithm]
    archive: Callable[[dict], Any]
    emitter: Callable[[Any, np.ndarray, int], Any]
    emitters: int = EMITTERS
    gradients: bool = False
    task: Callable[[int], memes.Task] = lambda dim: projection(sphere, dim)
    starts: Callable[[memes.Task, int, int], np.ndarray] = lambda task, seed, n: np.zeros((n, task.dim))


def arm(dim: int) -> memes.Task:
    return memes.tasks.arm(joints=dim)


def draws(task: memes.Task, seed: int, n: int) -> np.ndarray:
    return np.asarray(task.init(jax.random.key(seed), n))


def annealed(shape: dict) -> Any:
    from ribs.archives import GridArchive

    return GridArchive(**shape, learning_rate=0.01, threshold_min=0.0)


def plain(shape: dict) -> Any:
    from ribs.archives import GridArchive

    return GridArchive(**shape)


def population(shape: dict) -> Any:
    from ribs.archives import DNSArchive

    return DNSArchive(
        solution_dim=shape["solution_dim"], measure_dim=2, capacity=1024, k_neighbors=3, seed=0
    )


def es(strategy: str) -> Callable[[Any, np.ndarray, int], Any]:
    def emitter(archive: Any, x0: np.ndarray, seed: int) -> Any:
        from ribs.emitters import EvolutionStrategyEmitter

        return EvolutionStrategyEmitter(
            archive, x0=x0, sigma0=0.5, ranker="imp", selection_rule="mu", restart_rule="basic",
            batch_size=SAMPLES, seed=seed, es=strategy,
        )  # fmt: skip

    return emitter


def arborescence(sigma: float = 10.0, **options: str) -> Callable[[Any, np.ndarray, int], Any]:
    def emitter(archive: Any, x0: np.ndarray, seed: int) -> Any:
        from ribs.emitters import GradientArborescenceEmitter

        return GradientArborescenceEmitter(
            archive, x0=x0, sigma0=sigma, lr=1.0, grad_opt="gradient_ascent", selection_rule="mu",
            batch_size=SAMPLES - 1, seed=seed, **options,
        )  # fmt: skip

    return emitter


def improvement(archive: Any, x0: np.ndarray, seed: int) -> Any:
    from ribs.emitters import EvolutionStrategyEmitter

    return EvolutionStrategyEmitter(
        archive, x0=x0, sigma0=0.5, ranker="2imp", selection_rule="filter",
        restart_rule="no_improvement", batch_size=SAMPLES, seed=seed,
    )  # fmt: skip


def isoline(archive: Any, x0: np.ndarray, seed: int) -> Any:
    from ribs.emitters import IsoLineEmitter

    return IsoLineEmitter(
        archive, x0=x0, iso_sigma=0.5, line_sigma=0.2, batch_size=EMITTERS * SAMPLES, seed=seed
    )


def cma_mae(covariance: str) -> Callable[[memes.Task, Any], memes.Algorithm]:
    def build(task: memes.Task, cells: Any) -> memes.Algorithm:
        return memes.presets.cma_mae(
            task, cells, lanes=EMITTERS, samples=SAMPLES, covariance=covariance, threshold_min=0.0
        )

    return build


def cma_mega(task: memes.Task, cells: Any, sigma: float = 10.0) -> memes.Algorithm:
    return memes.presets.cma_mega(task, cells, lanes=EMITTERS, samples=SAMPLES - 1, sigma=sigma)


def cma_maega(task: memes.Task, cells: Any, sigma: float = 10.0) -> memes.Algorithm:
    options = {"samples": SAMPLES - 1, "sigma": sigma, "threshold_min": 0.0}
    return memes.presets.cma_maega(task, cells, lanes=EMITTERS, **options)


def cma_me_accepted(task: memes.Task, cells: Any) -> memes.Algorithm:
    strategy = memes.strategies.Evosax("cma-es", samples=SAMPLES, sigma=0.5, parents="positive")
    objective = memes.objectives.Accepted(memes.objectives.TwoStageImprovement())
    return memes.compose(task, memes.emitters.CMA(objective, strategy, EMITTERS), cells=cells)


def dns(task: memes.Task, cells: Any) -> memes.Algorithm:
    return memes.presets.dns(task, cells, batch=EMITTERS * SAMPLES, iso=0.5, line=0.2)


# CMA-ES has negative weights in evosax and in pycma, but not in pyribs.
CASES = {
    "cma-mae": Case(cma_mae("full"), annealed, es("cma_es")),
    "cma-mae-separable": Case(cma_mae("separable"), annealed, es("sep_cma_es")),
    "cma-mae-pycma": Case(cma_mae("full"), annealed, es("pycma_es")),
    "cma-mega": Case(cma_mega, plain, arborescence(), gradients=True),
    "cma-maega": Case(
        cma_maega, annealed, arborescence(ranker="imp", restart_rule="basic"), gradients=True
    ),
    "cma-maega-pycma": Case(
        cma_maega,
        annealed,
        arborescence(ranker="imp", restart_rule="basic", es="pycma_es"),
        gradients=True,
    ),
    "cma-me-accepted": Case(cma_me_accepted, plain, improvement),
    "cma-mega-arm": Case(
        partial(cma_mega, sigma=ARM_SIGMA),
        plain,
        arborescence(ARM_SIGMA),
        gradients=True,
        task=arm,
        starts=draws,
    ),
    "cma-maega-arm": Case(
        partial(cma_maega, sigma=ARM_SIGMA),
        annealed,
        arborescence(ARM_SIGMA, ranker="imp", restart_rule="basic"),
        gradients=True,
        task=arm,
        starts=draws,
    ),
    "dns": Case(dns, population, isoline, emitters=1),
}


def change_cma_es() -> None:
    """Replace the CMA-ES formulas of evosax with the formulas of pyribs 0.12.

    In pyribs, the covariance path is in units of the genotypes, and is not divided by the step size. The
    rank-one update contains the factor c_1 twice. The step size depends on the squared length of its
    evolution path.
    """
    from evosax.algorithms.distribution_based.cma_es import CMA_ES

    standard_path = CMA_ES._tell

    def tell(self: Any, key: Any, population: Any, fitness: Any, state: Any, params: Any) -> Any:
        self.scale = state.std
        return standard_path(self, key, population, fitness, state, params)

    def path(self: Any, before: Any, h_std: Any, step: Any, p: Any) -> Any:
        factor = jnp.sqrt(p.c_c * (2 - p.c_c) * p.mu_eff)
        return (1 - p.c_c) * before + h_std * factor * step * self.scale

    def covariance(self: Any, c: Any, delta: Any, rank_one: Any, rank_mu: Any, p: Any) -> Any:
        kept = 1 + p.c_1 * delta - p.c_1 - p.c_mu * jnp.sum(p.weights)
        return kept * c + p.c_1**2 * rank_one + p.c_mu * rank_mu

    def std(self: Any, before: Any, length: Any, p: Any) -> Any:
        exponent = p.c_std / p.d_std * (length**2 / self.num_dims - 1) / 2
        return before * jnp.exp(jnp.minimum(1.0, exponent))

    CMA_ES._tell, CMA_ES.update_p_c = tell, path
    CMA_ES.update_C, CMA_ES.update_std = covariance, std


def ours(case: Case, task: memes.Task, cells: memes.cells.Grid, s: Settings) -> list[float]:
    """Run this library's algorithm, and return one QD-score per seed."""
    algorithm = case.ours(task, cells)
    found = archives(algorithm, s.generations * algorithm.batch_size, s.seeds)
    # A negative fitness adds 0 to the score, as in `of_pyribs` below.
    return [float(np.maximum(row, 0.0).sum()) for row in np.asarray(found.fitness)]


def of_pyribs(case: Case, task: memes.Task, cells: memes.cells.Grid, s: Settings) -> list[float]:
    """Run the pyribs algorithm, and return one QD-score per seed. A compiled call evaluates a batch."""
    from ribs.archives import GridArchive
    from ribs.schedulers import Scheduler

    ranges = list(zip(task.feature_low, task.feature_high, strict=True))
    shape = {"solution_dim": task.dim, "dims": cells.shape, "ranges": ranges}
    evaluate = jax.jit(lambda x: task.evaluate(None, x)[:2])
    one = jax.random.key(0)[None]  # the task is deterministic
    differentiate = jax.jit(jax.vmap(lambda x: gradients(task, one, x[None])))
    scores = []
    for seed in range(s.seeds):
        archive, result = case.archive(shape), GridArchive(**shape)
        emitters = [
            case.emitter(archive, x0, SEEDS_APART * seed + i)
            for i, x0 in enumerate(case.starts(task, seed, case.emitters))
        ]
        scheduler = Scheduler(archive, emitters, result_archive=result)
        for _ in range(s.generations):
            if case.gradients:
                x = scheduler.ask_dqd().astype(np.float32)
                found = jax.device_get(differentiate(x))
                jacobian = np.concatenate([found.fitness, found.feature[:, 0]], axis=1)
                # As in this library, gradients that are not finite are replaced by zero.
                finite = np.isfinite(jacobian).all(axis=-1, keepdims=True)
                jacobian = np.where(finite, jacobian, 0.0)
                scheduler.tell_dqd(*jax.device_get(evaluate(x)), jacobian)
            scheduler.tell(*jax.device_get(evaluate(scheduler.ask().astype(np.float32))))
        scores.append(float(np.maximum(result.data("objective"), 0.0).sum()))
    return scores


def main(s: Settings) -> None:
    if s.like_pyribs:
        change_cma_es()
    print(f"QD-score, median [lowest, highest] of {s.seeds} seeds, {s.generations} generations")
    print("| dimensions | algorithm | memes | seconds | pyribs | seconds |\n|---|---|---|---|---|---|")
    for dim in s.dims:
        for name in s.cases:
            task = CASES[name].task(dim)
            cells = memes.cells.grid(task, (100, 100))
            columns = []
            for function in (ours, of_pyribs):
                start = time.perf_counter()
                scores = function(CASES[name], task, cells, s)
                columns += [spread(scores), f"{time.perf_counter() - start:.0f}"]
            print(f"| {dim} | {name} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
