"""A task that JAX cannot compile, because its simulator is ordinary Python code with NumPy arrays.

With `jit=False`, the library calls the simulator on the host, once per generation, with all genotypes of
this generation. To run the task from the shell, use `memes run examples/python_simulator.py:task`.
"""

import jax
import numpy as np

import memes


def simulate(keys: jax.Array, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Simulate one throw of a ball per genotype. A genotype sets the speed and the angle of the throw.

    The fitness is higher for slower throws.
    """
    speed, angle = 5 + 15 * np.clip(x[:, 0], 0, 1), np.pi / 2 * np.clip(x[:, 1], 0, 1)
    position = np.zeros((len(x), 2))
    velocity = np.stack([speed * np.cos(angle), speed * np.sin(angle)], axis=1)
    highest = np.zeros(len(x))
    flying = np.ones(len(x), bool)
    for _ in range(400):
        velocity[flying] += 0.01 * np.array([0.0, -9.81]) - 0.001 * velocity[flying]
        position[flying] += 0.01 * velocity[flying]
        highest = np.maximum(highest, position[:, 1])
        flying &= position[:, 1] > 0
    return -speed, np.stack([position[:, 0], highest], axis=1)


task = memes.Task(
    name="throw",
    dim=2,
    feature_low=(0.0, 0.0),
    feature_high=(40.0, 20.0),
    feature_names=("distance (m)", "height (m)"),
    min_fitness=-20.0,
    init=memes.uniform(2, 0.0, 1.0),
    evaluate=simulate,
    jit=False,
)

if __name__ == "__main__":
    result = memes.run(memes.presets.memes(task, lanes=8, samples=32), generations=50, seed=0)
    print(f"coverage {result.metrics['coverage'][-1]:.1%}")
