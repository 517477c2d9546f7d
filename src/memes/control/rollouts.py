"""Episodes of control: environments, controllers, and rollouts of many of them at once.

environment   n independent episodes as pure functions of a batched state
controller    the meaning of a genotype: its parameters, and the action they lead to
rollout       both together, keeping only running sums
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
from memes.genotypes import TreeGenotypes


class Environment(NamedTuple):
    """n episodes at once; a state is any pytree of arrays that holds n of them.

    Attributes:
        observation_size: Entries of an observation, o.
        action_size: Entries of an action, a.
        steps: Control steps in an episode, T.
        reset: `(keys[n]) -> state`, the start of an episode for each key.
        observe: `(state) -> observation[n, o]`.
        step: `(state, action[n, a]) -> state`.
        reward: `(before, action[n, a], after) -> reward[n]` of a step between two states.
        ended: `(state) -> bool[n]`, episodes that are over; what comes after does not count.
        failed: `(state) -> bool[n]`, episodes that the simulator could not go on with.
        measure: `(state) -> [n, m]`, of which a rollout reports the mean and the last.
        engine: The simulator of a robot, and how to get its own state out of `state`: for replays.
        at_once: How many episodes are best rolled out at a time; None is all of them.
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
    """The way in which genotypes act.

    Attributes:
        dim: Entries of a genotype, d.
        init: `(key, n) -> x[n, d]`.
        parameters: `(x[n, d]) -> pytree`, what `act` needs; computed once in a rollout.
        act: `(parameters, observation[n, o], t) -> action[n, a]` at control step t.
        policy: `(x[d], observation[b, o]) -> action[b, a]`, one genotype at many observations, for those
            that learn by its gradient; None where actions do not follow from observations alone.
        blocks: Rows and columns of the matrices that a genotype is made of, in order, if it is.
        in_factors: `(candidates, samples) -> act`, an `act(observation[n, o], t) -> action[n, a]` of
            repeated candidates and then mirrored samples; None if all genotypes must be whole.
        network: The perceptron that `policy` is; None if it is none, or not in float32.
        trees: The pytrees that genotypes stand for; None if they are vectors.
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
    """n episodes in a few numbers.

    Attributes:
        total: Sums of the rewards.
        mean: Means of what was measured after each step until the end.
        last: The last of what was measured.
        length: Steps taken until the end.
        failed: Episodes that ended because the simulator failed.
    """

    total: Float[Array, " n"]
    mean: Float[Array, "n m"]
    last: Float[Array, "n m"]
    length: Int[Array, " n"]
    failed: Bool[Array, " n"]


class Step(NamedTuple):
    """One control step of n episodes, for those who want to record it.

    `alive[n]` says whose episode had not ended before it, `ended[n]` whose is over after it.
    """

    before: PyTree
    observation: Float[Array, "n o"]
    action: Float[Array, "n a"]
    after: PyTree
    reward: Float[Array, " n"]
    alive: Bool[Array, " n"]
    ended: Bool[Array, " n"]


class Control(NamedTuple):
    """The parts of a control task; `score` makes `fitness[n]` and `feature[n, k]` of episodes."""

    environment: Environment
    controller: Controller
    score: Callable[[Episodes], tuple[Array, Array]]


def rollout(
    control: Control,
    keys: Key[Array, " n"],
    x: Float[Array, "n d"],
    record: Callable[[Step], PyTree] | None = None,
) -> tuple[Episodes, PyTree]:
    """Play one episode of each genotype, from the starts that the keys lead to.

    Args:
        control: The environment and the controller.
        keys: A PRNG key for each episode.
        x: The genotypes.
        record: What to keep of each control step; without it no trajectory is stored.

    Returns:
        The episodes, and what was recorded with a leading axis of T steps.
    """
    return play(control.environment, acting(control.controller, x), keys, record)


def acting(controller: Controller, x: Float[Array, "n d"]) -> Callable[[Array, Array], Array]:
    """The `act(observation[n, o], t) -> action[n, a]` of whole genotypes, the fastest there is."""
    if controller.in_factors is None:
        return partial(controller.act, controller.parameters(x))
    return controller.in_factors(Repeats(x, 1), no_pairs(controller.dim))


def play(
    environment: Environment,
    act: Callable[[Array, Array], Array],
    keys: Key[Array, " n"],
    record: Callable[[Step], PyTree] | None = None,
) -> tuple[Episodes, PyTree]:
    """As `rollout`, for any `act(observation[n, o], t) -> action[n, a]`."""
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
    """Steps that reinforcement learning learns from, of which those that are `alive` count.

    `ended` says that the episode ended there by itself, not because its time was over.
    """

    observation: Float[Array, "*n o"]
    action: Float[Array, "*n a"]
    reward: Float[Array, "*n"]
    next_observation: Float[Array, "*n o"]
    ended: Bool[Array, "*n"]
    alive: Bool[Array, "*n"]


def no_transitions(control: Control, n: int) -> Transition:
    """Transitions [n, T, ...] of episodes that were not played, none of which counts."""
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
        # Where the simulator failed, what it shows is not what the action led to.
        counts = step.alive & ~environment.failed(step.after)
        return Transition(step.observation, step.action, step.reward, following, step.ended, counts)

    return rollout(control, keys, x, record)
