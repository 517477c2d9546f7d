"""The style of figures, which are readable in print and for colour-blind readers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

from matplotlib import style
from matplotlib.colors import hsv_to_rgb, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from memes.store.files import replace_file

LineStyle = Literal["-", "--", "-.", ":"]

# The first seven colours are the palette of Okabe and Ito without yellow, which is too light on paper.
COLOURS = (
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000",
    "#882255", "#7F7F7F", "#332288", "#8C6D31", "#8FBC5A", "#B2182B", "#9467BD", "#00B3B3", "#1B5E20",
    "#F4A6A6", "#5D4037", "#B8A800", "#E7298A",
)  # fmt: skip
# The i-th preset gets the colour `colour(i)`. Presets that are often compared have very different
# colours.
ALGORITHMS = (
    "memes", "me", "memes-sampling", "pga-me", "me-sampling", "memes-all", "cma-me", "memes-me", "es",
    "me-128", "me-es", "memes-hybrid", "cma-mae", "ns-es", "dns", "nsr-es", "memes-ga", "nsra-es",
    "memes-everything", "memes-elites", "memes-fixed-reset", "memes-sequential",
    "cma-mega", "cma-maega", "extract-me",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
LINES: tuple[LineStyle, ...] = ("-", "--", "-.", ":")
WIDTH = 7.2  # width of a two-column page, in inches
PER_CENT = FuncFormatter(lambda share, _: f"{100 * share:.3g}%")


class Picture(Figure):
    """A figure that notebooks show without pyplot."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), layout="constrained")

    def _repr_png_(self) -> bytes:
        stream = BytesIO()
        self.savefig(stream, format="png")
        return stream.getvalue()


class Look(NamedTuple):
    """The colour, line style and marker that represent one label in figures."""

    colour: str
    line: LineStyle
    marker: str


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """Choose a different look for each label. A preset has the same look in all figures."""
    fixed = {label: ALGORITHMS.index(label) for label in labels if label in ALGORITHMS}
    free = (i for i in count() if i not in fixed.values())
    numbers = {label: fixed[label] if label in fixed else next(free) for label in labels}
    return {
        label: Look(colour(i), LINES[i % len(LINES)], MARKERS[i % len(MARKERS)])
        for label, i in numbers.items()
    }


def colour(i: int) -> str:
    """Return colour number `i` of an infinite sequence: `COLOURS`, followed by computed colours."""
    if i < len(COLOURS):
        return COLOURS[i]
    j = i - len(COLOURS)
    hue, saturation, value = j * (5**0.5 - 1) / 2 % 1, 0.45 + 0.4 * (j % 2), 0.55 + 0.15 * (j % 3)
    return to_hex(tuple(hsv_to_rgb((hue, saturation, value))))


def styled() -> AbstractContextManager[None]:
    """Return a context manager that applies the style `print.mplstyle` to figures."""
    return style.context("memes.analysis.print")


def save(figure: Figure, file: Path) -> Path:
    """Write a figure as PNG and PDF, and return the PNG file. Equal figures produce identical files."""
    png = file.with_name(f"{file.name}.png")
    with styled():
        replace_file(png, partial(figure.savefig, dpi=200))
        figure.set_layout_engine("none")  # keep the layout of the PNG file
        as_pdf = partial(figure.savefig, format="pdf", metadata={"CreationDate": None})
        replace_file(png.with_suffix(".pdf"), as_pdf)
    return png
