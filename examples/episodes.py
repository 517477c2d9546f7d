"""Episodes in several processes: how to run Gymnasium, or any slow simulator in Python.

`memes run examples/episodes.py:task --scale laptop --generations 100`, or run this file.
"""

import atexit
import math
import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import pairwise
from multiprocessing import get_context

import jax
import numpy as np

import memes

SIZES = (2, 8, 1)  # observation, hidden layer and action of the policy
DIM = sum((i + 1) * o for i, o in pairwise(SIZES))


class Pendulum:
    """Has `reset` and `step` as Gymnasium has them: put `gymnasium.make(...)` in its place."""

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, float]]:
        """Start an episode."""
        self.angle, self.speed = np.random.default_rng(seed).normal(0, 0.05, 2)
        return np.array([self.angle, self.speed]), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, float]]:
        """Observation, reward, whether it is over, whether time is over, and nothing else."""
        self.speed += 0.05 * (-9.81 * math.sin(self.angle) + 4 * float(action[0]) - 0.1 * self.speed)
        self.angle += 0.05 * self.speed
        observation = np.array([self.angle, self.speed])
        return observation, -float(action[0] ** 2), abs(self.angle) > 2 * math.pi, False, {}


def act(x: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """The action of a small network; its genotype has the weights and the biases, layer after layer."""
    for i, o in pairwise(SIZES):
        weights, biases, x = x[: i * o].reshape(i, o), x[i * o : (i + 1) * o], x[(i + 1) * o :]
        signal = np.tanh(signal @ weights + biases)
    return signal


def episode(seed: int, x: np.ndarray) -> tuple[float, float, float]:
    """Play one episode: its reward, and as features its last angle and its highest speed."""
    environment = Pendulum()
    observation, _ = environment.reset(seed=seed)
    total, fastest = 0.0, 0.0
    for _ in range(100):
        observation, reward, terminated, truncated, _ = environment.step(act(x, observation))
        total, fastest = total + reward, max(fastest, abs(observation[1]))
        if terminated or truncated:
            break
    return total, observation[0], fastest


@cache
def workers() -> ProcessPoolExecutor:
    """Processes that are started afresh: JAX does not survive a fork."""
    pool = ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))
    atexit.register(pool.shutdown)
    return pool


def evaluate(keys: jax.Array, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = np.array(list(workers().map(episode, memes.seeds_of(keys), x, chunksize=16)))
    return found[:, 0], found[:, 1:]


task = memes.Task(
    name="pendulum",
    dim=DIM,
    feature_low=(-math.pi, 0.0),
    feature_high=(math.pi, 10.0),
    feature_names=("last angle (rad)", "highest speed (rad/s)"),
    min_fitness=-100.0,
    init=memes.uniform(DIM, -2.0, 2.0),
    evaluate=evaluate,
    resolution=(20, 20),
    uncertain=True,
    jit=False,
)

if __name__ == "__main__":
    run = memes.run(
        memes.presets.memes(task, lanes=8, samples=32, sigma=0.1),
        generations=20,
        seed=0,
        observers=[memes.Corrections(samples=8)],
    )
    print(f"corrected coverage {run.corrected['coverage'][-1]:.1%}")
    print(f"coverage {run.metrics['coverage'][-1]:.1%}")
