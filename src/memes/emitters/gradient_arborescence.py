"""The emitter of CMA-MEGA and CMA-MAEGA: search along the gradients of fitness and features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float, Int, Key, PyTree

from memes.archive import Status
from memes.context import Context
from memes.control.perturbations import rows
from memes.emitters.base import Batch, Lanes, Rows, offspring
from memes.emitters.gradients import gradients
from memes.errors import at_least, positive
from memes.objectives import Objective
from memes.pytrees import by_lane, choose, take
from memes.resets import Reason, Reset, Stagnation, reason
from memes.selectors import Selector, Uniform, select
from memes.strategies import Strategy
from memes.task import Task, initial
from memes.validation import check_fields

SMALLEST_NORM = 1e-8  # added to the norm of a gradient, to avoid division by zero


class GradientArborescenceState(NamedTuple):
    """The state of L lanes.

    Attributes:
        mean: Current solution of each lane.
        optimiser: State of the optimiser of the solutions.
        strategy: State of the search distribution of the coefficients.
        coefficients: Coefficients of the samples of this generation.
        objective: State of the objective.
        age: Number of generations since each lane last started.
        stale: Number of consecutive generations in which the judge accepted no sample.
        due: Whether the next `ask` resets each lane.
    """

    mean: Float[Array, "L d"]
    optimiser: PyTree
    strategy: PyTree
    coefficients: Float[Array, "L M g"]
    objective: PyTree
    age: Int[Array, " L"]
    stale: Int[Array, " L"]
    due: Bool[Array, " L"]


@dataclass(frozen=True)
class GradientArborescence:
    """Lanes that sample along gradients at a solution, and move the solution towards the best samples.

    The samples around the solution m are `m + sum_j c_j g_j`. Here g_0 is the gradient of the fitness at
    m, and g_1, ..., g_k are the gradients of the features. Each gradient is divided by its norm. The
    coefficients c are drawn from a search distribution, which learns from the ranks of the samples.

    The optimiser moves the solution along `sum_i w_i (x_i - m)`. The sum is over the best n samples,
    where n is half the number of samples. The i-th best sample x_i has the weight of CMA-ES,
    `w_i = log(n + 1/2) - log(i)`, divided by the sum of all weights. Reference: Fontaine and Nikolaidis,
    Differentiable Quality Diversity, NeurIPS 2021, arXiv:2106.03894.

    The solution and its samples are offered to the archive. Gradients that are not finite are replaced
    by zero. The computation of the gradients is not counted as an evaluation.

    A lane is degenerate if all of its gradients are zero. A lane is reset if it is degenerate, or if the
    rule `reset` applies. The lane then starts again from an elite.

    Attributes:
        objective: The objective that ranks the samples of a lane.
        strategy: Search distribution of the coefficients, usually CMA-ES.
        lanes: Number of solutions.
        step_size: Learning rate of the optimiser.
        optimiser: Function that returns an optax optimiser for a learning rate.
        reset: Rule that determines when a lane is reset. By default, a lane is reset after its first
            generation without an accepted sample.
        selector: Rule that chooses the elite from which a lane starts again.
    """

    objective: Objective
    strategy: Strategy
    lanes: int = 1
    step_size: float = 1.0
    optimiser: Callable[[float], optax.GradientTransformation] = optax.sgd
    reset: Reset = Stagnation(0)
    selector: Selector = Uniform()

    samples: ClassVar[int] = 0
    transitions: ClassVar[bool] = False
    gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self)
        at_least(1, lanes=self.lanes)
        positive(step_size=self.step_size)

    @property
    def persistent(self) -> tuple[bool, ...]:
        """One flag per candidate, which is True for solutions and False for samples."""
        return (True, *(False,) * self.strategy.samples) * self.lanes

    def init(self, key: Key[Array, ""], task: Task) -> GradientArborescenceState:
        """Start every lane at a genotype of `task.init`."""
        mean, entries = initial(task, key, self.lanes), 1 + task.feature_dim
        # `task.init` may split `key` into at most 2**32 - 1 keys. The key of the strategy differs from
        # all of these keys.
        strategy_key = jax.random.fold_in(key, 2**32 - 1)
        zero = jnp.zeros(self.lanes, jnp.int32)
        return GradientArborescenceState(
            mean=mean,
            optimiser=jax.vmap(self._optimiser.init)(mean),
            strategy=self.strategy.init(strategy_key, jnp.zeros((self.lanes, entries))),
            coefficients=jnp.zeros((self.lanes, self.strategy.samples, entries)),
            objective=self.objective.init(self.lanes),
            age=zero,
            stale=zero,
            due=jnp.zeros(self.lanes, bool),
        )

    def ask(
        self, key: Key[Array, ""], state: GradientArborescenceState, context: Context
    ) -> tuple[GradientArborescenceState, Batch]:
        """Reset the lanes that require it, then propose the solutions and their samples."""
        select_key, restart_key, gradient_key, sample_key, objective_key = jax.random.split(key, 5)
        elite = select(self.selector, select_key, context, self.lanes, state.due)
        mean = choose(state.due, elite.x, state.mean)
        fresh = jax.vmap(self._optimiser.init)(mean)
        origin = jnp.zeros_like(state.coefficients[:, 0])
        started = self.strategy.restart(restart_key, state.strategy, state.due, origin)

        found = gradients(context.task, jax.random.split(gradient_key, self.lanes), mean)
        along = jnp.concatenate([found.fitness[:, None], found.feature], axis=1)
        along = along / (jnp.linalg.norm(along, axis=-1, keepdims=True) + SMALLEST_NORM)
        along = jnp.where(jnp.isfinite(along).all(axis=-1, keepdims=True), along, 0.0)
        searching, drawn = self.strategy.ask(sample_key, started)
        coefficients = rows(drawn).reshape(state.coefficients.shape)
        # The terms are summed without a matrix product, so that the samples of a lane do not depend on
        # the number of lanes.
        branches = jnp.sum(coefficients[..., None] * along[:, None], axis=2)
        x = jnp.concatenate([mean[:, None], mean[:, None] + branches], axis=1)

        after = state._replace(
            mean=mean,
            optimiser=choose(state.due, fresh, state.optimiser),
            strategy=searching,
            coefficients=coefficients,
            objective=self.objective.restart(
                objective_key, state.objective, state.due | (state.age == 0)
            ),
            age=jnp.where(state.due, 0, state.age),
            stale=jnp.where(state.due, 0, state.stale),
        )
        lane = jnp.repeat(jnp.arange(self.lanes, dtype=jnp.int32), x.shape[1])
        return after, offspring(x.reshape(-1, x.shape[-1]), lane)

    def tell(
        self, state: GradientArborescenceState, candidates: Rows, samples: Rows, context: Context
    ) -> tuple[GradientArborescenceState, Lanes]:
        """Update the distributions according to the ranks of the samples, and move every solution."""
        told = by_lane(candidates, self.lanes)
        branches = jax.tree.map(lambda leaf: leaf[:, 1:], told)
        objective, utilities = self.objective.utilities(state.objective, branches.evaluation, context)
        searched = self.strategy.tell(state.strategy, state.coefficients, utilities)

        parents = max(1, utilities.shape[1] // 2)
        best = jnp.argsort(-utilities, axis=1)[:, :parents]
        steps = jnp.take_along_axis(branches.x, best[..., None], axis=1) - state.mean[:, None]
        weights = jnp.log(parents + 0.5) - jnp.log(jnp.arange(1, parents + 1))
        step = jnp.sum((weights / jnp.sum(weights))[:, None] * steps, axis=1)
        updates, optimiser = jax.vmap(self._optimiser.update)(-step, state.optimiser, state.mean)
        moved = optax.apply_updates(state.mean, updates), optimiser
        ranked = jnp.any(utilities != 0, axis=1)  # False if no sample could be evaluated
        mean, optimiser = choose(ranked, moved, (state.mean, state.optimiser))

        age = state.age + 1
        accepted = jnp.any(branches.status != Status.REJECTED, axis=-1)
        stale = jnp.where(accepted, 0, state.stale + 1)
        same = jnp.all(branches.x == state.mean[:, None], axis=(1, 2))  # true if all gradients are zero
        unusable = same | ~jnp.isfinite(mean).all(axis=-1)
        why = reason(
            stale=self.reset.earned(stale),
            planned=self.reset.planned(age),
            degenerate=self.strategy.degenerate(searched) | unusable,
        )
        count = told.status.size
        each = count // self.lanes
        first = jnp.arange(count) % each == 0  # a reset is reported once per lane
        parent = jnp.repeat(take(candidates.evaluation.feature, 0, count, each), each, axis=0)
        report = Lanes(
            kind=jnp.full(count, self.objective.kind(context.generation), jnp.int32),
            parent_feature=jnp.where(first[:, None], jnp.nan, parent),
            age=jnp.repeat(age, each),
            stale=jnp.repeat(stale, each),
            reset=jnp.where(first, jnp.repeat(why, each), Reason.NONE),
        )
        after = state._replace(
            mean=mean,
            optimiser=optimiser,
            strategy=searched,
            objective=objective,
            age=age,
            stale=stale,
            due=why != Reason.NONE,
        )
        return after, report

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return self.optimiser(self.step_size)
