"""MEMES and its ablations: many evolution strategies at once."""

from __future__ import annotations

from functools import partial
from typing import Literal

from memes import objectives, resets
from memes.algorithm import Algorithm, compose
from memes.cells import Cells
from memes.emitters import ES, Emitter, Isoline, Parallel
from memes.errors import at_least, in_unit_interval, require
from memes.estimates import Candidates
from memes.history import FIFO, Elites, Everything, History, Nothing
from memes.objectives import Objective
from memes.presets.parts import Search, recorded
from memes.resets import Reset
from memes.task import Task

Explore = Literal["fifo", "everything", "elites", "ga"] | History | Objective


@recorded
def memes(
    task: Task,
    cells: Cells | None = None,
    *,
    lanes: int = 32,
    proportion_explore: float = 0.5,
    explore: Explore = "fifo",
    search: Search = Search(),
    candidates: Candidates = Candidates(),
    stale_budget: int = 32,
    reset_every: int | None = None,
    offer_samples: bool = False,
    neighbours: int = 10,
    fifo_size: int = 50_000,
) -> Algorithm:
    """MEMES: lanes of evolution strategies that climb fitness or novelty, reset when stale.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        lanes: Evolution strategies at once, exploit and explore together.
        proportion_explore: Share of the lanes that explore.
        explore: How they explore: by novelty with respect to the last offspring (fifo), to all of them
            (everything) or to the elites (elites), or by random variation of elites (ga). In Python also
            a `History`, for novelty with respect to it, or an `Objective` to climb.
        search: The search distribution of each lane.
        candidates: How candidates for the archive are judged.
        stale_budget: A lane is reset after more than this many generations in a row without progress.
        reset_every: Reset lanes every so many generations instead.
        offer_samples: Offer the samples to the archive too, not only the means.
        neighbours: Nearest features that make up the novelty score.
        fifo_size: Features that the fifo history remembers.
    """
    at_least(1, fifo_size=fifo_size)
    at_least(0, stale_budget=stale_budget)
    if reset_every is not None:
        at_least(1, reset_every=reset_every)
    reset = resets.Stagnation(stale_budget) if reset_every is None else resets.Every(reset_every)
    history, objective = _exploration(explore, neighbours, fifo_size)
    return compose(
        task,
        Parallel(_both_kinds(task, lanes, proportion_explore, objective, search, reset)),
        cells=cells,
        history=history,
        offer_samples=offer_samples,
        candidates=candidates,
    )


def _both_kinds(
    task: Task,
    lanes: int,
    proportion_explore: float,
    objective: Objective | None,
    search: Search,
    reset: Reset,
) -> tuple[Emitter, ...]:
    """Make lanes that climb fitness, and lanes that climb `objective` or, if None, vary elites."""
    at_least(1, lanes=lanes)
    in_unit_interval(proportion_explore=proportion_explore)
    n_explore = round(lanes * proportion_explore)
    n_exploit = lanes - n_explore
    es = partial(ES, strategy=search.strategy_for(task), reset=reset)
    exploit = es(objectives.Fitness(), n_exploit) if n_exploit else None
    explore = None
    if n_explore:
        explore = Isoline(n_explore) if objective is None else es(objective, n_explore)
    return tuple(emitter for emitter in (exploit, explore) if emitter is not None)


def _exploration(explore: Explore, neighbours: int, fifo_size: int) -> tuple[History, Objective | None]:
    """Return the history, and what lanes climb to explore; None where variation of elites explores."""
    if isinstance(explore, Objective):
        return FIFO(fifo_size), explore
    if explore == "ga":
        return Nothing(), None
    named: dict[str, History] = {
        "fifo": FIFO(fifo_size),
        "everything": Everything(),
        "elites": Elites(),
    }
    return named[explore] if isinstance(explore, str) else explore, objectives.Novelty(neighbours)


@recorded
def memes_sequential(
    task: Task,
    cells: Cells | None = None,
    *,
    lanes: int = 32,
    every: int = 10,
    search: Search = Search(),
    candidates: Candidates = Candidates(),
    neighbours: int = 10,
    fifo_size: int = 50_000,
) -> Algorithm:
    """MEMES whose lanes all explore, then all exploit, and are reset at each change.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        lanes: Evolution strategies at once.
        every: Generations between changes.
        search: The search distribution of each lane.
        candidates: How candidates for the archive are judged.
        neighbours: Nearest features that make up the novelty score.
        fifo_size: Features that the fifo history remembers.
    """
    at_least(1, fifo_size=fifo_size)
    emitter = ES(
        objectives.Alternate(objectives.Novelty(neighbours), objectives.Fitness(), every),
        lanes=lanes,
        strategy=search.strategy_for(task),
        reset=resets.Every(every),
    )
    return compose(task, emitter, cells=cells, history=FIFO(fifo_size), candidates=candidates)


@recorded
def memes_hybrid(
    task: Task,
    cells: Cells | None = None,
    *,
    batch: int = 16_384,
    iso: float = 0.01,
    line: float = 0.5,
    lanes: int = 24,
    proportion_explore: float = 2 / 3,
    search: Search = Search(samples=448),
    candidates: Candidates = Candidates(candidate_samples=64),
    stale_budget: int = 32,
    neighbours: int = 10,
    fifo_size: int = 50_000,
) -> Algorithm:
    """Lanes of MEMES and the variation of MAP-Elites in one archive.

    On uncertain tasks the means of the lanes and the offspring are evaluated several times, and novelty
    is measured against the last of them. If each is evaluated once, as on deterministic tasks, the
    samples are offered to the archive too, and novelty is measured against the elites.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        batch: Evaluations in a generation. Those that the lanes leave are of offspring by variation.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the part along the line between two parents.
        lanes: Evolution strategies at once, exploit and explore together.
        proportion_explore: Share of the lanes that explore.
        search: The search distribution of each lane.
        candidates: How means and offspring are judged; on deterministic tasks by one evaluation.
        stale_budget: A lane is reset after more than this many generations in a row without progress.
        neighbours: Nearest features that make up the novelty score.
        fifo_size: Features that the history remembers, on uncertain tasks.
    """
    at_least(1, fifo_size=fifo_size)
    judged = candidates if task.uncertain else Candidates()
    each, once = judged.candidate_samples, judged.candidate_samples == 1
    reset, novelty = resets.Stagnation(stale_budget), objectives.Novelty(neighbours)
    climbers = _both_kinds(task, lanes, proportion_explore, novelty, search, reset)
    taken = sum(len(part.persistent) * each + part.samples for part in climbers)
    offspring = (batch - taken) // each
    require(
        offspring > 0,
        f"batch must be at least the {taken} evaluations that {lanes} lanes take and {each} of one "
        f"offspring, got {batch}; use fewer lanes or samples",
    )
    return compose(
        task,
        Parallel((*climbers, Isoline(offspring, iso=iso, line=line))),
        cells=cells,
        history=Elites() if once else FIFO(fifo_size),
        offer_samples=once,
        candidates=judged,
    )
