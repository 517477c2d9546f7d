"""The archive on the page: a clickable image with axes and a colour bar."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from PIL import Image, ImageDraw, ImageFont

from memes.analysis.archive_axes import label_axes
from memes.analysis.render import SCREEN, ColourScale, TileLayout, is_nested
from memes.cells import Cells
from memes.view.scene import add_upright

ALL = "all, as a grid of grids"
INK, EDGE = "#d8dbe2", "#5a5f6e"
BACK = "#{:02x}{:02x}{:02x}".format(*SCREEN.between)
INCHES, DPI = 5.2, 180  # The image has about twice the resolution of the screen.
LETTERS = 60  # Number of letters per line of an axis label.
WIDTH = 2.5  # Width of the square panel, in the units of the page.
PLACE = np.array([-1.45, 0.0, 1.35])  # Centre of the panel.
STYLE: Any = {
    "text.color": INK,
    "axes.facecolor": BACK,
    "axes.edgecolor": EDGE,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "ytick.labelsize": 9,
    "xtick.labelsize": 9,
    "xtick.color": INK,
    "ytick.color": INK,
}


class Frame(NamedTuple):
    """The axes and the colour bar around the cells.

    Attributes:
        at: Layout of the cells.
        names: Names of all features.
        by: Name of the quantity that the colours show.
        scale: Colour scale of this quantity.
    """

    at: TileLayout
    names: tuple[str, ...]
    by: str
    scale: ColourScale


def spans(cells: Cells, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the choices of features for the axes of the image, as a dict from display names to indices.

    An empty tuple of indices means that the image shows all features.
    """
    k, plain = len(names), [re.sub(r" \([^()]*\)$", "", name) for name in names]  # without their units
    words = plain if len({*plain}) == k else names
    if k == 1:
        return {words[0]: (0,)}
    nested: dict[str, tuple[int, ...]] = {ALL: ()} if is_nested(cells) else {}
    return nested | {f"{words[i]} by {words[j]}": (i, j) for i, j in combinations(range(k), 2)}


def area(aspect: float) -> tuple[float, float, float, float]:
    """Return the left edge, bottom edge, width and height of the image, as fractions of the panel."""
    width = min(0.64, 0.68 / aspect)
    return 0.19, 0.17 + (0.68 - width * aspect) / 2, width, width * aspect


def drawn(frame: Frame, cells: Cells) -> np.ndarray:
    """Return a picture uint8[H, W, 3] of the frame around the image of the cells."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(INCHES, INCHES), dpi=DPI, facecolor=BACK)
        left, bottom, width, height = rect = area(frame.at.aspect)
        axes = figure.add_axes(rect)
        label_axes(axes, frame.at, cells, frame.names, LETTERS)
        beside = figure.add_axes((left + width + 0.025, bottom, 0.028, height))
        figure.colorbar(frame.scale.mappable(), cax=beside, extend=frame.scale.extend, label=frame.by)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def titled(picture: np.ndarray, title: str, aspect: float) -> np.ndarray:
    """Return a copy of the picture with a title above the cells.

    The title is not part of the frame, because it changes often and the frame is slow to draw.
    """
    left, bottom, width, height = area(aspect)
    above = 0.15 * DPI / len(picture)
    return _written(picture, {title: (left + width / 2, bottom + height + above)}, 13)


def with_blocks(image: np.ndarray, at: TileLayout) -> np.ndarray:
    """Label each block of cells with its feature interval. If blocks are narrow, use the lower bound."""
    if not at.blocks:
        return image
    points, columns = 7.5, np.unique([each.x for each in at.blocks])
    room = image.shape[1] * np.diff(columns, append=columns[0] + 1.0).min()
    whole = max(_font(points).getlength(f"{each.title}  ") for each in at.blocks) <= room
    titles = [each.title if whole else each.beginning for each in at.blocks]
    places = [(each.x, each.top + 0.014) for each in at.blocks]
    return _written(image, dict(zip(titles, places, strict=True)), points)


def _written(picture: np.ndarray, texts: dict[str, tuple[float, float]], points: float) -> np.ndarray:
    """Return a copy of the picture with labels above the given points.

    The coordinates of points are fractions of the width and height, measured from the lower left.
    """
    image = Image.fromarray(picture)
    for text, (x, y) in texts.items():
        place = x * image.width, (1 - y) * image.height
        ImageDraw.Draw(image).text(place, text, INK, _font(points), anchor="ms")
    return np.asarray(image)


@cache
def _font(points: float) -> Any:
    return ImageFont.truetype(findfont("DejaVu Sans"), points * DPI / 72)


class ArchivePanel:
    """The archive on the page.

    Args:
        scene: Scene of a viser server.
        click: Function `(x, y, modifier)` that handles clicks on the cells. `x` and `y` are fractions of
            the width and height, measured from the lower left. `modifier` is the pressed modifier key.
    """

    def __init__(self, scene: Any, click: Callable[[float, float, str | None], None]) -> None:
        self._scene, self._click = scene, click
        self._frame: Frame | None = None
        self._title, self._drawn = "", np.zeros(0)
        self._around: Any = None
        self._image: Any = None

    def paint(self, title: str, frame: Frame, cells: Cells, image: np.ndarray) -> None:
        """Show an image of the cells. The frame is drawn again only if it has changed."""
        at, before = frame.at, self._frame
        if frame != before:
            self._frame, self._title, self._drawn = frame, "", drawn(frame, cells)
        if title != self._title:
            self._title, around = title, titled(self._drawn, title, at.aspect)
            if self._around is None:
                place = tuple(PLACE)
                self._around = add_upright(self._scene, "/archive", around, WIDTH, 0.0, position=place)
            else:
                self._around.image = around
        image = with_blocks(image, at)
        if self._image is None or before is None or before.at.aspect != at.aspect:
            self._place(image, at.aspect)
        else:
            self._image.image = image

    def _place(self, image: np.ndarray, aspect: float) -> None:
        left, bottom, width, height = area(aspect)
        middle = PLACE + WIDTH * np.array([left + width / 2 - 0.5, 0, bottom + height / 2 - 0.5])
        middle[1] -= 0.01  # place the cells in front of the frame
        self._image = add_upright(
            self._scene, "/archive-cells", image, width * WIDTH, 0.0, position=tuple(middle)
        )
        size = WIDTH * np.array([width, height])

        def clicked(event: Any) -> None:
            where = pierced(event.ray_origin, event.ray_direction, float(middle[1]))
            if where is not None:
                x, y = (where - middle[[0, 2]]) / size + 0.5
                self._click(float(x), float(y), event.modifier)

        for modifier in (None, "shift"):
            self._image.on_click(clicked, modifier=modifier)


def pierced(origin: Sequence[float], direction: Sequence[float], plane: float) -> np.ndarray | None:
    """Return the point (x, z) where a ray meets the plane y = `plane`, or None if they do not meet."""
    start, along = np.asarray(origin, float), np.asarray(direction, float)
    if abs(along[1]) < 1e-9:
        return None
    far = (plane - start[1]) / along[1]
    return (start + far * along)[[0, 2]] if far > 0 else None
