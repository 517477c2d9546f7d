"""A quality-diversity algorithm with the methods `ask`, `evaluate` and `tell`.

Algorithm 1 of the paper first evaluates the samples of each evolution strategy, and then evaluates the
resulting means. This module evaluates each mean together with the samples around it, in one call of the
simulator. For lanes that are not reset, both orders evaluate exactly the same genotypes. The list below
shows the steps of this module, and the names of the corresponding steps of Algorithm 1 in quotes:

    ask       lanes that require a reset start from an elite     "if require_reset"
              every lane proposes its mean and samples around it
    evaluate  all means and samples are evaluated together
    tell      assess: one estimate per candidate
              insert: means enter the archive and the history    "update_archives"
              learn:  update stale counters, resets and means    "added_to_archive", "ES_step"
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes import archive as archives
from memes.archive import Archive, Entries, Fetch, rows_at
from memes.cells import Cells, grid, require_arrays
from memes.context import Context, Kind
from memes.control.perturbations import as_pairs, rows
from memes.control.rollouts import Transition
from memes.deep_archive import DeepArchive
from memes.emitters.base import Batch, Emitter, Lanes, Rows
from memes.emitters.gradients import require_gradients
from memes.errors import at_least, require
from memes.estimates import Candidates
from memes.executors.task_check import check
from memes.history import History, Nothing
from memes.judges import CandidateArchive, Judge, Offer, SameArchive
from memes.pytrees import concatenate, in_32_bits, take
from memes.task import (
    Evaluated,
    Evaluation,
    Task,
    as_evaluation,
    evaluate_factors,
    takes_factors,
    with_extras,
)
from memes.task import evaluate as evaluate_task
from memes.validation import checked


class State(NamedTuple):
    """The state of an algorithm between two generations."""

    generation: Int[Array, ""]
    archive: Archive
    judge: PyTree
    history: PyTree
    emitter: PyTree


class Outcome(NamedTuple):
    """A batch after its evaluation.

    Attributes:
        candidates: The candidates, with one estimate per candidate.
        samples: The samples and their evaluations.
        faults: Number of invalid evaluations, by `Fault`.
        outside: Number of evaluations whose feature lies outside the bounds of the cells.
        transitions: Transitions of all evaluations, if the emitter learns from transitions.
    """

    candidates: Entries
    samples: Entries
    faults: Int[Array, " faults"]
    outside: Int[Array, ""]
    transitions: Transition | None = None


class Answer(NamedTuple):
    """The results of offering a batch to the archive and to the judge.

    Attributes:
        added: The `Status` that the archive gives to each candidate. If samples are offered, the
            `Status` of each sample follows.
        status: The `Status` that the judge gives to each candidate.
    """

    added: Int[Array, " n"]
    status: Int[Array, " C"]


class Ledger(NamedTuple):
    """Numbers of evaluations in one generation.

    If the task was made by `resampled`, these are the numbers of evaluations of the original task.
    """

    samples: Int[Array, ""]
    candidates: Int[Array, ""]


class Info(NamedTuple):
    """The events of a generation with C candidates.

    Attributes:
        lane: The lane of each candidate.
        kind: The `Kind` of each candidate.
        offered: Whether each candidate was offered to the archive.
        fitness: The fitness of each candidate.
        feature: The feature of each candidate.
        parent_feature: The feature of each candidate's parent; NaN if the candidate has no parent.
        status: The `Status` that the judge gave to each candidate.
        age: Number of steps of each candidate's lane since the lane last started.
        stale: Number of consecutive rejected candidates of each candidate's lane.
        reset: The `Reason` why each candidate's lane is reset in this generation; `Reason.NONE` if the
            lane continues.
        additions: Number of evaluations in the whole batch that entered the archive, by `Kind` of lane.
        faults: Number of invalid evaluations in the whole batch, by `Fault`.
        outside: Number of evaluations in the whole batch whose feature lies outside the bounds.
        ledger: Counts of evaluations in this generation.
    """

    lane: Int[Array, " C"]
    kind: Int[Array, " C"]
    offered: Bool[Array, " C"]
    fitness: Float[Array, " C"]
    feature: Float[Array, "C k"]
    parent_feature: Float[Array, "C k"]
    status: Int[Array, " C"]
    age: Int[Array, " C"]
    stale: Int[Array, " C"]
    reset: Int[Array, " C"]
    additions: Int[Array, " kinds"]
    faults: Int[Array, " faults"]
    outside: Int[Array, ""]
    ledger: Ledger

    @property
    def non_finite(self) -> Int[Array, "*G"]:
        """Number of evaluations with any fault."""
        return jnp.sum(self.faults, axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class Algorithm:
    """A quality-diversity algorithm on a task. The function `compose` creates it from parts.

    Attributes:
        task: The problem to optimise.
        emitter: The source of genotypes.
        cells: The cells of the archive.
        history: The features against which novelty is measured.
        judge: The rule that determines which candidates make progress. Some objectives also use this
            rule to rank samples.
        offer_samples: Whether samples may also enter the archive.
        candidates: The number of evaluations of each candidate, and the statistic that summarises them.
        name: Name of the algorithm in files and figures.
        options: Hyper-parameters. Runs record them in `config.json`.
        chunk: Maximum number of evaluations at a time, to save memory. If None, the whole batch is
            evaluated together.
    """

    task: Task
    emitter: Emitter
    cells: Cells
    history: History = Nothing()
    judge: Judge = SameArchive()
    offer_samples: bool = False
    candidates: Candidates = Candidates()
    name: str = "composed"
    options: dict[str, Any] = field(default_factory=dict)
    chunk: int | None = None

    @property
    def batch_size(self) -> int:
        """Number of evaluations per generation."""
        repeated = len(self.emitter.persistent) * self.candidates.candidate_samples
        return repeated + self.emitter.samples

    @in_32_bits
    def init(self, key: Key[Array, ""], generations: int | None = None) -> State:
        """Return the state before the first generation.

        `generations` is required only if the algorithm uses the history `Everything`.
        """
        room = None
        if generations is not None:
            at_least(1, generations=generations)
            room = generations * len(self.emitter.persistent)
        return State(
            generation=jnp.int32(0),
            archive=archives.empty(self.cells, self.task.dim, self.task.extras),
            judge=self.judge.init(self.cells, self.task.dim, self.task.extras),
            history=self.history.init(self.task.feature_dim, room),
            emitter=self.emitter.init(key, self.task),
        )

    def step(self, key: Key[Array, ""], state: State) -> tuple[State, Info]:
        """Advance the state by one generation."""
        ask_key, evaluate_key = jax.random.split(key)
        state, batch = self.ask(ask_key, state)
        return self.tell(state, batch, self.evaluate(evaluate_key, batch))

    @in_32_bits
    def ask(self, key: Key[Array, ""], state: State) -> tuple[State, Batch]:
        """Propose genotypes, and set the number of evaluations of each candidate."""
        emitter, batch = self.emitter.ask(key, state.emitter, self._context(state, state))
        repeated = replace(batch.candidates, count=self.candidates.candidate_samples)
        return state._replace(emitter=emitter), batch._replace(candidates=repeated)

    def evaluate(self, key: Key[Array, ""], batch: Batch) -> Evaluation:
        """Evaluate a batch with one key per evaluation."""
        keys = jax.random.split(key, batch.size)
        pairs, transitions = as_pairs(batch.samples), self.emitter.transitions
        if pairs is not None and takes_factors(self.task) and not transitions:
            return evaluate_factors(self.task, keys, batch.candidates, pairs, chunk=self.chunk)
        x = batch.x if batch.samples else batch.candidates
        return evaluate_task(self.task, keys, x, transitions=transitions, chunk=self.chunk)

    @in_32_bits
    def tell(self, state: State, batch: Batch, evaluation: Evaluated) -> tuple[State, Info]:
        """Insert an evaluated batch into the archive, and update the emitter."""
        outcome = self.assess(batch, evaluation)
        after, answer = self.insert(state, outcome)
        emitter, lanes = self.learn(state, after, outcome, answer.status)
        return self.advance(after, emitter), self.info(outcome, answer, lanes)

    def assess(self, batch: Batch, evaluation: Evaluated) -> Outcome:
        """Estimate the fitness and feature of each candidate, and count invalid evaluations."""
        batch = jax.tree.map(jnp.asarray, batch)
        first, n = batch.candidates.evaluations, batch.size
        whole = as_evaluation(self.task, n, evaluation)
        evaluation, transitions = whole._replace(transitions=None), whole.transitions
        means = batch.candidates.x
        estimates = self.candidates.judge(take(evaluation, 0, first))
        x = jnp.concatenate([means[:0], *map(rows, batch.samples)])
        offered = jnp.full(batch.sample_lane.shape, self.offer_samples)
        samples = take(evaluation, first, n)
        if not self.offer_samples:
            samples = samples._replace(extras={})  # only the archive needs extras
        return Outcome(
            candidates=Entries(means, estimates, batch.offered, batch.lane, batch.again),
            samples=Entries(
                x, samples, offered, batch.sample_lane, jnp.full_like(batch.sample_lane, -1)
            ),
            faults=archives.faults(evaluation),
            outside=archives.outside(evaluation, self.cells),
            transitions=transitions,
        )

    def insert(self, state: State, outcome: Outcome, fetch: Fetch = rows_at) -> tuple[State, Answer]:
        """Offer the batch to the archive, to the judge and to the history.

        The function `fetch(x, row)` returns the genotypes of the given rows of the batch. With a custom
        `fetch`, the entries `x` of the batch may be indices of genotypes instead of genotypes.
        """
        candidates = outcome.candidates
        found, offered = candidates.evaluation, candidates.offered
        entries = concatenate([candidates, outcome.samples]) if self.offer_samples else candidates
        archive, added = archives.add(
            state.archive, *entries[:3], lane=entries.lane, generation=state.generation, fetch=fetch
        )
        own = added[: offered.size]
        offer = Offer(candidates, own, state.generation, fetch)
        judge, status = self.judge.update(state.judge, state.archive, offer)
        elites = self.judge.elites(judge, state.archive, state.generation)
        if elites is not None:
            archive, added = elites, status
        history = self.history.push(state.history, found.feature, offered & archives.finite(found))
        return state._replace(archive=archive, judge=judge, history=history), Answer(added, status)

    def learn(
        self, before: State, after: State, outcome: Outcome, status: Int[Array, " C"]
    ) -> tuple[PyTree, Lanes]:
        """Update the emitter: count stale candidates, determine resets, and update the lanes."""
        candidates, samples = outcome.candidates, outcome.samples
        unknown = jnp.zeros_like(samples.lane)
        return self.emitter.tell(
            after.emitter,
            Rows(candidates.x, candidates.evaluation, status),
            Rows(samples.x, samples.evaluation, unknown),
            self._context(before, after, outcome.transitions),
        )

    def advance(self, state: State, emitter: PyTree) -> State:
        """Return the state at the start of the next generation."""
        return state._replace(generation=state.generation + 1, emitter=emitter)

    def info(self, outcome: Outcome, answer: Answer, lanes: Lanes) -> Info:
        """Record the events of a generation."""
        _, evaluation, offered, lane, _ = outcome.candidates
        kind_of_lane = jnp.zeros(self.emitter.lanes, jnp.int32).at[lane].set(lanes.kind)
        entered = jnp.concatenate([lane, outcome.samples.lane]) if self.offer_samples else lane
        additions = jnp.zeros(len(Kind), jnp.int32).at[kind_of_lane[entered]].add(answer.added > 0)
        repeated = lane.size * self.candidates.candidate_samples
        spent = (jnp.int32(n * self.task.cost) for n in (self.emitter.samples, repeated))
        return Info(
            lane=lane,
            offered=offered,
            fitness=evaluation.fitness,
            feature=evaluation.feature,
            status=answer.status,
            **lanes._asdict(),
            additions=additions,
            faults=outcome.faults,
            outside=outcome.outside,
            ledger=Ledger(*spent),
        )

    def _context(self, before: State, after: State, transitions: Transition | None = None) -> Context:
        """Return the context of the emitter.

        In the context, the function `compare` uses the judge and the archive of the state `before`. The
        archive, the parents and the history come from the state `after`.
        """
        past = self.history.past(after.history, after.archive)
        parents = self.judge.parents(after.judge, after.archive)
        compare = partial(self.judge.compare, before.judge, before.archive)
        return Context(self.task, after.generation, after.archive, parents, past, compare, transitions)

    def __repr__(self) -> str:
        emitter, repeated = self.emitter, self.candidates.candidate_samples
        times = f", evaluated {repeated} times each," if repeated > 1 else ""
        size = f"{len(emitter.persistent)} candidates{times} and {emitter.samples} samples"
        where = f"'{self.name}' on '{self.task.name}'"
        return f"Algorithm({where}, {size} per generation, {self.cells.count} cells)"


UNNAMED = Algorithm.name  # default name of an algorithm
MOST_ROWS = 2**31 - 1  # maximum number of evaluations per generation (the largest int32)
MOST_NUMBERS = 2**40  # maximum number of entries per array


@checked
def compose(
    task: Task,
    emitter: Emitter,
    *,
    cells: Cells | None = None,
    history: History | None = None,
    judge: Judge | None = None,
    offer_samples: bool = False,
    candidates: Candidates = Candidates(),
    name: str = UNNAMED,
) -> Algorithm:
    """Compose an algorithm from its parts.

    Args:
        task: The problem to optimise.
        emitter: The source of genotypes.
        cells: The cells of the archive; by default the grid of the task.
        history: The features against which novelty is measured. If None, no features are stored.
        judge: The rule that determines which candidates make progress. The default is the archive itself
            or, if samples are offered, a second archive that only candidates enter.
        offer_samples: Whether to offer samples to the archive in addition to candidates.
        candidates: The number of evaluations of each candidate, and the statistic that summarises them.
            The archive, the history and the judge use the summary.
        name: Name of the algorithm in files and figures. `memes compare` and `memes.resume` distinguish
            composed algorithms only by name.
    """
    task = with_extras(task, check(task))
    require(
        not emitter.transitions or task.evaluate_transitions is not None,
        f"task '{task.name}' provides no transitions, which policy gradients need; use a control "
        "task, such as point-maze or ant, or another algorithm",
    )
    if emitter.gradients:
        require_gradients(task)
    require(
        not (offer_samples and isinstance(judge, DeepArchive)),
        "offer_samples must be False with judge DeepArchive, which accepts only candidates, got True",
    )
    tessellation = grid(task) if cells is None else cells
    require_arrays(tessellation)
    require(
        tessellation.low.shape == (task.feature_dim,),
        f"cells must have {task.feature_dim} features, like task '{task.name}', "
        f"got {tessellation.low.shape[0]}",
    )
    algorithm = Algorithm(
        task,
        emitter,
        tessellation,
        history=history or Nothing(),
        judge=judge or (CandidateArchive() if offer_samples else SameArchive()),
        offer_samples=offer_samples,
        candidates=candidates,
        name=name,
    )
    n = algorithm.batch_size
    require(
        n * task.cost <= MOST_ROWS and max(n, tessellation.count) * task.dim <= MOST_NUMBERS,
        f"{n} evaluations per generation (lanes x samples) or {tessellation.count} cells are too many "
        f"for genotypes of {task.dim} entries; use fewer lanes, samples or cells",
    )
    return algorithm
