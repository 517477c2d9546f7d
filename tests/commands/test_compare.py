"""Comparisons of runs. The tests use artificial summaries with known results."""

import csv
import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memes
from memes import UsageError
from memes.analysis import archive_figures, comparisons, plot, report, tables
from memes.analysis.groups import all_labels, at, distinguish, group, main_view, views, without_short
from memes.analysis.statistics import rank_sum
from memes.analysis.style import ALGORITHMS, looks
from memes.commands.main import main
from memes.store.folder import save_config
from memes.store.schema import Header, RunConfig
from memes.store.summary import RunFacts, Summary, save_summary, summarise


def made(task="arm", algorithm="memes", seed=0, *, score=100.0, each=10, points=5, **fields):
    """Return a run with `each` evaluations per generation and scores that grow linearly to `score`."""
    generation = np.arange(1.0, points + 1)
    rising = score * generation / points
    heat = np.full((3, 2), np.nan)
    heat[0] = score
    columns = {
        "generation": generation,
        "evaluations": each * generation,
        "seconds": generation / 2,
        "qd_score": rising,
        "coverage": rising / 1000,
        "max_fitness": rising,
        "step_exploit": np.full(points, 0.5),
    }
    run = Summary(
        task=task,
        algorithm=algorithm,
        label=algorithm,
        seed=seed,
        scale=None,
        generations=points,
        options={"lanes": 8},
        about=RunFacts(cells=(3, 2), device="cpu", compile_seconds=1.0, seconds_per_generation=0.5),
        curves=columns,
        corrections={},
        lifespans={"exploit": {"all": {"count": 2, "mean": 10.0 + seed, "median": 9.0}}},
        longest_lives={},
        steps={"exploit": 0.5},
        low=(0.0, 0.0),
        high=(1.0, 1.0),
        heat=heat,
        corrected_heat=None,
    )
    return run._replace(**fields)


def corrected(run, share):
    """Return the run with a correction that multiplies its scores by `share`."""
    last = {
        name: float(run.curves[name][-1]) * share for name in ("qd_score", "coverage", "max_fitness")
    }
    losses = {f"{name}_loss": 1 - share for name in last}
    places = {name: run.curves[name][-1] for name in ("generation", "evaluations")}
    corrections = {name: np.array([value]) for name, value in (places | last | losses).items()}
    return run._replace(corrections=corrections, corrected_heat=run.heat * share)


SCORES = {"memes": [120.0, 140.0, 130.0, 150.0], "me": [90.0, 80.0, 100.0, 95.0]}
RUNS = [
    made(algorithm=algorithm, seed=seed, score=score, each=10 if algorithm == "memes" else 4)
    for algorithm, scores in SCORES.items()
    for seed, score in enumerate(scores)
]


@pytest.mark.parametrize("by", ["generation", "evaluations"])
def test_at_returns_the_latest_value(by):
    run = made(score=50.0)
    amounts = np.array([0.5, 1.0, 1.9, 2.0, 4.99, 5.0, 77.0]) * (10 if by == "evaluations" else 1)
    known = zip(run.curves[by], run.curves["qd_score"], strict=True)
    pairs = list(known)
    expected = [max([y for x, y in pairs if x <= amount], default=np.nan) for amount in amounts]
    np.testing.assert_array_equal(at(run, "qd_score", by, amounts), expected)


def test_at_returns_nan_if_the_latest_value_is_too_old():
    run = made(score=50.0)
    kept = np.array([0, 1, 4])  # only generations 1, 2 and 5 are stored
    run = run._replace(curves={name: column[kept] for name, column in run.curves.items()})
    values = at(run, "qd_score", "generation", [1.9, 2.3, 2.5, 4.9, 5.0])
    np.testing.assert_allclose(values, [10, 20, np.nan, np.nan, 50])
    figure = comparisons.convergence_figure(
        {"arm": {"memes": [run, made(score=70.0)]}}, looks(["memes"]), "generation"
    )
    (line,) = figure.axes[0].lines  # missing values are interpolated
    np.testing.assert_allclose(line.get_xydata(), [(g, 12 * g) for g in range(1, 6)])


