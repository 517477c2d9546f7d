"""Test the verdicts on claims. Artificial results support a claim, refute it, or are inconclusive."""

from dataclasses import replace

import numpy as np
import pytest

from memes.reproduce import results
from memes.reproduce.checks import (
    Verdict,
    above,
    all_of,
    at_least,
    at_most,
    between,
    have_more,
    most_have,
    near,
    no_significant_gain,
    on_par,
)
from memes.reproduce.claims import CLAIMS, LIFESPANS, judge
from memes.reproduce.experiments import TASKS, VARIANTS
from memes.reproduce.quantities import (
    Evidence,
    area,
    best_above_least,
    cells_beyond,
    coverage,
    kept,
    productive,
    qd,
    step,
)
from memes.reproduce.turns import Times
from memes.store.schema import Provenance
from memes.store.summary import RunFacts, Summary

LOW, HIGH, SHAPE = (0.0, -8.0), (30.0, 8.0), (10, 4)


def summary(task, label, seed, **numbers):
    """Return an artificial summary with the given results."""
    about = {"uncertain": task.startswith("ant"), "device": "made up", "commit": "0123456789"}
    scores = {
        "qd_score": numbers.get("qd", 1.0),
        "coverage": numbers.get("coverage", 0.5),
        "max_fitness": numbers.get("best", 1.0),
    }
    corrected, heat = {}, None
    if about["uncertain"]:
        kept = numbers.get("kept", 1.0)
        corrected = {name: [value / 2, value] for name, value in scores.items()}
        corrected |= {"qd_score_loss": [0.0, 1 - kept], "generation": [2.5, 100.0]}
        corrected |= {"evaluations": [25.0, 1000.0]}
        scores = dict.fromkeys(scores, np.nan)  # illusory scores must have no effect
        heat = np.full(SHAPE, np.nan)
        heat[4] = 1.0  # from x = 12 to 15
        heat[5, 0] = 1.0 if numbers.get("beyond") else np.nan
    return Summary(
        task=task,
        algorithm=label,
        label=label,
        seed=seed,
        scale="paper",
        generations=100,
        options={"stale_budget": 32},
        about=RunFacts(**about),
        curves={name: np.array([0.0, value]) for name, value in scores.items()},
        corrections={name: np.array(values) for name, values in corrected.items()},
        lifespans={
            kind: {"all": {"count": 3, "mean": 1.0, "median": 1.0, "paper_mean": mean}}
            for kind, mean in numbers.get("lives", {}).items()
        },
        longest_lives={"exploit": np.array([10.0, numbers.get("longest", 10.0)])},
        steps=numbers.get("steps", {}),
        low=LOW,
        high=HIGH,
        heat=None,
        corrected_heat=heat,
    )


FAMILY = {
    "memes": 100.0,
    "memes-sampling": 140.0,
    "memes-hybrid": 150.0,
    "memes-me": 140.0,
    "memes-sequential": 85.0,
    "memes-reset-10": 90.0,
    "memes-reset-20": 91.0,
    "memes-reset-50": 92.0,
    "memes-reset-100": 93.0,
    "memes-everything": 100.0,
    "memes-twice-samples": 100.05,
    "memes-x4": 130.0,
    "memes-all-x4": 130.0,
}


def claimed_numbers(task, label):
    """Return artificial results of one algorithm that agree with all claims of the paper."""
    score = FAMILY.get(label, 50.0)
    if label == "memes-all":
        score = 130.0 if task == "arm" else 100.0
    if label == "memes-ga" and task == "arm":
        score = 100.0
    if label == "memes-reset-100" and task == "arm":
        score = 91.0
    if label in ("me", "memes-elites") and task == "hexapod":
        score = 101.0
    if label == "memes-x4" and task == "ant-trap":
        score = 80.0
    explore, exploit = LIFESPANS[task]
    return {
        "qd": score,
        "coverage": 0.46 if (label, task) == ("memes-reset-20", "ant") else score / 200,
        "best": {"pga-me": 120.0, "memes-reset-20": 95.0}.get(label, 100.0),
        "kept": 0.9 if label in ("memes", "me-sampling") else 0.4,
        "beyond": label == "memes",
        "longest": 500.0,
        "steps": {"exploit": 3.0 if label == "pga-me" else 0.5, "variation": 2.0},
        "lives": {"explore": explore, "exploit": exploit},
    }


