"""Tasks for Gymnasium environments. NumPy policies play the episodes on the host or on workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from memes.control import Control, Environment, mlp
from memes.control.episodes import (
    Episode,
    LastInformed,
    MeanObserved,
    Player,
    made,
    outputs_for,
    repeats,
)
from memes.errors import UsageError, at_least, in_a_line, known, package, require
from memes.task import Task
from memes.validation import checked

PLACE, FAR = ("x_position", "y_position"), 30.0  # Keys of a position in `info`, and its bound in m.
WIDE = 10.0  # Feature bound for observations without bounds.
STEPS = 1000  # Number of steps per episode for environments without a limit.


@checked
def gymnasium(
    environment: str,
    *,
    hidden: tuple[int, ...] = (64, 64),
    steps: int | None = None,
    uncertain: bool = True,
    observed: tuple[int, ...] | None = None,
    informed: tuple[str, ...] | None = None,
    feature: Callable[[Episode], Sequence[float]] | None = None,
    feature_low: tuple[float, ...] | None = None,
    feature_high: tuple[float, ...] | None = None,
    min_fitness: float = 0.0,
    make: dict[str, Any] | None = None,
    fresh: bool | None = None,
) -> Task:
    """Environment of Gymnasium. The genotypes are policies.

    The fitness is the total reward of an episode. For continuous actions, the outputs of the policy are
    scaled to the bounds of the action space. For discrete actions, the largest output selects the
    action.

    Args:
        environment: Name of the environment, such as `CartPole-v1`.
        hidden: Sizes of the policy's hidden layers.
        steps: Maximum number of steps per episode. The default is the limit of the environment.
        uncertain: Whether each episode uses a different seed. If False, all episodes use seed 0.
        observed: Indices of observation entries. The feature consists of the means of these entries over
            an episode. The default is the first two entries.
        informed: Names of entries of the dict `info`, which the environment returns in each step. The
            feature consists of the last values of these entries. The default is `x_position` and
            `y_position`, if the environment has both.
        feature: `(episode) -> k numbers`, which computes a custom feature from a
            `memes.control.episodes.Episode`. The function must be at the top level of a module, because
            workers import it.
        feature_low: Lower bound of each feature. The default is the bound of the observation, or -10 if
            the observation has no bound. For a position, the default is -30.
        feature_high: Upper bound of each feature. The default is determined in the same way as the
            default of `feature_low`.
        min_fitness: Fitness that adds 0 to the QD-score.
        make: Further arguments of `gymnasium.make`.
        fresh: Whether each episode uses a new environment. The default is True if two test episodes with
            the same seed and the same random actions differ.
    """
    at_least(1, steps=steps)
    arguments = {**(make or {}), **({} if steps is None else {"max_episode_steps": steps})}
    frozen = tuple(arguments.items())
    one = _made(environment, frozen)
    size, outputs = _flat_size(environment, one), outputs_for(one.action_space)
    if outputs is None:
        raise UsageError(
            f"environment '{environment}' has the action space {one.action_space}, but only Box, "
            "Discrete and MultiDiscrete are supported"
        )
    limit = getattr(one.spec, "max_episode_steps", None) or steps or STEPS
    chosen = feature
    if chosen is None:
        chosen, low, high = _usual(environment, one, size, observed, informed)
        feature_low, feature_high = feature_low or low, feature_high or high
        numbers = len(chosen.entries)
        for bounds in filter(None, (feature_low, feature_high)):
            require(
                len(bounds) == numbers,
                f"feature_low and feature_high must have one entry per feature ({numbers}), "
                f"got {len(bounds)}",
            )
    require(
        feature_low is not None and feature_high is not None,
        "feature_low and feature_high must be given with a custom feature or with informed",
    )
    sizes = (size, *hidden, outputs)
    policy = mlp(sizes)
    if fresh is None:
        fresh = not repeats(environment, frozen)
    player = Player(environment, frozen, sizes, limit, chosen, None if uncertain else 0, fresh)
    return Task(
        name=environment,
        dim=policy.dim,
        feature_low=feature_low or (),
        feature_high=feature_high or (),
        init=policy.init,
        evaluate=player,
        evaluate_transitions=player.transitions,
        control=Control(_on_the_host(size, outputs, limit), policy, _refuse),
        min_fitness=min_fitness,
        uncertain=uncertain,
        jit=False,
    )


def _refuse(*arguments: Any) -> Any:
    raise UsageError("an environment of Gymnasium runs on the host, not in JAX")


def _on_the_host(size: int, outputs: int, steps: int) -> Environment:
    """Return an `Environment` that contains only the given numbers, and cannot be simulated."""
    functions: Any = [_refuse] * 7
    return Environment(size, outputs, steps, *functions)


def _made(name: str, arguments: tuple[tuple[str, Any], ...]) -> Any:
    """Make an environment, or raise a `UsageError` for a missing package or an unknown name."""
    library = package("gymnasium", "gymnasium", f"environment '{name}'")
    if ":" not in name:  # a name with ":" contains a module that must be imported first
        known("environment of Gymnasium", name, [str(each) for each in library.registry])
    try:
        return made(name, arguments, 1)[0]
    except (library.error.Error, ImportError, TypeError) as error:
        raise UsageError(f"environment '{name}' cannot be made: {in_a_line(error)}") from error


def _flat_size(name: str, environment: Any) -> int:
    from gymnasium.spaces import flatdim

    try:
        return int(flatdim(environment.observation_space))
    except (NotImplementedError, ValueError) as error:
        raise UsageError(
            f"environment '{name}' has observations of {environment.observation_space}, which have no "
            "fixed size"
        ) from error


def _usual(
    name: str,
    environment: Any,
    size: int,
    observed: tuple[int, ...] | None,
    informed: tuple[str, ...] | None,
) -> tuple[Any, tuple[float, ...] | None, tuple[float, ...] | None]:
    """Return a feature function and its default bounds. It reads either `info` or observations."""
    require(
        observed is None or informed is None,
        "observed and informed cannot be combined: give one of them",
    )
    if observed is None:
        environment.reset(seed=0)
        environment.action_space.seed(0)
        info = environment.step(environment.action_space.sample())[4]
        require(bool(info) or not informed, f"informed: '{name}' has an empty info; use observed")
        for entry in informed or ():
            known(f"entry of info of '{name}'", entry, info)
        if informed is None and all(entry in info for entry in PLACE):
            return LastInformed(PLACE), (-FAR, -FAR), (FAR, FAR)
        if informed is not None:
            return LastInformed(informed), None, None
    entries = observed or tuple(range(min(size, 2)))
    fits = all(0 <= i < size for i in entries)
    require(fits, f"observed must be indices from 0 to {size - 1}, got {', '.join(map(str, entries))}")
    space = environment.observation_space
    sides = [getattr(space, side, None) for side in ("low", "high")]
    bounds = []
    for side, wide in zip(sides, (-WIDE, WIDE), strict=True):
        ends = [wide if side is None else float(side.ravel()[i]) for i in entries]
        bounds.append(tuple(end if math.isfinite(end) and abs(end) < 1e6 else wide for end in ends))
    return MeanObserved(entries), bounds[0], bounds[1]