def test_a_run_that_is_given_twice_counts_once():
    run = made(about=replace(made().about, when="2024-07-14T10:00:00+00:00"))
    assert group([run, run._replace(steps={})])["arm"]["memes"] == [run]
    with pytest.raises(UsageError, match="have the same task"):
        group([run, run._replace(about=replace(run.about, when="2024-07-14T11:00:00+00:00"))])


def test_groups_have_the_order_of_the_list_and_of_the_seeds():
    runs = [made(t, a, s) for t in ("hexapod", "arm") for a in ("me", "own", "memes") for s in (2, 1)]
    groups = group([run for run in runs if (run.task, run.algorithm) != ("arm", "memes")])
    assert list(groups) == ["arm", "hexapod"]
    assert list(groups["arm"]) == ["me", "own"]
    assert list(groups["hexapod"]) == ["memes", "me", "own"]
    assert [run.seed for run in groups["arm"]["me"]] == [1, 2]
    assert all_labels(groups) == ["memes", "me", "own"]


def test_labels_include_options_that_differ_within_a_task():
    runs = [
        made(options={"lanes": 8, "joints": 20}),
        made(options={"lanes": 64, "joints": 20}),
        made("hexapod", options={"lanes": 8}),
        made(algorithm="me", options={"batch": 128, "joints": 20}),
        made("hexapod", algorithm="me", options={"batch": 256}),
    ]
    labels = [run.label for run in distinguish(runs)]
    assert labels == ["memes lanes=8", "memes lanes=64", "memes lanes=8", "me", "me"]


def test_runs_with_equal_seeds_or_different_cells_are_refused():
    with pytest.raises(UsageError, match=r"'a' and 'c' have the same task .*arm.*memes.*seed \(0\)"):
        group([made(), made(seed=1), made()], ["a", "b", "c"])
    other = made(seed=1, about=RunFacts(cells=(6, 6)))
    with pytest.raises(UsageError, match=r"'a' has 3 x 2 over .* and 'b' has 6 x 6 over"):
        group([made(), other], ["a", "b"])
    with pytest.raises(UsageError, match=r"0 to 1, 0 to 1 and run 2 has 3 x 2 over 0 to 1, 0 to 2"):
        group([made(), made(seed=1, high=(1.0, 2.0))])


def test_composed_algorithms_are_distinguished_by_their_names(tmp_path):
    task = memes.tasks.arm(joints=3)

    def run(line, out, **name):
        algorithm = memes.compose(task, memes.emitters.Isoline(4, line=line), **name)
        return memes.run(algorithm, generations=1, out=tmp_path / out, progress=False)

    short = run(0.1, "short", name="short steps")
    long = run(0.5, "long", name="long steps")
    assert list(group(list(map(summarise, (short, long))))["arm"]) == ["long steps", "short steps"]
    other = memes.compose(task, memes.emitters.Isoline(4), name="other steps")
    with pytest.raises(UsageError, match=r"algorithm of the run in .* is short steps, got other steps"):
        memes.resume(other, tmp_path / "short", generations=2)

    runs = list(map(summarise, (run(0.1, "a"), run(0.5, "b"))))
    with pytest.raises(UsageError, match=r"have the same task .*composed.*seed \(0\); .*name=\.\.\."):
        group(
            [runs[0], runs[1]._replace(about=replace(runs[1].about, when="2024-07-14T11:00:00+00:00"))]
        )


def test_views_compare_runs_at_the_budget_of_the_shortest():
    labels = group([made(points=5, each=10), made(seed=1, points=9, each=4)])["arm"]
    by_generation, by_evaluation = views(labels)
    assert by_generation.words == "after 5 generations"
    assert by_evaluation.words == "after 36 evaluations"
    first, second = labels["memes"]
    assert by_generation.value(second, "qd_score") == pytest.approx(100 * 5 / 9)
    assert by_evaluation.value(first, "qd_score") == pytest.approx(100 * 3 / 5)
    assert by_evaluation.value(second, "qd_score") == 100


