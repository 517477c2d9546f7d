"""Annotated shapes are correct, and the checks detect wrong shapes."""

import dataclasses
import subprocess
import sys
import typing
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import jaxtyping
import pytest
from jaxtyping import TypeCheckError

import memes
import shapes
from memes import metrics
from memes.archive import add, empty, finite
from memes.context import Context
from memes.control.rollouts import rollout
from memes.emitters.gradients import gradients
from memes.emitters.td3 import TD3, sample
from memes.estimates import reevaluate, reevaluator
from memes.history import Past, Ring, novelty, push
from memes.judges import Offer
from memes.objectives import centred_ranks
from memes.pytrees import choose
from memes.selectors import Uniform, select
from memes.task import Evaluation, evaluate, initial

MAZE = memes.tasks.point_maze(steps=4, hidden=(3,), uncertain=True)


def slopes(keys, x):
    """Return gradients for a task whose policies run in a kernel that JAX cannot differentiate."""
    return jnp.ones_like(x), jnp.ones((x.shape[0], MAZE.feature_dim, x.shape[1]))


@pytest.fixture(scope="module")
def instances():
    """Instances of all core types that contain arrays, by name. The instances come from runs."""
    small = {"samples": 4}
    algorithms = [
        memes.presets.memes(MAZE, lanes=2, fifo_size=8, noise="low-rank", rank=1, **small),
        memes.presets.nsra_es(MAZE, population_size=2, **small),
        memes.compose(
            MAZE,
            memes.emitters.CMA(
                memes.objectives.Fitness(), strategy=memes.strategies.OpenAIES(samples=4)
            ),
        ),
        memes.presets.dns(MAZE, batch=2, population_size=3),
        memes.presets.extract_me(MAZE, batch=4, depth=2),
        memes.presets.cma_mega(dataclasses.replace(MAZE, gradients=slopes), samples=4),
        memes.compose(MAZE, memes.emitters.PolicyGradient(2, steps=1, td3=TD3(2, 100, 4, (3,)))),
    ]
    found = {}

    def gather(tree):
        nodes = [tree]
        while nodes:
            node = nodes.pop()
            if hasattr(node, "_fields") or dataclasses.is_dataclass(node):
                found.setdefault(type(node).__name__, node)
            if isinstance(node, (tuple, list)):
                nodes += list(node)

    def generation(algorithm):
        state = algorithm.init(jax.random.key(0), 2)
        asked, batch = algorithm.ask(jax.random.key(1), state)
        evaluation = algorithm.evaluate(jax.random.key(2), batch)
        after, info = algorithm.tell(asked, batch, evaluation)
        past = algorithm.history.past(after.history, after.archive)
        compare = partial(algorithm.judge.compare, after.judge, after.archive)
        context = Context(MAZE, after.generation, after.archive, after.archive, past, compare)
        outcome = algorithm.assess(batch, evaluation)
        answer = algorithm.insert(asked, outcome)[1]
        individuals = select(Uniform(), jax.random.key(4), context, 2)
        compared = compare(outcome.candidates.evaluation)
        return after, batch, evaluation, info, outcome, answer, individuals, past, compared

    for algorithm in algorithms:
        # Only shapes matter, so nothing is computed.
        shaped = jax.eval_shape(partial(generation, algorithm))
        built = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shaped)
        after, batch, evaluation, info, outcome, answer, *_ = built
        gather((built, Offer(outcome.candidates, answer.status, after.generation)))
    archive = after.archive
    rows = memes.emitters.Rows(batch.x, evaluation._replace(transitions=None), info.status)
    lanes = memes.emitters.Lanes(*(getattr(info, name) for name in memes.emitters.Lanes._fields))
    episodes = rollout(MAZE.control, jax.random.split(jax.random.key(5), 2), batch.x, lambda step: step)
    steps = jax.tree.map(lambda leaf: leaf[0], episodes[1])
    again = reevaluator(MAZE, 2, statistic=jnp.nanmedian, rows=8, most=2)
    estimates = again.estimate(jax.random.key(6), archive.genotypes, jnp.arange(2))
    corrected = reevaluate(archive, MAZE, 2)
    gather((rows, lanes, episodes[0], steps, estimates, corrected, metrics.measure(archive, info)))
    gather(metrics.deviations(replace(archive, cells=memes.cells.grid(MAZE)), corrected))
    differentiable = replace(MAZE, gradients=slopes)
    gather(gradients(differentiable, jax.random.split(jax.random.key(9), len(batch.x)), batch.x))
    held = replace(archive, fitness=jnp.zeros_like(archive.fitness))
    gather(held.sample(jax.random.key(8), 3))
    gather((memes.cells.grid(MAZE), memes.cells.cvt(jax.random.key(7), MAZE, 5, points=50)))
    return found


