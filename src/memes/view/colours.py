"""Content and colours of the archive's cells on the page."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memes.analysis.render import SCREEN, ColourScale, TileLayout, render, scale_of
from memes.archive import Changes
from memes.estimates import Correction

FITNESS, CORRECTED, VARIANCE = "fitness", "corrected fitness", "variance of fitness"
GENERATION, LANE = "generation", "lane"
MAPS = {GENERATION: "cividis", LANE: "turbo", VARIANCE: "magma"}
AT_THE_END = (CORRECTED, VARIANCE)  # Quantities that exist only for the last generation.
RECENT = 0.85  # Amount by which cells that changed in the current generation are lightened.


class Shown(NamedTuple):
    """The content of c cells on the page.

    Attributes:
        value: Value that determines the colour of each cell, [c]; NaN for empty cells.
        fitness: Fitness by which each tile selects the cell to show, [c]; -inf for empty cells.
        age: Number of generations since the last change of each cell, [c]; inf for empty cells.
    """

    value: np.ndarray
    fitness: np.ndarray
    age: np.ndarray


def choices(correction: Correction | None) -> list[str]:
    """List the quantities that can determine the colours of cells."""
    uncertain = [] if correction is None else [CORRECTED, VARIANCE]
    return [FITNESS, *uncertain, GENERATION, LANE]


def of_cells(
    by: str, cells: int, standing: Changes, generations: int, correction: Correction | None
) -> Shown:
    """Return the content of each cell after a number of generations.

    Args:
        by: Quantity that the colours show, one of `choices`.
        cells: Number of cells, c.
        standing: Last change of each occupied cell.
        generations: Number of generations.
        correction: Result of the re-evaluation at the end of the run, if there was one.
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


def scale(at: TileLayout, cells: Shown, by: str) -> ColourScale:
    """Choose the colour scale of the tiles. Each quantity has its own colour map."""
    best = at.fittest(cells.fitness)
    return scale_of([cells.value[best[best >= 0]]], MAPS.get(by, "viridis"))


def picture(
    at: TileLayout, cells: Shown, by: str, *, lately: float = 0.0, chosen: tuple[int | None, ...] = ()
) -> np.ndarray:
    """Draw the cells, as an image uint8[H, W, 3].

    Args:
        at: Layout of the cells.
        cells: Content of the cells.
        by: Quantity that the colours show.
        lately: Number of generations over which highlights of changed cells fade; 0 disables the
            highlights.
        chosen: Cells to outline.
    """
    recent = RECENT * np.exp(-cells.age / lately) if lately > 0 else None
    colours = scale(at, cells, by)
    return render(
        at, cells.value, colours, fitness=cells.fitness, recent=recent, chosen=chosen, palette=SCREEN
    )