def test_corrected_scores_are_the_main_view_if_all_runs_have_them():
    runs = [corrected(made(seed=seed), 0.8) for seed in range(2)]
    view = main_view({"memes": runs})
    assert view.name == "corrected"
    assert view.value(runs[0], "qd_score") == pytest.approx(80)
    assert views({"memes": runs})[-1].value(runs[0], "coverage_loss") == pytest.approx(0.2)
    mixed = {"memes": runs, "me": [made(algorithm="me")]}
    assert main_view(mixed).name == "generations"
    assert math.isnan(views(mixed)[-1].value(mixed["me"][0], "qd_score"))


def test_corrections_in_the_middle_are_compared_at_equal_generations_and_evaluations():
    """`long` has twice as many generations as `short`, but half as many evaluations per generation."""

    def rows(run, *generations):
        at_them = np.array(generations)
        return run._replace(
            corrections={
                "generation": at_them,
                "evaluations": run.curves["evaluations"][at_them - 1],
                "qd_score": 1.0 * at_them,
                "qd_score_loss": 0.01 * at_them,
            },
        )

    long, short = rows(made(points=8, each=5), 4, 8), rows(made(seed=1, points=4, each=10), 2, 4)
    found = {view.name: view for view in views({"memes": [long, short]})}
    assert found["corrected"].words == "corrected, after 4 generations"
    assert [found["corrected"].value(run, "qd_score") for run in (long, short)] == [4, 4]
    assert "corrected-evaluations" not in found  # both runs end after 40 evaluations
    longer = rows(made(points=12, each=5), 4, 8, 12)
    found = {view.name: view for view in views({"memes": [longer, short]})}
    assert found["losses-evaluations"].words == "lost by correction, after 40 evaluations"
    losses = [found["losses-evaluations"].value(run, "qd_score_loss") for run in (longer, short)]
    assert losses == [0.08, 0.04]
    late = rows(made(points=12, each=5), 12)
    found = {view.name: view for view in views({"memes": [late, short]})}
    assert found["corrected"].words == "corrected, at the end of each run"
    assert "corrected-evaluations" not in found
    notes = tables.notes({"arm": {"memes": [late, short]}})
    where = "arm, corrected, at the end of each run"
    assert f"{where}: corrections differ in generations done (12 and 4)." in notes


def corrected_at(run, *rows):
    """Return the run with one correction for each row (generation, samples, QD-score)."""
    generation, samples, score = np.array(rows, float).T
    scores = {"qd_score": score, "coverage": score / 1000, "max_fitness": score}
    return run._replace(
        corrections={
            "generation": generation,
            "evaluations": run.curves["evaluations"][generation.astype(int) - 1],
            "samples": samples,
            **scores,
        }
    )


def test_corrections_at_slightly_different_evaluations_are_compared():
    """The last corrections are compared, even if earlier corrections have closer evaluation counts."""
    memes = corrected_at(made(points=10, each=1001), (9, 64, 70), (10, 512, 80))
    me = corrected_at(made(algorithm="me", points=10, each=1000), (9, 64, 50), (10, 512, 60))
    es = corrected_at(made(algorithm="es", points=20, each=505), (18, 64, 20), (20, 512, 30))
    assert [view.name for view in views({"memes": [memes], "me": [me]})][2:] == ["corrected", "losses"]
    found = {view.name: view for view in views({"memes": [memes], "me": [me], "es": [es]})}
    assert found["corrected"].words == "corrected, at the end of each run"
    slower = corrected_at(made(algorithm="es", points=10, each=1100), (9, 64, 20), (10, 512, 30))
    groups = {"arm": {"memes": [memes], "me": [me], "es": [slower]}}
    view = next(view for view in views(groups["arm"]) if view.name == "corrected-evaluations")
    assert [view.value(run, "qd_score") for run in (memes, me, slower)] == [80, 60, 20]
    note = next(note for note in tables.notes(groups) if "after 10,000 evaluations" in note)
    assert "generations done (10 and 9), evaluations of each elite (512 and 64)" in note


