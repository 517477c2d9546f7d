"""All presets satisfy the same protocol, on deterministic and uncertain tasks."""

import inspect
import json
import pickle
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import memes
from memes.archive import Status
from memes.context import Kind
from memes.deep_archive import DeepArchive
from memes.estimates import Candidates
from memes.parameters import changed, parameters, writable
from memes.presets import Memes, Search
from memes.resets import Reason
from memes.strategies import Evosax, OpenAIES
from memes.strategies.noise import LowRank

SMALL = {
    "lanes": 4, "samples": 8, "batch": 40, "stale_budget": 2, "reset_every": 3, "every": 3,
    "population_size": 3, "resamples": 2, "pool": 3, "num_critic_training_steps": 4,
    "gradient_steps": 2, "replay_size": 500, "transitions_batch": 8, "critic_hidden": (4,),
}  # fmt: skip
TASKS = {
    "arm": memes.tasks.arm(joints=4),
    "noisy-arm": memes.tasks.noisy_arm(joints=4, fitness_noise=0.1, feature_noise=0.05),
}
MAZES = {  # tasks for presets that learn from transitions
    "maze": memes.tasks.point_maze(steps=6, hidden=(3,)),
    "noisy-maze": memes.tasks.point_maze(steps=6, hidden=(3,), uncertain=True),
}
GENERATIONS = 12


def build(preset, task):
    """Build a small version of a preset, without changing the options that define the preset."""
    function = memes.PRESETS[preset].build
    accepted = parameters(function)
    options = {name: value for name, value in SMALL.items() if name in accepted}
    if preset != "memes-fixed-reset":
        options.pop("reset_every", None)
    if preset == "memes-hybrid":
        options |= {"lanes": 2, "candidate_samples": 2}
    return function(task, memes.cells.grid(task, (10, 10)), **options)


