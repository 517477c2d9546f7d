"""Benchmark cases for `speed.py`. In each round of a case, all implementations do the same work."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from peers import (
    Contestant,
    advancing,
    qdax_me,
    qdax_me_es,
    ribs_cma_mae,
    ribs_cma_me,
    ribs_dns,
)
from policies import ways

import memes
from memes import presets
from memes.control.perturbations import Pairs, rows, scaled
from memes.control.rollouts import Transition, play
from memes.emitters.td3 import TD3, learn, start
from memes.emitters.training import train
from memes.history import Past, novelty
from memes.pytrees import in_chunks
from memes.strategies.noise import Gaussian, LowRank, Noise
from memes.task import PRECISION

Scale = Literal["paper", "laptop"]
NEIGHBOURS, HISTORY = 10, 50_000


class Round(NamedTuple):
    """Implementations that do the same work. One call computes `amount` units, such as generations.

    The first implementation is the reference for the comparison. If an implementation cannot be built,
    its value in `contestants` is a string with the reason.
    """

    title: str
    contestants: dict[str, Contestant | str]
    unit: str = "generation"
    amount: int = 1
    remark: str = ""


def novelty_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Compare the speed of `memes.novelty` with that of a plain distance matrix and `lax.top_k`."""
    queries, times = (8192, 20) if scale == "paper" else (2048, 1)
    near = "in clusters, like samples"
    settings = [(2, 1.0, ""), (2, 1.0, near), (2, 0.5, ""), (1, 1.0, ""), (4, 1.0, ""), (6, 1.0, "")]
    for k, filled, how in settings:
        past_key, query_key, spread_key = jax.random.split(jax.random.key(k), 3)
        feature = jax.random.uniform(past_key, (HISTORY, k))
        past = Past(feature, jnp.arange(HISTORY) < filled * HISTORY)
        if how:
            centre = jnp.repeat(jax.random.uniform(query_key, (16, k)), queries // 16, axis=0)
            query = centre + 0.01 * jax.random.normal(spread_key, (queries, k))
        else:
            query = jax.random.uniform(query_key, (queries, k))
        exact = jax.jit(_plain_novelty)(query, past)

        def score(function: Callable[[Array, Past], Array], query=query, past=past, exact=exact):
            def at(shift: Array) -> Array:  # shifts both arrays to prevent reuse
                return function(query + shift, past._replace(feature=past.feature + shift))

            compiled = jax.jit(lambda shifts: jax.lax.map(at, shifts))
            return Contestant(
                lambda: compiled(jnp.arange(times) * 1e-3),
                lambda found: {"largest error": float(jnp.max(jnp.abs(found[0] - exact)))},
            )

        words = [f"{queries} queries, {HISTORY} features, {k} dimension{'s' * (k > 1)}"]
        words += [f"{filled:.0%} full"] * (filled < 1) + [how] * bool(how)
        yield Round(
            ", ".join(words),
            {
                "memes.novelty": score(partial(novelty, neighbours=NEIGHBOURS)),
                "distance matrix and top_k": score(_plain_novelty),
            },
            unit="call",
            amount=times,
        )


def _plain_novelty(query: Array, past: Past) -> Array:
    # On CPUs, a sum over the last axis would be several times slower than this sum over columns.
    columns = zip(query.T, past.feature.T, strict=True)
    distance = jnp.sqrt(sum(jnp.square(q[:, None] - p) for q, p in columns))
    distance = jnp.where(past.valid, distance, jnp.inf)
    return jnp.mean(-jax.lax.top_k(-distance, NEIGHBOURS)[0], axis=1)


def arm_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Measure how long a generation of MEMES takes on the arm with a full history."""
    sizes = [(32, 512, 1000), (128, 512, 1000)] if scale == "paper" else [(16, 128, 100)]
    authors = {32: "the authors' code takes 20.8 ms on an H200", 128: "the authors' code takes 81.6 ms"}
    generations = 200 if scale == "paper" else 50
    for lanes, samples, joints in sizes:
        algorithm = presets.memes(memes.tasks.arm(joints=joints), lanes=lanes, samples=samples)
        yield Round(
            f"{lanes} lanes of {samples} samples, {joints} joints",
            {"memes": ours(algorithm, generations)},
            amount=generations,
            remark=authors.get(lanes, "") if scale == "paper" else "",
        )


def me_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Compare the speed of MAP-Elites in this library and in QDax, on the arm."""
    paper, laptop = (16_384, 1000, 200), (2048, 100, 50)
    for batch, joints, generations in [paper] if scale == "paper" else [laptop, (*paper[:2], 3)]:
        task = memes.tasks.arm(joints=joints)
        yield Round(
            f"{batch} offspring, {joints} joints",
            {
                "memes": ours(presets.me(task, batch=batch), generations),
                "qdax": built(qdax_me, task, batch=batch, generations=generations),
            },
            amount=generations,
        )


def me_es_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Compare the speed of ME-ES in this library and in QDax, on the arm."""
    generations = 100  # ME-ES alternates between ten generations for novelty and ten for fitness
    sizes = [(10_000, 1000)] if scale == "paper" else [(1000, 100), (10_000, 100)]
    for samples, joints in sizes:
        task = memes.tasks.arm(joints=joints)
        capacity = generations * (1 + repeats)
        yield Round(
            f"{samples} samples, {joints} joints",
            {
                "memes": ours(presets.me_es(task, samples=samples), generations, capacity),
                "qdax": built(
                    qdax_me_es, task, samples=samples, generations=generations, capacity=capacity
                ),
            },
            unit="evaluation",
            amount=generations * (samples + 1),
        )


def cma_me_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Compare the speed of CMA-ME in this library and in pyribs, on the arm with 100 joints."""
    # With the default sigma of 0.5, nearly all emitters restart in each generation.
    options = {"pool": 15, "batch": 128, "sigma": 0.1}
    turns, task = 20, memes.tasks.arm(joints=100)
    yield Round(
        "15 emitters of 128, 100 joints",
        {
            "memes": built(ours_cma_me, task, turns=turns, **options),
            "pyribs": built(ribs_cma_me, task, turns=turns, **options),
        },
        unit="evaluation",
        amount=options["pool"] * options["batch"] * turns,
    )


def ours_cma_me(task: memes.Task, *, turns: int, pool: int, **options: Any) -> Contestant:
    import evosax  # noqa: F401 (its absence raises an ImportError here)

    return ours(presets.cma_me(task, pool=pool, **options), pool * turns)


def cma_mae_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Compare the speed of CMA-MAE in this library and in pyribs, on the arm with 100 joints."""
    options = {"lanes": 15, "samples": 36, "sigma": 0.1}
    turns, task = 20, memes.tasks.arm(joints=100)
    yield Round(
        "15 emitters of 36, 100 joints",
        {
            "memes": built(ours_cma_mae, task, turns=turns, **options),
            "pyribs": built(ribs_cma_mae, task, turns=turns, **options),
        },
        unit="evaluation",
        amount=options["lanes"] * options["samples"] * turns,
    )


def ours_cma_mae(task: memes.Task, *, turns: int, **options: Any) -> Contestant:
    import evosax  # noqa: F401 (its absence raises an ImportError here)

    return ours(presets.cma_mae(task, **options), turns)


def dns_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Compare the speed of DNS in this library and in pyribs, on the arm with 100 joints."""
    options = {"batch": 540, "iso": 0.01, "line": 0.1}
    turns, task = 20, memes.tasks.arm(joints=100)
    yield Round(
        "540 offspring, a population of 1 024, 100 joints",
        {
            "memes": ours(presets.dns(task, **options), turns),
            "pyribs": built(ribs_dns, task, turns=turns, **options),
        },
        unit="evaluation",
        amount=options["batch"] * turns,
    )


def ant_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Compare the speed of MEMES, MAP-Elites and plain rollouts on the ant.

    CPUs use smaller sizes.
    """
    lanes, samples, generations = (32, 512, 10) if scale == "paper" else (8, 64, 1)
    task = memes.tasks.ant()
    algorithm = presets.memes(task, lanes=lanes, samples=samples)
    n = algorithm.batch_size
    yield Round(
        f"{lanes} lanes of {samples} samples, 250 control steps",
        {
            "rollouts alone": rollouts(task, n, generations),
            "memes": ours(algorithm, generations),
            "me": ours(presets.me(task, batch=n), generations),
        },
        amount=generations,
    )


def pga_me_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Measure the speed of PGA-ME on the ant.

    The training of the critics is measured twice: with the function that runs use, and in plain XLA. On
    CPUs, the sizes are smaller.
    """
    task = memes.tasks.ant()
    steps, size = (5000, 1_000_000) if scale == "paper" else (20, 50_000)
    settings = TD3(num_critic_training_steps=steps, replay_size=size)
    learner, replay = start(jax.random.key(0), task, settings)
    keys = iter(jax.random.split(jax.random.key(1), len(replay.rows)))
    drawn = (jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, replay.rows, strict=True))
    drawn = (x > 1 if leaf.dtype == bool else x for x, leaf in zip(drawn, replay.rows, strict=True))
    full = replay._replace(rows=Transition(*drawn), pushed=jnp.int32(size))

    def trained(how: Callable[..., Any]) -> Contestant:
        def step(carry, _):
            learner, key = carry
            key, own = jax.random.split(key)
            with jax.default_matmul_precision(PRECISION):
                return (how(own, learner, full, task, settings), key), None

        return Contestant(advancing(step, (learner, jax.random.key(2)), 1), lambda _: {})

    ways = {"as in runs": trained(train), "in plain XLA": trained(learn)}
    yield Round("training of the critics", ways, unit="critic step", amount=steps)
    options = {"num_critic_training_steps": steps, "replay_size": size}
    options |= {} if scale == "paper" else {"batch": 16, "gradient_steps": 2}
    algorithm = presets.pga_me(task, **options)
    title = f"{algorithm.batch_size} offspring, {steps} critic steps"
    yield Round(title, {"pga-me": ours(algorithm, 3)}, amount=3)


