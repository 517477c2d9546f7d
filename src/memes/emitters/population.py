"""A population of means of which one is played at a time: the emitter of NS-ES and its kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, PyTree

from memes.archive import Status, finite
from memes.context import Context
from memes.emitters.base import Emitter, Lanes, Proposal, Rows, first_search
from memes.emitters.dealing import by_rows
from memes.errors import at_least
from memes.hints import checked
from memes.novelty import novelty
from memes.objectives import Objective
from memes.resets import Reason
from memes.shards import Shards
from memes.strategies import Strategy, openai_es
from memes.task import Task
from memes.trees import by_lane, pick, put

# (key, context, feature[n, k]) -> which of n means is played, int32[]; features of NaN are not known.
Play = Callable[[Array, Context, Array], Array]


def by_novelty(neighbours: int = 10) -> Play:
    """Play each mean with a probability proportional to the novelty of its feature.

    A mean whose feature is not known counts as the most novel of them. Without any novelty all are
    equally likely.
    """
    at_least(1, neighbours=neighbours)

    def play(key: Array, context: Context, feature: Array) -> Array:
        known = jnp.isfinite(feature).all(axis=-1)
        score = jnp.where(known, novelty(feature, context.past, neighbours), 0.0)
        weight = jnp.where(known, score, jnp.max(score))
        weight = jnp.where(jnp.any(weight > 0), weight, 1.0)
        return jax.random.categorical(key, jnp.log(weight))

    return play


class PopulationState(NamedTuple):
    """The state of n means. `strategy` has a leading axis n; `objective` is shared.

    Of each mean: its last known `feature` (NaN before), `age`, the steps that it has taken, and `stale`,
    its candidates refused in a row. `offering` is the mean whose latest step is evaluated next, made for
    `kind`, and `playing` the one that is sampled around.
    """

    strategy: PyTree
    objective: PyTree
    feature: Float[Array, "n k"]
    age: Int[Array, " n"]
    stale: Int[Array, " n"]
    kind: Int[Array, ""]
    offering: Int[Array, ""]
    playing: Int[Array, ""]


@checked
def population(
    objective: Objective, *, size: int, strategy: Strategy | None = None, play: Play | None = None
) -> Emitter:
    """Keep `size` means that climb `objective`, one of them a generation.

    A generation evaluates the mean that was updated last together with the samples around the one that
    is played now. All other means rest, with the state of their optimisers.

    Args:
        objective: What the means climb; its state is that of the whole population.
        size: How many there are.
        strategy: Their search distribution; None is `openai_es()`.
        play: Which one is played; None is `by_novelty()`.
    """
    at_least(1, **{"size of the population": size})
    search = strategy or openai_es()
    choose = play or by_novelty()

    def init(key: Array, task: Task) -> PopulationState:
        zero = jnp.zeros(size, jnp.int32)
        return PopulationState(
            strategy=first_search(search, key, task, size),
            objective=objective.init(1),
            feature=jnp.full((size, task.feature_dim), jnp.nan),
            age=zero,
            stale=zero,
            kind=jnp.asarray(objective.kind(jnp.int32(0)), jnp.int32),
            offering=jnp.int32(-1),
            playing=jnp.int32(0),
        )

    def ask(key: Array, state: PopulationState, context: Context) -> tuple[PopulationState, Proposal]:
        play_key, sample_key, objective_key = jax.random.split(key, 3)
        playing = choose(play_key, context, state.feature).astype(jnp.int32)
        # No mean has stepped before generation 0: it offers the start of the one that it plays.
        offering = jnp.where(state.offering < 0, playing, state.offering)
        searching, samples = search.ask(sample_key, pick(state.strategy, playing[None]))
        state = state._replace(
            strategy=put(state.strategy, playing[None], searching),
            objective=objective.restart(objective_key, state.objective, context.generation[None] == 0),
            offering=offering,
            playing=playing,
        )
        proposal = Proposal(
            candidates=search.mean(state.strategy)[offering[None]],
            offered=jnp.ones(1, bool),
            lane=offering[None],
            samples=(samples,),
            sample_lane=jnp.full(search.samples, playing),
        )
        return state, proposal

    def tell(
        state: PopulationState, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[PopulationState, Lanes]:
        offering, playing = state.offering, state.playing
        age, parent_feature = state.age[offering], state.feature[offering]
        refused = candidates.status[0] == Status.REJECTED
        stale = jnp.where((age > 0) & refused, state.stale[offering] + 1, 0)
        info = Lanes(
            kind=state.kind[None],
            parent_feature=parent_feature[None],
            age=age[None],
            stale=stale[None],
            reset=jnp.full(1, Reason.NONE, jnp.int32),
        )

        told = by_lane(samples, 1)
        objective_state, utilities = objective.utilities(state.objective, told.evaluation, context)
        stepped = search.tell(pick(state.strategy, playing[None]), told.x, utilities)
        known = jnp.where(
            finite(candidates.evaluation)[0], candidates.evaluation.feature[0], parent_feature
        )
        state = state._replace(
            strategy=put(state.strategy, playing[None], stepped),
            objective=objective_state,
            feature=state.feature.at[offering].set(known),
            age=state.age.at[playing].add(1),
            stale=state.stale.at[offering].set(stale),
            kind=jnp.asarray(objective.kind(context.generation), jnp.int32),
            offering=playing,
        )
        return state, info

    def split(shards: Shards) -> Emitter | None:
        divided = search.split(shards)
        return divided and by_rows(population(objective, size=size, strategy=divided, play=play), shards)

    return Emitter(
        persistent=(True,),
        samples=search.samples,
        lanes=size,
        init=init,
        ask=ask,
        tell=tell,
        split=split,
    )