def refuted_numbers(task, label):
    """Return artificial results of one algorithm that contradict all claims of the paper."""
    low = {
        "memes": 50.0,
        "memes-sampling": 25.0,
        "memes-hybrid": 20.0,
        "memes-me": 20.0,
        "memes-reset-10": 60.0,
        "memes-x4": 25.0,
        "memes-all-x4": 25.0,
    }
    score = (low | {"memes-reset-50": 70.0}).get(label, 100.0)
    if label == "memes-all" and task == "arm":
        score = 25.0
    if label == "memes-ga" and task == "arm":
        score = 25.0
    if (label == "memes-x4" and task == "ant-trap") or label == "memes-twice-samples":
        score = 110.0
    if label == "memes-reset-100" and task == "ant":
        score = 50.0
    explore, exploit = LIFESPANS[task]
    return {
        "qd": score,
        "coverage": score / 200,
        "best": 50.0 if label == "pga-me" else 80.0 if label == "memes" else 120.0,
        "kept": 0.2 if label == "memes" else 0.5,
        "beyond": label != "memes",
        "longest": 60.0,
        "steps": {"exploit": 0.1 if label == "pga-me" else 3.0, "variation": 2.0},
        "lives": {"explore": exploit, "exploit": explore},
    }


def undecided(task, label):
    """Return equal results for all labels."""
    one = {"qd": 100.0, "coverage": 0.5, "best": 100.0, "kept": 0.5}
    return one | {
        "beyond": None,
        "longest": 233.0,
        "steps": {"exploit": 1.0, "variation": 1.0},
        "lives": dict.fromkeys(("explore", "exploit"), sum(LIFESPANS[task]) / 2),
    }


def all_runs(numbers, spread, seeds=10):
    """Return runs of every variant on every task.

    The results of each seed deviate from `numbers(task, label)` by at most the fraction `spread`.
    """
    runs = []
    for task in TASKS:
        for label in (label for label, variant in VARIANTS.items() if task in variant.tasks):
            for seed, off in enumerate(spread * np.linspace(-1, 1, seeds)):
                exact = numbers(task, label)
                found = {
                    name: {kind: part * (1 + off) for kind, part in value.items()}
                    if isinstance(value, dict)
                    else value * (1 + off)
                    for name, value in exact.items()
                    if name != "beyond"
                }
                beyond = seed < 3 if exact["beyond"] is None else exact["beyond"]
                runs.append(summary(task, label, seed, **found, beyond=beyond))
    return runs


RIGHT = {"memes": 1.05}
WRONG = {"memes": 2.0, "memes-sampling": 4.0}
EITHER = {"memes": 1.09, "memes-sampling": 1.09 * 1.07}


def times(slower, spread):
    """Return ten time measurements in seconds, by task and label."""
    off = 1 + spread * np.linspace(-1, 1, 10)
    return {
        task: {label: slower.get(label, 1.0) * off for label in ("memes", "me", "memes-sampling")}
        for task in TASKS
    }


@pytest.mark.parametrize(
    ("numbers", "slower", "spread", "verdict"),
    [
        (claimed_numbers, RIGHT, 0.002, Verdict.REPRODUCED),
        (refuted_numbers, WRONG, 0.002, Verdict.NOT_REPRODUCED),
        (undecided, EITHER, 0.3, Verdict.INCONCLUSIVE),
    ],
)
def test_every_claim_gets_its_verdict(numbers, slower, spread, verdict):
    judged = judge(all_runs(numbers, spread), times=times(slower, spread))
    assert {each.name for each in judged} == {"B1", "B2", "B3", "C1b", *(f"C{i}" for i in range(1, 24))}
    for each in judged:
        exempt = each.task == "arm" and each.name in (
            "C8",
            "C14",
        )  # the paper makes no such claim about this task
        expected = Verdict.NOT_APPLICABLE if exempt else verdict
        assert each.outcome.verdict is expected, (each.name, each.task, each.outcome)
        assert bool(each.outcome.instead) == (
            expected not in (Verdict.REPRODUCED, Verdict.NOT_APPLICABLE)
        )