def test_corrected_scores_are_drawn_for_runs_with_several_corrections():
    seeds = [
        corrected_at(made(seed=seed), (2, 64, 20 + seed), (4, 64, 40 + seed), (5, 64, 0), (5, 512, 60))
        for seed in range(3)
    ]
    once = [corrected_at(made(algorithm=name, seed=3), (5, 512, 30)) for name in ("memes", "me")]
    groups = group([*seeds, *once, made("hexapod")])
    figure = comparisons.corrected_figure(groups, looks(all_labels(groups)))
    score, *_ = figure.axes
    assert score.get_title(loc="left") == "arm, corrected by 64 or 512 evaluations of each elite"
    (line,) = score.lines
    np.testing.assert_allclose(line.get_xydata(), [(2, 21), (4, 41), (5, 60)])
    assert comparisons.corrected_figure(group([*once, made("hexapod")]), {}) is None


def test_a_single_short_run_is_excluded_with_a_note():
    runs = {f"runs/{seed}": made(seed=seed, points=100) for seed in range(3)}
    stray = made(seed=3, points=1)
    kept, notes = without_short(runs | {"runs/stray": stray})
    assert kept == runs
    assert notes == [
        "arm: 'runs/stray' is left out: it has 1 generations, but the median of memes is 100."
    ]
    (view, *_) = views(group(list(kept.values()))["arm"])
    assert view.words == "after 100 generations"
    assert without_short(runs | {"half": made(seed=3, points=50)})[1] == []
    twice = without_short(runs | {"again": made(seed=0, points=3)})[0]  # a failed attempt with seed 0
    assert group(list(twice.values()))["arm"]["memes"] == list(runs.values())


def test_an_algorithm_whose_runs_are_all_short_is_included_with_a_note():
    runs = {
        f"{name}-{seed}": made(algorithm=name, seed=seed, points=points)
        for name, points in (("memes", 100), ("me", 100), ("me-es", 9))
        for seed in range(2)
    }
    kept, notes = without_short(runs)
    assert (kept, notes) == (runs, [])
    (note,) = [note for note in tables.notes(group(list(kept.values()))) if "generations" in note]
    assert note == (
        "arm: runs are compared after only 9 generations, the length of me-es, seed 0; the median is "
        "100 generations."
    )


def test_the_lowest_panel_of_each_column_has_tick_labels():
    """Five algorithms need two rows of panels. The second row has only one panel."""
    runs = {name: [made(algorithm=name)] for name in "abcde"}
    figure = archive_figures.archives_figure("arm", runs)
    panels = [axes for axes in figure.axes if axes.images]
    labelled = [axes.xaxis.get_tick_params()["labelbottom"] for axes in panels]
    named = [bool(axes.get_xlabel()) for axes in panels]
    assert labelled == named == [False, True, True, True, True]


def test_features_inside_blocks_are_named_once_for_all_panels():
    """Labels for four features do not fit into the panels."""
    one = made()
    names = tuple(f"foot {i} on the ground (share)" for i in range(4))
    low, high = (0.0,) * 4, (1.0,) * 4
    one = one._replace(
        low=low, high=high, heat=np.zeros((2, 2, 2, 2)), about=replace(one.about, feature_names=names)
    )
    figure = archive_figures.archives_figure("ant", {name: [one] for name in "abcdefghi"})
    title = " ".join(figure.get_suptitle().split())
    assert title.endswith(f"in each block: {names[0]} to the right, {names[1]} upwards")
    shown = {" ".join(axes.get_xlabel().split()) for axes in figure.axes if axes.images}
    assert shown == {"", names[2]}


def test_panels_use_the_feature_names_of_any_run():
    """One of the runs has a summary of version 0.1, which has no feature names."""
    old, new = made(algorithm="me"), made(algorithm="memes")
    new = new._replace(about=replace(new.about, feature_names=("hand x", "hand y")))
    figure = archive_figures.archives_figure("arm", {"me": [old], "memes": [new]})
    panels = [axes for axes in figure.axes if axes.images]
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in panels] == [
        ("hand x", "hand y"),
        ("hand x", ""),
    ]


