"""Archives, shards, corrections and files store the extras of each elite's evaluation."""

import csv
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes import UsageError
from memes.executors.task_check import check
from memes.runner.placement import REPLICATED, Placement
from memes.store import checkpoint
from memes.store.formats import export_run

pytestmark = pytest.mark.usefixtures("no_figures")


def evaluate(keys, x):
    """Return a noisy fitness and extras.

    Two extras depend on the noise, and all other extras depend only on the genotype.
    """
    noise = jax.vmap(jax.random.normal)(keys)
    extras = {
        "noise": noise,
        "fell": noise > 0,
        "code": jnp.floor(50 * jnp.abs(x[:, 0])).astype(jnp.uint8),
        "path": jnp.stack([x, -x], axis=-1).astype(jnp.float16),
    }
    return -jnp.sum(x**2, axis=1) + noise, x[:, :2], extras


TASK = memes.Task(
    name="diary",
    dim=3,
    feature_low=(-1.0, -1.0),
    feature_high=(1.0, 1.0),
    init=memes.uniform(3, -1.0, 1.0),
    evaluate=evaluate,
    min_fitness=-9.0,
    uncertain=True,
)
PLAIN = dataclasses.replace(TASK, evaluate=lambda keys, x: evaluate(keys, x)[:2])
CELLS = memes.cells.grid(TASK, (5, 5))
KINDS = {"code": np.uint8, "fell": bool, "noise": np.float32, "path": np.float16}


def assert_extras_match(archive, kinds=KINDS):
    """Check that the extras of every elite belong to the evaluation that gave its fitness."""
    held = np.asarray(archive.occupied)
    assert held.any()
    x, fitness = np.asarray(archive.genotypes)[held], np.asarray(archive.fitness)[held]
    found = {name: np.asarray(values)[held] for name, values in archive.extras.items()}
    assert {name: values.dtype for name, values in found.items()} == kinds
    np.testing.assert_allclose(fitness, found["noise"] - np.sum(x**2, axis=1), atol=1e-5)
    np.testing.assert_array_equal(found["fell"], found["noise"] > 0)
    np.testing.assert_array_equal(found["code"], np.floor(50 * np.abs(x[:, 0])).astype(np.uint8))
    np.testing.assert_array_equal(found["path"], np.stack([x, -x], axis=-1).astype(np.float16))
    assert all(not np.asarray(values)[~held].any() for values in archive.extras.values())


def scanned(algorithm, generations=6):
    def step(state, key):
        return algorithm.step(key, state)[0], None

    keys = jax.random.split(jax.random.key(1), generations)
    return jax.jit(lambda state: jax.lax.scan(step, state, keys)[0])(algorithm.init(jax.random.key(0)))


ALGORITHMS = {
    "samples are offered": lambda task: memes.presets.memes(
        task, CELLS, lanes=2, samples=8, offer_samples=True
    ),
    "medians of three": lambda task: memes.presets.memes(
        task, CELLS, lanes=2, samples=8, candidate_samples=3
    ),
    "offspring": lambda task: memes.presets.me(task, CELLS, batch=12),
    "a resampled task": lambda task: memes.presets.me(
        memes.resampled(task, 3, jnp.median), CELLS, batch=8
    ),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_elite_has_the_extras_of_the_evaluation_that_gave_its_fitness(name):
    state = scanned(ALGORITHMS[name](TASK))
    assert_extras_match(state.archive)
    plain = scanned(ALGORITHMS[name](PLAIN))
    assert plain.archive.extras == {}
    bare = dataclasses.replace(state.archive, extras={})
    for one, other in zip(jax.tree.leaves(bare), jax.tree.leaves(plain.archive), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("lanes", "offer_samples"), [(8, True), (3, False)])
def test_shards_gather_extras(lanes, offer_samples):
    algorithm = memes.presets.memes(TASK, CELLS, lanes=lanes, samples=4, offer_samples=offer_samples)
    placement = Placement(4, (jax.devices()[0],))
    sharded = placement.sharded(algorithm)
    assert (sharded.part is None) == (lanes == 3)
    where = placement.of_state(algorithm, 1)
    step = jax.jit(
        placement.mapped(
            lambda here, key, state: sharded.step(key, state, here)[0],
            (REPLICATED, REPLICATED, where),
            where,
        )
    )
    state = sharded.init(jax.random.key(0))
    # JAX's check for reused keys does not recognise that shards use different keys.
    with jax.debug_key_reuse(False):
        for key in jax.random.split(jax.random.key(1), 3):
            state = step(np.int32(4), key, state)
    assert_extras_match(state.archive)


def contents(archive):
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(archive)]