# Uncertainty affects only the task, so it is sufficient to test a few presets on an uncertain task.
CASES = [(p, "arm") for p in memes.PRESETS if p != "pga-me"] + [("pga-me", t) for t in MAZES]
CASES += [(p, "noisy-arm") for p in ("memes-all", "me-sampling", "memes-hybrid", "extract-me")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def followed(request):
    """Run each preset.

    Returns the algorithm, the final state, and the archive and Info of each generation.
    """
    preset, task = request.param
    algorithm = build(preset, {**TASKS, **MAZES}[task])
    init_key, run_key = jax.random.split(jax.random.key(7))

    def body(state, generation):
        state, info = algorithm.step(jax.random.fold_in(run_key, generation), state)
        return state, (state.archive, info)

    @jax.jit
    def follow(key):
        return jax.lax.scan(body, algorithm.init(key, GENERATIONS), jnp.arange(GENERATIONS))

    state, (archives, infos) = follow(init_key)
    return algorithm, state, archives, infos


def test_every_preset_satisfies_the_protocol(followed):
    algorithm, state, archives, info = followed
    task, lanes = algorithm.task, len(algorithm.emitter.persistent)
    assert int(state.generation) == GENERATIONS

    # The fitness of a cell never decreases, and the number of changed cells equals the number of
    # additions. In a deep archive, re-evaluations also change cells.
    fitness = np.asarray(archives.fitness)
    written = np.asarray(archives.generation) == np.arange(GENERATIONS)[:, None]
    assert written[0].any()
    if isinstance(algorithm.judge, DeepArchive):
        assert (written.sum(axis=1) >= np.asarray(info.additions).sum(axis=1)).all()
    else:
        assert (fitness[1:] >= fitness[:-1]).all()
        np.testing.assert_array_equal(written.sum(axis=1), info.additions.sum(axis=1))

    # Every elite is stored in the cell of its feature and has a valid lane.
    archive = state.archive
    elites = np.flatnonzero(archive.occupied)
    np.testing.assert_array_equal(archive.cells.index(archive.feature)[elites], elites)
    assert set(np.asarray(archive.lane)[elites]) <= set(range(algorithm.emitter.lanes))
    if not task.uncertain:
        again = jax.jit(task.evaluate)(jax.random.split(jax.random.key(0), 100), archive.genotypes)
        np.testing.assert_allclose(again.fitness[elites], archive.fitness[elites], atol=1e-5)
        np.testing.assert_allclose(again.feature[elites], archive.feature[elites], atol=1e-5)

    # The ledger counts all evaluations, and Info describes all candidates.
    evaluations = algorithm.batch_size * task.cost
    assert (info.ledger.samples + info.ledger.candidates == evaluations).all()
    assert info.fitness.shape == (GENERATIONS, lanes)
    assert info.feature.shape == info.parent_feature.shape == (GENERATIONS, lanes, 2)
    assert set(np.unique(info.status)) <= set(Status)
    assert set(np.unique(info.kind)) <= set(Kind)
    assert set(np.unique(info.reset)) <= set(Reason)
    assert not np.asarray(info.status)[~np.asarray(info.offered)].any()
    assert np.asarray(info.offered)[0].all()
    assert (np.asarray(info.age) >= np.asarray(info.stale)).all()
    np.testing.assert_array_equal(info.non_finite, 0)

    # Between two consecutive candidates, a persistent lane ages by one or restarts.
    persistent = np.asarray(algorithm.emitter.persistent)
    for lane in np.unique(np.asarray(info.lane)[:, persistent]):
        age = np.asarray(info.age)[:, persistent][np.asarray(info.lane)[:, persistent] == lane]
        assert ((age[1:] == age[:-1] + 1) | (age[1:] <= 1)).all()


@pytest.mark.parametrize("preset", memes.PRESETS)
def test_parts_compare_equal_can_be_pickled_and_show_their_fields(preset):
    task = MAZES["maze"] if preset == "pga-me" else TASKS["arm"]
    a, b = build(preset, task), build(preset, task)
    for name in ("emitter", "history", "judge", "candidates"):
        part = getattr(a, name)
        assert part == getattr(b, name)
        assert pickle.loads(pickle.dumps(part)) == part
        assert repr(part).startswith(f"{type(part).__name__}(")
        assert " object at " not in repr(part)


@pytest.mark.parametrize("preset", ["memes", pytest.param("me", marks=pytest.mark.long)])
def test_results_depend_only_on_the_seed(preset):
    algorithm = build(preset, TASKS["noisy-arm"])
    options = {"generations": 4, "progress": False}
    results = [
        memes.run(algorithm, seed=1, **options),
        *memes.run(algorithm, seeds=(1, 2), seeds_per_batch=1, **options),
    ]
    jax.tree.map(np.testing.assert_array_equal, results[0].archive, results[1].archive)
    assert not np.array_equal(results[0].archive.fitness, results[2].archive.fitness)


def kinds_of(algorithm):
    @jax.jit
    def kinds():
        _, info = algorithm.step(jax.random.key(1), algorithm.init(jax.random.key(0)))
        return info.kind

    return kinds().tolist()


def test_any_number_of_lanes_and_any_proportion_explore():
    task = TASKS["arm"]
    for lanes, proportion, exploit, explore in [(5, 0.4, 3, 2), (3, 0.0, 3, 0), (3, 1.0, 0, 3)]:
        algorithm = memes.presets.memes(
            task, lanes=lanes, proportion_explore=proportion, samples=4, fifo_size=64
        )
        assert kinds_of(algorithm) == [Kind.EXPLOIT] * exploit + [Kind.EXPLORE] * explore


def test_the_ga_variant_has_as_many_offspring_as_explore_lanes():
    algorithm = memes.presets.memes(TASKS["arm"], lanes=6, samples=4, explore="ga")
    assert kinds_of(algorithm) == [Kind.EXPLOIT] * 3 + [Kind.VARIATION] * 3
    assert algorithm.batch_size == 6 + 3 * 4


def test_lanes_of_a_hybrid_use_a_part_of_its_evaluations():
    task, small = TASKS["arm"], {"lanes": 3, "samples": 4}
    algorithm = memes.presets.memes_hybrid(task, batch=20, **small)
    assert algorithm.emitter.persistent == (True,) * 3 + (False,) * 5
    for name in ("memes-me", "memes-hybrid"):
        assert memes.PRESETS[name].build(task).batch_size == memes.presets.me(task).batch_size
    with pytest.raises(memes.UsageError, match=r"at least 16 \(15 evaluations of 3 lanes and 1 of"):
        memes.presets.memes_hybrid(task, batch=15, **small)


def test_the_hybrid_evaluates_candidates_repeatedly_only_on_uncertain_tasks():
    certain, noisy = (memes.PRESETS["memes-hybrid"].build(TASKS[name]) for name in ("arm", "noisy-arm"))
    assert (certain.candidates.candidate_samples, noisy.candidates.candidate_samples) == (1, 64)
    assert (certain.offer_samples, noisy.offer_samples) == (True, False)
    assert noisy.emitter.persistent == (True,) * 24 + (False,) * 64
    assert noisy.batch_size == memes.presets.me(noisy.task).batch_size


def test_the_papers_hyper_parameters_are_the_defaults():
    """The counts follow from the paper's table."""
    task = memes.tasks.arm(joints=2)
    algorithm = memes.presets.memes(task)
    assert algorithm.emitter.lanes == 32
    assert algorithm.emitter.samples == 16_384
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    assert state.archive.fitness.shape == (2500,)
    assert state.history.rows.shape == (50_000, 2)
    assert memes.presets.me(task).batch_size == 16_384
    assert memes.PRESETS["me-128"].build(task).batch_size == 128


def test_the_papers_hyper_parameters_of_the_baselines_are_the_defaults():
    task = memes.tasks.arm(joints=2)
    sizes = {
        "es": (1, 512, 1), "ns-es": (1, 512, 5), "nsr-es": (1, 512, 5), "nsra-es": (1, 512, 5),
        "me-es": (1, 10_000, 1), "cma-me": (128, 0, 15), "me-sampling": (512, 0, 512),
    }  # fmt: skip
    for name, (candidates, samples, lanes) in sizes.items():
        algorithm = memes.PRESETS[name].build(task)
        emitter = algorithm.emitter
        assert (len(emitter.persistent), emitter.samples, emitter.lanes) == (candidates, samples, lanes)
        assert algorithm.name == name
        cost = 32 if name == "me-sampling" else 1
        assert algorithm.task.cost == cost
        keeps_all = name.startswith("ns") or name == "me-es"
        state = jax.eval_shape(partial(algorithm.init, generations=30), jax.random.key(0))
        past = jax.eval_shape(algorithm.history.past, state.history, state.archive)
        assert past.feature.shape[0] == (30 * candidates if keeps_all else 0)
    options = {name: memes.PRESETS[name].build(task).options for name in sizes}
    es_like = ["es", "ns-es", "nsr-es", "nsra-es", "me-es"]
    assert all(options[name]["sigma"] == 0.02 for name in es_like)
    assert all(options[name]["learning_rate"] == 0.01 for name in es_like)
    assert [options[name]["l2"] for name in es_like] == [0, 0, 0, 0, 0.01]
    assert options["nsr-es"]["fitness_weight"] == 0.5
    assert [options["nsra-es"][o] for o in ("fitness_weight", "weight_step", "patience")] == [
        1,
        0.05,
        50,
    ]
    assert (options["cma-me"]["sigma"], options["cma-me"]["ranking"]) == (0.5, "imp")
    learned = memes.PRESETS["pga-me"].build(memes.tasks.point_maze())
    assert learned.batch_size == 128
    assert learned.options["num_critic_training_steps"] == 5000
    assert sum(learned.emitter.persistent) == 1  # the greedy actor
    assert options["me-es"]["every"] == 10


def test_me_es_starts_each_turn_from_its_preferred_elites():
    """ME-ES explores for three generations, then exploits for three generations, and so on.

    Each of these phases starts from an elite. Exploit phases start from a fit or recent elite.
    """
    algorithm = build("me-es", TASKS["arm"])
    step, ask = jax.jit(algorithm.step), jax.jit(algorithm.ask)
    state = jax.jit(lambda: algorithm.init(jax.random.key(0), 14))()
    kinds = []
    for generation in range(14):
        key = jax.random.fold_in(jax.random.key(1), generation)
        if generation and generation % 3 == 0:
            asked, _ = ask(jax.random.split(jax.random.clone(key))[0], state)
            start = np.asarray(asked.emitter.strategy.mean[0])
            archive = state.archive
            (cell,) = np.flatnonzero((np.asarray(archive.genotypes) == start).all(axis=1))
            if generation // 3 % 2 == 1:
                fittest = np.argsort(-np.asarray(archive.fitness))[:2]
                latest = np.argsort(-np.asarray(archive.generation))[:5]
                latest = latest[np.argsort(-np.asarray(archive.fitness)[latest])][:2]
                assert cell in {*fittest, *latest}
        state, info = step(key, state)
        kinds.append(int(info.kind[0]))
    turns = [Kind.EXPLORE] * 3 + [Kind.EXPLOIT] * 3
    # Each candidate was created in the previous generation. Its kind (explore or exploit) is the kind of
    # that generation.
    assert kinds == [Kind.EXPLORE, *(turns * 3)[:13]]


def test_an_algorithm_has_its_name_and_hyper_parameters():
    algorithm = memes.presets.memes_sequential(TASKS["arm"], lanes=3, samples=4)
    assert algorithm.name == "memes-sequential"
    assert algorithm.options["lanes"] == 3
    assert algorithm.options["every"] == 10


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lanes": 0}, "lanes must be at least 1, got 0"),
        ({"samples": 7}, "samples must be even"),
        ({"samples": 0}, "samples must be even and at least 2"),
        ({"sigma": 0.0}, "sigma must be positive"),
        ({"sigma": float("inf")}, "sigma must be positive and finite"),
        ({"sigma": float("nan")}, "sigma must be positive and finite"),
        ({"learning_rate": -1.0}, "learning_rate must be positive"),
        ({"learning_rate": float("inf")}, "learning_rate must be positive and finite"),
        ({"proportion_explore": 1.5}, r"proportion_explore must lie in \[0, 1\]"),
        ({"stale_budget": -1}, "stale_budget must be at least 0"),
        ({"reset_every": 0}, "reset_every must be at least 1"),
        ({"neighbours": 0}, "neighbours must be at least 1"),
        ({"fifo_size": 0}, "fifo_size must be at least 1"),
        ({"explore": "nonsense"}, "explore must be one of fifo, everything, elites, ga"),
        ({"l2": -0.1}, "l2 must be at least 0"),
    ],
)
def test_wrong_hyper_parameters_are_named(options, sentence):
    with pytest.raises(memes.UsageError, match=sentence):
        memes.presets.memes(TASKS["arm"], **options)


