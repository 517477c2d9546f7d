"""Run CMA-ME from pyribs on the sphere function."""

import numpy as np
from ribs.archives import GridArchive
from ribs.emitters import EvolutionStrategyEmitter
from ribs.schedulers import Scheduler

archive = GridArchive(solution_dim=20, dims=(50, 50), ranges=[(-1, 1), (-1, 1)], qd_score_offset=-50.0)
emitters = [
    EvolutionStrategyEmitter(archive, x0=np.zeros(20), sigma0=0.5, batch_size=64, seed=seed)
    for seed in range(4)
]
scheduler = Scheduler(archive, emitters)
for _ in range(100):
    x = scheduler.ask()
    fitness = -np.sum((x - 0.5) ** 2, axis=1)
    feature = np.stack([x[:, :10].mean(axis=1), x[:, 10:].mean(axis=1)], axis=1)
    scheduler.tell(fitness, feature)

print(f"coverage {archive.stats.coverage:.1%}")
