"""Episodes of Gymnasium environments. NumPy policies play several episodes in parallel.

Workers import this module and the environments, but not JAX.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from memes.errors import show_mujoco_warnings
from memes.executors.seeds import seeds_from_keys

ROWS = 32  # Maximum number of episodes at a time, each in a separate environment.
# Number of episodes that `repeats` compares, and their maximum length in steps.
COMPARED, STEPS_COMPARED = 5, 100
Layers = list[tuple[np.ndarray, np.ndarray]]  # Weights [n, in, out] and biases [n, out] per layer.


class Episode(NamedTuple):
    """Record of an episode of T steps, from which features are computed.

    Attributes:
        observations: Flat observations before the first step and after each step, [T + 1, o].
        actions: Outputs of the policy in [-1, 1], [T, a]. Discrete actions have one output per choice.
        rewards: Rewards, [T].
        infos: The `info` that the environment returned for the reset and for each step.
        ended: Whether the environment ended the episode. Otherwise, the episode reached the maximum
            number of steps.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    infos: list[dict[str, Any]]
    ended: bool


Feature = Callable[[Episode], Sequence[float]]


@dataclass(frozen=True)
class MeanObserved:
    """A feature function that returns the means of observation entries over an episode."""

    entries: tuple[int, ...]

    def __call__(self, episode: Episode) -> Sequence[float]:
        """Return the feature of an episode."""
        return [float(episode.observations[1:, i].mean()) for i in self.entries]


@dataclass(frozen=True)
class LastInformed:
    """A feature function that returns the last values of `info` entries."""

    entries: tuple[str, ...]

    def __call__(self, episode: Episode) -> Sequence[float]:
        """Return the feature of an episode."""
        return [float(episode.infos[-1][entry]) for entry in self.entries]


