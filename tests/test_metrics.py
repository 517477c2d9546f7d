from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes import metrics
from memes.algorithm import Info, Ledger
from memes.archive import Fault, empty
from memes.cells import Grid
from memes.context import Kind
from memes.estimates import Correction
from memes.metrics import (
    Totals,
    accumulate,
    archive_loss,
    deviations,
    measure,
    parent_distance,
    reproducibility,
    score,
    tradeoff,
)
from memes.resets import Reason

CELLS = Grid(jnp.zeros(2), jnp.ones(2), (4, 3))
LANES = 5
jitted_measure = jax.jit(measure, static_argnums=2)


def archive_of(elites):
    """Return an archive whose first cells contain elites with the given fitness values."""
    fitness = np.full(12, -np.inf, np.float32)
    fitness[: len(elites)] = elites
    return replace(empty(CELLS, 1), fitness=jnp.asarray(fitness))


def info_of(**fields):
    """Return the Info of a generation without any events. Keyword arguments replace fields."""
    quiet = {
        "lane": np.arange(LANES),
        "kind": np.full(LANES, Kind.EXPLOIT),
        "offered": np.ones(LANES, bool),
        "fitness": np.zeros(LANES),
        "feature": np.zeros((LANES, 2)),
        "parent_feature": np.zeros((LANES, 2)),
        "status": np.zeros(LANES, int),
        "age": np.zeros(LANES, int),
        "stale": np.zeros(LANES, int),
        "reset": np.full(LANES, Reason.NONE),
        "additions": np.zeros(len(Kind), int),
        "faults": np.zeros(len(Fault), int),
        "outside": np.int32(0),
        "ledger": Ledger(np.int32(40), np.int32(LANES)),
    }
    return jax.tree.map(jnp.asarray, Info(**quiet | fields))


def random_infos(seed, generations):
    rng = np.random.default_rng(seed)
    return [
        info_of(
            kind=rng.choice(Kind, LANES),
            age=rng.integers(0, 50, LANES),
            reset=rng.choice(Reason, LANES, p=[0.5, 0.2, 0.2, 0.1]),
            feature=rng.normal(size=(LANES, 2)),
            parent_feature=rng.normal(size=(LANES, 2)),
            additions=rng.integers(0, 4, len(Kind)),
            faults=rng.integers(0, 3, len(Fault)),
            outside=rng.integers(0, 9),
            ledger=Ledger(rng.integers(0, 100), rng.integers(0, 9)),
        )
        for _ in range(generations)
    ]


def chunk_of(infos, archive=None):
    archive = archive_of([1.0, 2.0]) if archive is None else archive
    each = [jitted_measure(archive, info) for info in infos]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *each)


def columns_of(infos):
    return accumulate(Totals.zero(), chunk_of(infos))[1]


@pytest.fixture
def corrected():
    """An archive with three elites, and its correction with five re-evaluations per elite.

    The fixture also returns the fitness [3, 5] and the features [3, 5, 2] of the re-evaluations.
    """
    cells = memes.cells.Grid(jnp.zeros(2), jnp.array([1.0, 4.0]), (2, 2))
    rng = np.random.default_rng(0)
    fitness = rng.normal(size=(3, 5)) * np.array([[0.0], [0.1], [1.0]]) + np.array([[1.0], [3.0], [2.0]])
    centres = np.array([[0.2, 1.0], [0.7, 1.0], [0.2, 3.0]])
    feature = centres[:, None] + rng.normal(size=(3, 5, 2)) * np.array([0.01, 0.1])
    illusory, _ = memes.archive.add(
        memes.archive.empty(cells, 1),
        jnp.zeros((3, 1)),
        memes.Evaluation(jnp.array([1.0, 3.0, 2.0]), jnp.asarray(centres, jnp.float32)),
        jnp.ones(3, bool),
        lane=jnp.zeros(3, int),
        generation=0,
    )
    cell = np.flatnonzero(illusory.occupied)
    assert cell.tolist() == [0, 1, 2]
    order = [int(np.argmin(np.abs(centres - np.asarray(illusory.feature)[c]).sum(axis=1))) for c in cell]
    fitness, feature = fitness[order], feature[order]
    variances = fitness.var(axis=1), feature.var(axis=1)
    means = fitness.mean(axis=1), feature.mean(axis=1)
    return illusory, Correction(illusory, cell, *variances, 5, *means), fitness, feature