def test_runs_save_and_resume_and_correct_extras(tmp_path):
    algorithm = memes.presets.me(TASK, CELLS, batch=12)
    setting = {"progress": False, "observers": [memes.Corrections(samples=5)]}
    setting["observers"].append(memes.Checkpoints(every=2))
    whole = memes.run(algorithm, generations=6, out=tmp_path / "whole", **setting)
    saved = memes.load_run(tmp_path / "whole")
    assert_extras_match(whole.archive)
    assert contents(saved.archive) == contents(whole.archive)
    assert_extras_match(saved.correction.archive)  # The median of five evaluations is one of the five.
    assert contents(saved.correction.archive) == contents(whole.correction.archive)
    newest = checkpoint.newest(tmp_path / "whole")
    assert contents(checkpoint.load_elites(newest)) == contents(whole.archive)

    memes.run(algorithm, generations=4, out=tmp_path / "part", **setting)
    resumed = memes.resume(algorithm, tmp_path / "part", generations=6, **setting)
    assert contents(resumed.archive) == contents(whole.archive)

    held = np.asarray(saved.archive.occupied)
    (tmp_path / "out").mkdir()
    files = {
        path.name: path for to in ("csv", "npz") for path in export_run(saved, to, tmp_path / "out")
    }
    with open(files["archive.csv"]) as file:
        table = list(csv.DictReader(file))
    noise = [np.float32(row["noise"]) for row in table]
    np.testing.assert_allclose(noise, np.asarray(saved.archive.extras["noise"])[held], rtol=1e-6)
    assert [int(row["fell"]) for row in table] == [int(row["noise"][0] != "-") for row in table]
    assert "path" not in table[0]
    with np.load(files["run.npz"]) as arrays:
        for name, each in (("archive", saved.archive), ("corrected_archive", saved.correction.archive)):
            at = np.asarray(each.occupied)
            for extra, values in each.extras.items():
                np.testing.assert_array_equal(arrays[f"{name}/{extra}"], np.asarray(values)[at])


def on_host(keys, x):
    """A Python simulator that fails for some genotypes and returns 64-bit extras."""
    if x[:, 0].max() > 0.8:
        raise ArithmeticError("too far")
    fitness, feature = -np.sum(x**2, axis=1), x[:, :2].tolist()
    return fitness, feature, {"steps": [int(9 * row[2]) for row in x], "speed": np.float64(x[:, 1])}


def test_python_simulators_may_return_extras_and_fail_for_some_rows():
    task = dataclasses.replace(TASK, evaluate=on_host, jit=False, uncertain=False)
    run = memes.run(memes.presets.me(task, CELLS, batch=12), generations=4, progress=False)
    for elite in run.archive:
        assert elite.extras["steps"] == int(9 * elite.genotype[2])
        assert elite.extras["speed"] == elite.genotype[1]
        assert elite.genotype[0] <= 0.8
    assert run.metrics["faults_nan"].sum() > 0
    assert {name: each.dtype for name, each in run.archive.extras.items()} == {
        "steps": np.int32, "speed": np.float32
    }  # fmt: skip


def test_rowwise_functions_return_extras_in_third_place():
    def one(key, x):
        return x.sum(), x[:2], {"last": x[2]}

    x = np.float32([[1, 2, 3], [4, 5, 6]])
    keys = jax.random.split(jax.random.key(0), 2)
    for rows in (x, jnp.asarray(x)):
        fitness, feature, extras = memes.rowwise(one)(keys, rows)
        np.testing.assert_array_equal(fitness, [6, 15])
        np.testing.assert_array_equal(feature, x[:, :2])
        np.testing.assert_array_equal(extras["last"], [3, 6])


def test_a_task_may_declare_its_extras():
    kinds = {name: jax.ShapeDtypeStruct((3, 2) * (name == "path"), kind) for name, kind in KINDS.items()}
    assert check(TASK) == kinds
    declared = dataclasses.replace(TASK, extras=kinds)
    algorithm = memes.presets.me(declared, CELLS, batch=4)
    assert algorithm.task is declared
    assert memes.presets.me(TASK, CELLS, batch=4).task == declared
    alone = dataclasses.replace(TASK, extras={"energy": (), "force": (2,)})
    assert alone.extras["force"] == jax.ShapeDtypeStruct((2,), np.float32)


def returning(**extras):
    return lambda keys, x: memes.Evaluation(x.sum(axis=1), x[:, :2], extras)


def test_extras_that_do_not_fit_are_refused():
    declared = {"extras": {"energy": ()}}
    for sentence, changed in {
        r"must have an array \[4, ...\] for 'energy', one row per genotype, got \(\)": {
            "evaluate": returning(energy=jnp.zeros(()))
        },
        "must have an array .* for 'energy', .* got float": {"evaluate": returning(energy=0.5)},
        "must have numbers or truth values .* for 'noise', got key": {
            "evaluate": lambda keys, x: (x.sum(axis=1), x[:, :2], {"noise": keys})
        },
        "got bfloat16": {"evaluate": returning(energy=jnp.zeros(4, jnp.bfloat16))},
        "other than those of the fields of an elite, got 'fitness'": {
            "evaluate": returning(fitness=jnp.zeros(4))
        },
        "without slashes and quotes, .* got 'a/b'": {"evaluate": returning(**{"a/b": jnp.zeros(4)})},
        "must be energy, got power": declared | {"evaluate": returning(power=jnp.zeros(4))},
        "must be energy, got none": declared | {"evaluate": returning()},
        r"must have float32\[\] for 'energy', got float32\[2\]": declared
        | {"evaluate": returning(energy=jnp.zeros((4, 2)))},
        r"must have int32\[\] for 'energy', got float32\[\]": {
            "extras": {"energy": jax.ShapeDtypeStruct((), np.int64)},
            "evaluate": returning(energy=jnp.zeros(4)),
        },
        r"must be a dict of arrays, got \[JitTracer": {
            "evaluate": lambda keys, x: (x.sum(axis=1), x[:, :2], [x])
        },
    }.items():
        with pytest.raises(UsageError, match=f"^extras of task 'diary' .*{sentence}"):
            check(dataclasses.replace(TASK, **changed))
    with pytest.raises(UsageError, match=r"^extras of task 'diary' must be a dict, got \['energy'\]"):
        dataclasses.replace(TASK, extras=["energy"])