@dataclass(frozen=True)
class Player:
    """The `evaluate` function of Gymnasium tasks. Each policy plays one episode.

    Attributes:
        environment: Name of the environment, as for `gymnasium.make`.
        arguments: Further arguments of `gymnasium.make`.
        sizes: Sizes of the observation, of each hidden layer and of the output.
        steps: Maximum number of steps of an episode.
        feature: Function that computes the feature of an episode.
        seed: Seed of all episodes. If None, the seed of each episode is drawn from its key.
        fresh: Whether each episode uses a new environment.
    """

    environment: str
    arguments: tuple[tuple[str, Any], ...]
    sizes: tuple[int, ...]
    steps: int
    feature: Feature
    seed: int | None = None
    fresh: bool = False

    def __call__(self, keys: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the total reward [n] and the feature [n, k] of one episode per genotype."""
        scores = [self.score(episodes) for episodes in self.blocks(keys, x)]
        fitness, feature = map(np.concatenate, zip(*scores, strict=True))
        return fitness, feature

    def transitions(self, keys: Any, x: Any) -> Any:
        """Return the fitness, feature and transitions of each episode, for reinforcement learning."""
        from memes.control.rollouts import Transition
        from memes.task import Evaluation

        episodes = list(itertools.chain.from_iterable(self.blocks(keys, x)))

        def padded(rows: Any) -> Any:
            given = [np.asarray(each) for each in rows]
            blank = np.zeros((len(given), self.steps, *given[0].shape[1:]), given[0].dtype)
            for i, each in enumerate(given):
                blank[i, : len(each)] = each
            return blank

        last = [np.arange(len(e.rewards)) == len(e.rewards) - 1 for e in episodes]
        taken = Transition(
            observation=padded(e.observations[:-1] for e in episodes),
            action=padded(e.actions for e in episodes),
            reward=padded(e.rewards.astype(np.float32) for e in episodes),
            next_observation=padded(e.observations[1:] for e in episodes),
            ended=padded(end & e.ended for end, e in zip(last, episodes, strict=True)),
            alive=padded(np.ones(len(e.rewards), bool) for e in episodes),
        )
        score: Any = self.score(episodes)
        return Evaluation(score[0], score[1], transitions=taken)

    def score(self, episodes: list[Episode]) -> tuple[np.ndarray, np.ndarray]:
        """Return the fitness [n] and the feature [n, k] of episodes."""
        fitness = np.array([episode.rewards.sum() for episode in episodes])
        return fitness, np.array([self.feature(episode) for episode in episodes], np.float64)

    def blocks(self, keys: Any, x: Any) -> Iterator[list[Episode]]:
        """Play one episode per genotype `x[n, d]`, and yield the episodes in blocks of up to `ROWS`."""
        x = np.asarray(x)  # JAX arrays have different rules for indexing
        seeds = seeds_from_keys(keys) if self.seed is None else np.full(len(x), self.seed)
        for start in range(0, len(x), ROWS):
            yield self.play(seeds[start : start + ROWS], x[start : start + ROWS])

    def play(self, seeds: np.ndarray, x: np.ndarray) -> list[Episode]:
        """Play one episode per genotype `x[n, d]`. All episodes advance together."""
        n = len(x)
        if self.fresh:
            environments = [new(self.environment, self.arguments) for _ in range(n)]
        else:
            environments = made(self.environment, self.arguments, n)
        try:
            return self._played(environments, seeds, x)
        finally:
            for each in environments if self.fresh else ():
                each.close()

    def _played(self, environments: list[Any], seeds: np.ndarray, x: np.ndarray) -> list[Episode]:
        n = len(x)
        respond = action_of(environments[0].action_space)
        starts = [each.reset(seed=int(s)) for each, s in zip(environments, seeds, strict=True)]
        seen = [[flat(each, start)] for each, (start, _) in zip(environments, starts, strict=True)]
        infos = [[info] for _, info in starts]
        actions: list[list[np.ndarray]] = [[] for _ in range(n)]
        rewards: list[list[float]] = [[] for _ in range(n)]
        ended = [False] * n
        playing, layers = list(range(n)), layers_of(self.sizes, x)
        for _ in range(self.steps):
            outputs = act(layers, np.stack([seen[i][-1] for i in playing]))
            over = []
            for i, output in zip(playing, outputs, strict=True):
                each = environments[i]
                found, reward, ended[i], truncated, info = each.step(respond(output))
                seen[i].append(flat(each, found))
                infos[i].append(info)
                actions[i].append(output)
                rewards[i].append(float(reward))
                over.append(ended[i] or truncated)
            if any(over):
                playing = [i for i, done in zip(playing, over, strict=True) if not done]
                layers = layers_of(self.sizes, x[playing])
            if not playing:
                break
        return [
            Episode(np.stack(seen[i]), np.stack(actions[i]), np.array(rewards[i]), infos[i], ended[i])
            for i in range(n)
        ]


@cache
def _pool(name: str, arguments: tuple[tuple[str, Any], ...]) -> list[Any]:
    return []


def made(name: str, arguments: tuple[tuple[str, Any], ...], n: int) -> list[Any]:
    """Return n environments. Later calls reuse them, because construction can be slow."""
    pool = _pool(name, arguments)
    while len(pool) < n:
        pool.append(new(name, arguments))
    return pool[:n]


def new(name: str, arguments: tuple[tuple[str, Any], ...]) -> Any:
    """Return a new environment."""
    import gymnasium

    module, _, registered = name.rpartition(":")
    for path in (module, getattr(gymnasium.registry.get(registered), "entry_point", None)):
        if path and isinstance(path, str):
            import_module(path.partition(":")[0])  # `gymnasium.make` does the same
    if "mujoco" in sys.modules:
        show_mujoco_warnings()
    # Gymnasium's default checks of every step are slow.
    return gymnasium.make(name, disable_env_checker=True, **dict(arguments))


@cache
def repeats(name: str, arguments: tuple[tuple[str, Any], ...]) -> bool:
    """Return True if episodes of an environment with the same seed and actions are identical.

    In some environments, a reset does not restore the whole simulated world. This function plays several
    short episodes with random actions twice, and compares observations and rewards.
    """
    environment = new(name, arguments)
    first, again = ([_start(environment, seed) for seed in range(COMPARED)] for _ in range(2))
    environment.close()
    return all(a.shape == b.shape and (a == b).all() for a, b in zip(first, again, strict=True))


def _start(environment: Any, seed: int) -> np.ndarray:
    """Play the start of an episode with random actions. Return its observations and rewards as bytes."""
    environment.action_space.seed(seed)
    seen = [flat(environment, environment.reset(seed=seed)[0])]
    for _ in range(STEPS_COMPARED):
        found, reward, ended, truncated, _ = environment.step(environment.action_space.sample())
        seen += [flat(environment, found), np.array([reward], np.float32)]
        if ended or truncated:
            break
    return np.concatenate(seen).view(np.uint8)


def flat(environment: Any, observation: Any) -> np.ndarray:
    """Flatten an observation of any space to a vector of float32."""
    from gymnasium.spaces import flatten

    return np.asarray(flatten(environment.observation_space, observation), np.float32)


def outputs_for(space: Any) -> int | None:
    """Return the number of policy outputs for an action space, or None for unsupported spaces."""
    kind = type(space).__name__
    if kind == "Discrete":
        return int(space.n)
    if kind == "MultiDiscrete":
        return int(np.sum(space.nvec))
    return int(np.prod(space.shape)) if kind == "Box" else None


def action_of(space: Any) -> Callable[[np.ndarray], Any]:
    """Return the function that converts policy outputs in [-1, 1] to an action of the space.

    For boxes, this function scales the outputs to the bounds. For discrete spaces, it selects the choice
    with the largest output.
    """
    kind = type(space).__name__
    if kind == "Discrete":
        return lambda output: int(space.start) + int(output.argmax())
    if kind == "MultiDiscrete":
        ends = np.cumsum(space.nvec.ravel())[:-1]

        def chosen(output: np.ndarray) -> Any:
            each = np.array([part.argmax() for part in np.split(output, ends)]).reshape(space.shape)
            return (space.start + each).astype(space.dtype)

        return chosen
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
    size, shape, dtype = high - low, space.shape, space.dtype
    return lambda output: (low + (output.reshape(shape) + 1) / 2 * size).astype(dtype)


def layers_of(sizes: tuple[int, ...], x: np.ndarray) -> Layers:
    """Return the weights and biases in genotypes `x[n, d]` with the layout of `memes.control.mlp`."""
    layers, start = [], 0
    for rows, columns in itertools.pairwise(sizes):
        middle, end = start + rows * columns, start + rows * columns + columns
        layers.append((x[:, start:middle].reshape(-1, rows, columns), x[:, middle:end]))
        start = end
    return layers


def act(layers: Layers, signal: np.ndarray) -> np.ndarray:
    """Compute the outputs [n, a] of n policies for their observations [n, o]."""
    for i, (weights, biases) in enumerate(layers):
        signal = np.matmul(signal[:, None, :], weights)[:, 0] + biases
        signal = np.tanh(signal) if i == len(layers) - 1 else np.maximum(signal, 0)
    return signal
