"""The archives of many runs in one figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from textwrap import fill

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from memes.analysis.groups import Labels, main_view
from memes.analysis.heat import colours_of, draw_bar, draw_cells, height_of, map_of
from memes.analysis.nested import draw_keys, keys_of
from memes.analysis.style import WIDTH, Picture
from memes.cells import Grid
from memes.store.folder import feature_names
from memes.store.sanitize import mathtext
from memes.store.summary import Summary


def archives_figure(task: str, labels: Labels) -> Figure | None:
    """Draw the archives of the runs with the median QD-score, as found and corrected, in one scale."""
    view = main_view(labels)
    chosen = {}
    for label, runs in labels.items():
        # The lower one of the two in the middle, if they are even in number.
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
    """Draw a column of panels for each label; in its first `kinds` heats."""
    one = next(iter(chosen.values()))
    colours = colours_of(heat for pair in heats.values() for heat in pair if heat is not None)
    cells, place = _grid(one), map_of(one.about)
    named = [run.about for run in chosen.values() if run.about.get("feature_names")]  # not by 0.1
    names = feature_names(next(iter(named), one.about), len(one.low))
    height, keys = height_of(cells, place), keys_of(cells)
    most = 2 if height < 0.5 else 4 if len(chosen) <= 8 else 6
    columns = min(len(chosen), most)
    lines = math.ceil(len(chosen) / columns)
    side = (WIDTH - 1) / most
    letters = int(13 * side)  # that fit below a panel
    width = 1.2 + columns * side + 1.3 * bool(keys)
    figure = Picture(width, max(0.6 + lines * (0.4 + kinds * (side * height + 0.1)), 1.7 * keys))
    halves = figure.subfigures(1, 2, squeeze=False, width_ratios=(width, 1.4 if keys else 1e-3))[0]
    panels = halves[0].subplots(kinds * lines, columns, squeeze=False, sharex=True, sharey=True)
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
            image = draw_cells(
                axes, _grid(run), heat.ravel(), names, colours, place=map_of(run.about), wrap=letters
            )
            words = "corrected" if kind else f"{fill(label, letters, max_lines=2)}\nseed {run.seed}"
            axes.set_title(mathtext(f"{words}, {np.isfinite(heat).mean():.0%}"))
            lowest = kind == kinds - 1 and i + columns >= len(chosen)
            axes.tick_params(labelbottom=lowest)
            if not lowest:
                axes.set_xlabel("")
            if i % columns:
                axes.set_ylabel("")
    if image is not None:
        draw_bar(halves[0], image, colours, ax=panels, shrink=0.9, aspect=min(20 * kinds * lines, 50))
    if keys:
        below = halves[1].subplots(keys, 1, squeeze=False).ravel()
        draw_keys(below, cells, [fill(mathtext(name), 18) for name in names])
    figure.suptitle(fill(mathtext(f"{task}: the runs with the median QD-score"), int(13 * width)))
    return figure


def _grid(run: Summary) -> Grid:
    assert run.heat is not None
    return Grid(jnp.asarray(run.low), jnp.asarray(run.high), run.heat.shape)
