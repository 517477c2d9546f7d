"""Tasks for JAX environments from other libraries, such as Brax and MuJoCo Playground.

These libraries share a protocol. An environment simulates one episode, and has `reset(key) -> state`,
`step(state, action[a]) -> state`, `observation_size` and `action_size`. A state has `obs[o]`, `reward`
and `done`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from subprocess import SubprocessError
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PyTree

from memes.control import Environment, Episodes, control_task, mlp
from memes.errors import UsageError, at_least, in_a_line, known, package, require
from memes.parameters import flat
from memes.task import Task
from memes.tasks.robot import episodes_at_once

FAR = 30.0  # bound of positions in metres
PROTOCOL, STATE = ("reset", "step", "observation_size", "action_size"), ("obs", "reward", "done")


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Settings of tasks with JAX environments from other libraries.

    Attributes:
        hidden: Sizes of the policy's hidden layers.
        uncertain: Whether each episode has a different start. If False, all episodes have the same
            start.
        measure: `(state) -> [m]`, measurements of the state of one episode. The default is the
            horizontal position of the first body. If the state has no such position, the default is the
            first two entries of the observation.
        feature: `(episodes) -> [n, k]`, which computes the features from the measurements. By default,
            the features are the last measurements of each episode.
        feature_low: Lower bound of each feature.
        feature_high: Upper bound of each feature.
        min_fitness: Fitness that adds 0 to the QD-score.
    """

    hidden: tuple[int, ...] = (64, 64)
    uncertain: bool = True
    measure: Callable[[PyTree], Array] | None = None
    feature: Callable[[Episodes], Array] | None = None
    feature_low: tuple[float, ...] = (-FAR, -FAR)
    feature_high: tuple[float, ...] = (FAR, FAR)
    min_fitness: float = 0.0


@dataclass(frozen=True)
class Repeated:
    """An environment that repeats each action and sums the rewards of the repeated steps."""

    env: Any
    times: int

    @property
    def observation_size(self) -> Any:
        """The observation size of the environment."""
        return self.env.observation_size

    @property
    def action_size(self) -> int:
        """The action size of the environment."""
        return int(self.env.action_size)

    def reset(self, key: Array) -> PyTree:
        """Return the start of an episode."""
        return self.env.reset(key)

    def step(self, state: PyTree, action: Array) -> PyTree:
        """Take `times` steps with the same action. The state is constant after the episode has ended."""

        def again(held: tuple[PyTree, Array], _: None) -> tuple[tuple[PyTree, Array], None]:
            before, total = held
            after, over = self.env.step(before, action), before.done > 0
            total = total + jnp.where(over, 0.0, after.reward)
            return (jax.tree.map(partial(jnp.where, over), before, after), total), None

        start = state, jnp.zeros_like(state.reward)
        found: Any
        (found, total), _ = jax.lax.scan(again, start, length=self.times)
        changed = getattr(found, "_replace", None) or found.replace
        return changed(reward=total)


@flat
def stepped(name: str, env: Any, *, steps: int, setup: Setup = Setup()) -> Task:
    """Build a task from an environment that has the protocol of this module. The genotypes are policies.

    Args:
        name: Short name, used in files and figures.
        env: The environment.
        steps: Steps per episode.
        setup: Settings of policies, starts, features and bounds.
    """
    at_least(1, steps=steps)
    measure, low = setup.measure or place, setup.feature_low
    _require_all(f"environment of task '{name}'", env, PROTOCOL)
    sizes = _number(env.observation_size), int(env.action_size)

    def reset(keys: Array) -> PyTree:
        if not setup.uncertain:
            keys = jnp.broadcast_to(jax.random.key(0), keys.shape)
        return jax.vmap(env.reset)(keys)

    first = jax.eval_shape(env.reset, jax.random.key(0))
    _require_all(f"state of task '{name}'", first, STATE)
    seen, found = (jax.eval_shape(of, first).shape for of in (observation, measure))
    require(
        seen == sizes[:1],
        f"observation_size of task '{name}' is {sizes[0]}, but its observation has shape {seen}",
    )
    require(
        found == (len(low),) if setup.feature is None else len(found) == 1,
        f"measure of task '{name}' must return {len(low)} numbers, one per entry of feature_low, "
        f"got shape {found}",
    )
    environment = Environment(
        observation_size=sizes[0],
        action_size=sizes[1],
        steps=steps,
        reset=reset,
        observe=jax.vmap(observation),
        step=jax.vmap(env.step),
        reward=lambda before, action, after: jnp.asarray(after.reward, jnp.float32),
        ended=lambda state: state.done > 0,
        failed=lambda state: ~jnp.isfinite(jax.vmap(observation)(state)).all(axis=1),
        measure=jax.vmap(measure),
        at_once=episodes_at_once(),
    )
    return control_task(
        name,
        environment,
        mlp([sizes[0], *setup.hidden, sizes[1]]),
        fitness=lambda episodes: episodes.total,
        feature=setup.feature or (lambda episodes: episodes.last),
        feature_low=low,
        feature_high=setup.feature_high,
        min_fitness=setup.min_fitness,
        uncertain=setup.uncertain,
    )


