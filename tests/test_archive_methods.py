"""The methods of archives agree with loops over NumPy arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes import UsageError
from memes.archive import Status, empty
from memes.cells import CVT, Grid

LOW, HIGH = np.float32([-2.0, 0.0]), np.float32([2.0, 1.0])
GRID = Grid(jnp.asarray(LOW), jnp.asarray(HIGH), (4, 3))
VORONOI = CVT(GRID.low, GRID.high, jnp.array([[-1.5, 0.2], [-0.5, 0.9], [0.1, 0.4], [1.6, 0.6]]))
EXTRAS = {
    "energy": jax.ShapeDtypeStruct((), np.float32),
    "path": jax.ShapeDtypeStruct((3, 2), np.float16),
    "fell": jax.ShapeDtypeStruct((), bool),
    "code": jax.ShapeDtypeStruct((), np.uint8),
}


def rows(rng, n):
    """Return arguments for `Archive.add`, with only a few different fitness values."""
    return {
        "genotypes": rng.normal(size=(n, 3)),
        "fitness": rng.integers(-3, 3, n).astype(float),
        "feature": rng.uniform(LOW, HIGH, (n, 2)).astype(np.float32),
        "extras": {
            "energy": rng.normal(size=n),
            "path": rng.normal(size=(n, 3, 2)),
            "fell": rng.random(n) < 0.5,
            "code": rng.integers(0, 255, n),
        },
        "generation": rng.integers(0, 9, n),
        "lane": rng.integers(0, 9, n),
    }


def filled(seed, cells=GRID, n=9):
    """Return an archive of random elites with some empty cells."""
    return empty(cells, 3, EXTRAS).add(**rows(np.random.default_rng(seed), n))[0]


def as_dict(archive):
    """Return the elite of each occupied cell as a list of plain numbers."""
    names = ("genotypes", "fitness", "feature", "generation", "lane")
    columns = [np.asarray(getattr(archive, name)) for name in names]
    columns += [np.asarray(archive.extras[name]) for name in sorted(archive.extras)]
    held = np.flatnonzero(np.asarray(archive.fitness) > -np.inf)
    return {int(cell): [column[cell].tolist() for column in columns] for cell in held}


def plain(elite):
    extras = [elite.extras[name] for name in sorted(elite.extras)]
    return [np.asarray(each).tolist() for each in (*elite[1:-1], *extras)]


def test_add_equals_adding_one_row_at_a_time_with_extras():
    archive, expected, rng = empty(GRID, 3, EXTRAS), {}, np.random.default_rng(0)
    kinds = {name: like.dtype for name, like in EXTRAS.items()}
    for _ in range(5):
        batch, before = rows(rng, 8), set(expected)
        archive, status = archive.add(**batch)
        winner = {}
        for i, feature in enumerate(batch["feature"]):
            cell = int(GRID.index(feature))
            if cell not in expected or batch["fitness"][i] > expected[cell][1]:
                given = {name: batch["extras"][name][i].astype(kinds[name]) for name in sorted(kinds)}
                extras = [value.tolist() for value in given.values()]
                own = np.float32(batch["genotypes"][i]).tolist(), batch["fitness"][i], feature.tolist()
                expected[cell] = [*own, batch["generation"][i], batch["lane"][i], *extras]
                winner[cell] = i
        wanted = np.full(8, Status.REJECTED)
        for cell, i in winner.items():
            wanted[i] = Status.IMPROVED if cell in before else Status.NEW
        np.testing.assert_array_equal(status, wanted)
        assert as_dict(archive) == expected
        assert len(archive) == len(expected)
    assert 0 < len(archive) < GRID.count + 1
    assert len(empty(GRID, 3)) == 0


def test_one_genotype_is_added_like_several():
    batch = rows(np.random.default_rng(3), 1)
    extras = {name: value[0] for name, value in batch["extras"].items()}
    one = {name: batch[name][0] for name in ("genotypes", "fitness", "feature")}
    several, status = filled(1).add(**batch)
    single, alone = filled(1).add(**batch | one | {"extras": extras})
    assert alone.tolist() == status.tolist()
    assert jax.tree.all(jax.tree.map(np.array_equal, single, several))


def test_a_loop_yields_the_elites_in_the_order_of_their_cells():
    archive = filled(1)
    expected = as_dict(archive)
    assert {elite.cell: plain(elite) for elite in archive} == expected
    assert [elite.cell for elite in archive] == sorted(expected)
    assert plain(archive.elite(min(expected))) == expected[min(expected)]
    gap = next(cell for cell in range(GRID.count) if cell not in expected)
    with pytest.raises(UsageError, match=f"cell {gap} of the archive is empty"):
        archive.elite(gap)
    with pytest.raises(UsageError, match=r"cell must lie in 0 ... 11, got 12"):
        archive.elite(12)


def test_best_is_the_first_of_the_fittest_elites_in_the_selected_cells():
    archive = filled(2)
    held = as_dict(archive)
    assert archive.best().cell == max(sorted(held), key=lambda cell: held[cell][1])
    chosen = archive.feature[:, 0] > 0
    right = {cell: each for cell, each in held.items() if each[2][0] > 0}
    assert 0 < len(right) < len(held)
    found = archive.best(chosen)
    assert found.cell == max(sorted(right), key=lambda cell: right[cell][1])
    assert plain(found) == right[found.cell]
    assert archive.best(where=np.asarray(chosen)).cell == found.cell
    for where in (np.zeros(GRID.count, bool), ~np.asarray(archive.occupied)):
        with pytest.raises(UsageError, match="where must select a cell that contains an elite"):
            archive.best(where)
    with pytest.raises(UsageError, match="where must have one truth value per cell"):
        archive.best(np.array([0, 3]))


@pytest.mark.parametrize("cells", [GRID, VORONOI])
def test_nearest_measures_distances_in_units_of_the_bounds(cells):
    archive, rng = filled(3, cells), np.random.default_rng(3)
    held = as_dict(archive)
    for wanted in rng.uniform(LOW - 1, HIGH + 1, (20, 2)):
        apart = {cell: np.linalg.norm((each[2] - wanted) / (HIGH - LOW)) for cell, each in held.items()}
        assert archive.nearest(wanted).cell == min(apart, key=apart.get)
    with pytest.raises(UsageError, match=r"feature must have 2 entries, .* got 3"):
        archive.nearest([0, 0, 0])
    with pytest.raises(UsageError, match=r"feature must be finite, got 0\.0 nan"):
        archive.nearest([0.0, np.nan])


def test_samples_are_elites_drawn_uniformly():
    archive = filled(4)
    held = as_dict(archive)
    drawn = archive.sample(jax.random.key(0), 4000)
    assert drawn.genotype.shape == (4000, 3)
    assert drawn.extras["path"].shape == (4000, 3, 2)
    share = np.bincount(drawn.cell, minlength=GRID.count) / 4000
    np.testing.assert_array_equal(np.flatnonzero(share), sorted(held))
    assert np.abs(share[sorted(held)] - 1 / len(held)).max() < 0.03  # about four standard deviations
    for i in range(5):
        assert plain(jax.tree.map(lambda leaf, i=i: leaf[i], drawn)) == held[drawn.cell[i]]
    np.testing.assert_array_equal(archive.sample(jax.random.key(0), 4000).cell, drawn.cell)


@pytest.mark.parametrize("cells", [GRID, VORONOI])
def test_merge_adds_the_elites_of_the_other_archive(cells):
    one, other = filled(5), filled(6, cells, n=20)
    merged, expected = one.merge(other), as_dict(one)
    for each in as_dict(other).values():
        cell = int(GRID.index(np.float32(each[2])))
        if cell not in expected or each[1] > expected[cell][1]:
            expected[cell] = each
    assert as_dict(merged) == expected
    assert as_dict(merged) != as_dict(one)
    assert as_dict(merged.merge(one)) == expected
    assert as_dict(merged.merge(empty(cells, 3, EXTRAS))) == expected


def test_wrong_shapes_and_extras_and_empty_archives_are_refused():
    archive, batch = filled(7), rows(np.random.default_rng(7), 4)
    refused = {
        r"genotypes must have shape \(4, 3\), got \(4, 2\)": {"genotypes": np.zeros((4, 2))},
        r"feature must have shape \(4, 2\)": {"feature": np.zeros(4)},
        r"fitness must have shape \(4,\), got \(\)": {"fitness": 1.0},
        r"extras must have the archive's extras \(code, energy, fell, path\), got none": {
            "extras": None
        },
        "got code, energy, fell, path, size": {"extras": batch["extras"] | {"size": np.zeros(4)}},
        r"extras\['path'\] must have shape \(4, 3, 2\)": {"extras": batch["extras"] | {"path": [0] * 4}},
    }
    for sentence, wrong in refused.items():
        with pytest.raises(UsageError, match=sentence):
            archive.add(**batch | wrong)
    for sentence, other in {
        "other must have genotypes of 3 entries, got 2": empty(GRID, 2, EXTRAS),
        "other must have feature of 2 entries, got 1": empty(
            Grid(jnp.zeros(1), jnp.ones(1), (5,)), 3, EXTRAS
        ),
        "other must have the archive's extras .* got none": empty(GRID, 3),
    }.items():
        with pytest.raises(UsageError, match=sentence):
            archive.merge(other)
    nothing = empty(GRID, 3)
    for call in (
        nothing.best,
        lambda: nothing.nearest([0, 0]),
        lambda: nothing.sample(jax.random.key(0), 1),
    ):
        with pytest.raises(UsageError, match="the archive is empty"):
            call()


def test_columns_has_a_column_for_every_scalar_extra():
    archive = filled(8)
    held = as_dict(archive)
    table = archive.columns(["x", "energy"])
    assert list(table) == [
        *("cell", "fitness", "generation", "lane", "x", "energy", "code", "energy [extra]", "fell")
    ]
    np.testing.assert_array_equal(table["cell"], sorted(held))
    np.testing.assert_array_equal(table["code"], [held[cell][5] for cell in sorted(held)])
    np.testing.assert_array_equal(table["energy [extra]"], [held[cell][6] for cell in sorted(held)])
    frame = archive.to_pandas(["x", "energy"])
    np.testing.assert_array_equal(frame.index, sorted(held))
    assert "code, energy, fell, path" in repr(archive)


def test_plot_equals_the_function_of_memes_plot():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, ax = pyplot.subplots()
    archive = filled(9)
    assert archive.plot(ax) is figure
    image = ax.images[0].get_array()
    assert memes.plot.archive(archive).axes[0].images[0].get_array().shape == image.shape
    assert len(archive.plot().axes) == 2  # the image and its colour bar
    pyplot.close(figure)
