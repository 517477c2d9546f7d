"""The redundant arm: reach every point of the plane with smooth joint angles."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.errors import require
from memes.hints import checked
from memes.task import Evaluation, Task, noisy, uniform


@checked
def arm(*, joints: int = 1000) -> Task:
    """Planar arm that reaches every point smoothly.

    Args:
        joints: Number of joints; a genotype has one entry in [0, 1] for each.
    """
    require(joints >= 1, f"joints must be at least 1, got {joints}")

    def evaluate(keys: Array, x: Array) -> Evaluation:
        """`x[n, joints]`, clipped to [0, 1], as angles 2 pi x - pi relative to the previous link."""
        del keys
        x = jnp.clip(x, 0.0, 1.0)
        angle = jnp.cumsum(2 * np.pi * x - np.pi, axis=-1)
        end = jnp.stack([jnp.sum(jnp.cos(angle), -1), jnp.sum(jnp.sin(angle), -1)], axis=-1)
        return Evaluation(1.0 - jnp.std(x, axis=-1), end / (2 * joints) + 0.5)

    return Task(
        name="arm",
        dim=joints,
        feature_low=(0.0, 0.0),
        feature_high=(1.0, 1.0),
        init=uniform(joints, 0.0, 1.0),
        evaluate=evaluate,
    )


@checked
def noisy_arm(*, joints: int = 1000, fitness_noise: float = 0.01, feature_noise: float = 0.01) -> Task:
    """The arm with Gaussian noise on fitness and feature.

    Args:
        joints: Number of joints; a genotype has one entry in [0, 1] for each.
        fitness_noise: Standard deviation of the noise on the fitness.
        feature_noise: Standard deviation of the noise on each feature.
    """
    return noisy(arm(joints=joints), fitness=fitness_noise, feature=feature_noise)