def _require_all(what: str, given: Any, names: tuple[str, ...]) -> None:
    missing = [name for name in names if not hasattr(given, name)]
    require(not missing, f"{what} must have {', '.join(names)}, got one without {', '.join(missing)}")


def observation(state: PyTree) -> Array:
    """Return the flat observation of one episode.

    If there are several named observations, return the one called `state`, which is meant for policies.
    """
    obs = state.obs["state"] if isinstance(state.obs, dict) else state.obs
    return jnp.ravel(obs).astype(jnp.float32)


def place(state: PyTree) -> Array:
    """Return the horizontal position of the first body.

    If the state does not contain this position, return the first two entries of the observation.
    """
    bodies: Any = getattr(getattr(state, "pipeline_state", None), "x", None)  # in Brax
    found: Array = observation(state)[:2]
    if bodies is not None and jnp.ndim(bodies.pos) == 2:
        found = bodies.pos[0, :2]
    elif hasattr(getattr(state, "data", None), "xpos"):  # in MuJoCo, body 0 is the world
        found = state.data.xpos[1, :2]
    return found


def _number(size: Any) -> int:
    """Return the number of entries of an observation from its size or shape.

    If there are several named observations, the one called `state` is used.
    """
    size = size["state"] if isinstance(size, dict) else size
    return int(size) if isinstance(size, int) else int(jnp.prod(jnp.array(size)))


@flat
def brax(
    environment: str | Any, *, pipeline: str = "generalized", steps: int = 1000, setup: Setup = Setup()
) -> Task:
    """Environment of Brax. The genotypes are policies.

    Args:
        environment: Name of the environment, such as `ant`, or a Brax environment without wrappers.
        pipeline: Name of the simulator: generalized, spring, positional or mjx.
        steps: Steps per episode.
        setup: Settings of policies, starts, features and bounds.
    """
    name, env = type(environment).__name__.lower(), environment
    if isinstance(environment, str):
        envs = package("brax.envs", "brax", f"environment '{environment}'")
        name = known("environment of Brax", environment, list(envs._envs))
        known("pipeline", pipeline, ("generalized", "spring", "positional", "mjx"))
        env = _loaded(name, lambda: envs.get_environment(name, backend=pipeline))
    return stepped(f"brax-{name}", env, steps=steps, **vars(setup))


@flat
def playground(
    environment: str,
    *,
    pipeline: str | None = None,
    steps: int | None = None,
    action_repeat: int | None = None,
    setup: Setup = Setup(),
) -> Task:
    """Environment of MuJoCo Playground. The genotypes are policies.

    Args:
        environment: Name of the environment, such as `CartpoleBalance`.
        pipeline: Name of the simulator: jax or warp. The default is the simulator of the environment.
        steps: Steps of the environment per episode. The default is the limit of the environment.
        action_repeat: Steps of the environment per action. The default is the environment's setting.
        setup: Settings of policies, starts, features and bounds.
    """
    at_least(1, steps=steps, action_repeat=action_repeat)
    registry = package("mujoco_playground", "playground", f"environment '{environment}'").registry
    name = known("environment of Playground", environment, list(registry.ALL_ENVS))
    config = registry.get_default_config(name)
    require(pipeline is None or "impl" in config, f"environment '{name}' has only one pipeline")
    chosen = {} if pipeline is None else {"impl": known("pipeline", pipeline, ("jax", "warp"))}
    times = action_repeat or int(config.get("action_repeat", 1))
    env = _loaded(name, lambda: registry.load(name, config_overrides=chosen))
    length = -(-(steps or int(config.episode_length)) // times)
    return stepped(name, env if times == 1 else Repeated(env, times), steps=length, **vars(setup))


def _loaded(name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (ImportError, OSError, ValueError, SubprocessError) as error:  # loading may run git
        raise UsageError(f"environment '{name}' cannot be made: {in_a_line(error)}") from error