@pytest.mark.parametrize(
    ("preset", "options", "sentence"),
    [
        ("memes", {"strategy": "sens"}, "unknown strategy 'sens': did you mean 'snes'"),
        ("ns-es", {"population_size": 0}, "population_size must be at least 1"),
        ("nsr-es", {"fitness_weight": 2.0}, r"fitness_weight must lie in \[0, 1\]"),
        ("nsra-es", {"weight_step": -1.0}, r"weight_step must lie in \[0, 1\]"),
        ("nsra-es", {"patience": 0}, "patience must be at least 1"),
        ("me-es", {"every": 0}, "every must be at least 1"),
        ("me-sampling", {"resamples": 0}, "resamples must be at least 1"),
        ("cma-me", {"pool": 0}, "pool must be at least 1"),
        ("cma-me", {"batch": 1}, "batch must be at least 2"),
        ("cma-me", {"ranking": "nonsense"}, "ranking must be one of imp, opt, rnd"),
        ("cma-me", {"parents": "accepted", "strategy": "snes"}, "parents .*'snes', got 'accepted'; use"),
        ("cma-me", {"parents": "accepted", "strategy": OpenAIES()}, "parents must be 'all' if strat"),
        ("cma-mega", {"step_size": 0.0}, "step_size must be positive"),
        ("cma-maega", {"threshold_rate": 2.0}, r"learning_rate must lie in \[0, 1\]"),
    ],
)
def test_wrong_hyper_parameters_of_the_baselines_are_named(preset, options, sentence):
    with pytest.raises(memes.UsageError, match=sentence):
        memes.PRESETS[preset].build(TASKS["arm"], **options)


