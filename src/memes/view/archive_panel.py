"""The board of the page: the archive as a map that can be clicked on, with its axes and colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

from memes.analysis.heat import Colours
from memes.cells import Cells
from memes.store.sanitize import mathtext
from memes.view.colours import colour_map
from memes.view.layout import Layout
from memes.view.scene import add_upright

BACK, INK = "#141414", "#d8dbe2"
INCHES, DPI = (7.0, 7.0), 130
INSIDE = ("", "in each block:", "in each of those:")
LETTERS = 52  # in a line along an axis
WIDTH = 2.5  # in the units of the page
PLACE = np.array([-1.45, 0.0, 1.35])  # of its middle
HEIGHT = WIDTH * INCHES[1] / INCHES[0]


class Frame(NamedTuple):
    """All that is written around the cells, but for the title. Equal frames look the same.

    Attributes:
        labels: Along x, and along y if that has a feature; each may have several lines.
        bounds: The ends of these axes.
        by: What colours stand for.
        colours: The values of the first and the last colour.
        aspect: Height over width of the cells.
    """

    labels: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    by: str
    colours: Colours
    aspect: float


def frame_of(cells: Cells, names: Sequence[str], at: Layout, by: str, colours: Colours) -> Frame:
    """Choose what is written around cells: the names of their features, the outermost first."""
    k, (height, width) = len(names), at.tile.shape
    along = [[i] for i in at.features] or [[*range(side, k, 2)][::-1] for side in (0, 1)]
    named = [zip(INSIDE, [names[i] for i in each], strict=False) for each in along]
    bounds = [(float(cells.low[each[0]]), float(cells.high[each[0]])) for each in along]
    labels = tuple("\n".join(f"{where} {name}".strip() for where, name in each) for each in named)
    return Frame(labels, tuple(bounds), by, colours, height / width)


def area(aspect: float) -> tuple[float, float, float, float]:
    """Choose where the cells are on the board: left, bottom, width and height as parts of it."""
    width = min(0.70, 0.71 / aspect)
    return 0.13, 0.14 + (0.71 - width * aspect) / 2, width, width * aspect


def drawn(frame: Frame) -> np.ndarray:
    """Draw the frame of the cells, uint8[H, W, 3]."""
    figure = Figure(figsize=INCHES, dpi=DPI, facecolor=BACK)
    left, bottom, width, height = rect = area(frame.aspect)
    axes = figure.add_axes(rect, facecolor=BACK)
    for name, label, span in zip("xy", frame.labels, frame.bounds, strict=False):
        lines = (fill(mathtext(line), LETTERS, max_lines=2) for line in label.splitlines())
        axes.set(**{f"{name}lim": span, f"{name}label": "\n".join(lines)})
    if len(frame.labels) == 1:
        axes.set_yticks([])
    beside = figure.add_axes((left + width + 0.025, bottom, 0.028, height))
    low, high, extend = frame.colours
    scale = ScalarMappable(Normalize(low, high), colour_map(frame.by))
    bar = figure.colorbar(scale, cax=beside, extend=extend)
    bar.set_label(frame.by, color=INK, fontsize=13)
    for words in (axes.xaxis.label, axes.yaxis.label):
        words.set(color=INK, fontsize=12)
    for each in (axes, beside):
        each.tick_params(colors=INK, labelsize=11)
        for spine in each.spines.values():
            spine.set_edgecolor("#5a5f6e")
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def titled(picture: np.ndarray, title: str, aspect: float) -> np.ndarray:
    """Write a title above the cells; the rest, which takes far longer to draw, stays as it is."""
    image = Image.fromarray(picture)
    left, bottom, width, height = area(aspect)
    place = (left + width / 2) * image.width, (1 - bottom - height) * image.height - 0.17 * DPI
    ImageDraw.Draw(image).text(place, title, INK, _font(), anchor="ms")
    return np.asarray(image)


@cache
def _font() -> Any:
    return ImageFont.truetype(findfont("DejaVu Sans"), 14 * DPI / 72)


class Board:
    """The board on a page.

    Args:
        scene: Of a viser server.
        click: `(x, y, modifier)`: told where cells are clicked on, in parts of their width and height
            from below, and which key is held.
    """

    def __init__(self, scene: Any, click: Callable[[float, float, str | None], None]) -> None:
        self._scene, self._click = scene, click
        self._frame: Frame | None = None
        self._title, self._drawn = "", np.zeros(0)
        self._around: Any = None
        self._cells: Any = None

    def paint(self, title: str, frame: Frame, image: np.ndarray) -> None:
        """Show cells, and around them what is written, if that has changed."""
        shaped = self._frame is not None and self._frame.aspect == frame.aspect
        if frame != self._frame:
            self._frame, self._title, self._drawn = frame, "", drawn(frame)
        if title != self._title:
            self._title, around = title, titled(self._drawn, title, frame.aspect)
            if self._around is None:
                at = tuple(PLACE)
                self._around = add_upright(self._scene, "/board", around, WIDTH, 0.0, position=at)
            else:
                self._around.image = around
        if self._cells is None or not shaped:
            self._place(image)
        else:
            self._cells.image = image

    def _place(self, image: np.ndarray) -> None:
        assert self._frame is not None
        left, bottom, width, height = area(self._frame.aspect)
        middle = PLACE + np.array(
            [(left + width / 2 - 0.5) * WIDTH, -0.01, (bottom + height / 2 - 0.5) * HEIGHT]
        )
        self._cells = add_upright(
            self._scene, "/board-cells", image, width * WIDTH, 0.0, position=tuple(middle)
        )
        size = np.array([width * WIDTH, height * HEIGHT])

        def clicked(event: Any) -> None:
            where = pierced(event.ray_origin, event.ray_direction, float(middle[1]))
            if where is not None:
                x, y = (where - middle[[0, 2]]) / size + 0.5
                self._click(float(x), float(y), event.modifier)

        for modifier in (None, "shift"):
            self._cells.on_click(clicked, modifier=modifier)


def pierced(origin: Sequence[float], direction: Sequence[float], plane: float) -> np.ndarray | None:
    """Find where a ray meets the plane y = `plane`: its (x, z); None if it does not."""
    start, along = np.asarray(origin, float), np.asarray(direction, float)
    if abs(along[1]) < 1e-9:
        return None
    far = (plane - start[1]) / along[1]
    return (start + far * along)[[0, 2]] if far > 0 else None