TYPES = [*shapes.shaped_types(), "Archive", "Grid", "CVT"]


@pytest.mark.parametrize("name", TYPES)
def test_a_wrong_shape_in_any_field_is_detected(instances, name):
    right = instances[name]
    shapes.check_fields(right)
    hints = typing.get_type_hints(type(right))
    planted = 0
    for field, hint in hints.items():
        value = getattr(right, field)
        if getattr(hint, "dtype", None) is jaxtyping.Shaped:
            continue  # a number of any shape
        if hasattr(hint, "dim_str") and "*" not in hint.dim_str:
            wrongs = [jnp.asarray(value)[None], jnp.asarray(value, jnp.complex64)]
        elif hasattr(hint, "dim_str"):
            wrongs = [jnp.asarray(value, jnp.complex64)]
        else:
            continue
        for wrong in wrongs:
            planted += 1
            changed = dataclasses.replace if dataclasses.is_dataclass(right) else type(right)._replace
            with pytest.raises((TypeError, TypeCheckError), match=field):
                shapes.check_fields(changed(right, **{field: wrong}))
    assert planted >= 1


@pytest.mark.parametrize("name", ["Evaluation", "Transition", "Generation", "Rows"])
def test_fields_must_have_equal_leading_axes(instances, name):
    right = instances[name]
    field = "fitness" if name == "Evaluation" else next(n for n in right._fields if n != "evaluation")
    with pytest.raises(TypeError):
        shapes.check_fields(right._replace(**{field: getattr(right, field)[None]}))


def test_a_tuple_is_checked_where_the_library_builds_it():
    """A test fails if the library builds a tuple with a wrong shape. Custom classes are not checked."""

    class Broken(memes.emitters.Isoline):
        def ask(self, key, state, context):
            state, batch = super().ask(key, state, context)
            return state, batch._replace(offered=batch.offered.astype(float))

    broken = memes.compose(MAZE, Broken(3))
    with pytest.raises(TypeError, match=r"Batch.offered must be Bool"):
        broken.ask(jax.random.key(0), broken.init(jax.random.key(1)))


ONES = jnp.ones((3, 2))
ARCHIVE = empty(memes.cells.grid(MAZE, (3, 3)), 2)
EVALUATION = Evaluation(jnp.ones(3), ONES)
KEYS = jax.random.split(jax.random.key(0), 3)
WRONG_CALLS = {
    "add": lambda: add(
        ARCHIVE, ONES, EVALUATION, jnp.ones(4, bool), lane=jnp.arange(3), generation=0
    ),
    "add of floats as lanes": lambda: add(
        ARCHIVE, ONES, EVALUATION, jnp.ones(3, bool), lane=jnp.ones(3), generation=0
    ),
    "novelty": lambda: novelty(jnp.ones(2), Past(ONES, jnp.ones(3, bool)), 2),
    "centred_ranks": lambda: centred_ranks(ONES, jnp.ones(3, bool)),
    "evaluate": lambda: evaluate(MAZE, KEYS, jnp.ones((4, MAZE.dim))),
    "initial": lambda: initial(MAZE, KEYS, 3),
    "rollout": lambda: rollout(MAZE.control, KEYS[:2], jnp.ones((3, MAZE.dim))),
    "push": lambda: push(Ring(ONES, jnp.int32(0)), ONES, jnp.ones((3, 1), bool)),
    "choose": lambda: choose(jnp.ones((3, 1), bool), ONES, ONES),
    "index": lambda: ARCHIVE.cells.index(jnp.ones((3, 2), bool)),
    "cvt": lambda: memes.cells.cvt(KEYS, MAZE, 3),
    "sample": lambda: sample(KEYS, Ring(ONES, jnp.int32(1)), 2),
    "step": lambda: memes.presets.es(MAZE, samples=4).step(KEYS, None),
    "finite": lambda: finite(ONES),
}  # fmt: skip


@pytest.mark.parametrize("call", WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_a_wrong_shape_in_a_call_is_detected(call):
    with pytest.raises(TypeCheckError):
        call()


def test_shapes_are_checked_only_in_tests():
    code = "import sys, memes.archive; sys.exit('beartype' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
