"""Compare `presets.memes` with Algorithm 1 of the paper, which evaluates twice per generation.

`straightforward` is a separate implementation of Algorithm 1. It evaluates the samples and the updated
means in two calls, and resets lanes immediately. It shares only the task with the library.
Both implementations use the same seeds. The table compares their scores and the time per generation.

    python benchmarks/two_calls.py --joints 1000 --generations 2000 --seeds 10      (on a GPU)
    python benchmarks/two_calls.py --joints 100 --lanes 8 --samples 64 --generations 300 --seeds 3
"""

import dataclasses
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array

import memes

CELLS, FIFO, NEIGHBOURS, BUDGET, SIGMA, RATE = 50, 50_000, 10, 32, 0.02, 0.01


@dataclasses.dataclass
class Settings:
    """Settings of the comparison."""

    joints: int = 1000
    lanes: int = 32
    samples: int = 512
    generations: int = 2000
    seeds: int = 10


def straightforward(s: Settings) -> Callable[[Array], tuple[Array, Array]]:
    """Return a function of a PRNG key that runs Algorithm 1 and returns the QD-score and coverage.

    Half of the lanes explore.
    """
    task = memes.tasks.arm(joints=s.joints)

    def ranks(values):
        order = jnp.argsort(jnp.argsort(values, axis=-1), axis=-1)
        return order / (values.shape[-1] - 1) - 0.5

    def novelty(feature, history, size):
        """Return the mean distance of each feature to the ten nearest features in the history."""

        def block(queries):
            distance = jnp.linalg.norm(queries[None] - history, axis=-1)
            distance = jnp.where(jnp.arange(FIFO) < size, distance, jnp.inf)
            nearest = -jax.lax.top_k(-distance, NEIGHBOURS)[0]
            return jnp.mean(nearest, where=jnp.isfinite(nearest))

        return jax.lax.map(block, feature, batch_size=1024)

    def generation(carry, key):
        theta, m, v, t, stale, require, archive, history, size = carry
        noise_key, reset_key = jax.random.split(key)
        genotypes, fitness_of_cell = archive
        filled = fitness_of_cell > -jnp.inf
        elite = jax.random.choice(reset_key, CELLS**2, (s.lanes,), p=filled / jnp.sum(filled))
        theta = jnp.where(require[:, None], genotypes[elite], theta)
        m, v = (jnp.where(require[:, None], 0, moment) for moment in (m, v))
        t, stale = jnp.where(require, 0, t), jnp.where(require, 0, stale)

        # Step of the evolution strategies.

        half = jax.random.normal(noise_key, (s.lanes, s.samples // 2, s.joints))
        noise = jnp.concatenate([half, -half], axis=1)
        sampled = task.evaluate(None, (theta[:, None] + SIGMA * noise).reshape(-1, s.joints))
        fitness = sampled.fitness.reshape(s.lanes, -1)
        explored = sampled.feature.reshape(s.lanes, s.samples, 2)[s.lanes // 2 :].reshape(-1, 2)
        novel = novelty(explored, history, size).reshape(-1, s.samples)
        objective = jnp.concatenate([fitness[: s.lanes // 2], novel])
        utility = ranks(objective)
        gradient = jnp.einsum("lm,lmd->ld", utility, noise, precision="highest")
        gradient = gradient / (s.samples * SIGMA)
        t = t + 1
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        bias_m, bias_v = 1 - 0.9 ** t[:, None], 1 - 0.999 ** t[:, None]
        theta = theta + RATE * (m / bias_m) / (jnp.sqrt(v / bias_v) + 1e-8)

        offspring = task.evaluate(None, theta)
        cell = jnp.clip(jnp.floor(offspring.feature * CELLS), 0, CELLS - 1).astype(int)
        cell = cell[:, 0] * CELLS + cell[:, 1]

        def offer(archive, lane):
            genotypes, best = archive
            added = offspring.fitness[lane] > best[cell[lane]]
            row = jnp.where(added, theta[lane], genotypes[cell[lane]])
            score = jnp.where(added, offspring.fitness[lane], best[cell[lane]])
            return (genotypes.at[cell[lane]].set(row), best.at[cell[lane]].set(score)), added

        archive, added = jax.lax.scan(offer, archive, jnp.arange(s.lanes))
        slot = (jnp.arange(s.lanes) + size) % FIFO
        history = history.at[slot].set(offspring.feature)
        stale = jnp.where(added, 0, stale + 1)
        return (theta, m, v, t, stale, stale > BUDGET, archive, history, size + s.lanes), None

    @jax.jit
    def run(key):
        init_key, run_key = jax.random.split(key)
        zeros, none = jnp.zeros((s.lanes, s.joints)), jnp.zeros(s.lanes, int)
        archive = jnp.zeros((CELLS**2, s.joints)), jnp.full(CELLS**2, -jnp.inf)
        theta = jax.random.uniform(init_key, (s.lanes, s.joints))
        carry = (theta, zeros, zeros, none, none, none > 0, archive, jnp.zeros((FIFO, 2)), 0)
        carry, _ = jax.lax.scan(generation, carry, jax.random.split(run_key, s.generations))
        best = carry[6][1]
        return jnp.sum(jnp.where(best > -jnp.inf, best, 0)), jnp.mean(best > -jnp.inf)

    return run


def library(s: Settings) -> Callable[[Array], tuple[Array, Array]]:
    """Return a function of a PRNG key that runs MEMES and returns the QD-score and coverage."""
    task = memes.tasks.arm(joints=s.joints)
    algorithm = memes.presets.memes(task, lanes=s.lanes, samples=s.samples)

    @jax.jit
    def run(key):
        init_key, run_key = jax.random.split(key)
        keys = jax.random.split(run_key, s.generations)
        state, _ = jax.lax.scan(
            lambda state, key: (algorithm.step(key, state)[0], None), algorithm.init(init_key), keys
        )
        return memes.metrics.qd_score(state.archive), memes.metrics.coverage(state.archive)

    return run


def main(s: Settings) -> None:
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {s}")
    for name, make in (("straightforward, two calls", straightforward), ("memes, one call", library)):
        run = make(s).lower(jax.random.key(0)).compile()
        scores, seconds = [], []
        for seed in range(s.seeds):
            start = time.perf_counter()
            scores.append(jax.device_get(run(jax.random.key(seed))))
            seconds.append(time.perf_counter() - start)
        qd, coverage = np.asarray(scores).T
        print(
            f"{name:27}  QD-score {np.median(qd):7.1f} [{qd.min():.1f}, {qd.max():.1f}]  coverage "
            f"{np.median(coverage):.1%} [{coverage.min():.1%}, {coverage.max():.1%}]  "
            f"{np.median(seconds) / s.generations * 1e3:.3f} ms per generation"
        )


if __name__ == "__main__":
    main(tyro.cli(Settings))
