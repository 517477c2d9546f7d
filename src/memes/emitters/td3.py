"""TD3 (Fujimoto et al., 2018): two critics and a greedy actor that learn from a replay buffer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float, Int, Key, PyTree

from memes.archive import LIMIT
from memes.control.policies import mlp
from memes.control.rollouts import Control, Controller, Transition
from memes.errors import UsageError, at_least, require
from memes.history import Ring, push
from memes.pytrees import pick
from memes.task import Task, initial
from memes.validation import check_fields


@dataclass(frozen=True)
class TD3:
    """The hyper-parameters of TD3, named as in the table of the paper.

    Attributes:
        num_critic_training_steps: Number of training steps of the critics per generation.
        replay_size: Maximum number of transitions in the replay buffer.
        transitions_batch: Number of transitions per training step.
        critic_hidden: Sizes of the critics' hidden layers.
        critic_learning_rate: Learning rate of Adam for the critics.
        greedy_learning_rate: Learning rate of Adam for the greedy actor.
        discount: Factor by which a reward is discounted per step.
        policy_delay: Number of training steps of the critics per step of the greedy actor.
        policy_noise: Standard deviation of the noise on the actions of the target actor.
        noise_clip: Maximum absolute value of the noise on the actions of the target actor.
        soft_update: After each training step of a network, its target network moves by this fraction of
            the distance between the two networks.
    """

    num_critic_training_steps: int = 5_000
    replay_size: int = 1_000_000
    transitions_batch: int = 256
    critic_hidden: tuple[int, ...] = (256, 256)
    critic_learning_rate: float = 3e-4
    greedy_learning_rate: float = 3e-4
    discount: float = 0.99
    policy_delay: int = 2
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    soft_update: float = 0.005

    def __post_init__(self) -> None:
        check_fields(self)
        steps, delay = self.num_critic_training_steps, self.policy_delay
        at_least(
            1,
            replay_size=self.replay_size,
            transitions_batch=self.transitions_batch,
            policy_delay=delay,
            num_critic_training_steps=steps,
        )
        require(
            steps % delay == 0,
            f"num_critic_training_steps must be a multiple of policy_delay={delay}, got {steps}",
        )


Replay = Ring  # a buffer of the most recent transitions, whose leaves have shape [replay_size, ...]


Policy = Callable[[Array, Array], Array]  # (x[d], observation[b, o]) -> action[b, a]
Value = Callable[[Array, Array, Array], Array]  # (critics[m, c], observation, action) -> value[m, b]


class Learner(NamedTuple):
    """The two critics, the greedy actor, their target networks, and the states of their optimisers."""

    critics: Float[Array, "2 c"]
    actor: Float[Array, " d"]
    target_critics: Float[Array, "2 c"]
    target_actor: Float[Array, " d"]
    critic_optimiser: PyTree
    actor_optimiser: PyTree


def networks(task: Task, settings: TD3) -> tuple[Policy, Value, Control, Controller]:
    """Return the policy function, the value function, the control task, and the critic network."""
    control = task.control
    if control is None or control.controller.policy is None:
        raise UsageError(
            f"task '{task.name}' has no policies with gradients; use a control task with an mlp policy"
        )
    environment = control.environment
    inputs = environment.observation_size + environment.action_size
    critic = mlp([inputs, *settings.critic_hidden, 1], output=lambda value: value)

    of_one = critic.policy
    assert of_one is not None

    def value(critics: Array, observation: Array, action: Array) -> Array:
        inputs = jnp.concatenate([observation, action], axis=1)
        return jax.vmap(lambda one: of_one(one, inputs)[:, 0])(critics)

    return control.controller.policy, value, control, critic


def start(key: Key[Array, ""], task: Task, settings: TD3) -> tuple[Learner, Replay]:
    """Return an untrained learner and an empty replay buffer."""
    actor_key, critic_key = jax.random.split(key)
    _, _, control, critic = networks(task, settings)
    critics = critic.init(critic_key, 2)
    actor = initial(task, actor_key, 1)[0]
    learner = Learner(
        critics=critics,
        actor=actor,
        # The target networks are separate copies, because donated buffers must not be shared.
        target_critics=jnp.copy(critics),
        target_actor=jnp.copy(actor),
        critic_optimiser=optax.adam(settings.critic_learning_rate).init(critics),
        actor_optimiser=optax.adam(settings.greedy_learning_rate).init(actor),
    )
    o, a = control.environment.observation_size, control.environment.action_size

    def room(*shape: int, dtype: Any = jnp.float32) -> Array:
        return jnp.zeros((settings.replay_size, *shape), dtype)

    blank = Transition(room(o), room(a), room(), room(o), room(dtype=bool), room(dtype=bool))
    return learner, Ring(blank, jnp.int32(0))


def remember(replay: Replay, seen: Transition) -> Replay:
    """Replace the oldest transitions in the buffer with the valid transitions in `seen[n, T, ...]`."""
    count = seen.reward.size
    require(
        count <= replay.capacity,
        f"replay_size must be at least {count}, the transitions of a generation, got {replay.capacity}",
    )
    flat: Transition = jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), seen)
    sound = jnp.abs(flat.reward) < LIMIT
    for part in (flat.observation, flat.next_observation, flat.action):
        sound &= (jnp.abs(part) < LIMIT).all(axis=1)
    return push(replay, flat, flat.alive & sound)


def sample(key: Key[Array, ""], replay: Replay, *shape: int) -> Transition:
    """Draw stored transitions with replacement. The leaves of the result have shape `[*shape, ...]`."""
    drawn: Transition = pick(replay.rows, places(key, replay, *shape))
    return drawn


def places(key: Key[Array, ""], replay: Replay, *shape: int) -> Int[Array, "*shape"]:
    """Draw the indices of stored transitions, with replacement."""
    return jax.random.randint(key, shape, 0, replay.size)


def smoothing(key: Key[Array, ""], settings: TD3, shape: tuple[int, ...]) -> Array:
    """Draw the noise on the actions of the target actor."""
    noise = settings.policy_noise * jax.random.normal(key, shape)
    return jnp.clip(noise, -settings.noise_clip, settings.noise_clip)


def draw(
    key: Key[Array, ""], replay: Replay, settings: TD3
) -> tuple[Int[Array, "delay b"], Float[Array, "delay b a"]]:
    """Draw the transition indices and the action noise for the critic steps of one round."""
    batch, actions = settings.transitions_batch, replay.rows.action.shape[1]
    place_key, noise_key = jax.random.split(key)
    shape = (settings.policy_delay, batch)
    return places(place_key, replay, *shape), smoothing(noise_key, settings, (*shape, actions))


def learn(key: Key[Array, ""], learner: Learner, replay: Replay, task: Task, settings: TD3) -> Learner:
    """Train the networks for one generation, in rounds of `policy_delay` critic steps.

    The target critics are updated after each critic step. At the end of each round, the actor takes one
    step on the transitions of the last critic step. Then the target actor is updated.
    """
    s, (act, value, *_) = settings, networks(task, settings)
    critic_adam, actor_adam = optax.adam(s.critic_learning_rate), optax.adam(s.greedy_learning_rate)

    def follow(slow: Array, fast: Array) -> Array:
        return slow + s.soft_update * (fast - slow)

    def critic_step(learner: Learner, seen: Transition, noise: Array) -> Learner:
        then = jnp.clip(act(learner.target_actor, seen.next_observation) + noise, -1, 1)
        future = jnp.min(value(learner.target_critics, seen.next_observation, then), axis=0)
        target = seen.reward + s.discount * jnp.where(seen.ended, 0.0, future)

        def loss(critics: Array) -> Array:
            error = value(critics, seen.observation, seen.action) - target
            return jnp.sum(error**2) / len(target)

        slope = jax.grad(loss)(learner.critics)
        change, optimiser = critic_adam.update(slope, learner.critic_optimiser)
        critics = learner.critics + change
        return learner._replace(
            critics=critics,
            target_critics=follow(learner.target_critics, critics),
            critic_optimiser=optimiser,
        )

    def actor_step(learner: Learner, seen: Transition) -> Learner:
        def loss(actor: Array) -> Array:
            return -jnp.mean(value(learner.critics[:1], seen.observation, act(actor, seen.observation)))

        slope = jax.grad(loss)(learner.actor)
        change, optimiser = actor_adam.update(slope, learner.actor_optimiser)
        actor = learner.actor + change
        return learner._replace(
            actor=actor, target_actor=follow(learner.target_actor, actor), actor_optimiser=optimiser
        )

    def round_of_steps(done: tuple[Array, Learner]) -> tuple[Array, Learner]:
        i, learner = done
        index, noise = draw(jax.random.fold_in(key, i), replay, s)
        for at, shift in zip(jnp.unstack(index), jnp.unstack(noise), strict=True):
            seen = pick(replay.rows, at)
            learner = critic_step(learner, seen, shift)
        return i + 1, actor_step(learner, seen)

    rounds = s.num_critic_training_steps // s.policy_delay
    # In 64-bit mode, the counter of a `fori_loop` would have 64 bits, which might change the rounding of
    # the results.
    begun = jnp.int32(0), learner
    _, learned = jax.lax.while_loop(lambda done: done[0] < rounds, round_of_steps, begun)
    return learned
