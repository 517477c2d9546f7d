"""Check that each baseline shows its known strengths.

    python benchmarks/baselines.py                   all tables, a few minutes on two CPU cores
    python benchmarks/baselines.py --tables trap     one table

The tables show medians over seeds, at equal numbers of evaluations.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array

import memes
from memes import presets


@dataclasses.dataclass
class Settings:
    """Settings of the comparison."""

    tables: tuple[str, ...] = ("trap", "sphere", "rastrigin", "noise")
    seeds: int = 5
    evaluations: int = 256_000


def trap() -> memes.Task:
    """Return a task with a low fitness peak near the initial genotypes, and a higher peak elsewhere."""

    def evaluate(key: Array, x: Array) -> tuple[Array, Array]:
        x = jnp.clip(x, -1.0, 1.0)
        low, high = 1 - jnp.linalg.norm(x), 3 - 6 * jnp.linalg.norm(x - 0.7)
        return jnp.maximum(low, high), x

    low, high = (-1.0, -1.0), (1.0, 1.0)
    start = memes.uniform(2, -0.3, 0.1)
    return memes.Task("trap", 2, low, high, start, memes.rowwise(evaluate), resolution=(20, 20))


def projection(cost: Callable[[Array], Array], dim: int = 20) -> memes.Task:
    """Return the task "linear projection" from the CMA-ME paper.

    The first feature is the sum of the entries in the first half of the genotype. The second feature is
    the sum of the other entries. Random genotypes therefore mostly have features near 0. The argument of
    `cost` is the difference between the genotype and the optimum. The fitness falls from 100 to 0 as the
    cost rises.
    """
    bound = 5.12
    worst = cost(jnp.full(dim, -1.4 * bound))

    def evaluate(key: Array, x: Array) -> tuple[Array, Array]:
        within = jnp.abs(x) <= bound
        inside = jnp.where(within, x, bound / jnp.where(within, 1.0, x))  # the gradient at 0 is finite
        feature = jnp.stack([jnp.sum(inside[: dim // 2]), jnp.sum(inside[dim // 2 :])])
        return 100 * (1 - cost(x - 0.4 * bound) / worst), feature

    edge = bound * dim / 2
    return memes.Task(
        name="projection",
        dim=dim,
        feature_low=(-edge, -edge),
        feature_high=(edge, edge),
        init=memes.uniform(dim, -0.1, 0.1),
        evaluate=memes.rowwise(evaluate),
        resolution=(100, 100),
    )


def sphere(z: Array) -> Array:
    return jnp.sum(jnp.square(z))


def rastrigin(z: Array) -> Array:
    return jnp.sum(10 + jnp.square(z) - 10 * jnp.cos(2 * jnp.pi * z))


def archives(algorithm: memes.Algorithm, evaluations: int, seeds: int) -> memes.Archive:
    """Return the final archive of each seed, [seeds, ...]."""
    generations = evaluations // (algorithm.batch_size * algorithm.task.cost)

    def run(key: Array) -> memes.Archive:
        init_key, run_key = jax.random.split(key)

        def step(state: memes.State, generation: Array) -> tuple[memes.State, None]:
            return algorithm.step(jax.random.fold_in(run_key, generation), state)[0], None

        state, _ = jax.lax.scan(step, algorithm.init(init_key, generations), jnp.arange(generations))
        return state.archive

    return jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds))


def spread(values: list[float]) -> str:
    return f"{np.median(values):.4g} [{min(values):.4g}, {max(values):.4g}]"


def table(title: str, algorithms: dict[str, memes.Algorithm], s: Settings, loss: bool = False) -> None:
    """Print the scores of each algorithm. If `loss` is true, also print the archive loss."""
    print(f"\n{title}: {s.evaluations:,} evaluations, {s.seeds} seeds, median [smallest, largest]\n")
    print("| | QD-score | coverage | max fitness |" + (" loss of QD-score |" if loss else ""))
    print("|---|---|---|---|" + ("---|" if loss else ""))
    for name, algorithm in algorithms.items():
        found = archives(algorithm, s.evaluations, s.seeds)
        each = [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(s.seeds)]
        scores = [memes.metrics.score(a, algorithm.task.min_fitness) for a in each]
        columns = ["qd_score", "coverage", "max_fitness"]
        cells = [spread([float(score[c]) for score in scores]) for c in columns]
        if loss:
            losses = [memes.archive_loss(a, memes.reevaluate(a, noisy()).archive) for a in each]
            cells.append(spread([x["qd_score"] for x in losses]))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def noisy() -> memes.Task:
    return memes.tasks.noisy_arm(joints=20, fitness_noise=0.05, feature_noise=0.05)


def main(s: Settings) -> None:
    if "trap" in s.tables:
        task, small = trap(), {"samples": 16}
        lasting = small | {"generations": s.evaluations // 17}
        compared = {
            "es": presets.es(task, **small),
            "ns-es": presets.ns_es(task, **lasting),
            "nsr-es": presets.nsr_es(task, **lasting),
            "nsra-es": presets.nsra_es(task, **lasting, patience=5),
            "me-es": presets.me_es(task, **lasting),
        }
        table("Deceptive trap", compared, dataclasses.replace(s, evaluations=s.evaluations // 10))
    for name, cost in (("sphere", sphere), ("rastrigin", rastrigin)):
        if name in s.tables:
            task = projection(cost)
            compared = {
                "me, 0.01 and 0.1": presets.me(task, batch=128),
                "me, 0.5 and 0.2": presets.me(task, batch=128, iso=0.5, line=0.2),
                "cma-me, imp": presets.cma_me(task),
                "cma-me, opt": presets.cma_me(task, ranking="opt"),
                "cma-me, rnd": presets.cma_me(task, ranking="rnd"),
                "cma-me, imp, sep-cma-es": presets.cma_me(task, strategy="sep-cma-es"),
            }
            table(f"{name.capitalize()} in 20 dimensions, linear projection", compared, s)
    if "noise" in s.tables:
        compared = {
            "me": presets.me(noisy(), batch=512),
            "me-sampling": presets.me_sampling(noisy(), batch=16, resamples=32),
        }
        table("Noisy arm of 20 joints", compared, s, loss=True)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