def test_figures_of_summaries_and_their_paths_are_equal(tmp_path):
    for i, run in enumerate(RUNS):
        save_summary(tmp_path / f"{i}.json", run)
    drawn = plot.compare(tmp_path)
    assert drawn.keys() == plot.compare(RUNS).keys() >= {"scores", "steps", "archives-arm"}
    with pytest.warns(UserWarning, match="'run 9' is left out: it has 1 generations"):
        again = plot.compare([*RUNS, made(seed=9, points=1)])
    for one, other in zip(drawn["scores"].axes, again["scores"].axes, strict=True):
        for line, same in zip(one.lines, other.lines, strict=True):
            np.testing.assert_array_equal(line.get_xydata(), same.get_xydata())


def test_tables_contain_medians_and_corrected_tests():
    groups = group([*RUNS, made("hexapod")])
    found = {
        (row["task"], row["label"], row["view"], row["measure"]): row for row in tables.scores(groups)
    }
    for label, values in SCORES.items():
        row = found["arm", label, "generations", "qd_score"]
        assert row["median"] == np.median(values)
        assert min(values) <= row["median_low"] < row["median"] < row["median_high"] <= max(values)
        assert row["iqm"] == pytest.approx(np.mean(sorted(values)[1:3]))
        assert row["n"] == 4
    # After 20 evaluations, `memes` has completed 2 of its 5 generations, and `me` has completed all of
    # its generations.
    row = found["arm", "memes", "evaluations", "qd_score"]
    assert row["median"] == pytest.approx(np.median(SCORES["memes"]) * 2 / 5)
    alone = found["hexapod", "memes", "generations", "qd_score"]
    assert (alone["median"], alone["n"]) == (100, 1)
    assert math.isnan(alone["median_low"])

    (test,) = (
        row
        for row in tables.tests(groups)
        if (row["view"], row["measure"]) == ("generations", "qd_score")
    )
    assert test["p"] == test["corrected_p"] == pytest.approx(rank_sum(SCORES["memes"], SCORES["me"]))
    assert test["difference"] == pytest.approx((135 - 92.5) / 92.5)


def test_p_values_are_corrected_for_the_pairs_of_a_task():
    third = [made(algorithm="es", seed=seed, score=10.0 + seed) for seed in range(4)]
    rows = tables.tests(group([*RUNS, *third]))
    pairs = {(row["a"], row["b"]) for row in rows}
    assert pairs == set(itertools.combinations(["memes", "me", "es"], 2))
    for row in rows:
        assert row["corrected_p"] == pytest.approx(min(1, 3 * row["p"]))


def test_lifespans_steps_times_and_seeds():
    groups = group(RUNS[:4])
    (life,) = tables.lifespans(groups)
    assert (life["resets"], life["mean"], life["median"]) == (8, 11.5, 9)
    (step,) = tables.steps(groups)
    assert (step["kind"], step["distance"]) == ("exploit", 0.5)
    (time,) = tables.times(groups)
    assert (time["seconds_per_generation"], time["evaluations_per_second"]) == (0.5, 20)
    assert [row["qd_score"] for row in tables.seeds(groups)] == SCORES["memes"]


def test_too_few_seeds_are_noted():
    alone = tables.notes(group([made(), made(algorithm="me"), made(algorithm="me", seed=1)]))
    assert alone == ["arm: memes has one seed, and therefore no interval and no test."]
    few, _ = tables.notes(group([run for run in RUNS if run.seed < 3]))
    assert "cannot give a corrected p below 0.1" in few
    (spent,) = tables.notes(group(RUNS))
    assert "different numbers of evaluations" in spent
    by_title = report.pair_tables(tables.tests(group([made(), made(algorithm="me")])))
    for lines in by_title.values():
        assert [[*line.values()] for line in lines] == [["memes against me", "-", "-", "-"]]


def test_numbers_are_formatted_for_readers():
    assert report.number(1234.5) == "1,234"
    assert report.number(0.123456) == "0.1235"
    assert report.number(0.123456, "coverage") == "12.3%"
    assert report.number(-0.5, "qd_score_loss") == "-50.0%"
    assert report.number(math.nan) == "-"
    row = {"x": -2.0, "x_low": -3.0, "x_high": 1.5}
    assert report._cell(row, "x") == "-2 [-3 to 1.5]"


