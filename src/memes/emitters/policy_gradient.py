"""Policy gradients for elites, from a critic that learns of all transitions: the emitter of PGA-ME.

TD3 (Fujimoto et al., 2018) trains two critics and a greedy actor on a replay buffer. A generation emits
the greedy actor, and elites moved uphill on the first critic's value of what they would do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from memes.archive import LIMIT
from memes.context import Context, Kind
from memes.control import Control, Controller, Transition, mlp
from memes.emitters.base import Emitter, Lanes, Proposal, Rows
from memes.errors import UsageError, require
from memes.resets import Reason
from memes.ring import Ring, push
from memes.selectors import Selector, select, uniform
from memes.task import PRECISION, Task, initial


class TD3(NamedTuple):
    """Hyper-parameters of the learner, by the names of the paper's table."""

    replay_size: int = 1_000_000
    transitions_batch: int = 256
    critic_steps: int = 5_000
    critic_hidden: tuple[int, ...] = (256, 256)
    critic_learning_rate: float = 3e-4
    greedy_learning_rate: float = 3e-4
    discount: float = 0.99
    policy_delay: int = 2
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    soft_update: float = 0.005


Replay = Ring[Transition]  # the last transitions: leaves [capacity, ...]


class Learner(NamedTuple):
    """Two critics [2, c] and the greedy actor [d], slow copies of both, and their optimisers."""

    critics: Array
    actor: Array
    target_critics: Array
    target_actor: Array
    critic_optimiser: Any
    actor_optimiser: Any


class PolicyGradientState(NamedTuple):
    """`parent_feature[batch, k]` is that of the elites that the last offspring were made from."""

    learner: Learner
    replay: Replay
    parent_feature: Array