def test_every_claim_can_be_refuted_with_the_planned_seeds():
    """MEMES and each algorithm in `TENFOLD` have ten seeds. Every other algorithm has five seeds.

    Claims on AntTrap are not tested here.
    """
    runs = [
        run
        for run in all_runs(refuted_numbers, 0.002)
        if run.seed < (10 if run.label == "memes" or run.label in TENFOLD else 5)
    ]
    for each in judge(runs, ["arm", "hexapod", "ant"], times(WRONG, 0.002)):
        exempt = each.outcome.verdict is Verdict.NOT_APPLICABLE
        assert exempt or each.outcome.verdict is Verdict.NOT_REPRODUCED, (each.name, each.outcome)


TENFOLD = ("me", "memes-all", "memes-sampling", "memes-hybrid", "me-sampling-tuned")


def test_without_runs_nothing_is_tested():
    judged = judge([])
    assert len(judged) == sum(len(claim.checks) for claim in CLAIMS.values())
    verdicts = {each.outcome.verdict for each in judged}
    assert verdicts == {Verdict.NOT_TESTED, Verdict.NOT_APPLICABLE}


def test_runs_without_correction_do_not_test_claims_on_uncertain_tasks():
    runs = [
        run._replace(corrections={}, corrected_heat=None) for run in all_runs(claimed_numbers, 0.002)
    ]
    verdicts = {each.name: each.outcome.verdict for each in judge(runs, ["ant-trap"])}
    assert {verdicts[name] for name in ("C7", "C8", "C16", "C18")} == {Verdict.NOT_TESTED}


def test_only_corrections_at_the_end_count():
    (run,) = (
        run
        for run in all_runs(claimed_numbers, 0.002, seeds=1)
        if (run.task, run.label) == ("ant", "me")
    )
    earlier = run._replace(corrections=run.corrections | {"generation": np.array([2.5, 90.0])})
    for of in (qd, coverage, kept, area):
        assert of("me").values(Evidence({"me": [run]})).size == 1
        assert of("me").values(Evidence({"me": [earlier]})).size == 0


def runs(**values):
    """Return runs on the Arm by label, with the given QD-scores.

    The coverage of each run equals its QD-score.
    """
    return Evidence(
        {
            label: [summary("arm", label, seed, qd=v, coverage=v) for seed, v in enumerate(each)]
            for label, each in values.items()
        }
    )


def verdict_of(check, evidence, comparisons=1):
    """Return the verdict on a claim that repeats the same comparison `comparisons` times."""
    return all_of([check] * comparisons, evidence).verdict


SHORT = np.array([0.4, 0.45, 0.5, 0.55, 0.6])
LOWER, HIGHER = [1.0, 1.01, 1.02, 1.03, 1.04], [1.2, 1.21, 1.22, 1.23, 1.24]


def test_claims_are_shown_by_uncorrected_and_refuted_by_corrected_p():
    """With five seeds per algorithm, p-values are at least 2 / 252.

    If six relations are tested, a p-value of 2 / 252 can refute a claim even after correction. If seven
    relations are tested, it cannot.
    """
    found = runs(a=HIGHER, b=LOWER)
    assert verdict_of(above(qd("a"), qd("b")), found, 20) is Verdict.REPRODUCED
    assert verdict_of(above(qd("b"), qd("a")), found, 6) is Verdict.NOT_REPRODUCED
    seven = all_of([above(qd("b"), qd("a"))] * 7, found)
    assert seven.verdict is Verdict.INCONCLUSIVE
    assert "p = 0.0079, 0.056 corrected" in seven.numbers[0]
    assert seven.numbers[-1] == "too few seeds to refute the claim: the corrected p is at least 0.056"
    assert (seven.p, seven.corrected_p) == pytest.approx((2 / 252, 7 * 2 / 252))


