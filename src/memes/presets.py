"""Published algorithms, each a short composition of the parts, with the paper's hyper-parameters."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Literal, NamedTuple

import optax

from memes import emitters, objectives, resets, selectors, strategies
from memes.algorithm import Algorithm, compose
from memes.cells import Cells
from memes.emitters import isoline, one_of, parallel, policy_gradient, population
from memes.emitters.policy_gradient import TD3
from memes.errors import require
from memes.hints import checked
from memes.history import History, elites, everything, fifo, nothing
from memes.strategies import Strategy
from memes.strategies.noise import Noise, gaussian, low_rank
from memes.task import Task, resampled


def _recorded(build: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Let the algorithm that a preset builds carry its name and its hyper-parameters."""
    signature = inspect.signature(build)

    @wraps(build)
    def build_and_record(*arguments: Any, **keywords: Any) -> Algorithm:
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        options = {k: v for k, v in bound.arguments.items() if k not in ("task", "cells")}
        name = build.__name__.replace("_", "-")
        return checked(build)(*arguments, **keywords)._replace(name=name, options=options)

    return build_and_record


@_recorded
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
    rank: int = 4,
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
    search = _search(strategy, samples, sigma, learning_rate, l2, _noise(task, noise, rank))
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


@_recorded
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
        strategy=_search(strategy, samples, sigma, learning_rate, l2),
        reset=resets.every(every),
    )
    return compose(task, emitter, cells=cells, history=fifo(fifo_size))


@_recorded
def me(
    task: Task,
    cells: Cells | None = None,
    *,
    batch: int = 16_384,
    iso: float = 0.01,
    line: float = 0.1,
) -> Algorithm:
    """MAP-Elites: random variation of elites, as many a generation as MEMES has samples.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        batch: Offspring in a generation.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the part along the line between two parents.
    """
    return compose(task, isoline(batch, iso=iso, line=line), cells=cells)


@_recorded
def me_sampling(
    task: Task,
    cells: Cells | None = None,
    *,
    batch: int = 512,
    resamples: int = 32,
    iso: float = 0.01,
    line: float = 0.1,
) -> Algorithm:
    """MAP-Elites that evaluates every offspring many times and takes the mean.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        batch: Offspring in a generation.
        resamples: Evaluations of each offspring.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the part along the line between two parents.
    """
    require(resamples >= 1, f"resamples must be at least 1, got {resamples}")
    return compose(resampled(task, resamples), isoline(batch, iso=iso, line=line), cells=cells)


@_recorded
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
    search = _search(strategy, samples, sigma, learning_rate, l2)
    return compose(task, emitters.es(objectives.fitness(), lanes=1, strategy=search), cells=cells)


@_recorded
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
    search = _search(strategy, samples, sigma, learning_rate, l2)
    return _played_by_novelty(task, cells, objective, population_size, search, neighbours, generations)


@_recorded
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
    search = _search(strategy, samples, sigma, learning_rate, l2)
    return _played_by_novelty(task, cells, objective, population_size, search, neighbours, generations)


@_recorded
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
    search = _search(strategy, samples, sigma, learning_rate, l2)
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


@_recorded
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
        strategy=_search(strategy, samples, sigma, learning_rate, l2),
        reset=resets.every(every),
        selector=selectors.alternate(selectors.most_novel(5, neighbours), to_exploit, every),
    )
    return compose(task, emitter, cells=cells, history=everything(generations))


@_recorded
def cma_me(
    task: Task,
    cells: Cells | None = None,
    *,
    pool: int = 15,
    ranking: Literal["imp", "opt", "rnd"] = "imp",
    batch: int = 128,
    sigma: float = 0.5,
    strategy: str = "cma-es",
) -> Algorithm:
    """CMA-ME: CMA-ES emitters that take turns, each ranked by what its samples add to the archive.

    An emitter starts again from a random elite when none of its samples enters the archive.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        pool: Emitters that take turns, one a generation.
        ranking: What samples are ranked by: how they improve the archive (imp), their fitness (opt) or
            their feature along a random direction (rnd).
        batch: Samples in a generation, all of them offered to the archive.
        sigma: Standard deviation of an emitter's first samples.
        strategy: Search distribution, one of evosax by name; sep-cma-es is far quicker in many
            dimensions.
    """
    require(pool >= 1, f"pool must be at least 1 emitter, got {pool}")
    require(batch >= 2, f"batch must be at least 2, got {batch}")
    ranked = {
        "imp": objectives.improvement(),
        "opt": objectives.fitness(),
        "rnd": objectives.random_direction(task.feature_dim),
    }
    search = strategies.evosax(strategy, samples=batch, sigma=sigma)
    return compose(task, one_of(emitters.cma(ranked[ranking], strategy=search), pool), cells=cells)


