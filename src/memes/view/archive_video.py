"""Video of a run, which shows how the archive fills up, with some elites next to the archive.

If the archive was corrected, the last part of the video shows the corrected archive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from memes.analysis.archive_axes import draw_bar, draw_cells, height_of
from memes.analysis.render import ColourScale, fitness_of, render, scale_of
from memes.analysis.style import colour
from memes.archive import Archive, Changes
from memes.estimates import Correction
from memes.store import changes as log
from memes.store.sanitize import mathtext
from memes.task import Map
from memes.view.elites import origins

DPI = 100
LETTERS = 36  # Number of letters per line of an axis label.
HOLD = 0.3  # Share of the pictures before the correction that show the final archive.
CORRECTED = 1 / 3  # Share of the video that shows the corrected archive, if there is one.
# A cell with a new elite is lightened by LIGHTER. In each further picture, this amount is multiplied by
# FADE.
LIGHTER, FADE = 0.6, 0.6


class EliteClip(NamedTuple):
    """An elite that is shown next to the archive: its cell and its pictures."""

    cell: int
    pictures: list[np.ndarray]


def spread_elites(archive: Archive, n: int, correction: Correction | None = None) -> list[int]:
    """Choose n elites from the fitter half of all elites, so that their features are far apart.

    The result contains their cells, beginning with the cell of the fittest elite. If there is a
    correction, the corrected fitness is used, and only elites that keep their cell are chosen.
    """
    fitness = fitness_of(archive)
    if correction is not None:
        stays = origins(archive, correction.archive) == np.arange(archive.cells.count)
        fitness = np.where(stays, fitness_of(correction.archive), np.nan)
    fit = (
        np.flatnonzero(fitness >= np.nanmedian(fitness))
        if np.isfinite(fitness).any()
        else np.zeros(0, int)
    )
    low, high = np.asarray(archive.cells.low), np.asarray(archive.cells.high)
    places = (np.asarray(archive.feature)[fit] - low) / (high - low)
    chosen = [int(np.argmax(fitness[fit]))] if fit.size and n else []
    while len(chosen) < min(n, fit.size):
        apart = np.linalg.norm(places[:, None] - places[chosen], axis=-1).min(axis=1)
        chosen.append(int(np.argmax(apart)))
    return [int(fit[i]) for i in chosen]


def moments(generations: int, pictures: int) -> np.ndarray:
    """Return the generation that each picture shows, int[pictures].

    Early generations get more pictures, because the archive changes most at the start of a run.
    """
    growing = max(1, round((1 - HOLD) * pictures))
    done = generations * np.linspace(0, 1, growing + 1)[1:] ** 1.7
    still = np.full(pictures - growing, generations)
    return np.asarray(np.minimum(np.ceil(np.append(done, still)), generations), int)


class _Shown(NamedTuple):
    """How to show an elite in a picture.

    Attributes:
        cell: Cell of the elite; None if the archive does not contain the elite.
        words: Text above the elite.
    """

    cell: int | None
    words: str


def video_frames(
    archive: Archive,
    changes: Changes,
    elites: Sequence[EliteClip],
    *,
    title: str,
    names: Sequence[str],
    generations: int,
    pictures: int,
    size: tuple[int, int],
    place: Map | None = None,
    correction: Correction | None = None,
) -> Iterator[np.ndarray]:
    """Yield the pictures of a video, each uint8[height, width, 3].

    Each elite appears at the generation in which it was found. From then on, its episode is repeated. If
    there is a correction, the last pictures show the corrected archive, with each elite in its corrected
    cell. Elites that do not survive re-evaluation are marked as lost.
    """
    width, height = size
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    archives = [archive] if correction is None else [archive, correction.archive]
    scale = scale_of(map(fitness_of, archives))
    show_archive, show_elites = _panels(figure, archive, elites, names, scale, place)
    heading = figure.suptitle(mathtext(title), fontsize=11)
    recent, before = np.zeros(archive.cells.count), 0

    def picture(state: str, fitness: np.ndarray) -> np.ndarray:
        share = np.isfinite(fitness).mean()
        heading.set_text(mathtext(f"{title}{state} {share:.0%} of the cells filled"))
        show_archive(fitness, recent)
        canvas.draw()
        figure.set_layout_engine("none")  # keep the layout of the first picture
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    last = 0 if correction is None else round(CORRECTED * pictures)
    kind = "" if correction is None else ", as found"
    for i, done in enumerate(moments(generations, pictures - last)):
        standing = log.last_per_cell(changes, int(done))
        fitness = np.full(archive.cells.count, np.nan)
        fitness[standing.cell] = standing.fitness
        recent *= FADE
        if done < generations:
            recent[standing.cell[standing.generation >= before]] = LIGHTER
        before = int(done)
        show_elites(i, [_as_found(archive, elite.cell, int(done), scale) for elite in elites])
        yield picture(f"{kind}: generation {done:,},", fitness)
    if correction is None:
        return
    fitness, stored = fitness_of(correction.archive), origins(archive, correction.archive)
    state = f", corrected with {correction.samples} evaluations per elite:"
    shown = [_corrected(correction.archive, stored == elite.cell, scale) for elite in elites]
    recent[:] = 0
    for i in range(pictures - last, pictures):
        show_elites(i, shown)
        yield picture(state, fitness)


def _as_found(archive: Archive, cell: int, done: int, scale: ColourScale) -> _Shown:
    """Return the cell and the text to show for an elite after `done` generations."""
    there = int(archive.generation[cell]) < done
    return _Shown(cell if there else None, f"fitness {_rounded(float(archive.fitness[cell]), scale)}")


def _corrected(archive: Archive, same: np.ndarray, scale: ColourScale) -> _Shown:
    """Return the cell and the text to show for an elite after the correction.

    `same[c]` is True if the elite is in cell c of the corrected archive.
    """
    if not same.any():
        return _Shown(None, "lost")
    cell = int(np.argmax(same))
    return _Shown(cell, f"corrected fitness {_rounded(float(archive.fitness[cell]), scale)}")


def _panels(
    figure: Figure,
    archive: Archive,
    elites: Sequence[EliteClip],
    names: Sequence[str],
    scale: ColourScale,
    place: Map | None,
) -> tuple[Callable[[np.ndarray, np.ndarray], None], Callable[[int, Sequence[_Shown]], None]]:
    """Set up the axes, and return two functions: one draws the cells, and one draws the elites."""
    cells = archive.cells
    columns = (len(elites) + 1) // 2 if len(elites) > 1 else len(elites)
    ratios = (1.25, 0.5 * columns) if elites else (1.0,)
    left, *right = figure.subfigures(1, len(ratios), squeeze=False, width_ratios=ratios)[0]
    axes = left.add_subplot(box_aspect=height_of(cells, place))
    draw = partial(draw_cells, axes, cells, names=names, scale=scale, place=place, letters=LETTERS)
    at = draw(fitness=fitness_of(archive))
    if names[1:]:
        draw_bar(left, scale, ax=axes, shrink=0.8)
    panels = right[0].subplots(min(2, len(elites)), columns, squeeze=False).ravel() if right else []
    seen = []
    for i, (panel, elite) in enumerate(zip(panels, elites, strict=False)):
        if at is not None:
            _mark(axes, at.centre[elite.cell, 0], at.centre[elite.cell, 1], i)
        seen.append(_frame(panel, elite, i))
    for panel in panels[len(elites) :]:
        panel.set_axis_off()
    dots = [text for text in axes.texts if text.get_gid() == "elite"]

    def show_elites(moment: int, shown: Sequence[_Shown]) -> None:
        for i, (elite, (cell, words)) in enumerate(zip(elites, shown, strict=True)):
            seen[i].set_data(elite.pictures[moment % len(elite.pictures)])
            seen[i].set_alpha(0.12 if cell is None else 1.0)
            seen[i].axes.title.set_text(words)
            if at is not None:
                dots[i].set_visible(cell is not None)
                dots[i].set_position(at.centre[elite.cell if cell is None else cell])

    def show_cells(fitness: np.ndarray, recent: np.ndarray) -> None:
        if at is not None:
            axes.images[0].set_data(render(at, fitness, scale, recent=recent))
            return
        limits = axes.get_xlim(), axes.get_ylim()  # without an image, draw the axes again
        axes.clear()
        draw(fitness=fitness)
        axes.set(xlim=limits[0], ylim=limits[1])

    return show_cells, show_elites


def _mark(axes: Axes, x: float, y: float, i: int) -> None:
    """Write the number of an elite at its cell."""
    look: dict[str, Any] = {"boxstyle": "circle,pad=0.25", "facecolor": colour(i), "edgecolor": "white"}
    axes.text(
        x, y, str(i + 1), color="white", fontsize=9, weight="bold", ha="center", va="center", bbox=look,
        gid="elite", zorder=5, transform=axes.transAxes,
    )  # fmt: skip


def _rounded(value: float, scale: ColourScale) -> str:
    """Format a number with as many digits as the colour scale can distinguish."""
    digits = max(0, 2 - math.floor(math.log10((scale.high - scale.low) or 1.0)))
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _frame(panel: Axes, elite: EliteClip, i: int) -> Any:
    """Set up the axes that show an elite, and return the image in these axes."""
    shown = panel.imshow(elite.pictures[0])
    panel.set(xticks=[], yticks=[])
    for spine in panel.spines.values():
        spine.set(color=colour(i), linewidth=2.5)
    panel.set_title("fitness", fontsize=8, color=colour(i), pad=3)
    panel.text(
        0.04, 0.95, str(i + 1), transform=panel.transAxes, color="white", fontsize=9, weight="bold",
        va="top", bbox={"boxstyle": "circle,pad=0.25", "facecolor": colour(i), "edgecolor": "white"},
    )  # fmt: skip
    return shown
