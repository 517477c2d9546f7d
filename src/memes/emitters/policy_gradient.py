"""Policy gradients for elites, from a critic that learns of all transitions: the emitter of PGA-ME.

A generation emits the greedy actor of TD3, and elites moved uphill on the first critic's value of what
they would do.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float, PyTree

from memes.context import Context, Kind
from memes.emitters.base import Emitter, Lanes, Proposal, Rows, offspring, report
from memes.emitters.td3 import TD3, Learner, Replay, networks, remember, sample, start
from memes.emitters.training import train
from memes.errors import UsageError, at_least, require
from memes.hints import checked
from memes.selectors import Selector, select, uniform
from memes.task import PRECISION, Task


class PolicyGradientState(NamedTuple):
    """The learner, its replay buffer, and the features of the elites that offspring were made from."""

    learner: Learner
    replay: Replay
    parent_feature: Float[Array, "batch k"]


@checked
def policy_gradient(
    batch: int,
    *,
    steps: int = 100,
    learning_rate: float = 1e-3,
    td3: TD3 | None = None,
    selector: Selector = uniform,
) -> Emitter:
    """Emit the greedy actor, and `batch - 1` elites after some steps of policy gradient.

    The critics learn from the transitions of the whole generation, also of other emitters' rows.

    Args:
        batch: Offspring in a generation, the greedy actor among them.
        steps: Gradient steps from elite to offspring.
        learning_rate: Of Adam in these steps.
        td3: How critics and greedy actor learn; None is the paper's.
        selector: Which elites are moved.
    """
    at_least(1, batch=batch, steps=steps)
    require(learning_rate > 0, f"learning_rate must be positive, got {learning_rate}")
    settings = td3 or TD3()
    adam = optax.adam(learning_rate)

    def init(key: Array, task: Task) -> PolicyGradientState:
        learner, replay = start(key, task, settings)
        return PolicyGradientState(learner, replay, jnp.full((batch, task.feature_dim), jnp.nan))

    def ask(
        key: Array, state: PolicyGradientState, context: Context
    ) -> tuple[PolicyGradientState, Proposal]:
        select_key, learn_key, move_key = jax.random.split(key, 3)
        task, replay = context.task, state.replay
        elite = select(selector, select_key, context, batch - 1)

        def learn_and_move() -> tuple[Learner, Array]:
            learner = train(learn_key, state.learner, replay, task, settings)
            return learner, move(move_key, learner, replay, elite.x, task)

        with jax.default_matmul_precision(PRECISION):
            # Nothing can be learned, and nothing followed, before the first transition.
            learner, moved = jax.lax.cond(
                replay.size > 0, learn_and_move, lambda: (state.learner, elite.x)
            )
        parents = jnp.concatenate([jnp.full((1, task.feature_dim), jnp.nan), elite.feature])
        proposal = offspring(jnp.concatenate([learner.actor[None], moved]))
        return PolicyGradientState(learner, replay, parents), proposal

    def move(key: Array, learner: Learner, replay: Replay, x: Array, task: Task) -> Array:
        """Take steps uphill on the first critic with each policy `x[m, d]`, on its own transitions."""
        act, value, *_ = networks(task, settings)

        def loss(x: Array, seen: Array) -> Array:
            return -jnp.mean(value(learner.critics[:1], seen, act(x, seen)))

        def once(i: Array, carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
            x, optimiser = carry
            step_key = jax.random.fold_in(key, i)
            seen = sample(step_key, replay, len(x), settings.transitions_batch)
            slope = jax.vmap(jax.grad(loss))(x, seen.observation)
            change, optimiser = adam.update(slope, optimiser)
            return x + change, optimiser

        moved: tuple[Array, PyTree] = jax.lax.fori_loop(0, steps, once, (x, adam.init(x)))
        return moved[0]

    def tell(
        state: PolicyGradientState, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[PolicyGradientState, Lanes]:
        del candidates, samples
        if context.transitions is None:
            raise UsageError("transitions are missing: tell needs an evaluation made with them")
        replay = remember(state.replay, context.transitions)
        return state._replace(replay=replay), report(Kind.EXPLOIT, state.parent_feature)

    return Emitter(
        persistent=(True, *(False,) * (batch - 1)),
        samples=0,
        lanes=batch,
        init=init,
        ask=ask,
        tell=tell,
        transitions=True,
    )
