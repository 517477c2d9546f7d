"""What the archive's cells show on the page, and in which colours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memes.analysis.render import SCREEN, ColourScale, TileLayout, render, scale_of
from memes.archive import Changes
from memes.estimates import Correction

FITNESS, CORRECTED, VARIANCE = "fitness", "corrected fitness", "variance of fitness"
GENERATION, LANE = "generation", "lane"
MAPS = {GENERATION: "cividis", LANE: "turbo", VARIANCE: "magma"}
AT_THE_END = (CORRECTED, VARIANCE)  # known of the last generation alone
RECENT = 0.85  # how much a change of this generation is lightened


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


def scale(at: TileLayout, cells: Shown, by: str) -> ColourScale:
    """Choose the colours of what the tiles show; each kind of value has its own colour map."""
    best = at.fittest(cells.fitness)
    return scale_of([cells.value[best[best >= 0]]], MAPS.get(by, "viridis"))


def picture(
    at: TileLayout, cells: Shown, by: str, *, lately: float = 0.0, chosen: tuple[int | None, ...] = ()
) -> np.ndarray:
    """Draw the cells, uint8[H, W, 3].

    Args:
        at: Where they are.
        cells: What they show.
        by: What that is.
        lately: For how many generations a change is lightened; 0 is not at all.
        chosen: Cells to draw a line around.
    """
    recent = RECENT * np.exp(-cells.age / lately) if lately > 0 else None
    colours = scale(at, cells, by)
    return render(
        at, cells.value, colours, fitness=cells.fitness, recent=recent, chosen=chosen, palette=SCREEN
    )
