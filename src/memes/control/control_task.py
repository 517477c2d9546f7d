"""Construction of tasks whose genotypes are controllers of an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from memes.control.perturbations import Pairs, Repeats, by_chunks
from memes.control.rollouts import Control, Controller, Environment, Episodes, play, rollout, transitions
from memes.errors import at_least
from memes.pytrees import in_32_bits, in_chunks
from memes.task import Evaluation, FactoredEvaluate, Task


def control_task(
    name: str,
    environment: Environment,
    controller: Controller,
    *,
    fitness: Callable[[Episodes], Float[Array, " n"]],
    feature: Callable[[Episodes], Float[Array, "n k"]],
    feature_low: Sequence[float],
    feature_high: Sequence[float],
    **about: Any,
) -> Task:
    """Build a task whose genotypes are controllers.

    If the simulator fails in an episode, the fitness of the episode is NaN. Failed evaluations are
    counted as evaluations, but archives do not store them.

    Args:
        name: Short name, used in files and figures.
        environment: The environment.
        controller: The controller, whose parameters are the genotypes.
        fitness: `(episodes) -> fitness[n]`, the fitness of each episode.
        feature: `(episodes) -> feature[n, k]`, the feature of each episode.
        feature_low: Lower bound of each feature.
        feature_high: Upper bound of each feature.
        **about: Further fields of the `Task`, such as `min_fitness` and `uncertain`.
    """
    at_least(1, steps=environment.steps)

    def score(episodes: Episodes) -> tuple[Array, Array]:
        return jnp.where(episodes.failed, jnp.nan, fitness(episodes)), feature(episodes)

    control = Control(environment, controller, score)

    @in_32_bits
    def evaluate(keys: Array, x: Any) -> Evaluation:
        episodes = in_chunks(lambda keys, x: rollout(control, keys, x)[0], environment.at_once, keys, x)
        return Evaluation(*score(episodes))

    @in_32_bits
    def evaluate_factors(keys: Array, candidates: Repeats, samples: Pairs) -> Evaluation:
        in_factors = controller.in_factors
        assert in_factors is not None

        def play_some(keys: Array, candidates: Repeats, samples: Pairs) -> Episodes:
            return play(environment, in_factors(candidates, samples), keys)[0]

        return Evaluation(*score(by_chunks(play_some, environment.at_once, keys, candidates, samples)))

    @in_32_bits
    def evaluate_transitions(keys: Array, x: Array) -> Evaluation:
        episodes, taken = transitions(control, keys, x)
        rows_first = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), taken)
        return Evaluation(*score(episodes), transitions=rows_first)

    return Task(
        name=name,
        dim=controller.dim,
        feature_low=feature_low,
        feature_high=feature_high,
        init=controller.init,
        evaluate=FactoredEvaluate(evaluate, evaluate_factors) if controller.in_factors else evaluate,
        evaluate_transitions=evaluate_transitions,
        control=control,
        trees=controller.trees,
        **about,
    )
