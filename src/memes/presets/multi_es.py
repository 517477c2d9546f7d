"""MEMES and its variants: algorithms with many evolution strategies at the same time."""

from __future__ import annotations

from dataclasses import dataclass
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
from memes.presets.search import Search
from memes.resets import Reset
from memes.task import Task
from memes.validation import check_fields

Explore = Literal["fifo", "everything", "elites", "ga"] | History | Objective


@dataclass(frozen=True, kw_only=True)
class Memes:
    """MEMES: evolution strategies (lanes) that maximise fitness or novelty. Stale lanes are reset.

    A lane with the mean m draws M samples `m + s e_i`, with the noise e_i and the standard deviation s.
    The mean follows the gradient estimate `sum_i u_i e_i / (M s)`. The utilities u_i are the centred
    ranks of the samples by fitness (exploit lanes) or by novelty (explore lanes). The novelty of a
    feature is its mean distance to the k nearest features in the history. Reference: Flageat, Lim and
    Cully, Enhancing MAP-Elites with Multiple Parallel Evolution Strategies, GECCO 2024,
    arXiv:2303.06137.

    Attributes:
        lanes: Total number of evolution strategies (exploit and explore lanes).
        proportion_explore: Share of the lanes that explore.
        explore: How explore lanes search. They maximise novelty compared with the last offspring (fifo),
            all offspring (everything) or the elites (elites), or they vary elites at random (ga). In
            Python, the value can also be the `History` that defines novelty, or another `Objective`.
        search: Search distribution of each lane.
        candidates: How candidates for the archive are evaluated.
        stale_budget: Maximum number of consecutive generations without progress. If a lane exceeds it,
            the lane is reset.
        reset_every: Number of generations after which each lane is reset, regardless of its progress. If
            given, stale_budget is ignored.
        offer_samples: Whether to offer samples to the archive in addition to means.
        neighbours: Number of nearest features from which novelty is computed.
        fifo_size: Number of features in the fifo history.
    """

    lanes: int = 32
    proportion_explore: float = 0.5
    explore: Explore = "fifo"
    search: Search = Search()
    candidates: Candidates = Candidates()
    stale_budget: int = 32
    reset_every: int | None = None
    offer_samples: bool = False
    neighbours: int = 10
    fifo_size: int = 50_000

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, lanes=self.lanes, fifo_size=self.fifo_size, reset_every=self.reset_every)
        at_least(0, stale_budget=self.stale_budget)
        in_unit_interval(proportion_explore=self.proportion_explore)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        fixed = self.reset_every
        reset = resets.Stagnation(self.stale_budget) if fixed is None else resets.Every(fixed)
        history, objective = self._exploration()
        return compose(
            task,
            Parallel(_both_kinds(self, task, objective, reset)),
            cells=cells,
            history=history,
            offer_samples=self.offer_samples,
            candidates=self.candidates,
        )

    def _exploration(self) -> tuple[History, Objective | None]:
        """Return the history, and the objective of the explore lanes (None if they vary elites)."""
        if isinstance(self.explore, Objective):
            return FIFO(self.fifo_size), self.explore
        if self.explore == "ga":
            return Nothing(), None
        named: dict[str, History] = {
            "fifo": FIFO(self.fifo_size),
            "everything": Everything(),
            "elites": Elites(),
        }
        history = named[self.explore] if isinstance(self.explore, str) else self.explore
        return history, objectives.Novelty(self.neighbours)