def test_a_preset_looks_the_same_in_every_figure():
    alone, among = looks(["memes"]), looks(["other", "me", "memes"])
    assert alone["memes"] == among["memes"]
    assert set(ALGORITHMS) == set(memes.PRESETS)
    found = looks([*ALGORITHMS, "other"]).values()
    assert len({look.colour for look in found}) == len({look[1:] for look in found}) == len(found)


def test_algorithms_have_their_names_from_the_paper():
    labels = {
        "me": [made(algorithm="me")],
        "me-128": [made(algorithm="me-128")],
        "mine": [made(algorithm="mine")],
        "me-tuned": [made(algorithm="me-tuned")],
    }
    names = comparisons.display_names({"arm": labels})
    assert names == {"me": "ME-16384", "me-128": "ME-128", "mine": "mine", "me-tuned": "ME-tuned"}
    labels["me"] = [made(algorithm="me", options={"batch": 128})]
    del labels["me-tuned"]
    names = comparisons.display_names({"arm": labels})
    assert names == {"me": "me", "me-128": "me-128", "mine": "mine"}


def test_no_two_labels_look_the_same():
    found = list(looks([f"label {i}" for i in range(28)]).values())
    assert len({look.colour for look in found}) == 28
    neighbours = [(look.line, look.marker) for look in found]
    assert all(a != b for a, b in itertools.pairwise(neighbours))


def test_archives_share_a_colour_scale():
    runs = {
        label: [
            corrected(made(algorithm=label, seed=seed, score=score + seed), 0.5) for seed in range(3)
        ]
        for label, score in (("memes", 100), ("me", 60))
    }
    figure = archive_figures.archives_figure("arm", runs)
    images = [image for axes in figure.axes for image in axes.images]
    assert len(images) == 4
    pixels = [np.asarray(image.get_array()) for image in images]
    colours = [set(map(tuple, np.unique(x.reshape(-1, x.shape[-1]), axis=0).tolist())) for x in pixels]
    assert len(set.intersection(*colours)) >= 1  # All images show empty cells in one colour.
    assert figure.axes[-1].get_ylim()[1] == 101  # The colour bar ends at the value of the median seed.
    assert archive_figures.archives_figure("arm", {"memes": [made(heat=None)]}) is None


