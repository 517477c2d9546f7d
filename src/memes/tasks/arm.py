"""The arm tasks: a planar arm with many joints, whose hand reaches points of the plane."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.errors import at_least
from memes.kernels.dispatch import choose
from memes.task import Evaluation, Task, noisy, uniform
from memes.validation import checked


@checked
def arm(*, joints: int = 1000) -> Task:
    """Planar arm that reaches points with smooth postures.

    Args:
        joints: Number of joints. A genotype has one entry in [0, 1] per joint.
    """
    at_least(1, joints=joints)

    def evaluate(keys: Array, x: Array) -> Evaluation:
        """Evaluate the arms `x[n, joints]`.

        Entries are clipped to [0, 1]. An entry x of the genotype specifies the angle 2 pi x - pi to the
        previous link.
        """
        del keys
        x = jnp.clip(x, 0.0, 1.0)
        cosine, sine = _circle(jnp.cumsum(x - 0.5, axis=-1))
        # Without the barrier, XLA may fuse the sums into the concatenation and use only one thread per
        # row.
        sums = cosine.sum(axis=-1), sine.sum(axis=-1)
        end = jax.lax.optimization_barrier(sums)  # type: ignore[no-untyped-call]
        return Evaluation(1.0 - jnp.std(x, axis=-1), jnp.stack(end, axis=-1) / (2 * joints) + 0.5)

    return Task(
        name="arm",
        dim=joints,
        feature_low=(0.0, 0.0),
        feature_high=(1.0, 1.0),
        init=uniform(joints, 0.0, 1.0),
        evaluate=evaluate,
        draw=posture,
        feature_names=("hand x", "hand y"),
    )


def posture(x: np.ndarray) -> list[np.ndarray]:
    """Return two lines that show an arm `x[joints]`: its links, and a circle that bounds its reach."""
    angle = 2 * np.pi * np.cumsum(np.clip(x, 0.0, 1.0) - 0.5)
    links = np.cumsum(np.stack([np.cos(angle), np.sin(angle)], axis=1), axis=0) / (2 * len(x))
    around = np.linspace(0, 2 * np.pi, 65)
    reach = np.stack([np.cos(around), np.sin(around)], axis=1) / 2
    return [np.concatenate([np.zeros((1, 2)), links]) + 0.5, reach + 0.5]


def _circle(turns: Array) -> tuple[Array, Array]:
    """Return the cosine and sine of 2 pi `turns` with the precision of float32."""
    circle = choose(xla_on_cpu=_circle_by_series, xla=lambda x: (jnp.cos(x), jnp.sin(x)))
    return circle(2 * np.pi * (turns - jnp.round(turns)))


def _circle_by_series(angle: Array) -> tuple[Array, Array]:
    """Compute the cosine and sine of an angle in [-pi, pi] from the Taylor series of half the angle.

    On CPUs, the series is four times as fast as XLA's functions, which call the C library for each sine.
    On GPUs, the series is half as fast as XLA's functions.
    """
    half = angle / 2
    square = jnp.square(half)

    def series(last: int) -> Array:
        """Sum an alternating power series in `square`. The coefficients are 1 / n!, up to n = `last`."""
        total = 0 * square
        for n in range(last, -1, -2):
            total = 1 / math.factorial(n) - square * total
        return total

    cosine, sine = series(12), half * series(13)
    return 1 - 2 * jnp.square(sine), 2 * sine * cosine


@checked
def noisy_arm(*, joints: int = 1000, fitness_noise: float = 0.01, feature_noise: float = 0.01) -> Task:
    """Planar arm with Gaussian noise on the fitness and on the features.

    Args:
        joints: Number of joints. A genotype has one entry in [0, 1] per joint.
        fitness_noise: Standard deviation of the noise on the fitness.
        feature_noise: Standard deviation of the noise on each feature.
    """
    return noisy(arm(joints=joints), fitness=fitness_noise, feature=feature_noise)
