"""Episodes of Gymnasium's environments, played in NumPy by many policies at once.

Workers import this module and the environments, and no JAX.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from memes.executors.seeds import seeds_from_keys

Layers = list[tuple[np.ndarray, np.ndarray]]  # of each: the weights [n, in, out] and the biases [n, out]


class Episode(NamedTuple):
    """An episode of T steps, for functions that make features of it.

    Attributes:
        observations: What the policy saw, flat, [T + 1, o]; the last is what the last step led to.
        actions: What the policy returned, [T, a]: in [-1, 1], or a number for each choice.
        rewards: [T].
        infos: The environment's `info` of the reset and of each step.
        ended: Whether the environment ended it; if not, its time was over.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    infos: list[dict[str, Any]]
    ended: bool


Feature = Callable[[Episode], Sequence[float]]


@dataclass(frozen=True)
class MeanObserved:
    """The mean over an episode of some entries of the observation."""

    entries: tuple[int, ...]

    def __call__(self, episode: Episode) -> Sequence[float]:
        """Return a number for each."""
        return [float(episode.observations[1:, i].mean()) for i in self.entries]


@dataclass(frozen=True)
class LastInformed:
    """The last of some entries of `info`."""

    entries: tuple[str, ...]

    def __call__(self, episode: Episode) -> Sequence[float]:
        """Return a number for each."""
        return [float(episode.infos[-1][entry]) for entry in self.entries]


@dataclass(frozen=True)
class Player:
    """The `evaluate` of policies that play an episode each.

    Attributes:
        environment: Its name, as `gymnasium.make` takes it.
        arguments: Further arguments of `gymnasium.make`.
        sizes: Entries of observation, hidden layers and output of the policy.
        steps: Steps of an episode, at most.
        feature: What makes a feature of an episode.
        seed: The seed of all episodes; None draws one from each key.
    """

    environment: str
    arguments: tuple[tuple[str, Any], ...]
    sizes: tuple[int, ...]
    steps: int
    feature: Feature
    seed: int | None = None

    def __call__(self, keys: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of the rewards [n] and the feature [n, k] of an episode of each row."""
        return self.score(self.play(keys, x))

    def transitions(self, keys: Any, x: np.ndarray) -> Any:
        """Return the same with the transitions of each row, for those who learn from them."""
        from memes.control.rollouts import Transition
        from memes.task import Evaluation

        episodes = self.play(keys, x)

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
        """The fitness [n] and the feature [n, k] of episodes."""
        fitness = np.array([episode.rewards.sum() for episode in episodes])
        return fitness, np.array([self.feature(episode) for episode in episodes], np.float64)

    def play(self, keys: Any, x: np.ndarray) -> list[Episode]:
        """Play an episode of each genotype `x[n, d]`, all of them in step."""
        n = len(x)
        environments = made(self.environment, self.arguments, n)
        seeds = seeds_from_keys(keys) if self.seed is None else np.full(n, self.seed)
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
                found, reward, ended[i], truncated, info = each.step(action(each.action_space, output))
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
    """So many environments, kept for the next time: some take long to make."""
    import gymnasium

    pool = _pool(name, arguments)
    while len(pool) < n:
        # The checks of a passive wrapper would cost a good part of a step.
        pool.append(gymnasium.make(name, disable_env_checker=True, **dict(arguments)))
    return pool[:n]


def flat(environment: Any, observation: Any) -> np.ndarray:
    """An observation of any space as one row of float32."""
    from gymnasium.spaces import flatten

    return np.asarray(flatten(environment.observation_space, observation), np.float32)


def outputs_for(space: Any) -> int | None:
    """How many outputs a policy needs to act in a space; None if it cannot."""
    kind = type(space).__name__
    if kind == "Discrete":
        return int(space.n)
    if kind == "MultiDiscrete":
        return int(np.sum(space.nvec))
    return int(np.prod(space.shape)) if kind == "Box" else None


def action(space: Any, output: np.ndarray) -> Any:
    """The action of an output in [-1, 1]: a place in a box, or the choice with the largest entry."""
    kind = type(space).__name__
    if kind == "Discrete":
        return int(space.start) + int(output.argmax())
    if kind == "MultiDiscrete":
        parts = np.split(output, np.cumsum(space.nvec.ravel())[:-1])
        chosen = np.array([part.argmax() for part in parts]).reshape(space.shape)
        return (space.start + chosen).astype(space.dtype)
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
    return (low + (output.reshape(space.shape) + 1) / 2 * (high - low)).astype(space.dtype)


def layers_of(sizes: tuple[int, ...], x: np.ndarray) -> Layers:
    """The layers of each genotype [n, d], laid out as those of `memes.control.mlp`."""
    layers, start = [], 0
    for rows, columns in itertools.pairwise(sizes):
        middle, end = start + rows * columns, start + rows * columns + columns
        layers.append((x[:, start:middle].reshape(-1, rows, columns), x[:, middle:end]))
        start = end
    return layers


def act(layers: Layers, signal: np.ndarray) -> np.ndarray:
    """The outputs [n, a] of each policy for its observation [n, o]; a row depends on no other."""
    for i, (weights, biases) in enumerate(layers):
        signal = np.matmul(signal[:, None, :], weights)[:, 0] + biases
        signal = np.tanh(signal) if i == len(layers) - 1 else np.maximum(signal, 0)
    return signal