@dataclass(frozen=True, kw_only=True)
class MemesSequential:
    """MEMES-sequential: all lanes explore, then all lanes exploit. All lanes are reset at each change.

    The lanes learn as in MEMES. Reference: the ablation of Flageat, Lim and Cully, GECCO 2024,
    arXiv:2303.06137.

    Attributes:
        lanes: Number of evolution strategies.
        every: Number of generations per phase, in which all lanes explore or all lanes exploit.
        search: Search distribution of each lane.
        candidates: How candidates for the archive are evaluated.
        neighbours: Number of nearest features from which novelty is computed.
        fifo_size: Number of features in the fifo history.
    """

    lanes: int = 32
    every: int = 10
    search: Search = Search()
    candidates: Candidates = Candidates()
    neighbours: int = 10
    fifo_size: int = 50_000

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, fifo_size=self.fifo_size)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        novelty, fitness = objectives.Novelty(self.neighbours), objectives.Fitness()
        emitter = ES(
            objectives.Alternate(novelty, fitness, self.every),
            lanes=self.lanes,
            strategy=self.search.strategy_for(task),
            reset=resets.Every(self.every),
        )
        return compose(
            task,
            emitter,
            cells=cells,
            history=FIFO(self.fifo_size),
            candidates=self.candidates,
        )


@dataclass(frozen=True, kw_only=True)
class MemesHybrid:
    """MEMES-hybrid: lanes of MEMES and variation of elites as in MAP-Elites, with a common archive.

    On uncertain tasks, each mean and each offspring is evaluated several times, and novelty is measured
    against the last means and offspring. On deterministic tasks, or if `candidate_samples` is 1, each
    mean and each offspring is evaluated once. In these cases, samples are also offered to the archive,
    and novelty is measured against the elites. The lanes learn as in MEMES, and offspring are varied as
    in MAP-Elites. This combination has not been published.

    Attributes:
        batch: Number of evaluations per generation. Evaluations that the lanes do not need are used for
            variation.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the variation along the line between two parents.
        lanes: Total number of evolution strategies (exploit and explore lanes).
        proportion_explore: Share of the lanes that explore.
        search: Search distribution of each lane.
        candidates: How means and offspring are evaluated. On deterministic tasks, each is evaluated
            once.
        stale_budget: Maximum number of consecutive generations without progress. If a lane exceeds it,
            the lane is reset.
        neighbours: Number of nearest features from which novelty is computed.
        fifo_size: Number of features in the history on uncertain tasks.
    """

    batch: int = 16_384
    iso: float = 0.01
    line: float = 0.5
    lanes: int = 24
    proportion_explore: float = 2 / 3
    search: Search = Search(samples=448)
    candidates: Candidates = Candidates(candidate_samples=64)
    stale_budget: int = 32
    neighbours: int = 10
    fifo_size: int = 50_000

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, lanes=self.lanes, fifo_size=self.fifo_size)
        in_unit_interval(proportion_explore=self.proportion_explore)

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""
        judged = self.candidates if task.uncertain else Candidates()
        each, once = judged.candidate_samples, judged.candidate_samples == 1
        reset, novelty = resets.Stagnation(self.stale_budget), objectives.Novelty(self.neighbours)
        climbers = _both_kinds(self, task, novelty, reset)
        taken = sum(len(part.persistent) * each + part.samples for part in climbers)
        offspring = (self.batch - taken) // each
        require(
            offspring > 0,
            f"batch must be at least {taken + each} ({taken} evaluations of {self.lanes} lanes and "
            f"{each} of one offspring), got {self.batch}; use a larger batch, or fewer lanes or samples",
        )
        return compose(
            task,
            Parallel((*climbers, Isoline(offspring, iso=self.iso, line=self.line))),
            cells=cells,
            history=Elites() if once else FIFO(self.fifo_size),
            offer_samples=once,
            candidates=judged,
        )


def _both_kinds(
    options: Memes | MemesHybrid, task: Task, objective: Objective | None, reset: Reset
) -> tuple[Emitter, ...]:
    """Return the emitters of exploit lanes and of explore lanes.

    Exploit lanes maximise fitness. Explore lanes maximise `objective`, or vary elites if `objective` is
    None.
    """
    n_explore = round(options.lanes * options.proportion_explore)
    n_exploit = options.lanes - n_explore
    es = partial(ES, strategy=options.search.strategy_for(task), reset=reset)
    exploit = es(objectives.Fitness(), n_exploit) if n_exploit else None
    explore = None
    if n_explore:
        explore = Isoline(n_explore) if objective is None else es(objective, n_explore)
    return tuple(emitter for emitter in (exploit, explore) if emitter is not None)
