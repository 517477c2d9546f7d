"""A custom task in about ten lines: feature bounds, initial genotypes, and evaluation of one genotype.

To run the task from the shell, use `memes run examples/custom_task.py:task --scale laptop`. The option
`--view` shows the elites in the browser. You can also run this file as a Python program.
"""

import jax
import jax.numpy as jnp
import numpy as np

import memes


def evaluate(key: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the fitness (sphere function) and the features (mean of each half of the genotype)."""
    return -jnp.sum((x - 0.5) ** 2), jnp.stack([jnp.mean(x[:10]), jnp.mean(x[10:])])


def draw(x: np.ndarray) -> list[np.ndarray]:
    """Return two lines that `memes view` draws: the entries of a genotype, and the optimum."""
    along = np.linspace(0, 3, len(x))
    return [np.stack([along, x], axis=1), np.array([(0, 0.5), (3, 0.5)])]


task = memes.Task(
    name="sphere",
    dim=20,
    feature_low=(-1.0, -1.0),
    feature_high=(1.0, 1.0),
    feature_names=("mean of the first half", "mean of the second half"),  # used in figures
    min_fitness=-50.0,
    init=memes.uniform(20, -1.0, 1.0),
    evaluate=memes.rowwise(evaluate),
    draw=draw,  # optional
)

if __name__ == "__main__":
    algorithm = memes.presets.memes(task, lanes=8, samples=64)
    result = memes.run(algorithm, generations=200, seed=0)
    print(f"coverage {result.metrics['coverage'][-1]:.1%}")
