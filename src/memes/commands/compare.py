"""The command `memes compare`."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from memes.analysis import report
from memes.analysis.groups import group, without_short
from memes.errors import require
from memes.runner.progress import Terminal
from memes.store.find import find, readable
from memes.store.folder import check_free
from memes.store.sanitize import printable
from memes.store.summary import Summary, load_summary


def compare(
    runs: tuple[str, ...],
    *,
    out: Path | None = None,
    overwrite: bool = False,
    include_short: bool = False,
) -> None:
    """Compare runs by medians over seeds and by statistical tests, and draw figures for publication.

    Runs of a task that differ only in the seed form a group.

    Args:
        runs: Run folders, summary files, folders that contain them, or patterns such as 'runs/arm-*'.
            LABEL=RUN assigns another label. Links inside folders are not followed.
        out: Folder for the tables and figures. The default is comparison/, or a new folder such as
            comparison-take-2/ if comparison/ is not empty.
        overwrite: Replace the files of an earlier comparison in the folder. Other files are kept.
        include_short: Also compare runs with less than half as many generations as the median run with
            the same label.
    """
    folder = out or _free_folder(overwrite)
    check_free(folder)
    earlier = report.made_before(folder)
    require(
        overwrite or not earlier,
        f"out: '{folder}' contains an earlier comparison: replace it with --overwrite, or choose "
        "another folder",
    )
    found: dict[str, Summary] = {}
    unfinished: list[str] = []
    for word in runs:
        label, run = _labelled(word)
        places, notes = readable(find([run]))
        unfinished += notes
        for path in places:
            summary = load_summary(path)
            name = printable(str(path))
            found.setdefault(name, summary._replace(label=label) if label else summary)
    kept, left_out = (found, []) if include_short else without_short(found)
    notes = [*map(printable, dict.fromkeys(unfinished)), *left_out]
    comparison = report.compare(group(list(kept.values()), list(kept)), notes)
    console = Terminal(markup=False, highlight=False)
    report.show(comparison, console)
    drawn = report.write(comparison, folder)
    console.print(f"tables and {len(drawn)} figures are in {folder}; start with {folder}/comparison.md")


def _free_folder(overwrite: bool) -> Path:
    """Return the first of the folders comparison/, comparison-take-2/, ... that is empty or missing.

    If `overwrite` is True, return comparison/.
    """
    first = Path("comparison")
    again = (Path(f"{first}-take-{i}") for i in itertools.count(2))
    places = itertools.chain([first], again)
    return next(each for each in places if overwrite or not each.is_dir() or not any(each.iterdir()))


def _labelled(word: str) -> tuple[str, str]:
    """Split LABEL=RUN into label and run. The label is empty if the whole argument is a path."""
    label, equals, run = word.partition("=")
    named = bool(label and equals) and "/" not in label and not os.path.lexists(word)
    return (label, run) if named else ("", word)
