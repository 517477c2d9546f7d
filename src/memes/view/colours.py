"""Colours of the archive's cells: what they stand for, their limits, and the picture."""

from __future__ import annotations

from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw

from memes.analysis.heat import Colours, colours_of
from memes.archive import Changes
from memes.cells import Cells
from memes.estimates import Correction
from memes.task import Map
from memes.view.layout import Layout, outline, shown

EMPTY, LINE = (38, 41, 49), (150, 155, 168)
FIRST, SECOND = (255, 80, 50), (70, 170, 255)  # around the chosen cells
LATELY = (255, 255, 255)
WALL, THICK = (255, 255, 255), 3  # pixels
FAR = 10.0  # pictures: a wall is drawn no farther out
FITNESS, CORRECTED, VARIANCE = "fitness", "corrected fitness", "variance of fitness"
GENERATION, LANE = "generation", "lane"
MAPS = {GENERATION: "cividis", LANE: "turbo", VARIANCE: "magma"}
AT_THE_END = (CORRECTED, VARIANCE)  # known of the last generation alone


class Shown(NamedTuple):
    """The content of each of c cells, as it is shown.

    Attributes:
        value: The number that its colour stands for; NaN where it is empty.
        fitness: That by which a tile chooses among its cells; -inf where it is empty.
        age: How many generations ago it changed; inf where it is empty.
    """

    value: np.ndarray
    fitness: np.ndarray
    age: np.ndarray


def choices(correction: Correction | None) -> list[str]:
    """List what cells can be coloured by."""
    uncertain = [] if correction is None else [CORRECTED, VARIANCE]
    return [FITNESS, *uncertain, GENERATION, LANE]


def of_cells(
    by: str, cells: int, standing: Changes, generations: int, correction: Correction | None
) -> Shown:
    """Work out what each cell shows after so many generations.

    Args:
        by: One of `choices`.
        cells: Their number, c.
        standing: The last change of each cell that is occupied.
        generations: How many were done then.
        correction: What re-evaluation said of the elites at the end of the run.
    """
    fitness, age = np.full(cells, -np.inf), np.full(cells, np.inf)
    fitness[standing.cell] = standing.fitness
    age[standing.cell] = generations - 1 - standing.generation
    value = np.full(cells, np.nan)
    if by == CORRECTED and correction is not None:
        fitness = np.asarray(correction.archive.fitness, float)
        return Shown(np.where(np.isfinite(fitness), fitness, np.nan), fitness, np.full(cells, np.inf))
    if by == VARIANCE and correction is not None:
        value[correction.elite_cell] = correction.fitness_variance
    else:
        columns = {FITNESS: standing.fitness, GENERATION: standing.generation + 1, LANE: standing.lane}
        value[standing.cell] = columns.get(by, standing.fitness)
    return Shown(value, fitness, age)


def limits(layout: Layout, cells: Shown) -> Colours:
    """Choose the values of the first and the last colour for what the tiles show, robustly."""
    best = shown(layout, cells.fitness)
    found = colours_of([cells.value[best[best >= 0]]])
    low, high = found.low, found.high
    return found if high > low else found._replace(high=low + max(1e-6, abs(low) * 1e-6))


def colour_map(by: str) -> Any:
    """Choose the colour map: one for each kind of value."""
    return mpl.colormaps[MAPS.get(by, "viridis")]


def picture(
    layout: Layout,
    cells: Shown,
    by: str,
    *,
    lately: float = 0.0,
    chosen: tuple[int | None, ...] = (),
) -> np.ndarray:
    """Draw the cells, uint8[H, W, 3].

    Args:
        layout: Where they are.
        cells: What they show.
        by: What that is.
        lately: For how many generations a change stands out, by a lighter colour; 0 is not at all.
        chosen: Cells to draw a line around.
    """
    best = shown(layout, cells.fitness)
    value = np.where(best >= 0, cells.value[best], np.nan)
    low, high, _ = limits(layout, cells)
    rgb = colour_map(by)(np.clip((np.nan_to_num(value) - low) / (high - low), 0, 1))[:, :3] * 255
    if lately > 0:
        age = np.where(best >= 0, cells.age[best], np.inf)
        glow = 0.85 * np.exp(-age / lately)[:, None]
        rgb = (1 - glow) * rgb + glow * np.array(LATELY)
    rgb = np.where(np.isnan(value)[:, None], EMPTY, rgb)
    table = np.concatenate([rgb, [LINE]]).round().astype(np.uint8)  # the last is that of -1
    image = table[layout.tile]
    for cell, colour in zip(chosen, (FIRST, SECOND), strict=False):
        if cell is not None:
            image[outline(layout, int(layout.of_cell[cell]))] = colour
    return np.asarray(image)


def walled(image: np.ndarray, layout: Layout, cells: Cells, place: Map | None) -> np.ndarray:
    """Draw the walls of a map over a picture of its two features, uint8[H, W, 3]."""
    if place is None or layout.features != (0, 1):
        return image
    low, high = np.asarray(cells.low, float), np.asarray(cells.high, float)
    size, drawn = np.array(image.shape[1::-1]), Image.fromarray(image)
    pen = ImageDraw.Draw(drawn)
    for wall in place.walls:
        x, y = np.clip((np.asarray(wall) - low) / (high - low), -FAR, FAR).T
        corners = [*map(tuple, np.column_stack([x, 1 - y]) * size)]
        pen.line([*corners, corners[0]], WALL, THICK)
    return np.asarray(drawn)
