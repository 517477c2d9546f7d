"""Episodes of control: environments, controllers, and rollouts of many of them at once.

environment   n independent episodes as pure functions of a batched state
controller    maps a genotype to parameters, and observations to actions
rollout       plays episodes and keeps only running sums
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes.control.mlp_kernels import Network
from memes.control.perturbations import Pairs, Repeats, no_pairs
from memes.pytrees import TreeGenotypes


class Environment(NamedTuple):
    """n episodes at once; a state is any pytree of arrays with leading axis n.

    Attributes:
        observation_size: Number of entries of an observation, o.
        action_size: Number of entries of an action, a.
        steps: Control steps per episode, T.
        reset: `(keys[n]) -> state`, the start of one episode per key.
        observe: `(state) -> observation[n, o]`.
        step: `(state, action[n, a]) -> state`.
        reward: `(before, action[n, a], after) -> reward[n]` of a step between two states.
        ended: `(state) -> bool[n]`, True for episodes that have ended; later steps are ignored.
        failed: `(state) -> bool[n]`, True for episodes in which the simulator failed.
        measure: `(state) -> [n, m]`; a rollout reports its mean and its last value.
        engine: The simulator of a robot, and the function that extracts its state from `state`, for
            replays.
        at_once: Best number of episodes to roll out at a time; None is all of them.
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


class Controller(NamedTuple):
    """The actions of genotypes.

    Attributes:
        dim: Number of entries of a genotype, d.
        init: `(key, n) -> x[n, d]`.
        parameters: `(x[n, d]) -> pytree`, the input of `act`; computed once per rollout.
        act: `(parameters, observation[n, o], t) -> action[n, a]` at control step t.
        policy: `(x[d], observation[b, o]) -> action[b, a]`, one genotype on many observations, for
            learning by its gradient; None if actions depend on more than the observation.
        blocks: Rows and columns of the matrices in a genotype, in order; None if it has none.
        in_factors: `(candidates, samples) -> act`, with `act(observation[n, o], t) -> action[n, a]` for
            repeated candidates followed by mirrored samples; None if genotypes must be whole.
        network: The perceptron of `policy`; None if it is not a perceptron in float32.
        trees: Conversion between genotypes and pytrees; None if genotypes are vectors.
    """

    dim: int
    init: Callable[[Array, int], Array]
    parameters: Callable[[Array], PyTree]
    act: Callable[[PyTree, Array, Array], Array]
    policy: Callable[[Array, Array], Array] | None = None
    blocks: tuple[tuple[int, int], ...] | None = None
    in_factors: Callable[[Repeats, Pairs], Callable[[Array, Array], Array]] | None = None
    network: Network | None = None
    trees: TreeGenotypes | None = None


class Episodes(NamedTuple):
    """Summary of n episodes.

    Attributes:
        total: Sum of the rewards.
        mean: Mean of the measurements after each step until the end.
        last: Last measurement.
        length: Number of steps until the end.
        failed: Whether the episode ended because the simulator failed.
    """

    total: Float[Array, " n"]
    mean: Float[Array, "n m"]
    last: Float[Array, "n m"]
    length: Int[Array, " n"]
    failed: Bool[Array, " n"]


class Step(NamedTuple):
    """One control step of n episodes, for recording.

    `alive[n]` is True if the episode had not ended before the step, `ended[n]` if it has ended after it.
    """

    before: PyTree
    observation: Float[Array, "n o"]
    action: Float[Array, "n a"]
    after: PyTree
    reward: Float[Array, " n"]
    alive: Bool[Array, " n"]
    ended: Bool[Array, " n"]


class Control(NamedTuple):
    """The parts of a control task; `score` computes `fitness[n]` and `feature[n, k]` of episodes."""

    environment: Environment
    controller: Controller
    score: Callable[[Episodes], tuple[Array, Array]]


def rollout(
    control: Control,
    keys: Key[Array, " n"],
    x: Float[Array, "n d"],
    record: Callable[[Step], PyTree] | None = None,
) -> tuple[Episodes, PyTree]:
    """Play one episode of each genotype, from a start that depends on its key.

    Args:
        control: The environment and the controller.
        keys: One PRNG key per episode.
        x: The genotypes.
        record: Function of each control step whose result is stored; without it no trajectory is stored.

    Returns:
        The episodes, and the recorded values with a leading axis of T steps.
    """
    return play(control.environment, acting(control.controller, x), keys, record)


def acting(controller: Controller, x: Float[Array, "n d"]) -> Callable[[Array, Array], Array]:
    """Return the fastest `act(observation[n, o], t) -> action[n, a]` of whole genotypes."""
    if controller.in_factors is None:
        return partial(controller.act, controller.parameters(x))
    return controller.in_factors(Repeats(x, 1), no_pairs(controller.dim))


def play(
    environment: Environment,
    act: Callable[[Array, Array], Array],
    keys: Key[Array, " n"],
    record: Callable[[Step], PyTree] | None = None,
) -> tuple[Episodes, PyTree]:
    """Play episodes like `rollout`, for any `act(observation[n, o], t) -> action[n, a]`."""
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
    """Transitions for reinforcement learning, of which those with `alive` are valid.

    `ended` is True if the environment ended the episode, but not if it reached its last step.
    """

    observation: Float[Array, "*n o"]
    action: Float[Array, "*n a"]
    reward: Float[Array, "*n"]
    next_observation: Float[Array, "*n o"]
    ended: Bool[Array, "*n"]
    alive: Bool[Array, "*n"]


def no_transitions(control: Control, n: int) -> Transition:
    """Return transitions [n, T, ...] of episodes that were not played; none of them is valid."""
    environment = control.environment
    o, a, steps = environment.observation_size, environment.action_size, environment.steps

    def rows(*shape: int, dtype: Any = jnp.float32) -> Array:
        return jnp.zeros((n, steps, *shape), dtype)

    return Transition(rows(o), rows(a), rows(), rows(o), rows(dtype=bool), rows(dtype=bool))


def transitions(
    control: Control, keys: Key[Array, " n"], x: Float[Array, "n d"]
) -> tuple[Episodes, Transition]:
    """Play a `rollout` and keep all of its transitions, arrays [T, n, ...]."""
    environment = control.environment

    def record(step: Step) -> Transition:
        following = environment.observe(step.after)
        # If the simulator failed, the next observation is not the result of the action.
        counts = step.alive & ~environment.failed(step.after)
        return Transition(step.observation, step.action, step.reward, following, step.ended, counts)

    return rollout(control, keys, x, record)
