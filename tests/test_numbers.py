"""The numbers in README.md, docs/ and results/README.md agree with the summaries in results/."""

import json
import re
from collections import defaultdict
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import memes
from memes.analysis.statistics import rank_sum
from memes.reproduce import results
from memes.reproduce.claims import judge
from memes.reproduce.quantities import (
    Evidence,
    area,
    best,
    coverage,
    kept,
    lifespan,
    productive,
    qd,
    step,
)
from memes.store.summary import Summary, load_summary

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
if not RESULTS.exists():  # a source distribution has no results
    pytest.skip("a source distribution has no results", allow_module_level=True)
README, TABLE, BEYOND, CHOOSE = (
    ROOT / name for name in ("README.md", "results/README.md", "docs/beyond.md", "docs/howto/choose.md")
)
TASKS = {"Arm": "arm", "Hexapod": "hexapod", "Ant": "ant", "AntTrap": "ant-trap"}
# Labels by display name. The label of a variant of an experiment is its display name in lower case, with
# two exceptions.
NAMES = {preset.title: name for name, preset in memes.PRESETS.items()}
NAMES |= {"ME-65536": "me-x4", "MEMES-128": "memes-x4"}
NUMBER = r"-?\d[\d \u00a0]*(?:\.\d+)?%?"
NAMED = re.compile(rf"([A-Z][\w-]*|[a-z]+ lanes) \**({NUMBER})")


def label_of(name: str) -> str:
    return NAMES.get(name, name.lower())


