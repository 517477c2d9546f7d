"""Run CMA-ME from memes on the sphere function."""

import jax.numpy as jnp

import memes


def evaluate(key, x):
    """Return the fitness and the feature of one genotype."""
    return -jnp.sum((x - 0.5) ** 2), jnp.stack([x[:10].mean(), x[10:].mean()])


task = memes.Task(
    name="sphere",
    dim=20,
    feature_low=(-1.0, -1.0),
    feature_high=(1.0, 1.0),
    min_fitness=-50.0,
    init=lambda key, n: jnp.zeros((n, 20)),
    evaluate=memes.rowwise(evaluate),
)
algorithm = memes.presets.cma_me(task, batch=64, pool=4, sigma=0.5)
run = memes.run(algorithm, generations=400, seed=0)  # the four emitters take turns

print(f"coverage {run.metrics['coverage'][-1]:.1%}")