def test_only_testable_relations_count_as_comparisons():
    """One of six tested relations can be refuted, even if other relations lack runs or seeds."""
    found = runs(a=HIGHER, b=LOWER, c=[1.0])
    tested, missing = above(qd("b"), qd("a")), above(qd("b"), qd("nobody"))
    few = [missing, above(qd("b"), qd("c")), near(qd("c"), 1.0, 0.1)]
    outcome = all_of([tested] * 6 + few, found)
    assert outcome.verdict is Verdict.NOT_REPRODUCED
    assert outcome.corrected_p == pytest.approx(6 * 2 / 252)


def test_the_p_of_a_claim_is_the_largest_if_shown_and_the_smallest_if_refuted():
    found = runs(a=HIGHER, b=LOWER, c=[1.19, 1.215, 1.225, 1.3, 1.31])
    shown, open_, refuted = above(qd("a"), qd("b")), above(qd("c"), qd("a")), above(qd("b"), qd("c"))
    assert all_of([shown, open_], found).p == pytest.approx(all_of([open_], found).p)
    outcome = all_of([shown, open_, refuted], found)
    assert outcome.p == pytest.approx(2 / 252)
    assert outcome.instead == (outcome.numbers[2],)
    assert np.isnan(all_of([on_par(qd("a"), coverage("a"))], found).p)


def test_numbers_by_means_are_listed_but_do_not_affect_verdicts():
    def run(label, seed, qd, mean):
        run = summary("ant", label, seed, qd=qd)
        return run._replace(corrections=run.corrections | {"qd_score_by_mean": np.array([mean])})

    found = Evidence(
        {
            "a": [run("a", seed, 2.0 + seed, 0.8) for seed in range(4)],
            "b": [run("b", seed, 1.0 + seed / 9, 1.0) for seed in range(4)],
        }
    )
    outcome = all_of([above(qd("a"), qd("b"))], found)
    assert outcome.verdict is Verdict.REPRODUCED
    assert outcome.numbers[0].endswith(
        "p = 0.029 (corrected by means: 0.8 against 1: -20.0%, p = 0.013)"
    )
    assert "by means" not in all_of([above(coverage("a"), coverage("b"))], found).numbers[0]


def test_a_family_of_tests_is_corrected_by_holm_and_includes_tests_without_runs():
    """With ten and five seeds, p-values are at least 2 / 3003.

    With ten tests, Holm's method multiplies the smallest p-value by 10.
    """
    ten = runs(a=[1.2 + i / 100 for i in range(10)], b=LOWER, c=[1.195, 1.196, 1.197, 1.198, 1.265])
    clear, close = above(qd("a"), qd("b")), above(qd("a"), qd("c"))
    outcome = all_of([clear] * 10, ten, family=True)
    assert outcome.verdict is Verdict.REPRODUCED
    assert (outcome.p, outcome.corrected_p) == pytest.approx((2 / 3003, 10 * 2 / 3003))
    # Holm's method does not change the largest p-value, so one value between 0.025 and 0.05 is
    # significant. If there are two such values, one of them is doubled and is not significant.
    p = all_of([close], ten).p
    assert 0.025 < p < 0.05
    assert all_of([clear, close], ten, family=True).verdict is Verdict.REPRODUCED
    outcome = all_of([clear, close, close], ten, family=True)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert outcome.corrected_p == pytest.approx(2 * p)
    assert all_of([clear, close, close], ten).verdict is Verdict.REPRODUCED
    # Declared tests whose runs are missing still count in the Holm correction.
    missing = [above(qd("a"), qd("nobody"))] * 8
    outcome = all_of([clear, close, *missing], ten, family=True)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert outcome.corrected_p == pytest.approx(9 * p)
    assert f"p = {2 / 3003:.2g}, {20 / 3003:.2g} corrected" in outcome.numbers[0]
    refuted = [above(qd("b"), qd("a")), close]
    assert all_of(refuted, ten, family=True).verdict is Verdict.NOT_REPRODUCED


