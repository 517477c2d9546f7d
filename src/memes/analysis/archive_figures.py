"""A figure with the archives of many runs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from textwrap import fill

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from memes.analysis.archive_axes import draw_bar, draw_cells, height_of, image_of
from memes.analysis.groups import Labels, main_view
from memes.analysis.render import scale_of
from memes.analysis.style import WIDTH, Picture
from memes.cells import Grid
from memes.store.sanitize import mathtext
from memes.store.summary import Summary
from memes.task import Map, numbered


def archives_figure(task: str, labels: Labels) -> Figure | None:
    """Draw one archive per label: the archive of the run with the median QD-score.

    If the run was corrected, its corrected archive is drawn below it. All archives share a colour scale.
    """
    view = main_view(labels)
    chosen = {}
    for label, runs in labels.items():
        # For an even number of runs, choose the middle run with the lower QD-score.
        order = np.argsort([view.value(run, "qd_score") for run in runs])
        middle = runs[int(order[(len(runs) - 1) // 2])]
        if middle.heat is not None:
            chosen[label] = middle
    if not chosen:
        return None
    heats = {label: [run.heat, run.corrected_heat] for label, run in chosen.items()}
    drawn = [heat for pair in heats.values() for heat in pair if heat is not None]
    kinds = 2 if len(drawn) > len(chosen) else 1
    return _archive_panels(task, chosen, heats, kinds)


def _archive_panels(
    task: str, chosen: Mapping[str, Summary], heats: Mapping[str, list[np.ndarray | None]], kinds: int
) -> Figure:
    """Draw the archive of each label and, if `kinds` is 2, the corrected archive below it."""
    one = next(iter(chosen.values()))
    scale = scale_of(heat for pair in heats.values() for heat in pair if heat is not None)
    cells, place = _grid(one), one.about.map
    # Version 0.1 recorded no feature names.
    named = [run.about.feature_names for run in chosen.values() if run.about.feature_names]
    names = next(iter(named), tuple(numbered(len(one.low))))
    height = height_of(cells, place)
    most = 2 if height < 0.5 else 4 if len(chosen) <= 8 else 6
    columns = min(len(chosen), most)
    lines = math.ceil(len(chosen) / columns)
    side = (WIDTH - 1) / most
    letters = int(13 * side)  # number of letters that fit below a panel
    width = 1.2 + columns * side
    figure = Picture(width, 0.6 + lines * (0.4 + kinds * (side * height + 0.1)))
    panels = figure.subplots(kinds * lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes in panels.flat:
        axes.axis("off")
    for i, (label, run) in enumerate(chosen.items()):
        for kind, heat in enumerate(heats[label][:kinds]):
            axes = panels[i // columns * kinds + kind, i % columns]
            if heat is None:
                axes.text(0.5, 0.5, "not corrected", transform=axes.transAxes, ha="center", color="grey")
                continue
            axes.axis("on")
            axes.set_box_aspect(height)
            draw_cells(
                axes,
                _grid(run),
                heat.ravel(),
                names,
                scale,
                place=run.about.map,
                letters=letters,
                inner=False,
            )
            words = "corrected" if kind else f"{in_lines(label, letters)}\nseed {run.seed}"
            axes.set_title(mathtext(f"{words}, {np.isfinite(heat).mean():.0%}"))
            lowest = kind == kinds - 1 and i + columns >= len(chosen)
            axes.tick_params(labelbottom=lowest)
            if not lowest:
                axes.set_xlabel("")
            if i % columns:
                axes.set_ylabel("")
    if names[1:]:
        draw_bar(figure, scale, ax=panels, shrink=0.9, aspect=min(20 * kinds * lines, 50))
    title = [f"{task}: the runs with the median QD-score", *_inside(cells, names, place)]
    figure.suptitle("\n".join(fill(mathtext(line), int(13 * width)) for line in title))
    return figure


def _inside(cells: Grid, names: Sequence[str], place: Map | None) -> list[str]:
    """Return a list with the title line about the features inside each block of cells, or []."""
    at = image_of(cells, place)
    if at is None or at.blocks:
        return []
    sides = zip(("to the right", "upwards"), at.along, strict=True)
    words = [f"{names[i]} {side}" for side, features in sides for i in features[1:]]
    return [f"in each block: {', '.join(words)}"] if words else []


def in_lines(label: str, letters: int, most: int = 3) -> str:
    """Break a label into lines of about `letters` letters, and keep at most `most` lines.

    Lines break at spaces or after punctuation, never within a word.
    """
    lines = [""]
    for part in re.findall(r"[^\s_:=,/.-]*[\s_:=,/.-]*", label)[:-1]:
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > letters:
            lines.append("")
        lines[-1] += part
    kept = [line.strip() for line in lines[:most]]
    return "\n".join(kept) + " ..." * (len(lines) > most)


def _grid(run: Summary) -> Grid:
    assert run.heat is not None
    return Grid(jnp.asarray(run.low), jnp.asarray(run.high), run.heat.shape)
