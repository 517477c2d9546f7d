"""A slow simulator in Python that runs in parallel, with one process per core.

To run the task from the shell, use `memes run examples/episodes.py:task --scale laptop --generations 100
--workers 2`. You can also run this file as a Python program.
"""

import math
import os
from itertools import pairwise

import jax
import numpy as np

import memes

SIZES = (2, 8, 1)  # sizes of the observation, the hidden layer and the action
DIM = sum((i + 1) * o for i, o in pairwise(SIZES))


def act(x: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """Return the action of a small network. The genotype x contains the weights and biases."""
    for i, o in pairwise(SIZES):
        weights, biases, x = x[: i * o].reshape(i, o), x[i * o : (i + 1) * o], x[(i + 1) * o :]
        signal = np.tanh(signal @ weights + biases)
    return signal


def swing(key: jax.Array, x: np.ndarray) -> tuple[float, list[float]]:
    """Simulate a pendulum for five seconds, and return its reward, last angle and highest speed."""
    angle, speed = np.random.default_rng(int(memes.seeds_from_keys(key))).normal(0, 0.05, 2)
    total, fastest = 0.0, 0.0
    for _ in range(100):
        force = float(act(x, np.array([angle, speed]))[0])
        speed += 0.05 * (-9.81 * math.sin(angle) + 4 * force - 0.1 * speed)
        angle += 0.05 * speed
        total, fastest = total - force**2, max(fastest, abs(speed))
        if abs(angle) > 2 * math.pi:
            break
    return total, [angle, fastest]


task = memes.Task(
    name="pendulum",
    dim=DIM,
    feature_low=(-math.pi, 0.0),
    feature_high=(math.pi, 10.0),
    feature_names=("last angle (rad)", "highest speed (rad/s)"),
    min_fitness=-100.0,
    init=memes.uniform(DIM, -2.0, 2.0),
    evaluate=memes.rowwise(swing),
    resolution=(20, 20),
    uncertain=True,
    jit=False,
)

if __name__ == "__main__":
    with memes.workers(os.cpu_count() or 1) as executor:
        run = memes.run(
            memes.presets.memes(memes.parallelize(task, executor), lanes=8, samples=32, sigma=0.1),
            generations=20,
            seed=0,
            observers=[memes.Corrections(samples=8)],
        )
    print(f"corrected coverage {run.corrected['coverage'][-1]:.1%}")
    print(f"coverage {run.metrics['coverage'][-1]:.1%}")
