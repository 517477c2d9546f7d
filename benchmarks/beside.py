"""Measure the speed of simultaneous runs on one device, each in a separate process.

    python benchmarks/beside.py
    python benchmarks/beside.py ant-trap ant-trap-me --generations 50 --turns 5

Each run executes one of the cases that `versions.py` defines. Each run has a separate process, which
first compiles the case. A measurement consists of several turns. In each turn, the processes run first
one after the other, and then all at once. On a GPU, kernels of different processes run at the same time
only with CUDA's multi-process service. Start this service first, with `nvidia-cuda-mps-control -d`.
"""

import dataclasses
from typing import Literal

import numpy as np
import tyro
from versions import CASES, answer, ask, worker


@dataclasses.dataclass
class Settings:
    """Settings of the comparison."""

    cases: tyro.conf.Positional[tuple[Literal[*CASES], ...]] = ("ant-trap",) * 3
    """One case per run."""
    generations: int = 50
    """Generations per turn."""
    turns: int = 3


def main() -> None:
    """Compare the time that each run takes alone with its time when all runs execute at once."""
    settings = tyro.cli(Settings, description=__doc__)
    processes = [worker(case, None) for case in settings.cases]
    for process in processes:
        answer(process)
    seconds = np.empty((settings.turns, 2, len(processes)))
    for alone, beside in seconds:
        for i, process in enumerate(processes):
            ask(process, settings.generations)
            alone[i] = answer(process)
        for process in processes:
            ask(process, settings.generations)
        beside[:] = [answer(process) for process in processes]
    for process in processes:
        process.communicate()
    print("| case | per generation, alone | with the others |\n|---|---|---|")
    for case, (alone, beside) in zip(settings.cases, np.median(seconds, 0).T, strict=True):
        times = [f"{1e3 * took / settings.generations:.3g} ms" for took in (alone, beside)]
        print(f"| {case} | {' | '.join(times)} |")
    gain = np.median(seconds[:, 0].sum(-1) / seconds[:, 1].max(-1))
    print(f"\nSimultaneous runs are {gain:.2f} times as fast as consecutive runs.")


if __name__ == "__main__":
    main()
