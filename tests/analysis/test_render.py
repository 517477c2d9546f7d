"""Archives as images: every cell has a tile, and each position in the image maps to the correct tile."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import colormaps

import memes
from memes.analysis.render import (
    BETWEEN,
    CHOSEN,
    MOST_TILES,
    PRINT,
    SCREEN,
    STEPS,
    ColourScale,
    layout,
    nearest,
    render,
    scale_of,
)
from memes.cells import Grid
from memes.task import Map


def grid(*shape):
    k = len(shape)
    return Grid(jnp.zeros(k), jnp.arange(1.0, k + 1), shape)


def tessellation(count, k=2):
    task = memes.Task(
        name="box",
        dim=1,
        feature_low=(0.0,) * k,
        feature_high=(2.0,) * k,
        init=memes.uniform(1, 0.0, 1.0),
        evaluate=lambda keys, x: (x[:, 0], x[:, :1]),
    )
    return memes.cells.cvt(jax.random.key(0), task, count, points=200, iterations=2)


class Stripes:
    """Three cells that divide a plane into stripes along its diagonal."""

    low, high, count = jnp.zeros(2), jnp.ones(2), 3

    def index(self, feature):
        return jnp.clip(jnp.asarray(feature).sum(axis=-1) * 1.5, 0, 2).astype(int)


CELLS = {
    "a line": (grid(7), (0,)),
    "a plane": (grid(5, 3), (0, 1)),
    "a plane, turned": (grid(5, 3), (1, 0)),
    "two of four features": (grid(2, 3, 4, 2), (2, 1)),
    "all of four features": (grid(2, 3, 4, 2), ()),
    "all of three features": (grid(2, 3, 4), ()),
    "all of five features": (grid(2, 3, 2, 2, 7), ()),
    "all of six features": (grid(2, 3, 2, 2, 3, 2), ()),
    "a tessellation": (tessellation(20), (0, 1)),
    "a tessellation, turned": (tessellation(20), (1, 0)),
    "cells without a layout": (Stripes(), (0, 1)),
    "a tessellation of a line": (tessellation(6, k=1), (0,)),
    "two of three features of a tessellation": (tessellation(30, k=3), (2, 0)),
}


@pytest.fixture(params=CELLS.values(), ids=CELLS)
def laid_out(request):
    cells, features = request.param
    return cells, layout(cells, features, side=600)


def test_every_cell_has_a_tile_and_every_tile_is_found_at_its_middle(laid_out):
    cells, found = laid_out
    assert found.of_cell.shape == (cells.count,)
    for tile in np.unique(found.of_cell):
        assert found.at(*found.centre[tile]) == tile


@pytest.mark.parametrize("name", [name for name, (_, features) in CELLS.items() if features])
def test_a_tile_is_at_the_position_of_its_features(name):
    cells, features = CELLS[name]
    found = layout(cells, features)
    low, high = np.asarray(cells.low), np.asarray(cells.high)
    for feature in np.random.default_rng(0).uniform(0.01, 0.99, (30, len(low))):
        if "two of three features" in name:  # only grid cells are aligned with the feature axes
            feature = (memes.cells.centres(cells)[0] - low) / (high - low)
        (cell,) = cells.index(jnp.asarray(low + feature * (high - low))[None])
        assert found.at(*[*feature[list(features)], 0.5][:2]) == found.of_cell[int(cell)]


@pytest.mark.parametrize("shape", [(2, 3, 4, 2), (3, 2, 2, 2, 2, 3)])
def test_the_first_two_features_span_the_inner_grids(shape):
    """Each pair of features spans a grid. Each cell of the grid contains a grid of the previous pair."""
    found = layout(grid(*shape))
    for cell, index in enumerate(np.ndindex(shape)):
        x = y = 0.5
        for i in range(0, len(shape), 2):  # from the inner to the outer features
            x, y = (index[i] + x) / shape[i], (index[i + 1] + y) / shape[i + 1]
        assert found.at(x, y) == cell
    assert 0 < (found.tile == BETWEEN).mean() < 0.1


@pytest.mark.parametrize("shape", [(4, 3, 8), (2, 3, 2, 2, 7)])
def test_the_last_of_an_odd_number_of_features_divides_the_image_into_blocks(shape):
    """There is one block per interval of the last feature.

    The blocks have equal sizes, and are arranged in rows from the top left of the image.
    """
    found, n = layout(grid(*shape)), shape[-1]
    assert len(found.blocks) == n
    np.testing.assert_allclose([block.low for block in found.blocks], len(shape) / n * np.arange(n))
    np.testing.assert_allclose(
        [block.high for block in found.blocks][:-1], [block.low for block in found.blocks][1:]
    )
    of_cell = np.arange(np.prod(shape)).reshape(-1, n)
    middles, sides = [], []
    for block, cells in zip(found.blocks, of_cell.T, strict=True):
        y, x = np.nonzero(np.isin(found.tile, cells))
        sides.append((x.max() - x.min() + 1, y.max() - y.min() + 1))
        middles.append((y.min(), x.min()))
        assert block.x * found.tile.shape[1] == pytest.approx((x.min() + x.max() + 1) / 2, abs=1)
        assert (1 - block.top) * found.tile.shape[0] == pytest.approx(y.min(), abs=1)
    assert middles == sorted(middles)
    assert len({*sides}) == 1
    assert 0.3 <= found.aspect <= 2
    square = layout(grid(4, 4, 8))
    (wide,), (high,) = ({(square.tile == 0).any(axis=axis).sum()} for axis in (0, 1))
    assert wide == high


def test_a_tile_shows_the_fittest_of_its_cells():
    cells, random = grid(2, 3, 4, 2), np.random.default_rng(0)
    fitness = np.where(random.uniform(size=48) < 0.3, -np.inf, random.normal(size=48))
    best = layout(cells, (1, 2)).fittest(fitness).reshape(3, 4)
    table = fitness.reshape(2, 3, 4, 2)
    for j in range(3):
        for k in range(4):
            greatest = table[:, j, k].max()
            assert best[j, k] == (np.flatnonzero(fitness == greatest)[0] if greatest > -np.inf else -1)


@pytest.mark.parametrize(("x", "y"), [(-0.1, 0.5), (0.5, 1.1), (np.nan, 0.5)])
def test_outside_the_image_there_is_no_tile(x, y):
    assert layout(grid(5, 3)).at(x, y) == BETWEEN


def test_arrow_keys_move_to_the_next_elite_and_stop_at_the_border():
    found = layout(grid(3, 3))
    occupied = np.array([1, 1, 0, 1, 1, 1, 0, 0, 1], bool)
    # Up and down move along the second feature. Left and right move along the first feature.
    walked = {name: found.step(4, step, occupied) for name, step in STEPS.items()}
    assert walked == {"left": 1, "right": 8, "down": 3, "up": 5}
    assert found.step(5, STEPS["up"], occupied) == 5


def test_very_many_cells_share_tiles():
    found = layout(grid(2000, 2))
    assert len(found.centre) == MOST_TILES * 2
    assert (np.diff(found.of_cell[::2]) >= 0).all()


@pytest.mark.parametrize("name", [name for name in CELLS if "without a layout" not in name])
def test_nearest_uses_the_features_that_are_shown(name):
    cells, features = CELLS[name]
    found, random = layout(cells, features), np.random.default_rng(0)
    shown = list(features) or list(range(len(cells.low)))
    low, high = np.asarray(cells.low), np.asarray(cells.high)
    unit = ((memes.cells.centres(cells) - low) / (high - low))[:, shown]
    occupied = np.sort(random.choice(cells.count, cells.count // 3, replace=False))
    for cell in range(cells.count):
        chosen = nearest(found, cells, int(found.of_cell[cell]), occupied)
        tile = unit[found.of_cell == found.of_cell[cell]].mean(axis=0)
        apart = np.linalg.norm(unit[occupied] - tile, axis=1)
        assert np.linalg.norm(unit[chosen] - tile) == pytest.approx(apart.min())
        assert chosen in occupied


# ------------------------------------------------------------------------------------------- colours


def test_a_few_outliers_do_not_extend_the_colour_scale():
    usual = np.linspace(1, 2, 40)
    assert scale_of([usual])[:3] == (1, 2, "neither")
    assert scale_of([usual, np.array([-100.0, np.nan])])[:3] == (1, 2, "min")
    assert scale_of([usual, np.array([100.0])])[:3] == (1, 2, "max")
    assert scale_of([np.append(usual, [-9, 9])])[:3] == (1, 2, "both")
    assert scale_of([np.array([3.0, 3, 3, 3, 3, 4])])[:3] == (3, 4, "neither")
    assert scale_of([np.full(3, np.nan)])[:3] == (0, 1, "neither")


VALUES = np.array([1.0, 3.0, np.nan, np.nan, 2.0, np.nan])


@pytest.mark.parametrize("palette", [PRINT, SCREEN])
def test_pixels_have_the_colours_of_their_cells(palette):
    at, scale = layout(grid(3, 2)), ColourScale(1.0, 3.0, colour_map="cividis")
    image = render(at, VALUES, scale, palette=palette)
    assert image.dtype == np.uint8
    for cell, value in enumerate(VALUES):
        wanted = palette.empty
        if np.isfinite(value):
            wanted = np.array(colormaps["cividis"]((value - 1) / 2)[:3]) * 255
        pixels = image[at.tile == cell]
        assert (pixels == pixels[0]).all()
        np.testing.assert_allclose(pixels[0], wanted, atol=1)
    nested = layout(grid(2, 2, 2))
    shown = render(nested, np.arange(8.0), scale, palette=palette)
    assert (shown[nested.tile == BETWEEN] == palette.between).all()


def test_equal_values_have_a_colour():
    image = render(layout(grid(3, 2)), np.full(6, 2.0), scale_of([np.full(6, 2.0)]))
    assert (image == image[0, 0]).all()
    assert tuple(image[0, 0]) != PRINT.empty


def test_the_outline_of_a_chosen_cell_is_at_its_edge():
    at, scale = layout(grid(3, 2)), scale_of([VALUES])
    image = render(at, VALUES, scale)
    chosen = render(at, VALUES, scale, chosen=(0, 4))
    changed = (chosen != image).any(axis=-1)
    # Cell 0 is at the lower left of the image. In its tile, the outline covers only pixels at the
    # left edge and the bottom edge of the image.
    rows, columns = np.nonzero(changed & (at.tile == 0))
    assert ((rows >= len(changed) - 4) | (columns < 4)).all()
    assert changed[-1, :50].all()
    for colour in CHOSEN:
        assert (chosen[changed] == colour).all(axis=-1).any()
    assert (render(at, VALUES, scale, chosen=(None, None)) == image).all()


def test_walls_are_drawn_at_their_positions():
    """The cells span (0, 0) to (1, 2), and y points up.

    Walls are drawn only if the axes show the coordinates of the map.
    """
    cells, wall = grid(3, 2), ((0.25, 0.5), (0.75, 0.5), (0.75, 1.5), (0.25, 1.5))

    def changed(place, features=(0, 1)):
        at, empty = layout(cells, features, place=place), layout(cells, features, place=Map())
        images = [render(each, VALUES, scale_of([VALUES])) for each in (at, empty)]
        return (images[0] != images[1]).any(axis=-1)

    walls = changed(Map(walls=(wall,)))
    height, width = walls.shape
    assert height == 2 * width  # the aspect ratio of the map
    rows, columns = np.nonzero(walls)
    for found, size in ((rows, height), (columns, width)):
        np.testing.assert_allclose([found.min(), found.max()], [size / 4, 3 * size / 4], atol=3)
    assert walls[height // 4 : 3 * height // 4, width // 4].all()
    assert not walls[height // 4 + 4 : 3 * height // 4 - 4, width // 4 + 4 : 3 * width // 4 - 4].any()
    assert changed(Map(walls=(((0.5, -1e30), (0.5, 1e30)),)))[:, width // 2].all()
    for features in ((1, 0), (0,)):
        assert not changed(Map(walls=(wall,)), features).any()


def test_recent_changes_are_lighter():
    at, scale = layout(grid(3, 2)), scale_of([VALUES])
    plain = render(at, VALUES, scale).astype(int)
    highlighted = render(at, VALUES, scale, recent=np.array([0.1, 0.3, 0.9, 0, 0.8, 0]))
    lighter = [
        (highlighted - plain)[at.tile == cell].sum() / (at.tile == cell).sum() for cell in range(6)
    ]
    assert lighter[4] > lighter[1] > lighter[0] > 0
    assert lighter[2] == lighter[3] == lighter[5] == 0  # these cells are empty
