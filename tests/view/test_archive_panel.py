"""The archive panel: values and colours of cells, and the text around the archive."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import colormaps

import memes
from memes.analysis.render import SCREEN, ColourScale, layout
from memes.archive import Changes
from memes.cells import Grid
from memes.estimates import Correction
from memes.view import archive_panel, colours


def grid(*shape):
    k = len(shape)
    return Grid(jnp.zeros(k), jnp.arange(1.0, k + 1), shape)


def changes():
    cell = np.array([0, 1, 4])
    fitness, feature = np.array([1.0, 2.0, 3.0]), np.zeros((3, 2))
    return Changes(np.array([0, 5, 9]), cell, np.array([3, 0, 7]), fitness, feature)


@pytest.mark.parametrize(
    ("by", "values"), [("fitness", [1, 2, 3]), ("generation", [1, 6, 10]), ("lane", [3, 0, 7])]
)
def test_cells_have_the_values_of_the_chosen_quantity(by, values):
    found = colours.of_cells(by, 6, changes(), 10, None)
    np.testing.assert_array_equal(found.value[[0, 1, 4]], values)
    np.testing.assert_array_equal(found.age[[0, 1, 4]], [9, 4, 0])
    assert np.isnan(found.value[[2, 3, 5]]).all()
    assert (found.fitness[[2, 3, 5]] == -np.inf).all()


def test_corrected_fitness_and_variance_come_from_the_correction():
    cells = grid(3, 2)
    archive = replace(memes.archive.empty(cells, 1), fitness=jnp.array([-jnp.inf] * 5 + [2.5]))
    correction = Correction(archive, np.array([1, 4]), np.array([0.1, 0.2]), np.zeros((2, 2)), 8)
    assert colours.choices(correction) == [
        "fitness", "corrected fitness", "variance of fitness", "generation", "lane",
    ]  # fmt: skip
    fitness = colours.of_cells("corrected fitness", 6, changes(), 10, correction)
    assert np.flatnonzero(np.isfinite(fitness.value)).tolist() == [5]
    variance = colours.of_cells("variance of fitness", 6, changes(), 10, correction)
    np.testing.assert_array_equal(variance.value[[1, 4]], [0.1, 0.2])


@pytest.mark.parametrize(
    ("by", "colour_map"), [("fitness", "viridis"), ("generation", "cividis"), ("lane", "turbo")]
)
def test_a_picture_has_the_colours_of_its_cells_and_outlines_of_chosen_cells(by, colour_map):
    at, cells = layout(grid(3, 2)), colours.of_cells(by, 6, changes(), 10, None)
    image = colours.picture(at, cells, by)
    low, high, *_ = colours.scale(at, cells, by)
    for cell in range(6):
        wanted = SCREEN.empty
        if cell in (0, 1, 4):
            wanted = 255 * np.array(colormaps[colour_map]((cells.value[cell] - low) / (high - low))[:3])
        np.testing.assert_allclose(image[at.tile == cell][0], wanted, atol=1)
    changed = (colours.picture(at, cells, by, chosen=(0, 4)) != image).any(axis=-1)
    assert changed.any()
    assert not changed[at.tile == 2].all()


def test_recent_changes_are_lighter_and_fade():
    at, cells = layout(grid(3, 2)), colours.of_cells("fitness", 6, changes(), 10, None)
    plain, highlighted = (
        colours.picture(at, cells, "fitness", lately=t).astype(int) for t in (0.0, 2.0)
    )
    lighter = [
        (highlighted - plain)[at.tile == cell].sum() / (at.tile == cell).sum() for cell in range(6)
    ]
    assert lighter[4] > 3 * lighter[1] > 3 * lighter[0] > 0
    assert lighter[2] == lighter[3] == lighter[5] == 0


def test_the_colour_scale_covers_the_values_that_tiles_show():
    at, value = layout(grid(2, 2, 2), (0, 1)), np.array([0.0, 5, 1, 6, 2, 7, 3, 8])
    shown = colours.Shown(value, value, np.zeros(8))
    assert colours.scale(at, shown, "fitness")[:2] == (5.0, 8.0)


# --------------------------------------------------------------------------------------------- frame


def framed(cells, names, features=(), by="fitness"):
    at = layout(cells, features, side=600)
    frame = archive_panel.Frame(at, tuple(names), by, ColourScale())
    return frame, archive_panel.drawn(frame, cells)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4), (2, 3, 4, 2)])
def test_the_frame_has_text_only_around_the_area_of_the_cells(shape):
    frame, picture = framed(grid(*shape), [f"feature {i} (m)" for i in range(len(shape))])
    left, bottom, width, height = archive_panel.area(frame.at.aspect)
    assert height / width == pytest.approx(frame.at.aspect)
    n = len(picture)
    x, top, bottom = round(left * n), round((1 - bottom - height) * n), round((1 - bottom) * n)
    written = (picture != SCREEN.between).any(axis=-1)
    assert not written[top + 3 : bottom - 3, x + 3 : x + round(width * n) - 3].any()
    assert written[bottom + 5 :].any()  # a label along x
    assert written[top + 9 : bottom - 9, : x - 5].any() == (len(shape) > 1)  # and a label along y
    titled = archive_panel.titled(picture, "100%", frame.at.aspect)
    changed = (titled != picture).any(axis=-1)
    assert changed[:top].any()
    assert not changed[top:].any()


def test_separate_blocks_have_their_intervals_above_them():
    at = layout(grid(4, 4, 7), side=600)
    image = np.zeros((*at.tile.shape, 3), np.uint8)
    changed = (archive_panel.with_blocks(image, at) != image).any(axis=-1)
    assert changed.any()
    assert not changed[at.tile >= 0].any()
    plane = layout(grid(4, 4), side=600)
    assert archive_panel.with_blocks(image, plane) is image


def test_the_menu_names_features_without_units():
    cells, names = grid(2, 3, 4, 2), ["a (m)", "b (m)", "c", "d"]
    assert [*archive_panel.spans(cells, names)][:2] == [archive_panel.ALL, "a by b"]
    assert [*archive_panel.spans(cells, ["a (m)", "a (s)", "c", "d"])][1] == "a (m) by a (s)"
    assert archive_panel.spans(grid(3), ["a (m)"]) == {"a": (0,)}
