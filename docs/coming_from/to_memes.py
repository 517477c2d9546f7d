"""Run MEMES on the sphere function. Each of the eight lanes uses CMA-ES from evosax."""

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
    init=memes.uniform(20, -1.0, 1.0),
    evaluate=memes.rowwise(evaluate),
)
strategy = memes.strategies.Evosax("cma-es", samples=64, sigma=0.1)
algorithm = memes.presets.memes(task, lanes=8, strategy=strategy)
run = memes.run(algorithm, generations=100, seed=0)

print(f"best fitness {run.metrics['max_fitness'][-1]:.4f}, coverage {run.metrics['coverage'][-1]:.1%}")