@cache
def loaded(folder: str = "paper/summaries") -> dict[str, dict[str, list[Summary]]]:
    """Return the summaries by task and label."""
    found: dict[str, dict[str, list[Summary]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted((RESULTS / folder).glob("*/*.json")):
        run = load_summary(file)
        found[run.task][run.label].append(run)
    return found


def values(quantity, task, name, folder="paper/summaries"):
    """Return a quantity for each seed of the algorithm with this display name."""
    return _values(quantity, Evidence(loaded(folder)[task]), label_of(name))


def _values(quantity, evidence, label):
    runs = evidence.runs[label]
    assert runs, f"no runs of {label}"
    if quantity == "seeds":
        return [len(runs)]
    if quantity == "evaluations, millions":
        return [run.curves["evaluations"][-1] / 1e6 for run in runs]
    if quantity == "lifespan":
        raise AssertionError("of lanes, not of algorithms")
    if quantity.endswith(("as found", "corrected by means")):
        column, kind = quantity.split(", ")[0] if ", " in quantity else "QD-score", quantity
        name = {"QD-score": "qd_score", "coverage": "coverage", "max fitness": "max_fitness"}[column]
        if kind.endswith("as found"):
            return [run.curves[name][-1] for run in runs]
        return [run.corrected[f"{name}_by_mean"] for run in runs]
    if quantity == "loss of QD-score":
        return 1 - kept(label).values(evidence)
    if quantity == "step in cells":
        steps = (step(label, kind).values(evidence) for kind in ("exploit", "variation"))
        return next(found for found in steps if found.size)
    of = {
        "QD-score": qd,
        "coverage": coverage,
        "max fitness": best,
        "longest productive life": productive,
        "mean QD-score over the log of evaluations": area,
    }
    return of[quantity.removesuffix(", corrected")](label).values(evidence)


def check(text, value, where):
    """Check that a printed number equals the value, rounded to the printed digits."""
    digits = text.replace(" ", "").replace("\u00a0", "")
    shown = 100 * value if digits.endswith("%") else value
    digits = digits.rstrip("%")
    places = len(digits.partition(".")[2])
    assert abs(float(digits) - shown) <= 0.5001 * 10**-places, f"{where}: {text} is {shown:.6g}"


def tables(document, heading=""):
    """Yield the tables of a document below a heading. Each table is a list of rows of cells."""
    text = document.read_text()
    if heading:
        text = re.split(rf"^## {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
        text = re.split(r"^## ", text, flags=re.MULTILINE)[0]
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
        yield rows[:1] + rows[2:]


def table_of_claims():
    """Return the rows of the claims table, by claim and task."""
    found = {}
    for line in (RESULTS / "paper/claims.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 9 and re.fullmatch(r"[CB]\d+b?", cells[0]):
            found[cells[0], cells[2]] = cells
    return found


def rows_of_claims():
    (table,) = (rows for rows in tables(TABLE) if rows[0][1] == "claim")
    return [dict(zip(table[0], cells, strict=True)) for cells in table[1:]]


def test_the_table_of_results_has_the_verdicts_of_the_claims():
    claims, rows = table_of_claims(), rows_of_claims()
    tested = {key for key, cells in claims.items() if cells[3].startswith(("rep", "not rep", "inc"))}
    listed = {(row[""], TASKS[row["task"]]) for row in rows}
    assert listed == {key for key in tested if key[0] != "C1b"}
    for row in rows:
        _, _, _, verdict, seeds, p, corrected, *_ = claims[row[""], TASKS[row["task"]]]
        assert row["verdict"].strip("*") == verdict, row
        assert row["seeds"] == seeds, row
        assert row["p; corrected"] == ("" if p == "-" else f"{p}; {corrected}"), row


def test_the_table_of_results_has_the_medians_of_the_summaries():
    checked = 0
    for row in rows_of_claims():
        task, where = TASKS[row["task"]], f"{row['']}, {row['task']}"
        quantity, _, listed = row["medians"].partition(": ")
        entries = [NAMED.fullmatch(part) for part in listed.split(", ")] if listed else []
        for entry in entries:
            assert entry, f"{where}: {listed}"
            name, number = entry.groups()
            if quantity == "lifespan":
                of = lifespan("memes", name.removesuffix(" lanes")).values(Evidence(loaded()[task]))
            else:
                of = values(quantity, task, name)
            check(number, np.median(of), f"{where}, {quantity} of {name}")
            checked += 1
    assert checked > 60


def test_intervals_and_shares_in_the_table_agree_with_the_claims():
    """Every interval or share in brackets in the table is also in the section about its claim."""
    text = (RESULTS / "paper/claims.md").read_text()
    for row in rows_of_claims():
        title = re.escape(f"### {row['']}, {TASKS[row['task']]}: ")
        section = re.split(r"^###? ", re.split(rf"^{title}", text, flags=re.M)[1], flags=re.M)[0]
        for interval in re.findall(r"(?:[-+][\d.]+% )?\[[^]]*\](?!\()", row["what was found"]):
            assert interval in section, f"{row['']}, {row['task']}: {interval}"


OF_ALGORITHMS = [  # document, heading, task, folder of summaries
    (TABLE, "Arm", "arm", "paper/summaries"),
    (TABLE, "Ant", "ant", "paper/summaries"),
    (TABLE, "AntTrap", "ant-trap", "paper/summaries"),
    (TABLE, "Hexapod", "hexapod", "paper/summaries"),
    (BEYOND, "Archives that survive re-evaluation", "ant", "paper/summaries"),
    (BEYOND, "Lanes and offspring in one archive", "ant", "evidence/summaries"),
    (BEYOND, "Deterministic tasks", ("arm", "hexapod"), "paper/summaries"),
]


@pytest.mark.parametrize(("document", "heading", "tasks", "folder"), OF_ALGORITHMS, ids=str)
def test_tables_of_algorithms_have_the_numbers_of_the_summaries(document, heading, tasks, folder):
    """Columns are algorithms. Each row is the median, minimum or maximum of a quantity over seeds."""
    found = [rows for rows in tables(document, heading) if rows[0][1].startswith("MEMES")]
    tasks = (tasks,) if isinstance(tasks, str) else tasks
    assert len(found) == len(tasks)
    for rows, task in zip(found, tasks, strict=True):
        for quantity, *cells in rows[1:]:
            if quantity.startswith("cells beyond the trap"):
                continue
            statistic = np.median
            for suffix, other in {", lowest seed": np.min, ", highest seed": np.max}.items():
                if quantity.endswith(suffix):
                    quantity, statistic = quantity.removesuffix(suffix), other
            for name, cell in zip(rows[0][1:], cells, strict=True):
                if cell:
                    of = values(quantity, task, name, folder)
                    check(cell.strip("*"), statistic(of), f"{heading}, {task}: {quantity} of {name}")


def test_the_results_in_the_readme_agree_with_the_summaries():
    (table,) = (rows for rows in tables(README, "Three results"))
    for task, *cells in table[1:]:
        for name, cell in zip(table[0][1:], cells, strict=True):
            if cell:
                number = np.median(values("QD-score", TASKS[task], name))
                check(cell.strip("*"), number, f"README: {name}, {task}")


# Each entry says by how many per cent the first algorithm's median QD-score on a task exceeds that of
# the second algorithm. The last field lists the documents that contain this number.
ABOVE = [
    (28, "MEMES", "ME-16384", "ant", (README, TABLE, CHOOSE)),
    (71, "MEMES-sampling", "ME-16384", "ant", (README, TABLE, BEYOND, CHOOSE)),
    (33, "MEMES-sampling", "MEMES", "ant", (TABLE, BEYOND, CHOOSE)),
    (34, "MEMES-sampling", "ME-Sampling", "ant", (BEYOND,)),
    (68, "MEMES-sampling", "MEMES-all", "ant", (BEYOND,)),
    (10, "ME-128", "ME-16384", "ant", (TABLE,)),
    (24, "MEMES", "ME-16384", "ant-trap", (TABLE,)),
    (11, "MEMES", "ME-Sampling", "ant-trap", (TABLE,)),
    (10, "MEMES-ME", "ME-16384", "arm", (BEYOND,)),
    (42, "MEMES-hybrid", "MEMES", "ant", (BEYOND, CHOOSE)),
    (7, "MEMES-hybrid", "MEMES-sampling", "ant", (BEYOND, CHOOSE)),
]


@pytest.mark.parametrize(("percent", "a", "b", "task", "documents"), ABOVE)
def test_ratios_in_prose_agree_with_the_medians(percent, a, b, task, documents):
    folder = "evidence/summaries" if a == "MEMES-hybrid" else "paper/summaries"
    ratio = np.divide(*(np.median(values("QD-score", task, name, folder)) for name in (a, b)))
    assert round(100 * (ratio - 1)) == percent
    for document in documents:
        assert f"{percent}%" in " ".join(document.read_text().split()), document


def test_stated_separations_of_all_seeds_hold():
    stated = [
        ("ant", "MEMES-sampling", ["MEMES", "ME-Sampling", "ME-16384", "MEMES-all"]),
        ("arm", "MEMES-ME", ["MEMES", "MEMES-all", "ME-16384", "ME-tuned"]),
        ("ant-trap", "MEMES", ["ME-16384", "ME-128", "NSRA-ES", "NSR-ES", "NS-ES", "ES"]),
        ("ant", "MEMES", ["ME-16384"]),
    ]
    for task, name, others in stated:
        for other in others:
            a, b = (values("QD-score", task, each) for each in (name, other))
            assert min(a) > max(b), (task, name, other)


def test_separations_and_p_values_of_the_hybrid_agree_with_the_summaries():
    """Holm's method multiplies the smallest of ten p-values by 10, and the third smallest by 8."""
    text = " ".join(BEYOND.read_text().split())
    for quantity in ("QD-score", "mean QD-score over the log of evaluations"):
        hybrid, *others = (
            values(quantity, "ant", name, "evidence/summaries")
            for name in ("MEMES-hybrid", "MEMES", "MEMES-sampling")
        )
        for factor, other in zip((10, 8), others, strict=True):
            assert min(hybrid) > max(other)
            assert f"{factor * rank_sum(hybrid, other):.2g}" in text


def test_p_values_in_the_readme_agree_with_the_summaries():
    def p(task, name, other):
        return rank_sum(*(values("QD-score", task, each) for each in (name, other)))

    others = ("MEMES", "MEMES-all", "ME-16384")
    ant = [p("ant", "MEMES-sampling", each) for each in (*others, "ME-Sampling")]
    arm = [p("arm", "MEMES-ME", each) for each in others]
    level = p("arm", "MEMES", "ME-16384")
    pairs = combinations((*others, "MEMES-ME"), 2)
    hexapod = min(p("hexapod", *pair) for pair in pairs)
    text = " ".join(README.read_text().split())
    for sentence in (
        f"MEMES-sampling is above each of the others (p = {max(ant):.3f}, 5 seeds each)",
        f"is above each of the others (10 seeds, p = {max(arm):.4f})",
        f"MEMES and ME-16384 do not differ significantly (p = {level:.2f})",
        f"no two algorithms differ significantly (p = {hexapod:.2f} or more, 5 seeds each)",
    ):
        assert sentence in text
    assert f"{p('ant', 'MEMES', 'ME-16384'):.3f}" == "0.008"


def test_intervals_in_brackets_agree_with_the_claims():
    """All intervals in brackets are 95% bootstrap intervals of medians and differences.

    Some other brackets contain bounds such as [-1, 1].
    """
    claims = (RESULTS / "paper/claims.md").read_text()
    number = r"[-+]?\d[\d .]*%?"
    for page in (
        README,
        TABLE,
        *ROOT.glob("*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("docs/**/*.md"),
    ):
        text = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for ends in re.findall(rf"\[({number}), ({number})\]", "" if "made" in page.parts else text):
            low, high = (end.replace(" ", "") for end in ends)
            bounds = all(re.fullmatch(r"-?\d\d?", end) for end in (low, high))
            assert bounds or f"[{low}, {high}]" in claims, f"{page.name}: [{low}, {high}]"


def test_prose_about_the_arm_has_the_numbers_of_the_summaries():
    text = " ".join(TABLE.read_text().split())
    fewer = [f"MEMES-{part}-samples" for part in ("half", "quarter", "eighth")]
    four, three = (
        [f"{np.median(values('QD-score', 'arm', name)):,.0f}".replace(",", " ") for name in names]
        for names in (("MEMES-128", "ME-65536"), fewer)
    )
    p = rank_sum(*(values("QD-score", "arm", name) for name in ("MEMES-128", "ME-65536")))
    assert f"MEMES-128 reaches {four[0]}, and ME-65536 reaches {four[1]}" in text
    assert f"(ten seeds, p = {p:.3f})" in text
    assert f"reach {three[0]}, {three[1]} and {three[2]}" in text


def test_the_comparison_with_the_authors_has_the_numbers_of_the_summaries():
    (table,) = (rows for rows in tables(ROOT / "docs/deviations.md") if rows[0][1] == "authors' code")
    for what, _, here in table[1:]:
        name, _, quantity = what.partition(": ")
        if quantity in ("seeds", "QD-score", "coverage"):
            of = values(quantity, "arm", name)
            median, *ends = re.findall(NUMBER, here)
            check(median, np.median(of), what)
            for end, value in zip(ends, (min(of), max(of)), strict=False):
                check(end, value, what)


# Each entry has a quote from README.md, a document with the measurement, and a quote from this document.
MEASURED = [
    ("joints) takes 0.52 ms", "benchmarks/README.md", "32 lanes, a generation | 0.52 ms"),
    ("code takes 20.8 ms", "benchmarks/README.md", "| the authors' code 20.8 ms"),
    ("MAP-Elites takes 0.42 ms", "benchmarks/README.md", "offspring, a generation | 0.42 ms"),
    ("0.47 ms with QDax 0.5.0", "benchmarks/README.md", "| QDax 0.47 ms"),
    ("237 million control steps", "docs/physics.md", "| 65 536 | `cuda` | 237 M |"),
    ("MJX computes 1.7 million", "docs/physics.md", "| MJX | 0.06 / 0.40 / 1.3 / 1.7 M |"),
    ("0.2% to 0.8% slower", "benchmarks/README.md", "took 1.002 and 1.008 times as long"),
    ("killed 50 times", "benchmarks/README.md", "50 kills in 1 runs"),
    ("1 000 generations in 34 s", "results/README.md", "1 000 generations"),
    ("reaches 1 098 321", "docs/beyond.md", "| **1 098 321** |"),
    ("(MEMES: 20% with 208 000)", "docs/howto/choose.md", "uses 208 000 evaluations"),
]


@pytest.mark.parametrize(("quoted", "document", "measured"), MEASURED)
def test_measurements_in_the_readme_agree_with_their_pages(quoted, document, measured):
    assert quoted in " ".join(README.read_text().split())
    assert measured in (ROOT / document).read_text()


def corrected_at(generation, name, folder="paper/summaries"):
    """Return the median corrected QD-score on the Ant at a generation."""
    corrections = [run.corrections for run in loaded(folder)["ant"][label_of(name)]]
    return np.median(np.concatenate([c["qd_score"][c["generation"] == generation] for c in corrections]))


def test_scores_by_budget_agree_with_the_summaries():
    (table,) = (rows for rows in tables(CHOOSE, "How many evaluations") if rows[0][0] == "generations")
    for name, *cells in table[1:]:
        for generation, cell in zip(table[0][1:], cells, strict=True):
            score = corrected_at(int(generation.replace(" ", "")), name.strip("`"))
            check(cell.strip("*"), score / 1e3, f"{name} at {generation}")


def test_the_stated_scores_of_memes_hybrid_are_the_highest():
    (table,) = (rows for rows in tables(CHOOSE, "How many evaluations") if rows[0][0] == "generations")
    score = {}
    for generation in (int("".join(cell.split())) for cell in table[0][1:]):
        score[generation] = corrected_at(generation, "memes-hybrid", "evidence/summaries") / 1e3
        others = [corrected_at(generation, row[0].strip("`")) / 1e3 for row in table[1:]]
        assert score[generation] > max(others)
    stated = re.search(
        rf"medians of ({NUMBER}) after 200 generations, ({NUMBER}) after 400, ({NUMBER}) after 1 000, "
        rf"and ({NUMBER}) after 2 000",
        " ".join(CHOOSE.read_text().split()),
    )
    for generation, text in zip((200, 400, 1000, 2000), stated.groups(), strict=True):
        check(text, score[generation], f"memes-hybrid at {generation}")


def test_memes_exceeds_map_elites_at_the_stated_number_of_evaluations():
    ahead = {g: corrected_at(g, "MEMES") > corrected_at(g, "ME-16384") for g in (400, 600)}
    assert ahead == {400: False, 600: True}
    shown = f"{400 * 16_416 / 1e6:.1f} to {600 * 16_416 / 1e6:.1f} million evaluations"
    for document in (README, CHOOSE):
        assert shown in " ".join(document.read_text().split()), document


@pytest.mark.long
def test_the_page_of_claims_agrees_with_the_summaries():
    """The comparison ignores lines that depend on the order in which runs are listed."""
    every = [run for labels in loaded().values() for runs in labels.values() for run in runs]
    times = [json.loads(file.read_text()) for file in (RESULTS / "paper/times").glob("*.json")]
    assert not times, "pass these times to judge as well"
    made = results.page(judge(every), every).splitlines()
    stored = (RESULTS / "paper/claims.md").read_text().splitlines()
    orders = re.compile(r"- (?:arm|hexapod|ant|ant-trap): \d+ runs").match
    made, stored = ([line for line in lines if not orders(line)] for lines in (made, stored))
    assert made == stored