def test_the_signature_of_a_preset_includes_the_options_of_its_search():
    shown = inspect.signature(memes.presets.me_es).parameters
    assert [shown[name].default for name in ("samples", "l2", "sigma")] == [10_000, 0.01, 0.02]
    assert all(p.kind is p.KEYWORD_ONLY for n, p in shown.items() if n not in ("task", "cells"))
    assert "search" not in shown
    bound = parameters(memes.PRESETS["memes-all"].build)
    assert bound["offer_samples"] == (
        bool,
        True,
        "Whether to offer samples to the archive in addition to means.",
    )
    assert bound["sigma"] == (float, 0.02, "Standard deviation of the samples.")
    assert parameters(Search())["sigma"] == bound["sigma"]
    assert all(p.help for preset in memes.PRESETS.values() for p in parameters(preset.build).values())


def test_each_published_algorithm_names_its_publication():
    own = {"memes-hybrid", "memes-me"}
    for name, preset in memes.PRESETS.items():
        description = inspect.getdoc(preset.build).partition("Args:")[0]
        assert ("Reference" in description) == (name not in own), name


def test_a_preset_is_its_dataclass_with_fields_replaced():
    """Each keyword of the preset's function is a field of its dataclass or of a nested dataclass."""
    options = memes.PRESETS["memes-all"].options
    assert options == Memes(offer_samples=True)
    changes = {"lanes": 3, "samples": 6, "candidate_samples": 2}
    other = changed(options, changes)
    assert other == Memes(
        offer_samples=True,
        lanes=3,
        search=Search(samples=6),
        candidates=Candidates(candidate_samples=2),
    )
    algorithm = memes.PRESETS["memes-all"].build(TASKS["arm"], **changes)
    assert algorithm.name == "memes-all"
    assert algorithm.emitter == other.build(TASKS["arm"]).emitter
    assert algorithm.options == {name: p.default for name, p in parameters(other).items()}
    with pytest.raises(memes.UsageError, match="lanes must be int, got 'many'"):
        Memes(lanes="many")


