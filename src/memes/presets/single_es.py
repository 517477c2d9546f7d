"""One evolution strategy at a time: for fitness, for novelty, or for both in turn."""

from __future__ import annotations

from memes import emitters, objectives, resets, selectors
from memes.algorithm import Algorithm, compose
from memes.cells import Cells
from memes.errors import at_least, in_unit_interval
from memes.estimates import Candidates
from memes.history import Everything
from memes.presets.parts import Search, recorded
from memes.task import Task


@recorded
def es(
    task: Task,
    cells: Cells | None = None,
    *,
    search: Search = Search(),
    candidates: Candidates = Candidates(),
) -> Algorithm:
    """One evolution strategy that climbs fitness and is never reset; the archive only watches.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        search: The search distribution.
        candidates: How candidates for the archive are judged.
    """
    emitter = emitters.ES(objectives.Fitness(), lanes=1, strategy=search.strategy_for(task))
    return compose(task, emitter, cells=cells, candidates=candidates)


@recorded
def ns_es(
    task: Task,
    cells: Cells | None = None,
    *,
    population_size: int = 5,
    search: Search = Search(),
    candidates: Candidates = Candidates(),
    neighbours: int = 10,
) -> Algorithm:
    """NS-ES: a population of means that climb novelty, played one at a time.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        population_size: Means of which one is played a generation, drawn by its novelty.
        search: The search distribution of each mean.
        candidates: How candidates for the archive are judged.
        neighbours: Nearest features that make up the novelty score.
    """
    objective = objectives.Novelty(neighbours)
    return _played_by_novelty(task, cells, objective, population_size, search, candidates, neighbours)


@recorded
def nsr_es(
    task: Task,
    cells: Cells | None = None,
    *,
    population_size: int = 5,
    fitness_weight: float = 0.5,
    search: Search = Search(),
    candidates: Candidates = Candidates(),
    neighbours: int = 10,
) -> Algorithm:
    """NSR-ES: as NS-ES, climbing a weighted mean of the ranks of fitness and of novelty.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        population_size: Means of which one is played a generation, drawn by its novelty.
        fitness_weight: Of fitness; novelty has the rest.
        search: The search distribution of each mean.
        candidates: How candidates for the archive are judged.
        neighbours: Nearest features that make up the novelty score.
    """
    in_unit_interval(fitness_weight=fitness_weight)
    objective = objectives.Blend(objectives.Fitness(), objectives.Novelty(neighbours), fitness_weight)
    return _played_by_novelty(task, cells, objective, population_size, search, candidates, neighbours)


@recorded
def nsra_es(
    task: Task,
    cells: Cells | None = None,
    *,
    population_size: int = 5,
    fitness_weight: float = 1.0,
    weight_step: float = 0.05,
    patience: int = 50,
    search: Search = Search(),
    candidates: Candidates = Candidates(),
    neighbours: int = 10,
) -> Algorithm:
    """NSRA-ES: as NSR-ES, with a weight that turns to novelty while fitness does not improve.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        population_size: Means of which one is played a generation, drawn by its novelty.
        fitness_weight: Of fitness, at first; novelty has the rest.
        weight_step: By how much the weight rises with an improvement of the best fitness, and falls.
        patience: Generations without improvement after which the weight falls.
        search: The search distribution of each mean.
        candidates: How candidates for the archive are judged.
        neighbours: Nearest features that make up the novelty score.
    """
    in_unit_interval(fitness_weight=fitness_weight, weight_step=weight_step)
    objective = objectives.AdaptiveBlend(
        objectives.Fitness(),
        objectives.Novelty(neighbours),
        weight=fitness_weight,
        step=weight_step,
        patience=patience,
    )
    return _played_by_novelty(task, cells, objective, population_size, search, candidates, neighbours)


def _played_by_novelty(
    task: Task,
    cells: Cells | None,
    objective: objectives.Objective,
    population_size: int,
    search: Search,
    candidates: Candidates,
    neighbours: int,
) -> Algorithm:
    at_least(1, population_size=population_size)
    emitter = emitters.Population(
        objective,
        size=population_size,
        strategy=search.strategy_for(task),
        play=emitters.ByNovelty(neighbours),
    )
    return compose(task, emitter, cells=cells, history=Everything(), candidates=candidates)


@recorded
def me_es(
    task: Task,
    cells: Cells | None = None,
    *,
    every: int = 10,
    search: Search = Search(samples=10_000, l2=0.01),
    candidates: Candidates = Candidates(),
    neighbours: int = 10,
) -> Algorithm:
    """ME-ES: one evolution strategy of many samples that explores and exploits in turn.

    Each turn starts from an elite. To explore, it is one of the 5 most novel; to exploit, one of the 2
    fittest, half the time of all and half the time of the last 5 that changed.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        every: Generations of a turn.
        search: The search distribution.
        candidates: How candidates for the archive are judged.
        neighbours: Nearest features that make up the novelty score.
    """
    to_exploit = selectors.Either(selectors.Fittest(2), selectors.FittestOfLatest(2, 5))
    emitter = emitters.ES(
        objectives.Alternate(objectives.Novelty(neighbours), objectives.Fitness(), every),
        lanes=1,
        strategy=search.strategy_for(task),
        reset=resets.Every(every),
        selector=selectors.Cycle(selectors.MostNovel(5, neighbours), to_exploit, every),
    )
    return compose(task, emitter, cells=cells, history=Everything(), candidates=candidates)