def test_the_command_writes_tables_and_figures_of_committed_summaries(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("summaries").mkdir()
    tall = {"low": (0.0,) * 4, "high": (1.0,) * 4}
    runs = [
        *RUNS,
        corrected(made("ant/x:y", **tall, heat=np.eye(4).reshape(2, 2, 2, 2)), 0.5),
        made("empty", curves={name: column * np.nan for name, column in made().curves.items()}),
    ]
    empty = runs[-1].curves | {name: made().curves[name] for name in ("generation", "evaluations")}
    runs[-1] = runs[-1]._replace(curves=empty, heat=np.full((3, 2), np.nan), steps={}, lifespans={})
    for i, run in enumerate(runs):
        save_summary(f"summaries/{i}.json", run)
    Path("a/b").mkdir(parents=True)
    assert main(["compare", "summaries", "--out", "a/b"]) == 0
    printed = capsys.readouterr().out
    assert "arm, after 5 generations: median [95% interval]" in printed
    assert "ant/x:y: memes has one seed" in printed
    figures = {"scores", "losses", "convergence-generations", "convergence-evaluations", "steps"}
    figures |= {"archives-arm", "archives-ant-x-y", "archives-empty"}
    written = {path.name for path in Path("a/b").iterdir()}
    names = {f"{name}.csv" for name in ("scores", "tests", "lifespans", "steps", "times", "seeds")}
    expected = (
        names | {"comparison.md"} | {f"{name}.{end}" for name in figures for end in ("png", "pdf")}
    )
    assert written == expected
    with Path("a/b/seeds.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["qd_score"]) for row in rows if row["task"] == "arm"] == [
        *SCORES["memes"],
        *SCORES["me"],
    ]
    page = Path("a/b/comparison.md").read_text()
    assert "| memes | 4 | 50 | 135 [120-150] |" in page
    assert "![archives-arm](archives-arm.png)" in page
    save_summary("stray.json", made(seed=9, points=1))
    pair = ["summaries/0.json", "summaries/1.json", "stray.json"]
    assert main(["compare", *pair, "--out", "a/b", "--overwrite", "--include-short"]) == 0
    assert "arm, after 1 generations: median" in capsys.readouterr().out
    assert main(["compare", *pair, "--out", "a/b", "--overwrite"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "arm, after 5 generations: median" in printed
    assert "'stray.json' is left out" in printed
    assert "'stray.json' is left out" in Path("a/b/comparison.md").read_text()
    assert not list(Path("a/b").glob("losses.*"))
    assert not Path("a/b/tests.csv").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "RUN is missing"),
        (["runs/*"], "there is no file or folder 'runs/*'"),
        (["here.txt", "--out", "here.txt"], "out must be a folder"),
    ],
)
def test_a_wrong_use_gives_a_one_line_error(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("here.txt").write_text("")
    assert main(["compare", *words]) == 2
    printed = capsys.readouterr().err
    assert sentence in printed
    assert printed.count("\n") == 1


def test_a_comparison_changes_only_its_own_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_summary("run.json", made())
    command = ["compare", "run.json", "--out", "mine", "--overwrite"]
    Path("mine").mkdir()
    for name in ("archives-mine.png", "scores.csv"):
        Path("mine", name).write_text("mine")
        assert main(command) == 2
        assert f"earlier comparison, but 'mine' contains '{name}'" in capsys.readouterr().err
        assert [path.read_text() for path in Path("mine").iterdir()] == ["mine"]
        Path("mine", name).unlink()
    assert main(command) == 0
    Path("mine/archives-mine.png").write_text("mine")  # a user's file next to other figures
    assert main(command) == 0
    assert Path("mine/archives-mine.png").read_text() == "mine"
    Path("mine/losses.png").write_text("mine")  # the next comparison would replace this file
    save_summary("run.json", corrected(made(), 0.5))
    assert main(command) == 2
    assert "'mine/losses.png' is not a file of a comparison" in capsys.readouterr().err
    assert Path("mine/losses.png").read_text() == "mine"


def test_a_forged_page_does_not_cause_other_figures_to_be_removed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_summary("run.json", made())
    assert main(["compare", "run.json", "--out", "mine"]) == 0
    with Path("mine/comparison.md").open("a") as page:
        page.write("\n![thesis](thesis.png)\n\n![archives-old](archives-old.png)\n")
    for name in ("thesis", "archives-old"):
        Path("mine", f"{name}.png").write_text("mine")
    assert main(["compare", "run.json", "--out", "mine", "--overwrite"]) == 0
    assert Path("mine/thesis.png").exists()
    assert not Path("mine/archives-old.png").exists()


def test_an_interrupted_comparison_can_be_repeated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_summary("run.json", made())

    def cut_off(figure, file):
        raise OSError(28, "No space left on device", str(file))

    with monkeypatch.context() as full:
        full.setattr(report, "save", cut_off)
        assert main(["compare", "run.json"]) == 1
    assert main(["compare", "run.json", "--overwrite"]) == 0
    assert Path("comparison/scores.png").exists()


def test_an_earlier_comparison_is_kept_without_overwrite(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_summary("a.json", made())
    save_summary("b.json", made(seed=1))
    assert main(["compare", "a.json"]) == 0
    first = Path("comparison/comparison.md").read_text()
    assert main(["compare", "a.json", "b.json"]) == 0
    assert Path("comparison/comparison.md").read_text() == first
    assert Path("comparison-take-2/comparison.md").read_text().startswith("# Comparison of 2 runs")
    assert main(["compare", "a.json", "b.json", "-o", "comparison"]) == 2
    assert "earlier comparison: replace it with --overwrite" in capsys.readouterr().err
    assert main(["compare", "a.json", "b.json", "--overwrite"]) == 0
    assert Path("comparison/comparison.md").read_text().startswith("# Comparison of 2 runs")


def test_runs_get_labels_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, run in {"a": made(), "b": made(seed=1), "c=d": made(seed=2)}.items():
        save_summary(f"{name}.json", run)
    assert main(["compare", "paper=a.json", "other=b.json", "c=d.json"]) == 0
    with Path("comparison/seeds.csv").open(newline="") as stream:
        found = {row["seed"]: row["label"] for row in csv.DictReader(stream)}
    assert found == {"0": "paper", "1": "other", "2": "memes"}


def test_algorithms_with_equal_labels_are_distinguished():
    runs = [made(algorithm="a.py:search", label="mine"), made(algorithm="b.py:search", label="mine")]
    assert {run.label for run in distinguish(runs)} == {"mine (a.py:search)", "mine (b.py:search)"}


def test_comparisons_state_evaluations():
    groups = group(RUNS)
    rows = {(row["label"], row["view"]): row["evaluations"] for row in tables.scores(groups)}
    assert rows["memes", "generations"] == 50
    assert rows["me", "generations"] == 20
    assert rows["me", "evaluations"] == rows["memes", "evaluations"] == 20
    (note,) = (note for note in tables.notes(groups) if "different numbers of evaluations" in note)
    assert "from 20 (me) to 50 (memes)" in note
    figure = comparisons.scores_figure(groups, looks(all_labels(groups)))
    ticks = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert ticks == ["memes (50)", "me (20)"]


def test_labels_are_not_wrapped_within_words():
    wrapped = archive_figures.in_lines("myalgo.py:exploit_iso lanes=16", 14)
    assert wrapped == "myalgo.py:\nexploit_iso\nlanes=16"
    assert archive_figures.in_lines("a" * 30, 14) == "a" * 30


NASTY = "\x1b[31mred <script>alert(1)</script> $x_{$ | [a](http://b) `c`\u202e"


def test_names_are_escaped_in_terminals_and_pages(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed in range(2):
        run = made(NASTY, NASTY, seed, options={NASTY: seed})
        save_summary(f"{seed}.json", run._replace(about=replace(run.about, device=NASTY)))
    assert main(["compare", "0.json", "1.json"]) == 0
    printed = capsys.readouterr().out
    assert not {"\x1b", "\u202e"} & set(printed)
    assert r"\x1b[31mred" in printed
    page = Path("comparison/comparison.md").read_text()
    assert "<script>" not in page
    assert not re.search(r"(?<!\\)\[a\\?\]", page)
    assert all(c.isprintable() for c in page if c != "\n")
    row = next(line for line in page.splitlines() if line.startswith(r"| \\x1b"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 7  # no unescaped bar inside a cell


def test_names_in_figures_are_not_formulas(tmp_path):
    run = made("$x_{$", "$y^{$")
    for figure in comparisons.draw(group([run])).values():
        figure.savefig(tmp_path / "figure.png")


def test_runs_with_equal_options_are_distinguished_by_genotype_length():
    """Tasks defined in Python do not record the genotype length as an option.

    Summaries of older versions do not record the length at all.
    """
    old, *new = (
        made(seed=i, about=replace(made().about, dim=dim)) for i, dim in enumerate((None, 6, 60))
    )
    assert [run.label for run in distinguish(new)] == ["memes dim=6", "memes dim=60"]
    assert [run.label for run in distinguish([old, new[0]])] == ["memes", "memes"]


def test_runs_without_an_archive_are_excluded_with_a_note(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    begun = tmp_path / "all/begun"
    begun.mkdir(parents=True)
    for i, run in enumerate(RUNS):
        save_summary(tmp_path / f"all/{i}.json", run)
    save_config(begun, Header(RunConfig(task="arm", algorithm="memes", seed=7)))
    note = "'all/begun' is left out: it has no archive yet; 'memes resume all/begun' continues it."
    assert main(["compare", "all"]) == 0
    assert note in " ".join(capsys.readouterr().out.split())
    with pytest.warns(UserWarning, match=re.escape(note)):
        plot.compare("all")
    assert main(["plot", "all/begun"]) == 2
    assert note in capsys.readouterr().err
