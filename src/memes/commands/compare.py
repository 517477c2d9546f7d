"""`memes compare`."""

from __future__ import annotations

from pathlib import Path

from memes.analysis import report
from memes.analysis.groups import group, without_short
from memes.runner.progress import Terminal
from memes.store.find import find, readable
from memes.store.folder import check_free
from memes.store.sanitize import printable
from memes.store.summary import load_summary


def compare(runs: tuple[str, ...], *, out: Path = Path("comparison"), short: bool = False) -> None:
    """Compare runs: medians over their seeds, tests, and figures for print.

    Runs of a task that differ by nothing but their seeds are put together.

    Args:
        runs: Run folders, summary files, folders of either, or patterns such as 'runs/arm-*'. Links
            inside of folders are not followed.
        out: Folder for the tables and figures: a new one, or that of an earlier comparison, whose files
            are replaced. No other file is touched.
        short: Compare runs with less than half of the usual generations of their algorithm too, rather
            than leave them out.
    """
    check_free(out)
    report.made_before(out)
    places, unfinished = readable(find(runs))
    found = {printable(str(path)): load_summary(path) for path in places}
    kept, left_out = (found, []) if short else without_short(found)
    notes = [*map(printable, unfinished), *left_out]
    comparison = report.compare(group(list(kept.values()), list(kept)), notes)
    console = Terminal(markup=False, highlight=False)
    report.show(comparison, console)
    drawn = report.write(comparison, out)
    console.print(f"tables and {len(drawn)} figures are in {out}; begin with {out}/comparison.md")
