"""How figures look: for print, and for readers who do not tell all colours apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib
from matplotlib.figure import Figure

LineStyle = Literal["-", "--", "-.", ":"]

# Okabe and Ito's palette without yellow, which is faint on paper.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
LINES: tuple[LineStyle, ...] = ("-", "--", "-.", ":")

SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "figure.titlesize": 9,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "legend.fontsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "axes.formatter.limits": (-4, 6),
    "axes.formatter.use_mathtext": True,
    "pdf.fonttype": 42,  # text that stays text
}


class Look(NamedTuple):
    """What tells one label from the others, also without colours."""

    colour: str
    line: LineStyle
    marker: str


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """A look for each label: no two have the same colour and line, nor the same colour and marker."""
    return {
        label: Look(
            COLOURS[i % len(COLOURS)],
            LINES[i % len(LINES)],
            MARKERS[i % len(MARKERS)],
        )
        for i, label in enumerate(labels)
    }


@contextmanager
def styled() -> Iterator[None]:
    """Make and save figures in this style."""
    with matplotlib.rc_context(SETTINGS):
        yield


def save(figure: Figure, file: Path) -> list[Path]:
    """Write a figure as PNG and as PDF beside it; the same figure gives the same bytes."""
    files = [file.with_suffix(".png"), file.with_suffix(".pdf")]
    figure.savefig(files[0], dpi=200)
    figure.set_layout_engine("none")  # everything has its place now
    figure.savefig(files[1], metadata={"CreationDate": None})
    return files