@_recorded
def pga_me(
    task: Task,
    cells: Cells | None = None,
    *,
    batch: int = 128,
    proportion_gradient: float = 0.5,
    iso: float = 0.01,
    line: float = 0.1,
    gradient_steps: int = 100,
    gradient_learning_rate: float = 1e-3,
    num_critic_training_steps: int = 5_000,
    replay_size: int = 1_000_000,
    transitions_batch: int = 256,
    critic_hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """PGA-ME: random variation of elites, and elites moved by policy gradients of a learned critic.

    Args:
        task: What to optimise; it must yield transitions, as control tasks do.
        cells: The archive's cells; None is the task's grid.
        batch: Offspring in a generation.
        proportion_gradient: Share of them that policy gradients make, the greedy actor among them.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the part along the line between two parents.
        gradient_steps: Policy-gradient steps from an elite to its offspring.
        gradient_learning_rate: Of Adam in these steps.
        num_critic_training_steps: Training steps of the critics in a generation.
        replay_size: Transitions that the critics learn from, at most.
        transitions_batch: Transitions in a training step.
        critic_hidden: Sizes of the critics' hidden layers.
    """
    require(batch >= 1, f"batch must be at least 1, got {batch}")
    require(
        0 < proportion_gradient <= 1,
        f"proportion_gradient must lie in (0, 1], got {proportion_gradient}",
    )
    n_gradient = max(1, round(batch * proportion_gradient))
    learner = TD3(
        critic_steps=num_critic_training_steps,
        replay_size=replay_size,
        transitions_batch=transitions_batch,
        critic_hidden=critic_hidden,
    )
    gradient = policy_gradient(
        n_gradient, steps=gradient_steps, learning_rate=gradient_learning_rate, td3=learner
    )
    varied = [isoline(batch - n_gradient, iso=iso, line=line)] if n_gradient < batch else []
    return compose(task, parallel(*varied, gradient), cells=cells)


def _noise(task: Task, noise: str, rank: int) -> Noise:
    kinds: dict[str, Callable[[], Noise]] = {
        "gaussian": lambda: gaussian,
        "low-rank": lambda: low_rank(rank, task.control and task.control.controller.blocks),
    }
    require(noise in kinds, f"noise must be one of {', '.join(kinds)}, got '{noise}'")
    return kinds[noise]()


def _search(
    strategy: str,
    samples: int,
    sigma: float,
    learning_rate: float,
    l2: float,
    noise: Noise = gaussian,
) -> Strategy:
    if strategy != "openai-es":
        return strategies.evosax(strategy, samples=samples, sigma=sigma)
    require(
        0 < learning_rate < math.inf,
        f"learning_rate must be positive and finite, got {learning_rate}",
    )
    optimiser = optax.adam(learning_rate)
    return strategies.openai_es(samples=samples, sigma=sigma, optimiser=optimiser, l2=l2, noise=noise)


class Preset(NamedTuple):
    """A named algorithm: `build(task, cells, **hyper_parameters)`, and what it is in one line."""

    build: Callable[..., Algorithm]
    summary: str


PRESETS: dict[str, Preset] = {
    "memes": Preset(memes, "evolution strategies for fitness and for novelty"),
    "memes-all": Preset(
        partial(memes, offer_samples=True), "MEMES that offers its samples to the archive too"
    ),
    "memes-sequential": Preset(
        memes_sequential, "MEMES whose lanes all explore, then all exploit, in turn"
    ),
    "memes-fixed-reset": Preset(
        partial(memes, reset_every=10), "MEMES whose lanes are reset every 10 generations"
    ),
    "memes-everything": Preset(
        partial(memes, explore="everything"), "MEMES that measures novelty against all offspring"
    ),
    "memes-elites": Preset(
        partial(memes, explore="elites"), "MEMES that measures novelty against the elites"
    ),
    "memes-ga": Preset(
        partial(memes, explore="ga"), "MEMES that explores by random variation of elites"
    ),
    "me": Preset(me, "MAP-Elites, 16 384 offspring a generation"),
    "me-128": Preset(partial(me, batch=128), "MAP-Elites, 128 offspring a generation"),
    "me-sampling": Preset(me_sampling, "MAP-Elites, 512 offspring evaluated 32 times each"),
    "es": Preset(es, "one evolution strategy for fitness"),
    "ns-es": Preset(ns_es, "a population of means for novelty, one played at a time"),
    "nsr-es": Preset(nsr_es, "the same for fitness and novelty in equal parts"),
    "nsra-es": Preset(nsra_es, "the same with a weight that adapts"),
    "me-es": Preset(me_es, "one evolution strategy that explores, then exploits"),
    "cma-me": Preset(cma_me, "CMA-ES emitters that improve the archive, in turn"),
    "pga-me": Preset(pga_me, "MAP-Elites with policy gradients, for control tasks"),
}