def policy_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Compare the speed of several memory layouts for the policy weights of mirrored samples."""
    lanes, pairs, steps = (32, 256, 250) if scale == "paper" else (8, 16, 50)
    yield Round(
        f"policies of 27-64-64-8, {lanes} lanes of {pairs} pairs",
        dict(ways(lanes, pairs, steps)),
        unit="control step",
        amount=steps,
    )


def rollouts_case(scale: Scale, repeats: int) -> Iterator[Round]:
    """Compare the speed of rollouts with factored samples, with whole samples, and without policies."""
    task, steps = memes.tasks.ant(), 250
    assert task.control is not None
    environment, controller = task.control.environment, task.control.controller

    def by(act: Callable[[Array], Callable[[Array, Array], Array]]) -> Callable[..., Any]:
        def episodes(keys: Array, x: Array) -> Any:
            return in_chunks(lambda k, x: play(environment, act(x), k)[0], environment.at_once, keys, x)

        return jax.jit(episodes)

    by_xla = by(lambda x: partial(controller.act, controller.parameters(x)))
    physics = by(lambda x: lambda observation, t: x[:, : environment.action_size])
    in_factors, whole = jax.jit(task.evaluate.factors), jax.jit(task.evaluate.rows)  # type: ignore[union-attr]
    for lanes, samples in [(8, 256), (32, 512)]:
        n = lanes * samples
        keys = jax.random.split(jax.random.key(0), n)
        mean = task.init(jax.random.key(1), lanes)

        def drawn(noise: Noise, shape=(lanes, samples // 2, task.dim), mean=mean) -> Pairs:
            return Pairs(mean, scaled(noise(jax.random.key(2), shape), 0.02))

        pairs, thin = drawn(Gaussian()), drawn(LowRank(4, controller.blocks))
        calls = {
            "in factors": partial(in_factors, keys, mean[:0], pairs),
            "in factors, noise of rank 4": partial(in_factors, keys, mean[:0], thin),
            "whole": partial(whole, keys, rows(pairs)),
            "whole, by XLA": partial(by_xla, keys, rows(pairs)),
            "physics alone": partial(physics, keys, rows(pairs)),
        }
        yield Round(
            f"{lanes} lanes of {samples} samples",
            {name: Contestant(call, lambda _: {}) for name, call in calls.items()},
            unit="control step of one ant",
            amount=n * steps,
        )


def rollouts(task: memes.Task, n: int, generations: int) -> Contestant:
    """Return an implementation that only computes rollouts of `n` different genotypes per generation."""
    init_key, key = jax.random.split(jax.random.key(0))
    x = task.init(init_key, n)

    def step(carry, _):
        key, total, x = carry
        key, rows_key = jax.random.split(key)
        # Scale genotypes by a factor near 1 that varies, so that the compiler cannot reuse results.
        found = task.evaluate(jax.random.split(rows_key, n), x * (1 + 1e-9 * total))
        return (key, total + jnp.mean(found.fitness) + jnp.mean(found.feature), x), None

    return Contestant(advancing(step, (key, jnp.float32(0), x), generations), lambda _: {})


def ours(algorithm: memes.Algorithm, generations: int, length: int | None = None) -> Contestant:
    """Return an implementation that runs an algorithm with a history of `length` generations.

    If `length` is None, the history has a fixed size and is full from the start.
    """
    task = algorithm.task
    init_key, past_key, key = jax.random.split(jax.random.key(0), 3)
    state = algorithm.init(init_key, length)
    if length is None:
        low, high = (jnp.asarray(bound, jnp.float32) for bound in (task.feature_low, task.feature_high))
        feature = jax.random.uniform(past_key, (HISTORY, task.feature_dim), minval=low, maxval=high)
        full = algorithm.history.push(state.history, feature, jnp.ones(HISTORY, bool))
        state = state._replace(history=full)

    def step(carry, _):
        state, key = carry
        key, generation_key = jax.random.split(key)
        return (algorithm.step(generation_key, state)[0], key), None

    def outcome(carry) -> dict[str, float]:
        found = memes.metrics.score(carry[0].archive, task.min_fitness)
        return {"QD-score": float(found["qd_score"]), "coverage": float(found["coverage"])}

    return Contestant(advancing(step, (state, key), generations), outcome)


def built(make: Callable[..., Contestant], *arguments: Any, **options: Any) -> Contestant | str:
    """Return an implementation, or the reason why it cannot be built."""
    try:
        return make(*arguments, **options)
    except ImportError as error:
        return f"{error.name} is not installed"


CASES = {
    "novelty": novelty_case,
    "arm": arm_case,
    "me": me_case,
    "me-es": me_es_case,
    "cma-me": cma_me_case,
    "cma-mae": cma_mae_case,
    "dns": dns_case,
    "ant": ant_case,
    "pga-me": pga_me_case,
    "policy": policy_case,
    "rollouts": rollouts_case,
}
