"""Comparison with algorithms of pyribs on its sphere function: QD-scores at equal evaluations.

540 evaluations per generation, 100 x 100 cells, emitters that start at the origin. Times include
compilation. Needs `pip install ribs cma` and the extra `evosax`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import tyro
from baselines import archives, projection, sphere, spread

import memes

SEEDS_APART = 1000  # between the random seeds of the emitters of two runs
EMITTERS, SAMPLES = 15, 36


@dataclass(frozen=True)
class Settings:
    """Size of the comparison."""

    cases: tuple[str, ...] = ("cma-mae", "cma-mae-separable", "cma-mae-pycma", "dns")
    dims: tuple[int, ...] = (20, 100)
    seeds: int = 5
    generations: int = 1000


@dataclass(frozen=True)
class Case:
    """The same algorithm in both libraries.

    Attributes:
        ours: `(task, cells) -> Algorithm`.
        archive: `(shape) -> archive` of pyribs for the emitters.
        emitter: `(archive, x0, seed) -> emitter` of pyribs.
        emitters: Number of emitters.
        gradients: Whether the emitters need gradients at their means.
    """

    ours: Callable[[memes.Task, Any], memes.Algorithm]
    archive: Callable[[dict], Any]
    emitter: Callable[[Any, np.ndarray, int], Any]
    emitters: int = EMITTERS
    gradients: bool = False


def annealed(shape: dict) -> Any:
    from ribs.archives import GridArchive

    return GridArchive(**shape, learning_rate=0.01, threshold_min=0.0)


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


def dns(task: memes.Task, cells: Any) -> memes.Algorithm:
    return memes.presets.dns(task, cells, batch=EMITTERS * SAMPLES, iso=0.5, line=0.2)


# Like CMA-ES of evosax, that of pycma has negative weights, which that of pyribs does not have.
CASES = {
    "cma-mae": Case(cma_mae("full"), annealed, es("cma_es")),
    "cma-mae-separable": Case(cma_mae("separable"), annealed, es("sep_cma_es")),
    "cma-mae-pycma": Case(cma_mae("full"), annealed, es("pycma_es")),
    "dns": Case(dns, population, isoline, emitters=1),
}


def ours(case: Case, task: memes.Task, cells: memes.cells.Grid, s: Settings) -> list[float]:
    """QD-scores of this library, one per seed."""
    algorithm = case.ours(task, cells)
    found = archives(algorithm, s.generations * algorithm.batch_size, s.seeds)
    fitness = np.asarray(found.fitness)
    return [float(row[np.isfinite(row)].sum()) for row in fitness]


def of_pyribs(case: Case, task: memes.Task, cells: memes.cells.Grid, s: Settings) -> list[float]:
    """QD-scores of pyribs, one per seed, with the task evaluated by one compiled call."""
    from ribs.archives import GridArchive
    from ribs.schedulers import Scheduler

    ranges = list(zip(task.feature_low, task.feature_high, strict=True))
    shape = {"solution_dim": task.dim, "dims": cells.shape, "ranges": ranges}
    evaluate = jax.jit(lambda x: task.evaluate(None, x)[:2])
    scores = []
    for seed in range(s.seeds):
        archive, result = case.archive(shape), GridArchive(**shape)
        emitters = [
            case.emitter(archive, np.zeros(task.dim), SEEDS_APART * seed + i)
            for i in range(case.emitters)
        ]
        scheduler = Scheduler(archive, emitters, result_archive=result)
        for _ in range(s.generations):
            scheduler.tell(*jax.device_get(evaluate(scheduler.ask().astype(np.float32))))
        scores.append(float(result.stats.qd_score))
    return scores


def main(s: Settings) -> None:
    print(f"QD-score, median [lowest, highest] of {s.seeds} seeds, {s.generations} generations")
    print("| dimensions | algorithm | memes | seconds | pyribs | seconds |\n|---|---|---|---|---|---|")
    for dim in s.dims:
        task = projection(sphere, dim)
        cells = memes.cells.grid(task, (100, 100))
        for name in s.cases:
            columns = []
            for function in (ours, of_pyribs):
                start = time.perf_counter()
                scores = function(CASES[name], task, cells, s)
                columns += [spread(scores), f"{time.perf_counter() - start:.0f}"]
            print(f"| {dim} | {name} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
