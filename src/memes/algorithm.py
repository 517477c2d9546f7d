"""A generation is ask, evaluate, tell: the loop that every algorithm here shares.

The paper's Algorithm 1 evaluates twice in a generation: the samples of each evolution strategy, then
the means that they lead to. Here each mean is evaluated together with the samples drawn around it, in
one call of the simulator. For a lane that is not reset this is Algorithm 1, sample for sample:

    ask       lanes that require a reset start from an elite    (lines "if require_reset")
              every lane emits its mean and the samples around it
    evaluate  all of them at once
    tell      means enter the archive and the history            ("update_archives")
              stale counters, and which lanes require a reset    ("added_to_archive")
              the samples are ranked and every mean steps        ("ES_step" of the next generation)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes import archive as archives
from memes.archive import Archive
from memes.cells import Cells, grid
from memes.context import Context, Kind
from memes.emitters.base import Emitter, Proposal, Rows
from memes.emitters.dealing import dealt
from memes.errors import at_least, require
from memes.estimates import Candidates
from memes.factors import Samples, as_pairs, rows
from memes.hints import checked
from memes.history import History, nothing
from memes.shards import ONE, Shards
from memes.task import (
    Evaluated,
    Evaluation,
    Task,
    as_evaluation,
    evaluate_factors,
    takes_factors,
)
from memes.task import evaluate as evaluate_task
from memes.trees import concatenate, filled, in_32_bits, repeat, take
from memes.trial import check


class Batch(NamedTuple):
    """Rows to evaluate, all of them in `x`: candidates, each as often as it is evaluated, then samples.

    Those that are `offered` may enter the archive; `lane` says where they came from. Samples are in
    factors only for a task that can evaluate them so.
    """

    candidates: Float[Array, "C d"]
    samples: tuple[Samples, ...]
    offered: Bool[Array, " n"]
    lane: Int[Array, " n"]

    @property
    def x(self) -> Float[Array, "n d"]:
        """Whole genotypes."""
        return jnp.concatenate([self.candidates, *map(rows, self.samples)])


class State(NamedTuple):
    """Everything an algorithm carries from one generation to the next.

    `judge` is the archive that decides whether a mean made progress, where that is not `archive`.
    """

    generation: Int[Array, ""]
    archive: Archive
    judge: Archive | None
    history: PyTree
    emitter: PyTree


class Ledger(NamedTuple):
    """Evaluations spent in one generation, counts of the underlying problem."""

    samples: Int[Array, ""]
    candidates: Int[Array, ""]


class Info(NamedTuple):
    """The events of a generation. The first fields have an entry for each of L candidates.

    Attributes:
        lane: The lane that the candidate came from.
        kind: Its `Kind`.
        offered: Whether it was offered to the archive.
        fitness: Its fitness.
        feature: Its feature.
        parent_feature: The feature of what it was made from.
        status: The answer of the archive (or of the judge, where samples are offered too).
        age, stale, reset: As in `Lanes`.
        additions: Rows of the whole batch that the archive took, by `Kind` of lane.
        faults: Rows of the whole batch whose evaluation cannot be used, by `Fault`.
        ledger: Evaluations that were spent.
    """

    lane: Int[Array, " L"]
    kind: Int[Array, " L"]
    offered: Bool[Array, " L"]
    fitness: Float[Array, " L"]
    feature: Float[Array, "L k"]
    parent_feature: Float[Array, "L k"]
    status: Int[Array, " L"]
    age: Int[Array, " L"]
    stale: Int[Array, " L"]
    reset: Int[Array, " L"]
    additions: Int[Array, " kinds"]
    faults: Int[Array, " faults"]
    ledger: Ledger

    @property
    def non_finite(self) -> Int[Array, "*G"]:
        """Rows with any fault."""
        return jnp.sum(self.faults, axis=-1)


class Verdict(NamedTuple):
    """News of one shard for all: the outcome of its candidates, and of the rows that may enter.

    `entrants` are the evaluations [n], `offered` and `lane` of these rows; `faults` are [1, faults].
    """

    outcome: Evaluation
    offered: Bool[Array, "*s L"]
    lane: Int[Array, "*s L"]
    entrants: tuple[Evaluation, Array, Array]
    faults: Int[Array, "*s 1 faults"]


class Judged(NamedTuple):
    """A batch that was evaluated: what stays with its shard, and the verdict."""

    means: Float[Array, "*s L d"]
    x: Float[Array, "*s n d"]
    sampled: Evaluation
    verdict: Verdict


UNNAMED = "composed"  # an algorithm that was given no name
MOST_ROWS = 2**31 - 1  # evaluations in a generation: they are counted in int32
MOST_NUMBERS = 2**40  # in one array


class Algorithm(NamedTuple):
    """A quality-diversity algorithm on a task.

    Attributes:
        name: Its name in files and figures.
        options: Its hyper-parameters, for the record.
        task: The task that it optimises.
        cells: The archive's cells.
        emitter: The source of its genotypes.
        history: The features that novelty is measured against.
        init: `(key, generations=None) -> State`. A history that keeps everything makes room for so many
            generations; no other part needs to know.
        ask: `(key, state) -> (State, Batch)`.
        tell: `(state, batch, evaluation) -> (State, Info)`. All three take `shards` where a run is
            dealt to several; then batch and evaluation are by shard.
        candidates: How candidates are judged, by one evaluation or by several.
        chunk: How many rows to evaluate at a time, where memory is short; None is all.
    """

    name: str
    options: dict[str, Any]
    task: Task
    cells: Cells
    emitter: Emitter
    history: History
    init: Callable[..., State]
    ask: Callable[..., tuple[State, Batch]]
    tell: Callable[..., tuple[State, Info]]
    candidates: Candidates = Candidates()
    chunk: int | None = None

    @property
    def batch_size(self) -> int:
        """Rows evaluated in a generation, n."""
        return self.emitter.candidates * self.candidates.candidate_samples + self.emitter.samples

    def __repr__(self) -> str:
        emitter = self.emitter
        repeated = self.candidates.candidate_samples
        times = f", evaluated {repeated} times each," if repeated > 1 else ""
        size = f"{emitter.candidates} candidates{times} and {emitter.samples} samples a generation"
        return f"Algorithm('{self.name}' on '{self.task.name}', {size}, {self.cells.count} cells)"

    def evaluate(self, key: Key[Array, ""], batch: Batch) -> Evaluation:
        """Evaluate the batch, with a key of its own for each row."""
        keys = jax.random.split(key, batch.lane.shape[0])
        pairs = as_pairs(batch.samples)
        if pairs is not None and takes_factors(self.task):
            return evaluate_factors(self.task, keys, batch.candidates, pairs, chunk=self.chunk)
        wanted = self.emitter.transitions
        return evaluate_task(self.task, keys, batch.x, transitions=wanted, chunk=self.chunk)

    def step(self, key: Key[Array, ""], state: State, shards: Shards = ONE) -> tuple[State, Info]:
        """Advance by one generation: ask, evaluate, tell.

        An emitter that cannot be dealt to shards asks and is told as a whole, on every device, and the
        shards share the evaluation of its rows.
        """
        ask_key, evaluate_key = jax.random.split(key)
        if shards.count == 1:
            state, batch = self.ask(ask_key, state)
            return self.tell(state, batch, self.evaluate(evaluate_key, batch))
        if dealt(self.emitter, shards) is None:
            state, batch = shards.alone(self.ask, ask_key, state)
            evaluation = self._shared_evaluation(evaluate_key, batch, shards)
            return shards.alone(self.tell, state, batch, evaluation)
        state, batch = self.ask(ask_key, state, shards)
        evaluation = shards.each(self.evaluate, shards.keys(evaluate_key), batch)
        return self.tell(state, batch, evaluation, shards)

    def _shared_evaluation(self, key: Key[Array, ""], batch: Batch, shards: Shards) -> Evaluation:
        """Evaluate the rows of a batch, of which each shard takes as many; the last are filled up."""
        n = batch.lane.shape[0]
        size = -(-n // shards.count) * shards.count
        keys, x = (filled(array, size, 0) for array in (jax.random.split(key, n), batch.x))
        wanted = self.emitter.transitions

        def evaluate(keys: Array, x: Array) -> Evaluation:
            return evaluate_task(self.task, keys, x, transitions=wanted, chunk=self.chunk)

        return take(shards.gather(shards.each(evaluate, *shards.mine((keys, x)))), 0, n)


@checked
def compose(
    task: Task,
    emitter: Emitter,
    *,
    cells: Cells | None = None,
    history: History | None = None,
    offer_samples: bool = False,
    candidates: Candidates = Candidates(),
    name: str = UNNAMED,
) -> Algorithm:
    """Compose an algorithm.

    Args:
        task: What to optimise.
        emitter: Where genotypes come from.
        cells: The archive's cells; None is the task's grid.
        history: The features that novelty is measured against; None keeps nothing.
        offer_samples: Offer the samples to the archive too, not only the candidates. Progress of the
            lanes is then judged by a second archive that only the candidates enter: a lane's mean can
            hardly beat the best of all samples.
        candidates: How candidates are judged. Archive, history and the progress of lanes go by that.
        name: What files and figures call the algorithm. `memes compare` and `memes.resume` tell composed
            algorithms apart by their names alone.
    """
    check(task)
    require(
        not emitter.transitions or task.evaluate_transitions is not None,
        f"task '{task.name}' yields no transitions, which policy gradients learn from; use a control "
        "task, such as point-maze or ant, or another algorithm",
    )
    tessellation = grid(task) if cells is None else cells
    require(
        tessellation.low.shape == (task.feature_dim,),
        f"cells must be of {task.feature_dim} features, as task '{task.name}' has, "
        f"got {tessellation.low.shape[0]}",
    )
    memory = history or nothing()
    n_candidates, repeats = emitter.candidates, candidates.candidate_samples
    n_first = n_candidates * repeats  # rows of the batch that are evaluations of candidates
    n_rows = n_first + emitter.samples
    in_factors = takes_factors(task) and not emitter.transitions
    require(
        n_rows * task.cost <= MOST_ROWS and max(n_rows, tessellation.count) * task.dim <= MOST_NUMBERS,
        f"{n_rows} rows in a generation (lanes x samples) and {tessellation.count} cells, of {task.dim} "
        "entries each, are more than a machine can hold or count",
    )

    def emitter_of(shards: Shards) -> Emitter:
        found = dealt(emitter, shards)
        return emitter if found is None else found

    @in_32_bits
    def init(key: Array, generations: int | None = None, shards: Shards = ONE) -> State:
        room = None
        if generations is not None:
            at_least(1, generations=generations)
            room = generations * n_candidates
        return State(
            generation=jnp.int32(0),
            archive=archives.empty(tessellation, task.dim),
            judge=archives.empty(tessellation, 0) if offer_samples else None,
            history=memory.init(task.feature_dim, room),
            emitter=emitter_of(shards).init(key, task),
        )

    def context_of(state: State) -> Context:
        past = memory.past(state.history, state.archive)
        return Context(task, state.generation, state.archive, past)

    @in_32_bits
    def ask(key: Array, state: State, shards: Shards = ONE) -> tuple[State, Batch]:
        emitter_state, proposal = emitter_of(shards).ask(key, state.emitter, context_of(state))
        return state._replace(emitter=emitter_state), shards.each(batch_of, proposal)

    def batch_of(proposal: Proposal) -> Batch:
        """The batch of one shard."""
        samples_offered = jnp.full(proposal.sample_lane.shape, offer_samples)
        return Batch(
            candidates=repeat(proposal.candidates, repeats),
            samples=proposal.samples if in_factors else tuple(map(rows, proposal.samples)),
            offered=jnp.concatenate([repeat(proposal.offered, repeats), samples_offered]),
            lane=jnp.concatenate([repeat(proposal.lane, repeats), proposal.sample_lane]),
        )

    def judged(batch: Batch, evaluation: Evaluated) -> Judged:
        """The outcome of the batch of one shard."""
        first, n = batch.candidates.shape[0], batch.lane.shape[0]
        evaluation = as_evaluation(task, n, evaluation)._replace(transitions=None)
        lane, offered = take((batch.lane, batch.offered), 0, first, repeats)
        outcome, sampled = candidates.judge(take(evaluation, 0, first)), take(evaluation, first, n)
        means, entrants = batch.candidates[::repeats], (outcome, offered, lane)
        x = means
        if offer_samples:
            x = jnp.concatenate([means, batch.x[first:]])
            entrants = concatenate([entrants, (sampled, batch.offered[first:], batch.lane[first:])])
        faults = archives.faults(evaluation)[None]
        return Judged(means, x, sampled, Verdict(outcome, offered, lane, entrants, faults))

    @in_32_bits
    def tell(
        state: State, batch: Batch, evaluation: Evaluated, shards: Shards = ONE
    ) -> tuple[State, Info]:
        batch = jax.tree.map(jnp.asarray, batch)
        transitions = evaluation.transitions if isinstance(evaluation, Evaluation) else None
        own = shards.each(judged, batch, evaluation)
        # All that shards must know of each other, but for the genotypes that enter the archive.
        outcome, offered, lane, entrants, faults = shards.gather(own.verdict)
        results, may_enter, lane_of = entrants
        archive, added = archives.add(
            state.archive,
            own.x,
            results,
            may_enter,
            lane=lane_of,
            generation=state.generation,
            fetch=shards.fetch,
        )
        judge, status = state.judge, added
        if judge is not None:
            nothing = jnp.zeros((lane.size, 0))
            judge, status = archives.add(
                judge, nothing, outcome, offered, lane=lane, generation=state.generation
            )
        remembered = offered & archives.finite(outcome)
        before = state.archive
        state = state._replace(
            archive=archive,
            judge=judge,
            history=memory.push(state.history, outcome.feature, remembered),
        )

        entered = jnp.zeros(own.sampled.fitness.shape, jnp.int32)
        if offer_samples:
            entered = shards.mine(added)[..., own.means.shape[-2] :]
        samples: Any = (own.means[..., :0, :], *batch.samples)  # one group at least
        emitter_state, lanes = emitter_of(shards).tell(
            state.emitter,
            Rows(own.means, own.verdict.outcome, shards.mine(status)),
            Rows(samples, own.sampled, entered),
            replace(context_of(state), before=before, transitions=transitions),
        )
        lanes = shards.gather(lanes)
        kind_of_lane = jnp.zeros(emitter.lanes, jnp.int32).at[lane].set(lanes.kind)
        kind_of_entrant = kind_of_lane[lane_of]
        info = Info(
            lane=lane,
            offered=offered,
            fitness=outcome.fitness,
            feature=outcome.feature,
            status=status,
            **lanes._asdict(),
            additions=jnp.zeros(len(Kind), jnp.int32).at[kind_of_entrant].add(added > 0),
            faults=jnp.sum(faults, axis=0),
            ledger=Ledger(
                samples=jnp.int32(emitter.samples * task.cost),
                candidates=jnp.int32(lane.size * repeats * task.cost),
            ),
        )
        state = state._replace(generation=state.generation + 1, emitter=emitter_state)
        return state, info

    return Algorithm(name, {}, task, tessellation, emitter, memory, init, ask, tell, candidates)