def test_the_area_is_the_mean_over_the_log_of_evaluations_from_a_fortieth():
    """If a score is linear in log evaluations, its area is the mean of its first and last values."""

    def value(evaluations, qd_score):
        run = summary("ant", "a", 0)
        of = {"evaluations": evaluations, "qd_score": qd_score, "generation": [1.0, 2.0, 100.0]}
        run = run._replace(corrections={name: np.array(values) for name, values in of.items()})
        return area("a").values(Evidence({"a": [run]})).tolist()

    assert value([25.0, 25.0 * 40**0.5, 1000.0], [2.0, 3.0, 4.0]) == pytest.approx([3.0])
    assert value([25.0, 25.0 * 40**0.25, 1000.0], [2.0, 4.0, 4.0]) == pytest.approx([3.75])
    # The area begins at 1/40 of all evaluations. Earlier corrections are used only to interpolate the
    # score at this point.
    early = 1000 / 40**2
    assert value([early, 1000 / 40**0.5, 1000.0], [0.0, 3.0, 3.0]) == pytest.approx([2.75])
    assert value([26.0, 100.0, 1000.0], [2.0, 3.0, 4.0]) == []  # the first correction is too late


def test_the_level_of_significance_can_be_changed():
    """With four seeds per algorithm and one pair of seeds in the wrong order, the p-value is 0.057."""
    found = runs(a=[1.2, 1.3, 1.4, 1.05], b=[1.0, 0.9, 1.1, 0.8])
    assert verdict_of(above(qd("a"), qd("b")), found) is Verdict.INCONCLUSIVE
    assert verdict_of(above(qd("a"), qd("b"), level=0.08), found) is Verdict.REPRODUCED


def test_fewer_than_five_seeds_have_no_interval():
    base = np.linspace(0.999, 1.001, 5)
    for n, verdict in ((5, Verdict.REPRODUCED), (4, Verdict.INCONCLUSIVE)):
        found = runs(a=base[:n], b=base)
        checks = [check(qd("a"), qd("b")) for check in (on_par, at_least, no_significant_gain)]
        checks += [at_most(qd("a"), qd("b"), more=0.1), near(qd("a"), 1.0, within=0.1)]
        outcomes = [all_of([check], found) for check in checks]
        assert {outcome.verdict for outcome in outcomes} == {verdict}
        assert {outcome.seeds for outcome in outcomes} == {n}


def test_a_gain_is_insignificant_if_its_interval_excludes_large_gains():
    base = np.linspace(0.99, 1.01, 5)
    check = no_significant_gain(qd("a"), qd("b"))
    # The cases are: no significant gain; a small but significant gain; an uncertain gain, which could be
    # large; and a significant loss, which does not decide this claim.
    for a, verdict in (
        (base + 0.001, Verdict.REPRODUCED),
        (base + 0.03, Verdict.NOT_REPRODUCED),
        (5 * base - 4 + 0.003, Verdict.INCONCLUSIVE),
        (base - 0.03, Verdict.INCONCLUSIVE),
    ):
        assert verdict_of(check, runs(a=a, b=base)) is verdict