def test_deviations_are_those_of_the_evaluations_of_each_elite(corrected):
    illusory, correction, fitness, feature = corrected
    found = deviations(illusory, correction)
    np.testing.assert_allclose(found.fitness[:3], fitness.std(axis=1))
    relative = np.sqrt(np.mean(np.square(feature.std(axis=1) / [1.0, 4.0]), axis=1))
    np.testing.assert_allclose(found.feature[:3], relative)
    assert np.isnan(found.fitness[3])
    assert np.isnan(found.feature[3])


def test_an_elite_without_noise_adds_one_to_reproducibility(corrected):
    illusory, correction, fitness, _ = corrected
    found = reproducibility(illusory, correction, fitness_std=0.5, feature_std=1e9)
    expected = np.maximum(0, 1 - fitness.std(axis=1) / 0.5).sum()
    np.testing.assert_allclose(found["fitness"], expected)
    np.testing.assert_allclose(found["feature"], 3.0, atol=1e-6)
    with pytest.raises(memes.UsageError, match=r"^feature_std must be positive"):
        reproducibility(illusory, correction, fitness_std=0.5, feature_std=0.0)


def test_the_tradeoff_weights_fitness_and_reproducibility(corrected):
    illusory, correction, fitness, feature = corrected
    given = {"fitness_range": (0.0, 4.0), "fitness_std": 0.5}
    found = tradeoff(illusory, correction, **given, preferences=(0.0, 0.3, 1.0))
    performance = np.clip(fitness.mean(axis=1) / 4, 0, 1)
    stable = np.maximum(0, 1 - fitness.std(axis=1) / 0.5)
    expected = [((1 - p) * performance + p * stable).sum() for p in (0.0, 0.3, 1.0)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    (of_feature,) = tradeoff(
        illusory, correction, fitness_range=(0.0, 4.0), feature_std=0.1, preferences=(1.0,)
    )
    relative = np.sqrt(np.mean(np.square(feature.std(axis=1) / [1.0, 4.0]), axis=1))
    np.testing.assert_allclose(of_feature, np.maximum(0, 1 - relative / 0.1).sum(), rtol=1e-5)
    for wrong, sentence in (
        ({"feature_std": 0.1}, "^exactly one of fitness_std and feature_std must be given, got 2"),
        ({"fitness_std": None}, "^exactly one of .* got 0"),
        ({"fitness_std": 0.0}, "^fitness_std must be positive"),
        ({"preferences": (1.5,)}, "^preferences must"),
        ({"fitness_range": (1.0, 1.0)}, "^fitness_range must increase"),
    ):
        with pytest.raises(memes.UsageError, match=sentence):
            tradeoff(illusory, correction, **given | wrong)
    without = correction._replace(fitness_mean=None, feature_mean=None)
    with pytest.raises(memes.UsageError, match="correction must have the means"):
        tradeoff(illusory, without, **given)


@pytest.mark.parametrize("min_fitness", [0.0, -10.0, 1.0])
def test_scores_equal_numpy_and_elites_below_the_offset_count_zero(min_fitness):
    elites = np.array([-2.0, 0.5, 3.0, 1.5, -0.5])
    found = score(archive_of(elites), min_fitness)
    np.testing.assert_allclose(
        found["qd_score"], np.clip(elites - min_fitness, 0, None).sum(), rtol=1e-6
    )
    np.testing.assert_allclose(found["coverage"], 5 / 12, rtol=1e-6)
    np.testing.assert_allclose(found["max_fitness"], 3.0)
    np.testing.assert_allclose(found["mean_fitness"], elites.mean(), rtol=1e-6)


def test_an_additional_elite_never_lowers_the_qd_score():
    one = metrics.qd_score(archive_of([2.0]), -5.0)
    assert metrics.qd_score(archive_of([2.0, -4.0]), -5.0) == one + 1
    assert metrics.qd_score(archive_of([2.0, -6.0]), -5.0) == one


def test_an_empty_archive_scores_zero_and_has_no_finite_fitness():
    found = score(archive_of([]), -5.0)
    assert found["qd_score"] == found["coverage"] == 0
    assert found["max_fitness"] == -np.inf
    assert np.isnan(found["mean_fitness"])


def test_archive_loss_is_the_relative_drop_of_each_measure():
    loss = archive_loss(archive_of([4.0, 2.0, 2.0, 8.0]), archive_of([4.0, 2.0]))
    assert loss == pytest.approx(
        {"qd_score": 10 / 16, "coverage": 0.5, "max_fitness": 0.5, "mean_fitness": 0.25}
    )


def test_archive_loss_takes_the_offset_into_account():
    before, after = archive_of([-1.0, -2.0]), archive_of([-3.0, -4.0])
    loss = archive_loss(before, after, min_fitness=-5.0)
    assert loss["qd_score"] == pytest.approx((7 - 3) / 7)
    assert loss["max_fitness"] == pytest.approx((4 - 2) / 4)
    assert loss["mean_fitness"] == pytest.approx((3.5 - 1.5) / 3.5)


def test_archive_loss_is_zero_for_equal_archives_and_nan_for_empty_ones():
    same = archive_of([-4.0, 2.0])
    assert archive_loss(same, same, -5.0) == dict.fromkeys(score(same), 0.0)
    assert all(np.isnan(loss) for loss in archive_loss(archive_of([]), archive_of([])).values())


def test_archive_loss_is_one_if_no_elite_survives():
    loss = archive_loss(archive_of([4.0, -2.0]), archive_of([]))
    assert loss == dict.fromkeys(loss, 1.0)


def test_parent_distance_is_over_offered_candidates_with_a_parent_by_kind():
    info = info_of(
        kind=np.array([Kind.EXPLOIT, Kind.EXPLORE, Kind.VARIATION, Kind.EXPLOIT, Kind.EXPLOIT]),
        offered=np.array([True, True, True, False, True]),
        feature=np.array([[3.0, 4.0], [50.0, 0.0], [0.0, 1.0], [70.0, 0.0], [90.0, 0.0]]),
        parent_feature=np.array([[0.0, 0.0]] * 4 + [[np.nan, np.nan]]),
    )
    np.testing.assert_allclose(parent_distance(info), [5.0, 50.0, 1.0])
    assert np.isnan(parent_distance(info_of(offered=np.zeros(LANES, bool)))).all()


def test_age_is_the_mean_over_the_lanes_of_each_kind():
    info = info_of(kind=np.array([0, 0, 1, 1, 1]), age=np.array([1, 4, 10, 20, 60]))
    np.testing.assert_allclose(jitted_measure(archive_of([]), info).age, [2.5, 30.0, np.nan])


def test_lifespan_is_the_mean_age_at_reset():
    stale = np.array([Reason.STALE] + [Reason.NONE] * 4)
    ages = [np.array([age, 99, 99, 99, 99]) for age in (1, 2, 3, 0, 1, 5)]
    infos = [info_of(age=age) for age in ages]
    for i in (2, 5):
        infos[i] = infos[i]._replace(reset=jnp.asarray(stale))
    columns = columns_of(infos)
    np.testing.assert_array_equal(columns["lifespan_exploit"], [np.nan, np.nan, 3, 3, 3, 4])
    np.testing.assert_array_equal(columns["lifespan_explore"], np.full(6, np.nan))


def test_lifespans_and_resets_equal_those_counted_by_hand():
    infos = random_infos(0, 8)
    columns = columns_of(infos)
    for g in range(8):
        seen = infos[: g + 1]
        kind, age, reset = (
            np.concatenate([np.asarray(getattr(i, f)) for i in seen]) for f in ("kind", "age", "reset")
        )
        for name, k in (("exploit", Kind.EXPLOIT), ("explore", Kind.EXPLORE)):
            ended = age[(kind == k) & (reset != Reason.NONE)]
            expected = ended.mean() if ended.size else np.nan
            np.testing.assert_allclose(columns[f"lifespan_{name}"][g], expected)
        assert columns["resets_stale"][g] == np.sum(reset == Reason.STALE)
        assert columns["resets_planned"][g] == np.sum(reset == Reason.PLANNED)
        assert columns["resets_degenerate"][g] == np.sum(reset == Reason.DEGENERATE)


@pytest.mark.parametrize("cut", [1, 3, 7])
def test_two_chunks_equal_one(cut):
    infos = random_infos(1, 8)
    whole_totals, whole = accumulate(Totals.zero(), chunk_of(infos))
    totals, first = accumulate(Totals.zero(), chunk_of(infos[:cut]))
    totals, second = accumulate(totals, chunk_of(infos[cut:]))
    assert list(first) == list(second) == list(whole)
    for name, column in whole.items():
        np.testing.assert_array_equal(np.concatenate([first[name], second[name]]), column, err_msg=name)
    jax.tree.map(np.testing.assert_array_equal, totals, whole_totals)


def test_evaluations_count_each_generation_once():
    infos = random_infos(2, 6)
    columns = columns_of(infos)
    samples = np.cumsum([int(i.ledger.samples) for i in infos])
    candidates = np.cumsum([int(i.ledger.candidates) for i in infos])
    np.testing.assert_array_equal(columns["samples"], samples)
    np.testing.assert_array_equal(columns["candidates"], candidates)
    np.testing.assert_array_equal(columns["evaluations"], samples + candidates)
    for fault in Fault:
        counts = np.cumsum([int(i.faults[fault]) for i in infos])
        np.testing.assert_array_equal(columns[f"faults_{fault.name.lower()}"], counts)
    outside = np.cumsum([int(i.outside) for i in infos])
    np.testing.assert_array_equal(columns["outside_bounds"], outside)


def test_totals_do_not_overflow_32_bits():
    infos = [info_of(ledger=Ledger(np.int32(2**30), np.int32(2**30)))] * 6
    np.testing.assert_array_equal(columns_of(infos)["evaluations"], 2**31 * np.arange(1, 7))


def test_shares_are_of_all_additions_so_far_and_sum_to_one():
    infos = [info_of(), *random_infos(3, 6)]
    columns = columns_of(infos)
    names = [kind.name.lower() for kind in Kind]
    added = np.array([np.asarray(i.additions) for i in infos])
    np.testing.assert_array_equal(np.stack([columns[f"added_{n}"] for n in names], 1), added)
    shares = np.stack([columns[f"share_{n}"] for n in names], axis=1)
    assert np.isnan(shares[0]).all()
    np.testing.assert_allclose(shares[1:].sum(axis=1), np.ones(6))
    so_far = np.cumsum(added, axis=0)[1:]
    np.testing.assert_allclose(shares[1:], so_far / so_far.sum(axis=1, keepdims=True))


def test_each_row_has_the_scores_of_the_archive_of_its_generation():
    archives = [archive_of([]), archive_of([2.0]), archive_of([2.0, -1.0])]
    each = [jitted_measure(a, info_of(), -3.0) for a in archives]
    _, columns = accumulate(Totals.zero(), jax.tree.map(lambda *leaves: np.stack(leaves), *each))
    for name in score(archives[0]):
        expected = [score(a, -3.0)[name] for a in archives]
        np.testing.assert_allclose(columns[name], expected, rtol=1e-6)