def policy_gradient(
    batch: int,
    *,
    steps: int = 100,
    learning_rate: float = 1e-3,
    td3: TD3 | None = None,
    selector: Selector = uniform,
) -> Emitter:
    """The greedy actor, and `batch - 1` elites after some steps of policy gradient.

    The critics learn from the transitions of the whole generation, also of other emitters' rows.

    Args:
        batch: Offspring in a generation, the greedy actor among them.
        steps: Gradient steps from elite to offspring.
        learning_rate: Of Adam in these steps.
        td3: How critics and greedy actor learn; None is the paper's.
        selector: Which elites are moved.
    """
    require(batch >= 1, f"batch must be at least 1, got {batch}")
    require(steps >= 1, f"steps must be at least 1, got {steps}")
    require(learning_rate > 0, f"learning_rate must be positive, got {learning_rate}")
    s = td3 or TD3()
    for name in ("replay_size", "transitions_batch", "policy_delay"):
        require(getattr(s, name) >= 1, f"{name} must be at least 1, got {getattr(s, name)}")
    require(
        s.critic_steps >= 1 and s.critic_steps % s.policy_delay == 0,
        "critic_steps (num_critic_training_steps) must be a positive multiple of policy_delay="
        f"{s.policy_delay}, got {s.critic_steps}",
    )
    lane = jnp.arange(batch, dtype=jnp.int32)
    critic_adam, actor_adam = optax.adam(s.critic_learning_rate), optax.adam(s.greedy_learning_rate)
    adam = optax.adam(learning_rate)

    def init(key: Array, task: Task) -> PolicyGradientState:
        actor_key, critic_key = jax.random.split(key)
        environment = _control(task).environment
        actor, critics = initial(task, actor_key, 1)[0], _critic(task, s).init(critic_key, 2)
        o, a = environment.observation_size, environment.action_size

        def room(*shape: int, dtype: Any = jnp.float32) -> Array:
            return jnp.zeros((s.replay_size, *shape), dtype)

        kept = Transition(room(o), room(a), room(), room(o), room(dtype=bool), room(dtype=bool))
        return PolicyGradientState(
            # A copy each: what is donated to the device must not be there twice.
            Learner(
                critics,
                actor,
                jnp.copy(critics),
                jnp.copy(actor),
                critic_adam.init(critics),
                actor_adam.init(actor),
            ),
            Ring(kept, jnp.int32(0)),
            jnp.full((batch, task.feature_dim), jnp.nan),
        )

    def ask(
        key: Array, state: PolicyGradientState, context: Context
    ) -> tuple[PolicyGradientState, Proposal]:
        select_key, learn_key, move_key = jax.random.split(key, 3)
        task, replay = context.task, state.replay
        elite = select(selector, select_key, context, batch - 1)
        with jax.default_matmul_precision(PRECISION):
            # Nothing can be learned, and nothing followed, before the first transition.
            learner, moved = jax.lax.cond(
                replay.size > 0,
                lambda: _learn_and_move(learn_key, move_key, state, elite.x, task),
                lambda: (state.learner, elite.x),
            )
        parents = jnp.concatenate([jnp.full((1, task.feature_dim), jnp.nan), elite.feature])
        proposal = Proposal(
            candidates=jnp.concatenate([learner.actor[None], moved]),
            offered=jnp.ones(batch, bool),
            lane=lane,
            samples=jnp.zeros((0, task.dim)),
            sample_lane=lane[:0],
        )
        return PolicyGradientState(learner, replay, parents), proposal

    def _learn_and_move(
        learn_key: Array, move_key: Array, state: PolicyGradientState, x: Array, task: Task
    ) -> tuple[Learner, Array]:
        learner = _learn(learn_key, state.learner, state.replay, task)
        return learner, _move(move_key, learner, state.replay, x, task)

    def _learn(key: Array, learner: Learner, replay: Replay, task: Task) -> Learner:
        """TD3 for `critic_steps` steps: the actor and the slow copies move after every few of them."""
        act, value = _policy(task), _value(task, s)

        def critic_step(key: Array, learner: Learner) -> Learner:
            batch_key, noise_key = jax.random.split(key)
            seen = sample(batch_key, replay, s.transitions_batch)
            noise = s.policy_noise * jax.random.normal(noise_key, seen.action.shape)
            then = act(learner.target_actor, seen.next_observation)
            then = jnp.clip(then + jnp.clip(noise, -s.noise_clip, s.noise_clip), -1, 1)
            future = jnp.min(value(learner.target_critics, seen.next_observation, then), axis=0)
            target = seen.reward + s.discount * jnp.where(seen.ended, 0.0, future)

            def loss(critics: Array) -> Array:
                error = value(critics, seen.observation, seen.action) - target
                return jnp.sum(error**2) / len(target)

            slope = jax.grad(loss)(learner.critics)
            change, optimiser = critic_adam.update(slope, learner.critic_optimiser)
            return learner._replace(critics=learner.critics + change, critic_optimiser=optimiser)

        def actor_step(key: Array, learner: Learner) -> Learner:
            seen = sample(key, replay, s.transitions_batch).observation

            def loss(actor: Array) -> Array:
                return -jnp.mean(value(learner.critics[:1], seen, act(actor, seen)))

            slope = jax.grad(loss)(learner.actor)
            change, optimiser = actor_adam.update(slope, learner.actor_optimiser)
            learner = learner._replace(actor=learner.actor + change, actor_optimiser=optimiser)

            def follow(slow: Array, fast: Array) -> Array:
                return slow + s.soft_update * (fast - slow)

            return learner._replace(
                target_critics=follow(learner.target_critics, learner.critics),
                target_actor=follow(learner.target_actor, learner.actor),
            )

        def round_of_steps(i: Array, learner: Learner) -> Learner:
            *critic_keys, actor_key = jax.random.split(jax.random.fold_in(key, i), s.policy_delay + 1)
            for critic_key in critic_keys:
                learner = critic_step(critic_key, learner)
            return actor_step(actor_key, learner)

        rounds = s.critic_steps // s.policy_delay
        learned: Learner = jax.lax.fori_loop(0, rounds, round_of_steps, learner)
        return learned

    def _move(key: Array, learner: Learner, replay: Replay, x: Array, task: Task) -> Array:
        """Each policy `x[m, d]` after `steps` steps uphill on the first critic, with its own batches."""
        act, value = _policy(task), _value(task, s)

        def loss(x: Array, seen: Array) -> Array:
            return -jnp.mean(value(learner.critics[:1], seen, act(x, seen)))

        def once(i: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
            x, optimiser = carry
            seen = sample(jax.random.fold_in(key, i), replay, len(x), s.transitions_batch)
            slope = jax.vmap(jax.grad(loss))(x, seen.observation)
            change, optimiser = adam.update(slope, optimiser)
            return x + change, optimiser

        moved: tuple[Array, Any] = jax.lax.fori_loop(0, steps, once, (x, adam.init(x)))
        return moved[0]

    def tell(
        state: PolicyGradientState, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[PolicyGradientState, Lanes]:
        del candidates, samples
        if context.transitions is None:
            raise UsageError("transitions are missing: tell needs an evaluation made with them")
        zero = jnp.zeros(batch, jnp.int32)
        lanes = Lanes(
            kind=jnp.full(batch, Kind.EXPLOIT, jnp.int32),
            parent_feature=state.parent_feature,
            age=zero,
            stale=zero,
            reset=jnp.full(batch, Reason.NONE, jnp.int32),
        )
        return state._replace(replay=remember(state.replay, context.transitions)), lanes

    return Emitter((True, *(False,) * (batch - 1)), 0, batch, init, ask, tell, transitions=True)


def remember(replay: Replay, seen: Transition) -> Replay:
    """Put transitions [n, T, ...] that count into the buffer, over the oldest."""
    count = seen.reward.size
    require(
        count <= replay.capacity,
        f"replay_size must hold the {count} transitions of a generation, got {replay.capacity}",
    )
    flat: Transition = jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), seen)
    sound = jnp.abs(flat.reward) < LIMIT
    for part in (flat.observation, flat.next_observation, flat.action):
        sound &= (jnp.abs(part) < LIMIT).all(axis=1)
    return push(replay, flat, flat.alive & sound)


def sample(key: Array, replay: Replay, *shape: int) -> Transition:
    """Draw remembered transitions, leaves [*shape, ...], with replacement."""
    index = jax.random.randint(key, shape, 0, replay.size)
    drawn: Transition = jax.tree.map(lambda leaf: leaf[index], replay.rows)
    return drawn


def _control(task: Task) -> Control:
    require(
        task.control is not None and task.control.controller.policy is not None,
        f"task '{task.name}' has no policies to follow a gradient with; control tasks with an mlp do",
    )
    assert task.control is not None
    return task.control


def _policy(task: Task) -> Callable[[Array, Array], Array]:
    policy = _control(task).controller.policy
    assert policy is not None
    return policy


def _critic(task: Task, td3: TD3) -> Controller:
    environment = _control(task).environment
    inputs = environment.observation_size + environment.action_size
    return mlp([inputs, *td3.critic_hidden, 1], output=lambda value: value)


def _value(task: Task, td3: TD3) -> Callable[[Array, Array, Array], Array]:
    """`(critics[m, c], observation[b, o], action[b, a]) -> value[m, b]`."""
    critic = _critic(task, td3).policy
    assert critic is not None

    def value(critics: Array, observation: Array, action: Array) -> Array:
        inputs = jnp.concatenate([observation, action], axis=1)
        return jax.vmap(lambda one: critic(one, inputs)[:, 0])(critics)

    return value
