"""Algorithms with one evolution strategy at a time: ES, NS-ES, NSR-ES, NSRA-ES and ME-ES."""

from __future__ import annotations

from dataclasses import dataclass

from memes import emitters, objectives, resets, selectors
from memes.algorithm import Algorithm, compose
from memes.cells import Cells
from memes.errors import at_least, in_unit_interval
from memes.estimates import Candidates
from memes.history import Everything
from memes.presets.search import Search
from memes.task import Task
from memes.validation import check_fields


@dataclass(frozen=True, kw_only=True)
class SingleEs:
    """ES: one evolution strategy that maximises fitness and is never reset.

    There are M samples `m + s e_i`, with the mean m, the noise e_i and the standard deviation s. The
    mean follows the gradient estimate `sum_i u_i e_i / (M s)`. The utilities u_i are the centred ranks
    of the samples. The archive does not affect the search.
    Reference: Salimans et al., Evolution Strategies as a Scalable Alternative to Reinforcement Learning,
    2017, arXiv:1703.03864.

    Attributes:
        search: The search distribution.
        candidates: How candidates for the archive are evaluated.
    """

    search: Search = Search()
    candidates: Candidates = Candidates()

    def __post_init__(self) -> None:
        check_fields(self)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        strategy = self.search.strategy_for(task)
        emitter = emitters.ES(objectives.Fitness(), lanes=1, strategy=strategy)
        return compose(task, emitter, cells=cells, candidates=self.candidates)


@dataclass(frozen=True, kw_only=True)
class Means:
    """A population of means. Each generation draws samples around one of the means.

    Attributes:
        population_size: Number of means. In each generation, one mean is drawn according to its novelty.
        search: Search distribution of each mean.
        candidates: How candidates for the archive are evaluated.
        neighbours: Number of nearest features from which novelty is computed.
    """

    population_size: int = 5
    search: Search = Search()
    candidates: Candidates = Candidates()
    neighbours: int = 10

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, population_size=self.population_size)

    @property
    def novelty(self) -> objectives.Novelty:
        """The objective that ranks samples by novelty."""
        return objectives.Novelty(self.neighbours)

    def climb(self, objective: objectives.Objective, task: Task, cells: Cells | None) -> Algorithm:
        """Compose the algorithm of a population whose means maximise an objective."""
        emitter = emitters.Population(
            objective,
            size=self.population_size,
            strategy=self.search.strategy_for(task),
            play=emitters.ByNovelty(self.neighbours),
        )
        return compose(task, emitter, cells=cells, history=Everything(), candidates=self.candidates)


@dataclass(frozen=True, kw_only=True)
class NsEs:
    """NS-ES: a population of means that maximise novelty. Each generation updates one of the means.

    The novelty of a feature is its mean distance to the k nearest features found so far. A mean is drawn
    with a probability proportional to its novelty. Reference: Conti et al., Improving Exploration in
    Evolution Strategies for Deep Reinforcement Learning via a Population of Novelty-Seeking Agents,
    NeurIPS 2018, arXiv:1712.06560.

    Attributes:
        means: The population of means.
    """

    means: Means = Means()

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        return self.means.climb(self.means.novelty, task, cells)


@dataclass(frozen=True, kw_only=True)
class NsrEs:
    """NSR-ES: like NS-ES, but means maximise a weighted average of the ranks of fitness and novelty.

    The utility of a sample is `w r + (1 - w) n`, where r and n are its centred ranks by fitness and
    novelty. Reference: Conti et al., NeurIPS 2018, arXiv:1712.06560.

    Attributes:
        means: The population of means.
        fitness_weight: Weight of fitness. The weight of novelty is 1 minus this weight.
    """

    means: Means = Means()
    fitness_weight: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self)
        in_unit_interval(fitness_weight=self.fitness_weight)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        blend = objectives.Blend(objectives.Fitness(), self.means.novelty, self.fitness_weight)
        return self.means.climb(blend, task, cells)


@dataclass(frozen=True, kw_only=True)
class NsraEs:
    """NSRA-ES: like NSR-ES, but the weight of novelty rises if the best fitness does not improve.

    The utility of a sample is `w r + (1 - w) n`, as in NSR-ES. The weight w of the fitness rises by
    `weight_step` in each generation that improves the best fitness. It falls by `weight_step` after
    `patience` generations without improvement. Reference: Conti et al., NeurIPS 2018, arXiv:1712.06560.

    Attributes:
        means: The population of means.
        fitness_weight: Initial weight of fitness. The weight of novelty is 1 minus this weight.
        weight_step: Amount by which the weight of fitness rises when the best fitness improves, or falls
            after `patience` generations without improvement.
        patience: Number of generations without improvement after which the weight of fitness falls.
    """

    means: Means = Means()
    fitness_weight: float = 1.0
    weight_step: float = 0.05
    patience: int = 50

    def __post_init__(self) -> None:
        check_fields(self)
        in_unit_interval(fitness_weight=self.fitness_weight, weight_step=self.weight_step)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        blend = objectives.AdaptiveBlend(
            objectives.Fitness(),
            self.means.novelty,
            weight=self.fitness_weight,
            step=self.weight_step,
            patience=self.patience,
        )
        return self.means.climb(blend, task, cells)


@dataclass(frozen=True, kw_only=True)
class MeEs:
    """ME-ES: one evolution strategy with many samples, which explores and exploits in turn.

    There are M samples `m + s e_i`, with the mean m, the noise e_i and the standard deviation s. The
    mean follows the gradient estimate `sum_i u_i e_i / (M s)`. The utilities u_i are the centred ranks
    of the samples by novelty or by fitness. Each phase starts from an elite. Exploration starts from one
    of the 5 most novel elites. Exploitation starts from one of the 2 fittest elites of a group. With
    equal probability, the group is the whole archive or the 5 most recently changed cells. Reference:
    Colas et al., Scaling MAP-Elites to Deep Neuroevolution, GECCO 2020, arXiv:2003.01825.

    Attributes:
        every: Number of generations per phase.
        search: The search distribution.
        candidates: How candidates for the archive are evaluated.
        neighbours: Number of nearest features from which novelty is computed.
    """

    every: int = 10
    search: Search = Search(samples=10_000, l2=0.01)
    candidates: Candidates = Candidates()
    neighbours: int = 10

    def __post_init__(self) -> None:
        check_fields(self)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        to_explore = selectors.MostNovel(5, self.neighbours)
        to_exploit = selectors.Either(selectors.Fittest(2), selectors.FittestOfLatest(2, 5))
        novelty, fitness = objectives.Novelty(self.neighbours), objectives.Fitness()
        emitter = emitters.ES(
            objectives.Alternate(novelty, fitness, self.every),
            lanes=1,
            strategy=self.search.strategy_for(task),
            reset=resets.Every(self.every),
            selector=selectors.Cycle(to_explore, to_exploit, self.every),
        )
        return compose(
            task,
            emitter,
            cells=cells,
            history=Everything(),
            candidates=self.candidates,
        )
