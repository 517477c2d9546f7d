"""The emitter of PGA-ME: policy gradients for elites, with critics that learn from all transitions.

In each generation, the emitter proposes the greedy actor of TD3 and variants of elites. A variant
is made by gradient steps, which increase the value of the elite's actions according to the first critic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float, Key, PyTree

from memes.context import Context, Kind
from memes.emitters.base import Batch, Lanes, Rows, offspring, report
from memes.emitters.td3 import TD3, Learner, Replay, networks, remember, sample, start
from memes.emitters.training import train
from memes.errors import UsageError, at_least, positive
from memes.selectors import Selector, Uniform, select
from memes.task import PRECISION, Task
from memes.validation import check_fields


class PolicyGradientState(NamedTuple):
    """The state of the learner, its replay buffer, and the features of the parents."""

    learner: Learner
    replay: Replay
    parent_feature: Float[Array, "batch k"]


@dataclass(frozen=True)
class PolicyGradient:
    """An emitter that proposes the greedy actor of TD3, and elites varied by policy-gradient steps.

    The critics learn from all transitions of a generation, including the transitions of other emitters.

    Attributes:
        batch: Number of offspring per generation, including the greedy actor.
        steps: Number of gradient steps from an elite to its offspring.
        learning_rate: Learning rate of Adam in the gradient steps.
        td3: Settings of the critics and the greedy actor.
        selector: Rule that chooses the elites that are varied.
    """

    batch: int
    steps: int = 100
    learning_rate: float = 1e-3
    td3: TD3 = TD3()
    selector: Selector = Uniform()

    samples: ClassVar[int] = 0
    transitions: ClassVar[bool] = True
    gradients: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, batch=self.batch, steps=self.steps)
        positive(learning_rate=self.learning_rate)

    @property
    def lanes(self) -> int:
        """Number of lanes: one per offspring."""
        return self.batch

    @property
    def persistent(self) -> tuple[bool, ...]:
        """One flag per offspring, which is True only for the greedy actor."""
        return (True, *(False,) * (self.batch - 1))

    def init(self, key: Key[Array, ""], task: Task) -> PolicyGradientState:
        """Return an untrained learner and an empty replay buffer."""
        learner, replay = start(key, task, self.td3)
        return PolicyGradientState(learner, replay, jnp.full((self.batch, task.feature_dim), jnp.nan))

    def ask(
        self, key: Key[Array, ""], state: PolicyGradientState, context: Context
    ) -> tuple[PolicyGradientState, Batch]:
        """Train the learner, then propose the greedy actor and elites varied by gradient steps."""
        select_key, learn_key, move_key = jax.random.split(key, 3)
        task, replay = context.task, state.replay
        elite = select(self.selector, select_key, context, self.batch - 1)

        def learn_and_move() -> tuple[Learner, Array]:
            learner = train(learn_key, state.learner, replay, task, self.td3)
            return learner, self._move(move_key, learner, replay, elite.x, task)

        with jax.default_matmul_precision(PRECISION):
            # The learner is only trained if the replay buffer contains transitions.
            learner, moved = jax.lax.cond(
                replay.size > 0, learn_and_move, lambda: (state.learner, elite.x)
            )
        parents = jnp.concatenate([jnp.full((1, task.feature_dim), jnp.nan), elite.feature])
        x = jnp.concatenate([learner.actor[None], moved])
        lane = jnp.arange(self.batch, dtype=jnp.int32)
        return PolicyGradientState(learner, replay, parents), offspring(x, lane)

    def tell(
        self, state: PolicyGradientState, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[PolicyGradientState, Lanes]:
        """Store the transitions in the replay buffer."""
        if context.transitions is None:
            raise UsageError(
                "the evaluation must contain transitions, got none; make it with Algorithm.evaluate"
            )
        replay = remember(state.replay, context.transitions)
        return state._replace(replay=replay), report(Kind.EXPLOIT, state.parent_feature)

    def _move(
        self, key: Key[Array, ""], learner: Learner, replay: Replay, x: Float[Array, "m d"], task: Task
    ) -> Float[Array, "m d"]:
        """Update each policy by gradient steps on the first critic.

        Each policy uses separate transitions.
        """
        act, value, *_ = networks(task, self.td3)
        adam = optax.adam(self.learning_rate)

        def loss(x: Array, seen: Array) -> Array:
            return -jnp.mean(value(learner.critics[:1], seen, act(x, seen)))

        def once(i: Array, carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
            x, optimiser = carry
            step_key = jax.random.fold_in(key, i)
            seen = sample(step_key, replay, len(x), self.td3.transitions_batch)
            slope = jax.vmap(jax.grad(loss))(x, seen.observation)
            change, optimiser = adam.update(slope, optimiser)
            return x + change, optimiser

        moved: tuple[Array, PyTree] = jax.lax.fori_loop(0, self.steps, once, (x, adam.init(x)))
        return moved[0]