def test_a_claim_has_the_worst_verdict_of_its_parts():
    found = runs(a=HIGHER, b=LOWER)
    holds, refuted = above(qd("a"), qd("b")), above(qd("b"), qd("a"))
    unknown, missing = on_par(qd("a"), coverage("a"), 1e-9), above(qd("a"), qd("nobody"))
    assert all_of([holds, refuted, unknown, missing], found).verdict is Verdict.NOT_REPRODUCED
    assert all_of([holds, unknown], found).verdict is Verdict.INCONCLUSIVE
    assert all_of([holds, missing], found).verdict is Verdict.INCONCLUSIVE
    assert all_of([missing, missing], found).verdict is Verdict.NOT_TESTED
    assert all_of([], found).verdict is Verdict.NOT_APPLICABLE
    assert len(all_of([holds, refuted, missing], found).numbers) == 3
    assert "nobody not run" in all_of([missing], found).numbers[0]


@pytest.mark.parametrize(
    ("factor", "on_a_par", "no_worse"),
    [
        (1.0, Verdict.REPRODUCED, Verdict.REPRODUCED),
        (0.97, Verdict.REPRODUCED, Verdict.REPRODUCED),
        (0.9, Verdict.NOT_REPRODUCED, Verdict.NOT_REPRODUCED),
        (1.1, Verdict.NOT_REPRODUCED, Verdict.REPRODUCED),
        (0.951, Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
    ],
)
def test_on_par_means_within_five_per_cent_and_at_least_means_no_lower(factor, on_a_par, no_worse):
    base = np.linspace(0.995, 1.005, 5)
    found = runs(a=factor * base, b=base)
    assert verdict_of(on_par(qd("a"), qd("b")), found) is on_a_par
    # If `factor` is 0.951, a claim with one comparison would be refuted. The claim therefore contains
    # the same comparison ten times, which increases the corrected p-value.
    assert verdict_of(at_least(qd("a"), qd("b")), found, 10 if factor == 0.951 else 1) is no_worse


def test_one_seed_is_inconclusive():
    found = runs(a=[2.0], b=[1.0])
    for check in (above, on_par, at_least, have_more):
        assert verdict_of(check(qd("a"), qd("b")), found) is Verdict.INCONCLUSIVE
    assert verdict_of(most_have(qd("b")), runs(b=[0.0] * 4)) is Verdict.INCONCLUSIVE
    assert verdict_of(most_have(qd("b")), runs(b=[0.0] * 5)) is Verdict.NOT_REPRODUCED


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([0, 47, 23], [0, 0, 0], Verdict.INCONCLUSIVE),  # Fisher's p is 0.4
        ([0, 47, 23, 5, 9], [0, 0, 0, 0, 0], Verdict.REPRODUCED),  # Fisher's p is 0.048
        ([0, 47, 23, 0, 9], [0, 0, 0, 0, 0], Verdict.INCONCLUSIVE),
        ([30, 47, 23, 25, 29], [1, 2, 1, 3, 4], Verdict.REPRODUCED),  # in more cells
        ([0, 0, 0, 0, 0], [30, 47, 23, 25, 29], Verdict.NOT_REPRODUCED),
    ],
)
def test_more_seeds_or_more_cells_count(a, b, verdict):
    assert verdict_of(have_more(qd("a"), qd("b")), runs(a=a, b=b)) is verdict


def test_the_claim_on_the_trap_is_inconclusive_if_a_baseline_is_missing():
    found = [run for run in all_runs(claimed_numbers, 0.002) if run.label != "pga-me"]
    (outcome,) = (each.outcome for each in judge(found, ["ant-trap"]) if each.name == "C7")
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert any("with a fitness above 250" in line for line in outcome.numbers)


def test_cells_beyond_the_trap_are_counted_above_a_fitness():
    run = summary("ant-trap", "a", 0)
    run.corrected_heat[5:] = np.nan
    run.corrected_heat[5, 1], run.corrected_heat[9, 3] = 300.0, -5.0
    values = [
        cells_beyond("a", 13.0, earning).values(Evidence({"a": [run]})) for earning in (-np.inf, 250)
    ]
    assert values == [[2.0], [1.0]]


