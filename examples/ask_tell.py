"""A custom loop: ask for genotypes, evaluate them in any way, and tell the algorithm the results."""

import jax
import numpy as np

import memes

task = memes.tasks.arm(joints=10)
algorithm = memes.presets.memes(task, lanes=8, samples=32)
init, ask, tell = jax.jit(algorithm.init), jax.jit(algorithm.ask), jax.jit(algorithm.tell)


def my_simulator(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the fitness [n] and the features [n, k] of genotypes [n, d]."""
    angle = np.cumsum(2 * np.pi * np.clip(x, 0, 1) - np.pi, axis=1)
    end = np.stack([np.cos(angle).mean(axis=1), np.sin(angle).mean(axis=1)], axis=1)
    return 1 - np.clip(x, 0, 1).std(axis=1), end / 2 + 0.5


if __name__ == "__main__":
    init_key, run_key = jax.random.split(jax.random.key(0))
    state = init(init_key)
    for generation in range(100):
        state, batch = ask(jax.random.fold_in(run_key, generation), state)
        fitness, feature = my_simulator(np.asarray(batch.x))
        state, info = tell(state, batch, (fitness, feature))
        if generation % 20 == 0:
            print(f"{generation}: coverage {memes.metrics.coverage(state.archive):.1%}")
