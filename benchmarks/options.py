"""Measure how the scores of MEMES change with options that trade accuracy for speed.

    python benchmarks/options.py                             the Arm and the Ant, on a GPU
    python benchmarks/options.py --tasks ant --options default rank-4 --generations 500

Policy weights in bfloat16 need half the memory bandwidth, and low-rank noise needs fewer random numbers.
The paper uses neither option. Because the Ant is uncertain, its scores are corrected by re-evaluation.
"""

import dataclasses
import sys
from typing import Literal

import numpy as np
import tyro
from timing import about

import memes

OPTIONS = {
    "default": {},
    "bfloat16": {},  # this option belongs to the task
    "rank-1": {"noise": "low-rank", "rank": 1},
    "rank-4": {"noise": "low-rank", "rank": 4},
}
GENERATIONS = {"arm": 2000, "ant": 250}
SEEDS = {"arm": 10, "ant": 5}


@dataclasses.dataclass
class Settings:
    """Settings of the comparison."""

    tasks: tuple[Literal["arm", "ant"], ...] = ("arm", "ant")
    options: tuple[Literal["default", "bfloat16", "rank-1", "rank-4"], ...] = tuple(OPTIONS)
    """Options to compare. `bfloat16` applies only to the Ant, because the Arm has no policy weights."""
    lanes: int = 32
    samples: int = 512
    generations: int | None = None
    """Number of generations. By default, 2 000 on the Arm and 250 on the Ant."""
    seeds: int | None = None
    """Number of seeds. By default, 10 on the Arm and 5 on the Ant."""
    reevaluations: int = 64
    """Re-evaluations per elite of the Ant."""


def row(s: Settings, option: str, task: memes.Task, generations: int, seeds: int) -> str:
    """Return the scores of MEMES with an option: median, minimum and maximum over the seeds."""
    results = memes.run(
        memes.presets.memes(task, lanes=s.lanes, samples=s.samples, **OPTIONS[option]),
        seeds=range(seeds),
        generations=generations,
        observers=[memes.Corrections(samples=s.reevaluations)],
        progress=False,
    )
    if any(len(r.metrics["seconds"]) < generations for r in results):
        sys.exit("interrupted")
    scores = [memes.metrics.score((r.correction or r).archive, task.min_fitness) for r in results]
    found = {name: [float(score[name]) for score in scores] for name in scores[0]}
    columns = [
        ([1e3 * r.metrics["seconds"][-1] / generations for r in results], ".3g"),
        (found["qd_score"], ",.0f"),
        (found["coverage"], ".1%"),
        (found["max_fitness"], ".4g"),
    ]
    cells = [f"{np.median(x):{form}} [{min(x):{form}}, {max(x):{form}}]" for x, form in columns]
    return " | ".join(["", option, *cells, ""]).strip()


def main(s: Settings) -> None:
    print(", ".join(f"{key} {value}" for key, value in about("jax").items()))
    for name in s.tasks:
        generations, seeds = s.generations or GENERATIONS[name], s.seeds or SEEDS[name]
        size = f"{s.lanes} lanes of {s.samples}, {generations} generations, {seeds} seeds"
        print(f"\n**{name}**, {size}\n\n| | ms per generation | QD-score | coverage | max fitness |")
        print("|---|---|---|---|---|", flush=True)
        for option in s.options:
            if option == "bfloat16" and name == "arm":
                continue
            weights = {"weights": "bfloat16"} if option == "bfloat16" else {}
            task = memes.tasks.TASKS[name](**weights)
            print(row(s, option, task, generations, seeds), flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