def test_writable_is_none_for_types_without_a_command_line_form():
    spelt = {name: writable(p.hint) for name, p in parameters(memes.presets.memes).items()}
    assert spelt["optimiser"] is None
    assert spelt["strategy"] is str
    assert spelt["noise"] == Literal["gaussian", "low-rank"]
    assert spelt["explore"] == Literal["fifo", "everything", "elites", "ga"]
    assert spelt["reset_every"] == int | None


OBJECTS = {
    "strategy": (
        lambda: {"strategy": OpenAIES(samples=6)},
        {
            "strategy": "OpenAIES(samples=6, sigma=0.02, learning_rate=0.01, l2=0.0, optimiser=adam, "
            "noise=Gaussian(), noise_dtype='float32')"
        },
    ),
    "noise": (lambda: {"noise": LowRank(2)}, {"noise": "LowRank(rank=2, blocks=None)"}),
    "optimiser": (lambda: {"optimiser": optax.sgd}, {"optimiser": "sgd"}),
    "history": (lambda: {"explore": memes.history.FIFO(9)}, {"explore": "FIFO(capacity=9)"}),
    "objective": (
        lambda: {"explore": memes.objectives.TwoStageImprovement()},
        {"explore": "TwoStageImprovement()"},
    ),
}


@pytest.mark.parametrize(("options", "record"), OBJECTS.values(), ids=OBJECTS)
def test_a_preset_accepts_objects_and_records_them(options, record):
    small = {"lanes": 2, "samples": 6, "fifo_size": 9}
    algorithm = memes.presets.memes(TASKS["arm"], **small | options())
    # Equal objects have equal records, which can be stored as JSON.
    again = memes.presets.memes(TASKS["arm"], **small | options())
    assert json.loads(json.dumps(algorithm.options)) == again.options
    assert algorithm.options == algorithm.options | record
    step = jax.jit(lambda: algorithm.step(jax.random.key(1), algorithm.init(jax.random.key(0))))
    state, _ = step()
    assert algorithm.batch_size == 2 * 7
    assert bool(state.archive.occupied.any())


