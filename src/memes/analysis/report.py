"""The tables of a comparison as people read them: in the terminal, as Markdown, and as CSV files."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from memes.analysis.groups import LOSSES, MEASURES, Groups, is_share, main_view, views
from memes.analysis.statistics import corrected_p, smallest_p
from memes.analysis.tables import Row
from memes.store.summary import Summary

WORDS = MEASURES | LOSSES
STATISTICS = {"median": "median", "iqm": "interquartile mean"}
AGAINST = " against "
MAX_PAIRS = 10  # in a table of the terminal
SIGNIFICANT = 0.05

READING = """\
Intervals are percentile bootstrap intervals over the seeds, at 95%. At equal generations or evaluations
a run counts with what it last knew at or before that number, or not at all where that was much earlier.
Corrected scores are those of the archive after every elite was evaluated again; a loss is the share of a
score that this took away. Pairs are compared by two-sided Wilcoxon rank-sum tests with Bonferroni
correction for the pairs of a task; an asterisk marks p < 0.05."""


class Table(NamedTuple):
    """What is shown: a title, a header, and rows of words that begin with a name."""

    title: str
    header: list[str]
    rows: list[list[str]]


def shown(groups: Groups, rows: Mapping[str, list[Row]]) -> list[Table]:
    """What the terminal shows: medians, and means and tests where they count."""

    def counts(row: Row) -> bool:
        return bool(row["view"] == main_view(groups[row["task"]]).name)

    return [
        *score_tables(rows["scores"], "median"),
        *score_tables(filter(counts, rows["scores"]), "iqm"),
        *map(_shortened, test_tables(filter(counts, rows["tests"]))),
    ]


def _shortened(table: Table) -> Table:
    """A table of many pairs with those of the first label alone."""
    first = table.rows[0][0].partition(AGAINST)[0]
    kept = [row for row in table.rows if row[0].startswith(first + AGAINST)]
    if len(table.rows) <= MAX_PAIRS:
        return table
    return Table(f"{table.title}; the other pairs are in tests.csv", table.header, kept)


def score_tables(rows: Iterable[Row], statistic: str) -> list[Table]:
    """A table of medians or means for each task and view: labels down, measures across."""
    found = []
    for (task, where), part in _split(rows, "task", "where"):
        measures = list(dict.fromkeys(row["measure"] for row in part))
        lines = []
        for (label,), of_label in _split(part, "label"):
            by = {row["measure"]: row for row in of_label}
            values = [_interval(by[name], statistic, name) for name in measures]
            lines.append([label, str(of_label[0]["n"]), *values])
        title = f"{task}, {where}: {STATISTICS[statistic]} [95% interval]"
        found.append(Table(title, ["algorithm", "seeds", *(WORDS[name] for name in measures)], lines))
    return found


def test_tables(rows: Iterable[Row]) -> list[Table]:
    """A table for each task and view: a row for each pair of labels, a column for each measure."""
    found = []
    for (task, where), part in _split(rows, "task", "where"):
        measures = list(dict.fromkeys(row["measure"] for row in part))
        lines = []
        for (a, b), of_pair in _split(part, "a", "b"):
            lines.append([f"{a}{AGAINST}{b}", *map(_tested, of_pair)])
        title = f"{task}, {where}: difference of medians (p corrected for {_count(len(lines), 'pair')})"
        found.append(Table(title, ["pair", *(WORDS[name] for name in measures)], lines))
    return [table for table in found if table.rows]


def other_tables(rows: Mapping[str, list[Row]]) -> list[Table]:
    """Lifespans, steps and times, if there are any."""
    lives = [
        [
            *(row[name] for name in ("task", "label", "kind", "reason")),
            f"{row['resets']:,}",
            _interval(row, "mean"),
            number(row["median"]),
        ]
        for row in _telling(rows["lifespans"])
    ]
    steps = [
        [row["task"], row["label"], row["kind"], str(row["n"]), _interval(row, "distance")]
        for row in rows["steps"]
    ]
    times = [
        [
            row["task"],
            row["label"],
            str(row["n"]),
            number(row["compile_seconds"]),
            number(row["seconds_per_generation"] * 1000),
            number(row["evaluations_per_second"]),
            row["device"],
        ]
        for row in rows["times"]
    ]
    found = [
        Table(
            "Lifespans: generations between the start and the reset of a lane",
            ["task", "algorithm", "lanes", "reset", "resets", "mean [95%]", "median"],
            lives,
        ),
        Table(
            "Parent-offspring distance in cell widths",
            ["task", "algorithm", "offspring", "seeds", "median [95%]"],
            steps,
        ),
        Table(
            "Times: the longest compilation, and medians",
            ["task", "algorithm", "seeds", "compile (s)", "generation (ms)", "evaluations/s", "device"],
            times,
        ),
    ]
    return [table for table in found if table.rows]


def notes(groups: Groups) -> list[str]:
    """What the numbers of seeds do not allow to be said, a sentence for each task concerned."""
    found = []
    for task, labels in groups.items():
        alone = [label for label, runs in labels.items() if len(runs) == 1]
        if alone:
            has = "has" if len(alone) == 1 else "have"
            found.append(f"{task}: {', '.join(alone)} {has} one seed: no interval and no test.")
        most = sorted(len(runs) for runs in labels.values())[-2:]
        pairs = math.comb(len(labels), 2)
        p = corrected_p(smallest_p(*most), pairs) if pairs else math.nan
        if p >= SIGNIFICANT:
            found.append(
                f"{task}: too few seeds to find a significant difference: {most[0]} against {most[1]} "
                f"in {_count(pairs, 'comparison')} give no corrected p below {number(p)}."
            )
        found += _unlike_corrections(task, labels)
        found += _unknown(task, labels)
    return found


def _unlike_corrections(task: str, labels: Mapping[str, Sequence[Summary]]) -> list[str]:
    """How the corrections that are compared differ, if they do."""
    facts: dict[str, tuple[str, Callable[[float], str]]] = {
        "generation": ("generations done", "{:g}".format),
        "samples": ("evaluations of each elite", "{:g}".format),
        "by_mean": ("statistics", lambda by_mean: "means" if by_mean else "medians"),
    }
    notes = []
    for view in [view for view in views(labels) if view.name.startswith("corrected")]:
        unlike = []
        for column, (words, said) in facts.items():
            values = [view.value(run, column) for runs in labels.values() for run in runs]
            found = dict.fromkeys(said(value) for value in values if math.isfinite(value))
            unlike += [f"{words} ({' and '.join(found)})"] * (len(found) > 1)
        if unlike:
            notes.append(f"{task}, {view.words}: corrections differ in {', '.join(unlike)}.")
    return notes


def _unknown(task: str, labels: Mapping[str, Sequence[Summary]]) -> list[str]:
    """Whose scores at equal evaluations are not known."""
    view = next(view for view in views(labels) if view.name == "evaluations")
    unknown = [
        label
        for label, runs in labels.items()
        if any(math.isnan(view.value(run, "coverage")) for run in runs)
    ]
    return [f"{task}: scores {view.words} are not known of {', '.join(unknown)}."] if unknown else []


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def print_table(console: Console, table: Table) -> None:
    """Show a table in the terminal."""
    rich = RichTable(
        title=table.title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    for i, words in enumerate(table.header):
        numeric, widest = _numeric(table, i), max(len(row[i]) for row in table.rows)
        rich.add_column(
            words, justify="right" if numeric else "left", no_wrap=not numeric and widest <= 40
        )
    for row in table.rows:
        rich.add_row(*row)
    console.print(rich)


def page(groups: Groups, rows: Mapping[str, list[Row]], figures: Sequence[str]) -> str:
    """All tables and figures as one page of Markdown."""
    scores = score_tables(rows["scores"], "median") + score_tables(rows["scores"], "iqm")
    sections = {
        f"Comparison of {len(rows['seeds'])} runs": [READING, *(f"- {note}" for note in notes(groups))],
        "Scores": [*map(_markdown, scores)],
        "Tests": [*map(_markdown, test_tables(rows["tests"]))],
        "Lanes, offspring and times": [*map(_markdown, other_tables(rows))],
        "Figures": [f"![{name}]({name}.png)" for name in figures],
    }
    parts = [
        [f"{'#' * (1 + (i > 0))} {title}", *text]
        for i, (title, text) in enumerate(sections.items())
        if text
    ]
    return "\n\n".join(line for part in parts for line in part) + "\n"


def _markdown(table: Table) -> str:
    align = ["---:" if _numeric(table, i) else "---" for i in range(len(table.header))]
    lines = [table.header, align, *table.rows]
    return f"### {table.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_csv(file: Path, rows: Sequence[Row]) -> None:
    """Write rows with the same keys; NaN and None become empty fields. Without rows there is no file."""
    if not rows:
        file.unlink(missing_ok=True)
        return
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(rows[0])
        writer.writerows([_field(value) for value in row.values()] for row in rows)


def number(value: float, measure: str = "") -> str:
    """A number to four digits, or a share in per cent; "-" for NaN."""
    if not math.isfinite(value):
        return "-"
    if is_share(measure):
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _interval(row: Row, name: str, measure: str = "") -> str:
    value, low, high = (number(row[key], measure) for key in (name, f"{name}_low", f"{name}_high"))
    to = " to " if row[f"{name}_low"] < 0 else "-"
    return value if low == "-" else f"{value} [{low}{to}{high}]"


def _telling(rows: list[Row]) -> list[Row]:
    """Lifespans without those of all resets where there is only one reason."""
    reasons: dict[tuple[str, ...], list[Row]] = dict(_split(rows, "task", "label", "kind"))
    return [
        row
        for row in rows
        if row["reason"] != "all" or len(reasons[row["task"], row["label"], row["kind"]]) > 2
    ]


def _tested(row: Row) -> str:
    if not math.isfinite(row["p"]):
        return "-"
    share = f"{row['difference']:+.1%} " if math.isfinite(row["difference"]) else ""
    star = "*" * (row["corrected_p"] < SIGNIFICANT)
    return f"{share}(p={row['corrected_p']:.2g}{star})"


def _split(rows: Iterable[Row], *keys: str) -> list[tuple[tuple[str, ...], list[Row]]]:
    """Rows in a list for each combination of values of the keys, in the order of the first ones."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(found.items())


def _numeric(table: Table, column: int) -> bool:
    return all(row[column][:1] in "-+0123456789" for row in table.rows)


def _field(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else ""
    return "" if value is None else value
