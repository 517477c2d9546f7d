"""Reports of comparisons: tables in the terminal, in Markdown and in CSV files, and figures."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from memes.analysis.comparisons import draw
from memes.analysis.groups import LOSSES, MEASURES, Groups, is_share, main_view
from memes.analysis.statistics import SIGNIFICANT
from memes.analysis.style import save
from memes.analysis.tables import TABLES, Row, all_tables, counted, notes
from memes.errors import require
from memes.store.files import MOST_JSON, open_regular, replace_file, save_text
from memes.store.sanitize import markdown

WORDS = MEASURES | LOSSES
STATISTICS = {"median": "median", "iqm": "interquartile mean"}
OTHERS = {
    "lifespans": "Lifespans: generations between the start and the reset of a lane [95% interval]",
    "steps": "Parent-offspring distance in cell widths: median [95% interval]",
    "times": "Times: the longest compilation, and medians",
}
HEADS = {"label": "algorithm", "n": "seeds"}
PAGE = "comparison.md"
# Pattern for the names of the figures that a comparison may write.
NAMES = r"scores|losses|steps|convergence-(?:generations|evaluations|corrected)|archives-[\w-]*"
FIGURE = re.compile(rf"^!\[.*\]\(({NAMES})\.png\)$", re.MULTILINE)
MAX_PAIRS = 10  # maximum number of pairs per table in the terminal

READING = """\
Intervals are 95% percentile bootstrap intervals over the seeds. For comparisons at equal generations
or evaluations, the score of a run is the last score that was recorded up to this number. A run is
left out if this score is much older. Corrected scores are the scores of the archive after the
re-evaluation of all elites. A loss is the relative drop of a score by this correction. Pairs are
compared by two-sided Wilcoxon rank-sum tests with Bonferroni correction for the pairs of a task. An
asterisk marks p < 0.05."""


class ComparedRuns(NamedTuple):
    """A comparison of runs.

    Attributes:
        groups: The compared runs by task and label.
        rows: The rows of each table, by the name of the table.
        notes: Remarks that limit the conclusions.
    """

    groups: Groups
    rows: dict[str, list[Row]]
    notes: list[str]


# Tables by title. A table is a list of rows, and each row maps the titles of columns to strings.
Tables = dict[str, list[dict[str, str]]]


def compare(groups: Groups, said: Sequence[str] = ()) -> ComparedRuns:
    """Compare runs, and return the tables and the notes. The notes in `said` come first."""
    return ComparedRuns(groups, all_tables(groups), [*said, *notes(groups)])


def show(comparison: ComparedRuns, console: Console) -> None:
    """Print tables of medians, interquartile means and tests, followed by the notes.

    Runs are compared at several points, such as equal generations and equal evaluations. Interquartile
    means and tests are printed only for the point that `main_view` selects.
    """
    main = {(task, main_view(labels).name) for task, labels in comparison.groups.items()}
    scores, tests = (
        [row for row in comparison.rows[name] if (row["task"], row["view"]) in main]
        for name in ("scores", "tests")
    )
    tables = score_tables(comparison.rows["scores"], "median") | score_tables(scores, "iqm")
    for title, lines in (tables | pair_tables(tests, MAX_PAIRS)).items():
        console.print(_for_terminal(title, lines, console.width), crop=False)
    for note in comparison.notes:
        console.print(note)


def write(comparison: ComparedRuns, folder: Path) -> list[Path]:
    """Write the tables, the figures and a page of all results to a folder, and return the PNG files.

    The files of an earlier comparison in the folder are replaced.
    """
    made, figures = made_before(folder), draw(comparison.groups)
    tables = {f"{name}.csv": rows for name, rows in comparison.rows.items() if rows}
    new = {*tables, *_files_of(figures)}
    for name in sorted(new - made):
        there = (folder / name).exists()
        require(
            not there,
            f"out: '{folder / name}' is not a file of a comparison, but would be overwritten; choose "
            "another folder",
        )
    folder.mkdir(parents=True, exist_ok=True)
    # The page is written first, so that it lists the other files even if the comparison is interrupted.
    save_text(folder / PAGE, page(comparison, list(figures)).rstrip("\n"))
    for name in made - new:
        (folder / name).unlink(missing_ok=True)
    for name, rows in tables.items():
        _write_csv(folder / name, rows)
    return [save(figure, folder / name) for name, figure in figures.items()]


def made_before(folder: Path) -> set[str]:
    """Return the names of the files that an earlier comparison wrote, according to its page.

    Raises:
        UsageError: If the folder is not empty and has no page of a comparison.
    """
    text = ""
    if (folder / PAGE).exists():
        with open_regular(folder / PAGE) as file:
            text = file.read(MOST_JSON).decode(errors="replace")
    if re.match(r"# Comparison of \d+ runs\n", text):
        return {f"{name}.csv" for name in TABLES} | _files_of(FIGURE.findall(text))
    there = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
    require(
        not there,
        f"out must be a new or empty folder, or contain an earlier comparison, but '{folder}' contains "
        f"'{''.join(there[:1])}'",
    )
    return set()


def _files_of(figures: Iterable[str]) -> set[str]:
    return {f"{name}.{end}" for name in figures for end in ("png", "pdf")}


def score_tables(rows: Iterable[Row], statistic: str) -> Tables:
    """Make tables of medians or interquartile means, one per task and comparison point (`View`).

    Each table has one row per label and one column per measure.
    """
    return _tables(
        (
            f"{row['task']}, {row['where']}: {STATISTICS[statistic]} [95% interval]",
            {
                "algorithm": row["label"],
                "seeds": str(row["n"]),
                "evaluations": number(row["evaluations"]),
            },
            {WORDS[row["measure"]]: _cell(row, statistic, row["measure"])},
        )
        for row in rows
    )


def pair_tables(rows: Sequence[Row], most: float = math.inf) -> Tables:
    """Make tables of tests, one per task and comparison point (`View`).

    Each table has one row per pair of labels and one column per measure. If there are more than `most`
    pairs, only the pairs that contain the first label are shown.
    """
    first = {row["task"]: row["a"] for row in reversed(rows)}
    return _tables(
        (
            f"{row['task']}, {row['where']}: difference of medians (p corrected for "
            f"{counted(row['comparisons'], 'pair')})"
            f"{'; the other pairs are in tests.csv' * (row['comparisons'] > most)}",
            {"pair": f"{row['a']} against {row['b']}"},
            {WORDS[row["measure"]]: _tested(row)},
        )
        for row in rows
        if row["comparisons"] <= most or row["a"] == first[row["task"]]
    )


def _tables(cells: Iterable[tuple[str, dict[str, str], dict[str, str]]]) -> Tables:
    """Make tables from tuples (title of the table, first columns, other columns).

    Tuples with the same title and the same value in the first column are merged into one row.
    """
    found: dict[str, dict[str, dict[str, str]]] = {}
    for title, head, cell in cells:
        name = next(iter(head.values()))
        found.setdefault(title, {}).setdefault(name, head.copy()).update(cell)
    return {title: list(lines.values()) for title, lines in found.items()}


def other_tables(rows: dict[str, list[Row]]) -> Tables:
    """Make the tables of lifespans, parent-offspring distances and times. Omit empty tables."""
    kinds = [(row["task"], row["label"], row["kind"]) for row in rows["lifespans"]]
    telling = [  # the row for all resets is redundant if all resets have the same reason
        row
        for row, kind in zip(rows["lifespans"], kinds, strict=True)
        if row["reason"] != "all" or kinds.count(kind) > 2
    ]
    found = {title: (rows | {"lifespans": telling})[name] for name, title in OTHERS.items()}
    return {title: list(map(_line, part)) for title, part in found.items() if part}


def _line(row: Row) -> dict[str, str]:
    columns = [name for name in row if not name.endswith(("_low", "_high"))]
    return {HEADS.get(name, name.replace("_", " ")): _cell(row, name) for name in columns}


def _for_terminal(title: str, lines: list[dict[str, str]], width: int) -> RichTable:
    columns = {head: [head, *(line[head] for line in lines)] for head in lines[0]}
    if sum(3 + max(map(len, texts)) for texts in columns.values()) > width:
        # The table is too wide, so intervals are moved to separate lines.
        lines = [{head: text.replace(" [", "\n[") for head, text in line.items()} for line in lines]
    rich = RichTable(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    for head in lines[0]:
        numeric, widest = _numeric(lines, head), max(len(line[head]) for line in lines)
        justify: Literal["right", "left"] = "right" if numeric else "left"
        # Lines are never broken within a number or within a word of a header. A numeric column is not
        # wrapped at all if its intervals are on separate lines and no line contains a space.
        parts = [part for line in lines for part in line[head].splitlines()]
        words = [word for part in (head, *(parts if numeric else ())) for word in part.split()]
        whole = numeric and len(parts) > len(lines) and not any(" " in part for part in parts)
        rich.add_column(
            "\n".join(head.split()) if whole else head,
            justify=justify,
            no_wrap=whole or (not numeric and widest <= 40),
            min_width=max(map(len, words), default=1),
            overflow="fold",
        )
    for line in lines:
        rich.add_row(*line.values())
    return rich


def page(comparison: ComparedRuns, figures: Sequence[str]) -> str:
    """Return a Markdown page with all tables and figures."""
    rows = {
        name: [{k: markdown(v) if isinstance(v, str) else v for k, v in row.items()} for row in table]
        for name, table in comparison.rows.items()
    }
    sections = {
        f"# Comparison of {len(rows['seeds'])} runs": [
            READING,
            *(f"- {markdown(note)}" for note in comparison.notes),
        ],
        "## Scores": _markdown(
            score_tables(rows["scores"], "median") | score_tables(rows["scores"], "iqm")
        ),
        "## Tests": _markdown(pair_tables(rows["tests"])),
        "## Lanes, offspring and times": _markdown(other_tables(rows)),
        "## Figures": [f"![{name}]({name}.png)" for name in figures],
    }
    parts = [[title, *text] for title, text in sections.items() if text]
    return "\n\n".join(line for part in parts for line in part) + "\n"


def _markdown(tables: Tables) -> list[str]:
    found = []
    for title, lines in tables.items():
        align = ["---:" if _numeric(lines, head) else "---" for head in lines[0]]
        rows = [[*lines[0]], align, *([*line.values()] for line in lines)]
        found.append(f"### {title}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows))
    return found


def _numeric(lines: list[dict[str, str]], head: str) -> bool:
    return all(line[head][:1] in "-+0123456789" for line in lines)


def _write_csv(file: Path, rows: Sequence[Row]) -> None:
    """Write rows with the same keys to a CSV file. NaN and None become empty fields."""

    def field(value: Any) -> Any:
        if isinstance(value, float):
            return f"{value:.9g}" if math.isfinite(value) else None
        return value

    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(rows[0])
    writer.writerows(map(field, row.values()) for row in rows)
    replace_file(file, lambda stream: stream.write(text.getvalue().encode()))


def number(value: float, measure: str = "") -> str:
    """Format a number with four digits, or a share in per cent. NaN and infinity become "-"."""
    if not math.isfinite(value):
        return "-"
    if is_share(measure):
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _cell(row: Row, name: str, measure: str = "") -> str:
    """Format the value `row[name]`, which is text or a number, with its interval if there is one."""
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
