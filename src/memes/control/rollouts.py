"""Environments, controllers, and rollouts of many episodes at once.

- An environment simulates n independent episodes with pure functions of a batched state.
- A controller maps a genotype to parameters, and observations to actions.
- A rollout plays episodes, and stores only sums over their steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes.control.mlp_kernels import Network
from memes.control.perturbations import Pairs, Repeats, no_pairs
from memes.pytrees import TreeGenotypes

# `(candidates, samples) -> act`, with `act(observation[n, o], t) -> action[n, a]`.
InFactors = Callable[[Repeats, Pairs], Callable[[Array, Array], Array]]


@dataclass(frozen=True)
class Environment:
    """An environment that simulates n episodes at once.

    A state is any pytree of arrays with leading axis n.

    Attributes:
        observation_size: Number of entries of an observation, o.
        action_size: Number of entries of an action, a.
        steps: Number of control steps per episode, T.
        reset: `(keys[n]) -> state`, the initial state of one episode per key.
        observe: `(state) -> observation[n, o]`, the observations of a state.
        step: `(state, action[n, a]) -> state`, the state after a control step.
        reward: `(before, action[n, a], after) -> reward[n]`, the reward of a step, given the states
            before and after it.
        ended: `(state) -> bool[n]`, True for episodes that have ended. Later steps of these episodes are
            ignored.
        failed: `(state) -> bool[n]`, True for episodes in which the simulator failed.
        measure: `(state) -> [n, m]`, m measurements per episode. A rollout returns the mean and the last
            value of each measurement.
        engine: The simulator of a robot, for replays. None for other environments.
        at_once: Number of parallel episodes for which rollouts are fastest. If None, all episodes are
            played in parallel.
    """

    observation_size: int
    action_size: int
    steps: int
    reset: Callable[[Array], PyTree]
    observe: Callable[[PyTree], Array]
    step: Callable[[PyTree, Array], PyTree]
    reward: Callable[[PyTree, Array, PyTree], Array]
    ended: Callable[[PyTree], Array]
    failed: Callable[[PyTree], Array]
    measure: Callable[[PyTree], Array]
    engine: Any = None
    at_once: int | None = None


@runtime_checkable
class Controller(Protocol):
    """A rule that computes actions from a genotype. Controllers are frozen dataclasses."""

    @property
    def dim(self) -> int:
        """Number of entries of a genotype, d."""

    @property
    def policy(self) -> Callable[[Array, Array], Array] | None:
        """The function `(x[d], observation[b, o]) -> action[b, a]`, for gradient-based learning.

        The function computes the actions of one genotype for many observations. The value is None if
        actions depend on more than the observation.
        """

    @property
    def blocks(self) -> tuple[tuple[int, int], ...] | None:
        """Numbers of rows and columns of each matrix in a genotype, or None if there are no matrices."""

    @property
    def in_factors(self) -> InFactors | None:
        """The function `(candidates, samples) -> act` for genotypes in factored form.

        `act` computes one action per evaluation of a candidate, followed by one action per sample. The
        value is None if the controller cannot use the factored form.
        """

    @property
    def network(self) -> Network | None:
        """The perceptron that `policy` computes, or None if the policy is not a float32 perceptron."""

    @property
    def trees(self) -> TreeGenotypes | None:
        """Conversion between genotypes and pytrees, or None if genotypes are vectors."""

    def init(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        """Draw random initial genotypes."""

    def parameters(self, x: Float[Array, "n d"]) -> PyTree:
        """Convert genotypes to the input of `act`, once per rollout."""

    def act(self, parameters: Any, observation: Float[Array, "n o"], t: Any) -> Float[Array, "n a"]:
        """Return the actions at control step t."""


class Episodes(NamedTuple):
    """Summary of n episodes.

    Attributes:
        total: Sum of the rewards of each episode.
        mean: Mean of the measurements over all steps of the episode.
        last: Measurements after the last step of the episode.
        length: Number of steps of the episode.
        failed: Whether the episode ended because the simulator failed.
    """

    total: Float[Array, " n"]
    mean: Float[Array, "n m"]
    last: Float[Array, "n m"]
    length: Int[Array, " n"]
    failed: Bool[Array, " n"]


class Step(NamedTuple):
    """One control step of n episodes, for recording.

    `alive[n]` is True for episodes that had not ended before the step. `ended[n]` is True for episodes
    that have ended after the step.
    """

    before: PyTree
    observation: Float[Array, "n o"]
    action: Float[Array, "n a"]
    after: PyTree
    reward: Float[Array, " n"]
    alive: Bool[Array, " n"]
    ended: Bool[Array, " n"]


class Control(NamedTuple):
    """The parts of a control task. `score` computes `(fitness[n], feature[n, k])` from episodes."""

    environment: Environment
    controller: Controller
    score: Callable[[Episodes], tuple[Array, Array]]


def rollout(
    control: Control,
    keys: Key[Array, " n"],
    x: Float[Array, "n d"],
    record: Callable[[Step], PyTree] | None = None,
) -> tuple[Episodes, PyTree]:
    """Play one episode per genotype. The key of an episode determines its initial state.

    Args:
        control: The environment and the controller.
        keys: One PRNG key per episode.
        x: The genotypes.
        record: `(step) -> values`, which selects the values to store in each control step. If None, no
            trajectory is stored.

    Returns:
        The episodes, and the recorded values with a leading axis of T steps.
    """
    return play(control.environment, acting(control.controller, x), keys, record)


def acting(controller: Controller, x: Float[Array, "n d"]) -> Callable[[Array, Array], Array]:
    """Return a function `act(observation[n, o], t) -> action[n, a]` for genotypes x.

    The function uses the factored form if the controller supports it, because this form is faster.
    """
    if controller.in_factors is None:
        return partial(controller.act, controller.parameters(x))
    return controller.in_factors(Repeats(x, 1), no_pairs(controller.dim))


def play(
    environment: Environment,
    act: Callable[[Array, Array], Array],
    keys: Key[Array, " n"],
    record: Callable[[Step], PyTree] | None = None,
) -> tuple[Episodes, PyTree]:
    """Play episodes as `rollout` does, for any `act(observation[n, o], t) -> action[n, a]`."""
    n = keys.shape[0]

    def step(carry: PyTree, t: Array) -> tuple[PyTree, PyTree]:
        before, alive, sums = carry
        observation = environment.observe(before)
        action = act(observation, t)
        after = environment.step(before, action)
        reward = environment.reward(before, action, after)
        ended = environment.ended(after)
        measured = environment.measure(after)
        sums = Episodes(
            total=sums.total + jnp.where(alive, reward, 0.0),
            mean=sums.mean + jnp.where(alive[:, None], measured, 0.0),
            last=jnp.where(alive[:, None], measured, sums.last),
            length=sums.length + alive,
            failed=sums.failed | (alive & environment.failed(after)),
        )
        seen = Step(before, observation, action, after, reward, alive, ended)
        kept = None if record is None else record(seen)
        return (after, alive & ~ended & ~sums.failed, sums), kept

    start = environment.reset(keys)
    nothing = jnp.zeros_like(environment.measure(start))
    none = jnp.zeros(n, bool)
    sums = Episodes(jnp.zeros(n), nothing, nothing, jnp.zeros(n, jnp.int32), none)
    times = jnp.arange(environment.steps)
    (_, _, sums), recorded = jax.lax.scan(step, (start, ~none, sums), times)
    return sums._replace(mean=sums.mean / sums.length[:, None]), recorded


class Transition(NamedTuple):
    """Transitions for reinforcement learning. A transition is valid if `alive` is True.

    `ended` is True if the environment ended the episode. If the episode only reached its maximum number
    of steps, `ended` is False.
    """

    observation: Float[Array, "*n o"]
    action: Float[Array, "*n a"]
    reward: Float[Array, "*n"]
    next_observation: Float[Array, "*n o"]
    ended: Bool[Array, "*n"]
    alive: Bool[Array, "*n"]


def no_transitions(control: Control, n: int) -> Transition:
    """Return invalid transitions [n, T, ...] as placeholders for episodes that were not played."""
    environment = control.environment
    o, a, steps = environment.observation_size, environment.action_size, environment.steps

    def rows(*shape: int, dtype: Any = jnp.float32) -> Array:
        return jnp.zeros((n, steps, *shape), dtype)

    return Transition(rows(o), rows(a), rows(), rows(o), rows(dtype=bool), rows(dtype=bool))


def transitions(
    control: Control, keys: Key[Array, " n"], x: Float[Array, "n d"]
) -> tuple[Episodes, Transition]:
    """Play a `rollout`, and return its episodes and all transitions as arrays [T, n, ...]."""
    environment = control.environment

    def record(step: Step) -> Transition:
        following = environment.observe(step.after)
        # After a failure of the simulator, the next observation is invalid.
        counts = step.alive & ~environment.failed(step.after)
        return Transition(step.observation, step.action, step.reward, following, step.ended, counts)

    return rollout(control, keys, x, record)