def test_objects_and_names_give_the_same_algorithm():
    """Options given as objects lead to the same algorithm as the equivalent names or numbers."""
    task, small = TASKS["arm"], {"lanes": 2, "samples": 6, "fifo_size": 9}
    strategy = OpenAIES(samples=6, sigma=0.1, learning_rate=0.3, l2=0.1)
    pairs = [
        ({"sigma": 0.1, "learning_rate": 0.3, "l2": 0.1}, {"strategy": strategy}),
        ({"learning_rate": 0.3}, {"learning_rate": 0.3, "optimiser": optax.adam}),
        ({"noise": "low-rank", "rank": 1}, {"noise": LowRank(1)}),
        ({}, {"explore": memes.history.FIFO(9)}),
        ({"explore": "elites"}, {"explore": memes.history.Elites()}),
        ({}, {"explore": memes.objectives.Novelty(10)}),
    ]
    for named, given in pairs:
        algorithms = [memes.presets.memes(task, **small | options) for options in (named, given)]
        first, second = map(_program, algorithms)
        assert first == second, given
    cma = [OpenAIES(samples=6, sigma=0.5), Evosax("cma-es", samples=6, sigma=0.5), "cma-es"]
    programs = [_program(memes.presets.cma_me(task, strategy=each, pool=2, batch=6)) for each in cma]
    assert programs[1] == programs[2]
    assert programs[0] != programs[1]


def _program(algorithm):
    """Return the programs of `init` and `step` of an algorithm as text."""
    key = jax.random.key(3)
    state = jax.eval_shape(algorithm.init, key)
    return [
        jax.jit(part).lower(*given).as_text()
        for part, given in ((algorithm.init, (key,)), (algorithm.step, (key, state)))
    ]


WRONG_USES = {
    "unknown argument of memes 'lane': did you mean 'lanes'": lambda task: memes.presets.memes(
        task, lane=3
    ),
    "did you mean 'samples'": lambda task: memes.presets.me_es(task, sample=2),
    "did you mean 'sigma'": lambda task: memes.PRESETS["memes-all"].build(task, sigm=2),
    "rank applies only to noise 'low-rank', got 2 with 'gaus": lambda task: memes.presets.memes(
        task, rank=2
    ),
    "got 2 with an object": lambda task: memes.presets.es(task, rank=2, noise=LowRank(2)),
    "optimiser must be a function or None": lambda task: memes.presets.es(
        task, optimiser=optax.adam(0.1)
    ),
    "optimiser applies only to strategy 'openai-es', got one with 'snes'": lambda task: memes.presets.es(
        task, strategy="snes", optimiser=optax.sgd
    ),
    "samples must be int, got '8'": lambda task: memes.presets.es(task, samples="8"),
    "sigma must be float, got 'wide'": lambda task: Search(sigma="wide"),
}


@pytest.mark.parametrize(("sentence", "call"), WRONG_USES.items(), ids=range(len(WRONG_USES)))
def test_wrong_uses_of_a_preset_in_python_give_error_messages(sentence, call):
    with pytest.raises(memes.UsageError, match=sentence):
        call(TASKS["arm"])


def test_the_numbers_of_a_strategy_are_recorded():
    """If a strategy object is given, the strategy options of the preset have no effect."""
    strategies = [memes.strategies.OpenAIES(samples=8, sigma=sigma) for sigma in (0.02, 0.5)]
    small = partial(memes.presets.memes, TASKS["arm"], lanes=2)
    recorded = [small(strategy=strategy).options["strategy"] for strategy in strategies]
    assert ["sigma=0.02" in text for text in recorded] == [True, False]
    assert all("samples=8" in text for text in recorded)
