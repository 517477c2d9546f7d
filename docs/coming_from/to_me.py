"""Run MAP-Elites from memes on the sphere function."""

import jax.numpy as jnp

import memes


def evaluate(keys, x):
    """Return the fitness and the feature of each genotype."""
    feature = jnp.stack([x[:, :10].mean(axis=1), x[:, 10:].mean(axis=1)], axis=1)
    return -jnp.sum((x - 0.5) ** 2, axis=1), feature


task = memes.Task(
    name="sphere",
    dim=20,
    feature_low=(-1.0, -1.0),
    feature_high=(1.0, 1.0),
    min_fitness=-50.0,
    init=memes.uniform(20, -1.0, 1.0),
    evaluate=evaluate,
)
algorithm = memes.presets.me(task, batch=256, iso=0.01, line=0.1)
run = memes.run(algorithm, generations=400, seed=0)

print(f"coverage {run.metrics['coverage'][-1]:.1%}")
