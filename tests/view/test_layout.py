"""The archive as a picture: every cell is somewhere, and what is clicked on is what is shown."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.analysis.nested import nest
from memes.archive import Changes
from memes.cells import Grid
from memes.estimates import Correction
from memes.task import Map
from memes.view import colours, layout


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


CELLS = {
    "a line": (grid(7), (0,)),
    "a plane": (grid(5, 3), (0, 1)),
    "a plane, turned": (grid(5, 3), (1, 0)),
    "two of four": (grid(2, 3, 4, 2), (2, 1)),
    "all of four": (grid(2, 3, 4, 2), ()),
    "all of three": (grid(2, 3, 4), ()),
    "a tessellation": (tessellation(20), (0, 1)),
    "a tessellation of a line": (tessellation(6, k=1), (0,)),
    "two of three of a tessellation": (tessellation(30, k=3), (2, 0)),
}


@pytest.fixture(params=CELLS.values(), ids=CELLS)
def laid_out(request):
    cells, features = request.param
    return cells, layout.of(cells, features)


def test_every_cell_has_a_tile_and_every_tile_is_found_at_its_middle(laid_out):
    cells, found = laid_out
    assert found.of_cell.shape == (cells.count,)
    for tile in np.unique(found.of_cell):
        assert layout.tile_at(found, *found.centre[tile]) == tile


@pytest.mark.parametrize(("name", "sides"), [("a plane", (5, 3)), ("a plane, turned", (3, 5)),
    ("two of four", (4, 3)), ("a tessellation", (np.inf, np.inf)),
    ("two of three of a tessellation", (5, 5))])  # fmt: skip
def test_a_tile_is_where_its_features_are(name, sides):
    cells, features = CELLS[name]
    found = layout.of(cells, features)
    low, high = (np.asarray(bound)[list(features)] for bound in (cells.low, cells.high))
    unit = (memes.cells.centres(cells)[:, list(features)] - low) / (high - low)
    assert (np.abs(unit - found.centre[found.of_cell]) <= 0.5 / np.array(sides) + 1e-6).all()


def test_a_grid_of_grids_is_that_of_the_figures():
    cells = grid(2, 3, 4, 2)
    found, numbers = layout.of(cells, ()), nest(np.arange(48).reshape(2, 3, 4, 2))
    for (i, j), cell in np.ndenumerate(numbers):
        x, y = (i + 0.5) / numbers.shape[0], (j + 0.5) / numbers.shape[1]
        assert layout.tile_at(found, x, y) == cell
    assert (found.tile == layout.BETWEEN).any()


def test_a_tile_shows_the_fittest_of_its_cells():
    cells, random = grid(2, 3, 4, 2), np.random.default_rng(0)
    fitness = np.where(random.uniform(size=48) < 0.3, -np.inf, random.normal(size=48))
    best = layout.shown(layout.of(cells, (1, 2)), fitness).reshape(3, 4)
    table = fitness.reshape(2, 3, 4, 2)
    for j in range(3):
        for k in range(4):
            greatest = table[:, j, k].max()
            assert best[j, k] == (np.flatnonzero(fitness == greatest)[0] if greatest > -np.inf else -1)


@pytest.mark.parametrize(("x", "y"), [(-0.1, 0.5), (0.5, 1.1), (np.nan, 0.5)])
def test_beside_the_picture_there_is_no_tile(x, y):
    assert layout.tile_at(layout.of(grid(5, 3), (0, 1)), x, y) == layout.BETWEEN


def test_arrows_go_to_the_next_elite_ahead_and_stay_at_the_border():
    found = layout.of(grid(3, 3), (0, 1))
    occupied = np.array([1, 1, 0, 1, 1, 1, 0, 0, 1], bool)
    # up is along the second feature, right along the first
    walked = {name: layout.next_tile(found, 4, step, occupied) for name, step in layout.STEPS.items()}
    assert walked == {"left": 1, "right": 8, "down": 3, "up": 5}
    assert layout.next_tile(found, 5, layout.STEPS["up"], occupied) == 5


def test_very_many_cells_share_tiles():
    found = layout.of(grid(2000, 2), (0, 1))
    assert len(found.centre) == layout.MOST_TILES * 2
    assert (np.diff(found.of_cell[::2]) >= 0).all()


# ------------------------------------------------------------------------------------------- colours


def changes():
    cell = np.array([0, 1, 4])
    fitness, feature = np.array([1.0, 2.0, 3.0]), np.zeros((3, 2))
    return Changes(np.array([0, 5, 9]), cell, np.array([3, 0, 7]), fitness, feature)


@pytest.mark.parametrize(
    ("by", "values"), [("fitness", [1, 2, 3]), ("generation", [1, 6, 10]), ("lane", [3, 0, 7])]
)
def test_cells_show_what_they_are_coloured_by(by, values):
    found = colours.of_cells(by, 6, changes(), 10, None)
    np.testing.assert_array_equal(found.value[[0, 1, 4]], values)
    np.testing.assert_array_equal(found.age[[0, 1, 4]], [9, 4, 0])
    assert np.isnan(found.value[[2, 3, 5]]).all()
    assert (found.fitness[[2, 3, 5]] == -np.inf).all()


def test_corrected_fitness_and_variance_are_those_of_the_correction():
    cells = grid(3, 2)
    archive = memes.archive.empty(cells, 1)._replace(fitness=jnp.array([-jnp.inf] * 5 + [2.5]))
    correction = Correction(archive, np.array([1, 4]), np.array([0.1, 0.2]), np.zeros((2, 2)), 8)
    assert colours.choices(correction) == [
        "fitness", "corrected fitness", "variance of fitness", "generation", "lane",
    ]  # fmt: skip
    fitness = colours.of_cells("corrected fitness", 6, changes(), 10, correction)
    assert np.flatnonzero(np.isfinite(fitness.value)).tolist() == [5]
    variance = colours.of_cells("variance of fitness", 6, changes(), 10, correction)
    np.testing.assert_array_equal(variance.value[[1, 4]], [0.1, 0.2])


def test_a_picture_has_the_colours_of_its_cells_and_lines_around_the_chosen():
    at, cells = layout.of(grid(3, 2), (0, 1)), colours.of_cells("fitness", 6, changes(), 10, None)
    image = colours.picture(at, cells, "fitness")
    low, high, _ = colours.limits(at, cells)
    for cell in range(6):
        x, y = at.centre[cell]
        pixel = image[int((1 - y) * image.shape[0]), int(x * image.shape[1])]
        wanted = colours.EMPTY
        if cell in (0, 1, 4):
            wanted = np.array(colours.colour_map("fitness")((cells.value[cell] - low) / (high - low)))
            wanted = (wanted[:3] * 255).round()
        np.testing.assert_allclose(pixel, wanted, atol=1)
    chosen = colours.picture(at, cells, "fitness", chosen=(0, 4))
    changed = (chosen != image).any(axis=-1)
    assert changed.any()
    rows, columns = np.nonzero(changed & (at.tile == 0))  # at the lower left end of the picture
    assert (
        (rows >= len(changed) - 3) | (columns < 3)
    ).all()  # lines are around a cell, not on it, elsewhere
    assert changed[-1, :50].all()
    assert (chosen[changed] == colours.FIRST).all(axis=-1).any()
    assert (chosen[changed] == colours.SECOND).all(axis=-1).any()


def test_walls_are_drawn_where_they_stand():
    """Over cells from (0, 0) to (1, 2), the picture's y from above; and only over a map's own axes."""
    cells, wall = grid(3, 2), ((0.25, 0.5), (0.75, 0.5), (0.75, 1.5), (0.25, 1.5))
    at, shown = layout.of(cells, (0, 1)), colours.of_cells("fitness", 6, changes(), 10, None)
    plain = colours.picture(at, shown, "fitness")
    height, width, _ = plain.shape
    changed = (colours.walled(plain, at, cells, Map(walls=(wall,))) != plain).any(axis=-1)
    rows, columns = np.nonzero(changed)
    for found, size in ((rows, height), (columns, width)):
        np.testing.assert_allclose([found.min(), found.max()], [size / 4, 3 * size / 4], atol=2)
    assert changed[height // 4 : 3 * height // 4, width // 4].all()
    assert not changed[height // 4 + 4 : 3 * height // 4 - 4, width // 4 + 4 : 3 * width // 4 - 4].any()
    far = Map(walls=(((0.5, -1e30), (0.5, 1e30)),))
    assert (colours.walled(plain, at, cells, far) != plain).any(axis=-1)[:, width // 2].all()
    for features in ((1, 0), (0,)):
        other = layout.of(cells, features)
        image = colours.picture(other, shown, "fitness")
        assert colours.walled(image, other, cells, far) is image


def test_recent_changes_are_lighter_and_fade():
    at, cells = layout.of(grid(3, 2), (0, 1)), colours.of_cells("fitness", 6, changes(), 10, None)
    plain, shining = (colours.picture(at, cells, "fitness", lately=t).astype(int) for t in (0.0, 2.0))
    lighter = [(shining - plain)[at.tile == cell].sum() / (at.tile == cell).sum() for cell in range(6)]
    assert lighter[4] > 3 * lighter[1] > 3 * lighter[0] > 0
    assert lighter[2] == lighter[3] == lighter[5] == 0


def limits(*fitness):
    """The limits of the colours of a row of cells."""
    value = np.array(fitness, float)
    shown = colours.Shown(value, np.where(np.isfinite(value), value, -np.inf), np.zeros(len(value)))
    return colours.limits(layout.of(grid(len(value), 1), (0, 1)), shown)


def test_colours_have_limits_whatever_there_is():
    assert limits(np.nan, np.nan)[:2] == (0.0, 1.0)
    low, high, _ = limits(2.0, 2.0)
    assert low == 2.0 < high
    low, _, extend = limits(-1e9, *np.linspace(0, 1, 99))
    assert (low, extend) == (0.0, "min")


def test_limits_are_those_of_what_the_tiles_show():
    at, value = layout.of(grid(2, 2, 2), (0, 1)), np.array([0.0, 5, 1, 6, 2, 7, 3, 8])
    shown = colours.Shown(value, value, np.zeros(8))
    assert colours.limits(at, shown)[:2] == (5.0, 8.0)


def test_axes_name_the_outermost_features_and_what_blocks_hold():
    pytest.importorskip("viser", reason="the extra 'view' is not installed")
    from memes.view import archive_panel

    cells, names = grid(2, 3, 4, 2), ["a (m)", "b (m)", "c", "d"]
    framed = archive_panel.frame_of(cells, names, layout.of(cells, ()), "lane", colours.Colours())
    assert framed.labels == ("c\nin each block: a (m)", "d\nin each block: b (m)")
    assert framed.bounds == tuple((float(cells.low[i]), float(cells.high[i])) for i in (2, 3))
    plain = archive_panel.frame_of(cells, names, layout.of(cells, (2, 1)), "lane", colours.Colours())
    assert plain.labels == ("c", "b (m)")
    assert [*layout.spans(cells, names)][:2] == [layout.ALL, "a by b"]  # without units
    assert (
        archive_panel.drawn(framed).shape
        == archive_panel.titled(archive_panel.drawn(framed), "100%", 1.0).shape
    )
