"""Comparisons as people read them: tables in the terminal, as Markdown and as CSV files, and figures."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from memes.analysis.comparisons import draw
from memes.analysis.groups import LOSSES, MEASURES, Groups, is_share, main_view
from memes.analysis.notes import SIGNIFICANT, notes
from memes.analysis.style import save
from memes.analysis.tables import Row, all_tables

WORDS = MEASURES | LOSSES
STATISTICS = {"median": "median", "iqm": "interquartile mean"}
OTHERS = {
    "lifespans": "Lifespans: generations between the start and the reset of a lane [95% interval]",
    "steps": "Parent-offspring distance in cell widths: median [95% interval]",
    "times": "Times: the longest compilation, and medians",
}
HEADS = {"label": "algorithm", "n": "seeds"}
AGAINST = " against "
FIGURES = [
    f"{name}.{end}"
    for name in ("scores", "losses", "convergence-*", "steps", "archives-*")
    for end in ("png", "pdf")
]
MAX_PAIRS = 10  # in a table of the terminal

READING = """\
Intervals are percentile bootstrap intervals over the seeds, at 95%. At equal generations or evaluations
a run counts with what it last knew at or before that number, or not at all where that was much earlier.
Corrected scores are those of the archive after every elite was evaluated again; a loss is the share of a
score that this took away. Pairs are compared by two-sided Wilcoxon rank-sum tests with Bonferroni
correction for the pairs of a task; an asterisk marks p < 0.05."""


class Comparison(NamedTuple):
    """Runs that are compared, the rows of all tables by name, and sentences about them."""

    groups: Groups
    rows: dict[str, list[Row]]
    notes: list[str]


class Table(NamedTuple):
    """A table to be read: a title, a header, and rows of words that begin with a name."""

    title: str
    header: list[str]
    rows: list[list[str]]


def compare(groups: Groups, said: Sequence[str] = ()) -> Comparison:
    """Compare runs; sentences that are said of them already come first."""
    return Comparison(groups, all_tables(groups), [*said, *notes(groups)])


def show(comparison: Comparison, console: Console) -> None:
    """Print medians, and means and tests where they count, and what is said of the runs."""

    def counts(row: Row) -> bool:
        return bool(row["view"] == main_view(comparison.groups[row["task"]]).name)

    scores, tests = comparison.rows["scores"], comparison.rows["tests"]
    tables = [
        *score_tables(scores, "median"),
        *score_tables(filter(counts, scores), "iqm"),
        *map(_shortened, test_tables(filter(counts, tests))),
    ]
    for table in tables:
        console.print(_for_terminal(table))
    for note in comparison.notes:
        console.print(note)


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Write the tables, the figures, and a page of both into a folder; returns the PNG files.

    Files of an earlier comparison are replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in comparison.rows.items():
        _write_csv(folder / f"{name}.csv", rows)
    for pattern in FIGURES:
        for old in folder.glob(pattern):
            old.unlink()
    drawn = [save(figure, folder / name) for name, figure in draw(comparison.groups).items()]
    (folder / "comparison.md").write_text(page(comparison, [file.stem for file in drawn]))
    return drawn


def score_tables(rows: Iterable[Row], statistic: str) -> list[Table]:
    """Make a table of medians or means for each task and view: labels down, measures across."""

    def line(names: Sequence[str], found: list[Row]) -> list[str]:
        values = (_cell(row, statistic, row["measure"]) for row in found)
        return [*names, str(found[0]["n"]), *values]

    title = f"{STATISTICS[statistic]} [95% interval]"
    return _by_measure(rows, ["label"], ["algorithm", "seeds"], lambda row: title, line)


def test_tables(rows: Iterable[Row]) -> list[Table]:
    """Make a table for each task and view: pairs of labels down, measures across."""

    def title(row: Row) -> str:
        pairs = "1 pair" if row["comparisons"] == 1 else f"{row['comparisons']} pairs"
        return f"difference of medians (p corrected for {pairs})"

    def line(names: Sequence[str], found: list[Row]) -> list[str]:
        return [AGAINST.join(names), *map(_tested, found)]

    return _by_measure(rows, ["a", "b"], ["pair"], title, line)


def _by_measure(
    rows: Iterable[Row],
    keys: Sequence[str],
    heads: Sequence[str],
    title: Callable[[Row], str],
    line: Callable[[Sequence[str], list[Row]], list[str]],
) -> list[Table]:
    """Make a table for each task and view, with a line for each combination of values of the keys."""
    return [
        Table(
            f"{task}, {where}: {title(part[0])}",
            [*heads, *dict.fromkeys(WORDS[row["measure"]] for row in part)],
            [line(names, found) for names, found in _split(part, *keys).items()],
        )
        for (task, where), part in _split(rows, "task", "where").items()
    ]


def other_tables(rows: dict[str, list[Row]]) -> list[Table]:
    """Make tables of lifespans, steps and times, if there are any."""
    found = {title: rows[name] for name, title in OTHERS.items()}
    found[OTHERS["lifespans"]] = _telling(rows["lifespans"])
    return [_table(title, part) for title, part in found.items() if part]


def _table(title: str, rows: Sequence[Row]) -> Table:
    """Show rows as they are, with the ends of an interval beside its middle."""
    names = [name for name in rows[0] if not name.endswith(("_low", "_high"))]
    heads = [HEADS.get(name, name.replace("_", " ")) for name in names]
    return Table(title, heads, [[_cell(row, name) for name in names] for row in rows])


def _telling(rows: list[Row]) -> list[Row]:
    """Drop lifespans of all resets where there is only one reason."""
    parts = _split(rows, "task", "label", "kind").values()
    return [row for part in parts for row in part if row["reason"] != "all" or len(part) > 2]


def _shortened(table: Table) -> Table:
    """Keep only the pairs of the first label in a table of many pairs."""
    if len(table.rows) <= MAX_PAIRS:
        return table
    first = table.rows[0][0].partition(AGAINST)[0]
    kept = [row for row in table.rows if row[0].startswith(first + AGAINST)]
    return Table(f"{table.title}; the other pairs are in tests.csv", table.header, kept)


def _for_terminal(table: Table) -> RichTable:
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
    return rich


def page(comparison: Comparison, figures: Sequence[str]) -> str:
    """Put all tables and figures onto one page of Markdown."""
    rows = comparison.rows
    scores = score_tables(rows["scores"], "median") + score_tables(rows["scores"], "iqm")
    sections = {
        f"# Comparison of {len(rows['seeds'])} runs": [
            READING,
            *(f"- {note}" for note in comparison.notes),
        ],
        "## Scores": map(_markdown, scores),
        "## Tests": map(_markdown, test_tables(rows["tests"])),
        "## Lanes, offspring and times": map(_markdown, other_tables(rows)),
        "## Figures": (f"![{name}]({name}.png)" for name in figures),
    }
    parts = [[title, *text] for title, text in sections.items()]
    return "\n\n".join(line for part in parts if len(part) > 1 for line in part) + "\n"


def _markdown(table: Table) -> str:
    align = ["---:" if _numeric(table, i) else "---" for i in range(len(table.header))]
    lines = [table.header, align, *table.rows]
    return f"### {table.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _write_csv(file: Path, rows: Sequence[Row]) -> None:
    """Write rows with the same keys; NaN and None become empty fields. Without rows there is no file."""
    if not rows:
        file.unlink(missing_ok=True)
        return
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(rows[0])
        writer.writerows([_field(value) for value in row.values()] for row in rows)


def _field(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else ""
    return "" if value is None else value


def number(value: float, measure: str = "") -> str:
    """Write a number to four digits, or a share in per cent; "-" for NaN."""
    if not math.isfinite(value):
        return "-"
    if is_share(measure):
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _cell(row: Row, name: str, measure: str = "") -> str:
    """Write what a row has under a name: words, a number, or an estimate with its interval."""
    if isinstance(row[name], str):
        return str(row[name])
    shown = number(row[name], measure)
    low, high = row.get(f"{name}_low", math.nan), row.get(f"{name}_high", math.nan)
    if not math.isfinite(low):
        return shown
    to = " to " if low < 0 else "-"
    return f"{shown} [{number(low, measure)}{to}{number(high, measure)}]"


def _tested(row: Row) -> str:
    if not math.isfinite(row["p"]):
        return "-"
    share = f"{row['difference']:+.1%} " if math.isfinite(row["difference"]) else ""
    star = "*" if row["corrected_p"] < SIGNIFICANT else ""
    return f"{share}(p={row['corrected_p']:.2g}{star})"


def _split(rows: Iterable[Row], *keys: str) -> dict[tuple[str, ...], list[Row]]:
    """Sort rows into a list for each combination of values of the keys."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def _numeric(table: Table, column: int) -> bool:
    return all(row[column][:1] in "-+0123456789" for row in table.rows)
