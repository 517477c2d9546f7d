"""MEMES and its ablations: many evolution strategies at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from memes import emitters, objectives, resets
from memes.algorithm import Algorithm, compose
from memes.cells import Cells
from memes.emitters import isoline, parallel
from memes.errors import require
from memes.history import History, elites, everything, fifo, nothing
from memes.presets.parts import RANK, noise_of, recorded, search_of
from memes.task import Task


@recorded
def memes(
    task: Task,
    cells: Cells | None = None,
    *,
    lanes: int = 32,
    proportion_explore: float = 0.5,
    explore: Literal["fifo", "everything", "elites", "ga"] = "fifo",
    samples: int = 512,
    sigma: float = 0.02,
    learning_rate: float = 0.01,
    l2: float = 0.0,
    noise: Literal["gaussian", "low-rank"] = "gaussian",
    rank: int = RANK,
    strategy: str = "openai-es",
    stale_budget: int = 32,
    reset_every: int | None = None,
    offer_samples: bool = False,
    neighbours: int = 10,
    fifo_size: int = 50_000,
    generations: int = 2000,
) -> Algorithm:
    """MEMES: lanes of evolution strategies that climb fitness or novelty, reset when stale.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        lanes: Evolution strategies at once, exploit and explore together.
        proportion_explore: Share of the lanes that explore.
        explore: How they explore: by novelty with respect to the last offspring (fifo), to all of them
            (everything) or to the elites (elites), or by random variation of elites (ga).
        samples: Samples of each lane in a generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Of Adam, which moves each lane's mean.
        l2: Pull of the means towards zero.
        noise: Of the samples: gaussian, or low-rank, whose matrices are of the given rank.
        rank: Of low-rank noise.
        strategy: Search distribution of each lane: openai-es, or one of evosax by name, such as
            sep-cma-es or snes, to which learning_rate, l2 and noise do not apply.
        stale_budget: A lane is reset after more than this many generations in a row without progress.
        reset_every: Reset lanes every so many generations instead.
        offer_samples: Offer the samples to the archive too, not only the means.
        neighbours: Nearest features that make up the novelty score.
        fifo_size: Features that the fifo history remembers.
        generations: Length of the run, for which the history `everything` makes room.
    """
    require(lanes >= 1, f"lanes must be at least 1, got {lanes}")
    require(
        0 <= proportion_explore <= 1,
        f"proportion_explore must lie in [0, 1], got {proportion_explore}",
    )
    require(stale_budget >= 0, f"stale_budget must be at least 0, got {stale_budget}")
    require(
        reset_every is None or reset_every >= 1, f"reset_every must be at least 1, got {reset_every}"
    )
    require(fifo_size >= 1, f"fifo_size must be at least 1, got {fifo_size}")
    n_explore = round(lanes * proportion_explore)
    n_exploit = lanes - n_explore
    search = search_of(strategy, samples, sigma, learning_rate, l2, noise_of(task, noise, rank))
    reset = resets.stagnation(stale_budget) if reset_every is None else resets.every(reset_every)
    history: dict[str, Callable[[], History]] = {
        "fifo": lambda: fifo(fifo_size),
        "everything": lambda: everything(lanes * generations),
        "elites": elites,
        "ga": nothing,
    }

    parts = []
    if n_exploit:
        parts += [emitters.es(objectives.fitness(), lanes=n_exploit, strategy=search, reset=reset)]
    if n_explore and explore == "ga":
        parts += [isoline(n_explore)]
    elif n_explore:
        novelty = objectives.novelty(neighbours)
        parts += [emitters.es(novelty, lanes=n_explore, strategy=search, reset=reset)]
    return compose(
        task,
        parallel(*parts),
        cells=cells,
        history=history[explore](),
        offer_samples=offer_samples,
    )


@recorded
def memes_sequential(
    task: Task,
    cells: Cells | None = None,
    *,
    lanes: int = 32,
    every: int = 10,
    samples: int = 512,
    sigma: float = 0.02,
    learning_rate: float = 0.01,
    l2: float = 0.0,
    strategy: str = "openai-es",
    neighbours: int = 10,
    fifo_size: int = 50_000,
) -> Algorithm:
    """MEMES whose lanes all explore, then all exploit, and are reset at each change.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        lanes: Evolution strategies at once.
        every: Generations between changes.
        samples: Samples of each lane in a generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Of Adam, which moves each lane's mean.
        l2: Pull of the means towards zero.
        strategy: Search distribution of each lane: openai-es, or one of evosax by name, such as
            sep-cma-es or snes, to which learning_rate and l2 do not apply.
        neighbours: Nearest features that make up the novelty score.
        fifo_size: Features that the fifo history remembers.
    """
    require(fifo_size >= 1, f"fifo_size must be at least 1, got {fifo_size}")
    objective = objectives.alternate(objectives.novelty(neighbours), objectives.fitness(), every)
    emitter = emitters.es(
        objective,
        lanes=lanes,
        strategy=search_of(strategy, samples, sigma, learning_rate, l2),
        reset=resets.every(every),
    )
    return compose(task, emitter, cells=cells, history=fifo(fifo_size))