def test_the_best_fitness_of_the_hexapod_is_relative_to_the_smallest_fitness():
    runs = [summary("hexapod", "a", seed, best=-1e-7) for seed in range(2)]
    runs[1] = runs[1]._replace(about=replace(runs[1].about, min_fitness=-2.0))
    np.testing.assert_allclose(
        best_above_least("a").values(Evidence({"a": runs})), [np.pi, 2.0], atol=1e-6
    )


def test_a_life_is_productive_until_its_last_accepted_candidate():
    run = summary("arm", "a", 0, longest=233.0)
    assert productive("a").values(Evidence({"a": [run]})).tolist() == [200.0]


def test_alternating_time_measurements_give_a_table_in_minutes():
    about = Provenance(device="made up", commit="0123456789", processes_on_device=1)
    measured = Times("ant", "paper", 100, about, {"memes": [5.9, 6.0, 6.1]})
    title, table = results._run_times([measured])
    assert "ant: 3 turns, made up, commit 0123456" in title
    assert "| memes | 10 (77) |" in table.splitlines()
    assert results._run_times([]) == []


def test_times_on_a_shared_device_do_not_affect_verdicts(tmp_path):
    seconds = {"memes": [1.0] * 10, "me": [1.0] * 10}
    for sharing, verdict in ((1, Verdict.REPRODUCED), (2, Verdict.NOT_TESTED)):
        about = Provenance(device="made up", processes_on_device=sharing)
        judged = results.write(
            ["time"], ["ant"], [], tmp_path, [Times("ant", "paper", 100, about, seconds)]
        )
        assert next(each.outcome.verdict for each in judged if each.name == "C14") is verdict


def test_a_cell_that_begins_before_the_end_of_the_trap_does_not_count():
    inside = Evidence({"a": [summary("ant-trap", "a", seed) for seed in range(5)]})
    assert verdict_of(most_have(cells_beyond("a", 13.0)), inside) is Verdict.NOT_REPRODUCED
    assert verdict_of(most_have(cells_beyond("a", 12.0)), inside) is Verdict.REPRODUCED


def test_a_limit_is_compared_with_the_interval():
    steps = {
        label: [summary("arm", label, i, steps={"exploit": v}) for i, v in enumerate(values)]
        for label, values in {"short": SHORT, "long": SHORT + 1, "both": SHORT + 0.5}.items()
    }
    verdicts = [
        verdict_of(between(step(label, "exploit"), 0.0, 1.0), Evidence(steps)) for label in steps
    ]
    assert verdicts == [Verdict.REPRODUCED, Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE]


def test_the_page_shows_verdicts_and_numbers():
    summaries = all_runs(claimed_numbers, 0.002, seeds=3)
    judged = judge(summaries, ["arm"])
    page = results.page(judged, summaries)
    for each in judged:
        assert f"### {each.name}, arm: {each.outcome.verdict}" in page
        assert all(line in page for line in each.outcome.numbers)
    assert "scale paper; generations 100; device made up; commit 0123456" in page
    assert "smaller than the paper's" not in page
    assert "MEMES. | arm | reproduced | 3 |" not in page  # three seeds are too few
    assert "MEMES. | arm | inconclusive | 3 | 0.1 | 0.2 |" in page
    assert "| 0123456 |" in page
    assert "## What was found instead" in page
    assert "smaller than the paper's" in results.page(judged, [summaries[0]._replace(scale="laptop")])


def test_runs_without_a_commit_are_marked():
    summaries = all_runs(claimed_numbers, 0.002)
    commits = {"memes-all": None, "me": "abcdef0123-dirty"}
    summaries = [
        run._replace(about=replace(run.about, commit=commits.get(run.label, run.about.commit)))
        for run in summaries
    ]
    page = results.page(judge(summaries, ["arm"]), summaries)
    assert "commit 0123456, abcdef0-dirty; 10 runs without a commit: memes-all (10)" in page
    row = next(line for line in page.splitlines() if line.startswith("| C3 |"))
    assert row.endswith("| 0123456, unknown |")
    row = next(line for line in page.splitlines() if line.startswith("| C1 |"))
    assert row.endswith("| 2 commits |")
