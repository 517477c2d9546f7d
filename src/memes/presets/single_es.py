"""One evolution strategy at a time: for fitness, for novelty, or for both in turn."""

from __future__ import annotations

from memes import emitters, objectives, resets, selectors
from memes.algorithm import Algorithm, compose
from memes.cells import Cells
from memes.emitters import population
from memes.errors import require
from memes.history import everything
from memes.presets.parts import recorded, search_of
from memes.strategies import Strategy
from memes.task import Task


@recorded
def es(
    task: Task,
    cells: Cells | None = None,
    *,
    samples: int = 512,
    sigma: float = 0.02,
    learning_rate: float = 0.01,
    l2: float = 0.0,
    strategy: str = "openai-es",
) -> Algorithm:
    """One evolution strategy that climbs fitness and is never reset; the archive only watches.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        samples: Samples in a generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Of Adam, which moves the mean.
        l2: Pull of the mean towards zero.
        strategy: Search distribution of each mean: openai-es, or one of evosax by name, such as
            sep-cma-es or snes, to which learning_rate and l2 do not apply.
    """
    search = search_of(strategy, samples, sigma, learning_rate, l2)
    return compose(task, emitters.es(objectives.fitness(), lanes=1, strategy=search), cells=cells)


@recorded
def ns_es(
    task: Task,
    cells: Cells | None = None,
    *,
    population_size: int = 5,
    samples: int = 512,
    sigma: float = 0.02,
    learning_rate: float = 0.01,
    l2: float = 0.0,
    strategy: str = "openai-es",
    neighbours: int = 10,
    generations: int = 2000,
) -> Algorithm:
    """NS-ES: a population of means that climb novelty, played one at a time.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        population_size: Means of which one is played a generation, drawn by its novelty.
        samples: Samples in a generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Of Adam, which moves the mean.
        l2: Pull of the mean towards zero.
        strategy: Search distribution of each mean: openai-es, or one of evosax by name, such as
            sep-cma-es or snes, to which learning_rate and l2 do not apply.
        neighbours: Nearest features that make up the novelty score.
        generations: Length of the run, for which the history of all offspring makes room.
    """
    objective = objectives.novelty(neighbours)
    search = search_of(strategy, samples, sigma, learning_rate, l2)
    return _played_by_novelty(task, cells, objective, population_size, search, neighbours, generations)


@recorded
def nsr_es(
    task: Task,
    cells: Cells | None = None,
    *,
    population_size: int = 5,
    fitness_weight: float = 0.5,
    samples: int = 512,
    sigma: float = 0.02,
    learning_rate: float = 0.01,
    l2: float = 0.0,
    strategy: str = "openai-es",
    neighbours: int = 10,
    generations: int = 2000,
) -> Algorithm:
    """NSR-ES: as NS-ES, climbing a weighted mean of the ranks of fitness and of novelty.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        population_size: Means of which one is played a generation, drawn by its novelty.
        fitness_weight: Of fitness; novelty has the rest.
        samples: Samples in a generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Of Adam, which moves the mean.
        l2: Pull of the mean towards zero.
        strategy: Search distribution of each mean: openai-es, or one of evosax by name, such as
            sep-cma-es or snes, to which learning_rate and l2 do not apply.
        neighbours: Nearest features that make up the novelty score.
        generations: Length of the run, for which the history of all offspring makes room.
    """
    require(0 <= fitness_weight <= 1, f"fitness_weight must lie in [0, 1], got {fitness_weight}")
    objective = objectives.blend(objectives.fitness(), objectives.novelty(neighbours), fitness_weight)
    search = search_of(strategy, samples, sigma, learning_rate, l2)
    return _played_by_novelty(task, cells, objective, population_size, search, neighbours, generations)


@recorded
def nsra_es(
    task: Task,
    cells: Cells | None = None,
    *,
    population_size: int = 5,
    fitness_weight: float = 1.0,
    weight_step: float = 0.05,
    patience: int = 50,
    samples: int = 512,
    sigma: float = 0.02,
    learning_rate: float = 0.01,
    l2: float = 0.0,
    strategy: str = "openai-es",
    neighbours: int = 10,
    generations: int = 2000,
) -> Algorithm:
    """NSRA-ES: as NSR-ES, with a weight that turns to novelty while fitness does not improve.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        population_size: Means of which one is played a generation, drawn by its novelty.
        fitness_weight: Of fitness, at first; novelty has the rest.
        weight_step: By how much the weight rises with an improvement of the best fitness, and falls.
        patience: Generations without improvement after which the weight falls.
        samples: Samples in a generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Of Adam, which moves the mean.
        l2: Pull of the mean towards zero.
        strategy: Search distribution of each mean: openai-es, or one of evosax by name, such as
            sep-cma-es or snes, to which learning_rate and l2 do not apply.
        neighbours: Nearest features that make up the novelty score.
        generations: Length of the run, for which the history of all offspring makes room.
    """
    require(0 <= fitness_weight <= 1, f"fitness_weight must lie in [0, 1], got {fitness_weight}")
    require(0 <= weight_step <= 1, f"weight_step must lie in [0, 1], got {weight_step}")
    objective = objectives.adaptive_blend(
        objectives.fitness(),
        objectives.novelty(neighbours),
        weight=fitness_weight,
        step=weight_step,
        patience=patience,
    )
    search = search_of(strategy, samples, sigma, learning_rate, l2)
    return _played_by_novelty(task, cells, objective, population_size, search, neighbours, generations)


def _played_by_novelty(
    task: Task,
    cells: Cells | None,
    objective: objectives.Objective,
    population_size: int,
    search: Strategy,
    neighbours: int,
    generations: int,
) -> Algorithm:
    require(population_size >= 1, f"population_size must be at least 1, got {population_size}")
    play = emitters.by_novelty(neighbours)
    emitter = population(objective, size=population_size, strategy=search, play=play)
    return compose(task, emitter, cells=cells, history=everything(generations))


@recorded
def me_es(
    task: Task,
    cells: Cells | None = None,
    *,
    every: int = 10,
    samples: int = 10_000,
    sigma: float = 0.02,
    learning_rate: float = 0.01,
    l2: float = 0.01,
    strategy: str = "openai-es",
    neighbours: int = 10,
    generations: int = 2000,
) -> Algorithm:
    """ME-ES: one evolution strategy of many samples that explores and exploits in turn.

    Each turn starts from an elite. To explore, it is one of the 5 most novel; to exploit, one of the 2
    fittest, half the time of all and half the time of the last 5 that changed.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        every: Generations of a turn.
        samples: Samples in a generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Of Adam, which moves the mean.
        l2: Pull of the mean towards zero.
        strategy: Search distribution of each mean: openai-es, or one of evosax by name, such as
            sep-cma-es or snes, to which learning_rate and l2 do not apply.
        neighbours: Nearest features that make up the novelty score.
        generations: Length of the run, for which the history of all offspring makes room.
    """
    to_exploit = selectors.either(selectors.fittest(2), selectors.fittest_of_latest(2, 5))
    emitter = emitters.es(
        objectives.alternate(objectives.novelty(neighbours), objectives.fitness(), every),
        lanes=1,
        strategy=search_of(strategy, samples, sigma, learning_rate, l2),
        reset=resets.every(every),
        selector=selectors.alternate(selectors.most_novel(5, neighbours), to_exploit, every),
    )
    return compose(task, emitter, cells=cells, history=everything(generations))
