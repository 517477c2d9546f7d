"""CMA-MAE against pyribs on its sphere function: QD-scores of equally many evaluations.

15 emitters of 36 samples, sigma 0.5, thresholds with a learning rate of 0.01 from 0 on, 100 x 100
cells. Needs `pip install ribs cma` and the extra `evosax`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import jax
import numpy as np
import tyro
from baselines import archives, projection, sphere, spread

import memes

SEEDS_APART = 1000  # between the random seeds of the emitters of two runs


@dataclass(frozen=True)
class Settings:
    """Size of the comparison."""

    dims: tuple[int, ...] = (20, 100)
    covariances: tuple[str, ...] = ("full", "separable", "full, pycma")
    seeds: int = 5
    generations: int = 1000
    emitters: int = 15
    samples: int = 36


def ours(task: memes.Task, cells: memes.cells.Grid, covariance: str, s: Settings) -> list[float]:
    """QD-scores of this library, one per seed."""
    algorithm = memes.presets.cma_mae(
        task,
        cells,
        lanes=s.emitters,
        samples=s.samples,
        covariance=covariance.split(",")[0],
        threshold_min=0.0,
    )
    found = archives(algorithm, s.generations * algorithm.batch_size, s.seeds)
    fitness = np.asarray(found.fitness)
    return [float(row[np.isfinite(row)].sum()) for row in fitness]


# Strategies of pyribs. Like evosax' CMA-ES, pycma's has negative weights, which pyribs' own has not.
STRATEGIES = {"full": "cma_es", "separable": "sep_cma_es", "full, pycma": "pycma_es"}


def of_pyribs(task: memes.Task, cells: memes.cells.Grid, covariance: str, s: Settings) -> list[float]:
    """QD-scores of pyribs, one per seed, with the task evaluated by one compiled call."""
    from ribs.archives import GridArchive
    from ribs.emitters import EvolutionStrategyEmitter
    from ribs.schedulers import Scheduler

    ranges = list(zip(task.feature_low, task.feature_high, strict=True))
    evaluate = jax.jit(lambda x: task.evaluate(None, x)[:2])
    scores = []
    for seed in range(s.seeds):
        shape = {"solution_dim": task.dim, "dims": cells.shape, "ranges": ranges}
        archive = GridArchive(**shape, learning_rate=0.01, threshold_min=0.0)
        result = GridArchive(**shape)
        emitters = [
            EvolutionStrategyEmitter(
                archive, x0=np.zeros(task.dim), sigma0=0.5, ranker="imp", selection_rule="mu",
                restart_rule="basic", batch_size=s.samples, seed=SEEDS_APART * seed + i,
                es=STRATEGIES[covariance],
            )
            for i in range(s.emitters)
        ]  # fmt: skip
        scheduler = Scheduler(archive, emitters, result_archive=result)
        for _ in range(s.generations):
            scheduler.tell(*jax.device_get(evaluate(scheduler.ask().astype(np.float32))))
        scores.append(float(result.stats.qd_score))
    return scores


def main(s: Settings) -> None:
    print(f"QD-score, median [lowest, highest] of {s.seeds} seeds, {s.generations} generations")
    print("| dimensions | covariance | memes | seconds | pyribs | seconds |\n|---|---|---|---|---|---|")
    for dim in s.dims:
        task = projection(sphere, dim)
        cells = memes.cells.grid(task, (100, 100))
        for covariance in s.covariances:
            cells_of_row = []
            for function in (ours, of_pyribs):
                start = time.perf_counter()
                scores = function(task, cells, covariance, s)
                cells_of_row += [spread(scores), f"{time.perf_counter() - start:.0f}"]
            print(f"| {dim} | {covariance} | {' | '.join(cells_of_row)} |", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
