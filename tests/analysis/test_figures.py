import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import memes
from boxes import box
from memes.analysis import plot
from memes.analysis.end_of_run import Figures, save_figures
from memes.analysis.render import PRINT, fitness_of, layout, render, scale_of
from memes.archive import add, empty
from memes.estimates import Correction
from memes.store.schema import Provenance, RunConfig
from memes.task import Map


def filled(task, cells, x):
    n = len(x)
    archive, _ = add(
        empty(cells, task.dim),
        x,
        memes.Evaluation(*task.evaluate(None, x)),
        jnp.ones(n, bool),
        lane=jnp.zeros(n, int),
        generation=0,
    )
    return archive


def test_a_tessellation_is_drawn_cell_by_cell():
    task = box(2)
    cells = memes.cells.cvt(jax.random.key(0), task, 7, points=300)
    archive = filled(task, cells, cells.centroids)
    image = plot.archive(archive).axes[0].images[0]
    assert image.get_extent() == [0.0, 1.0, 0.0, 1.0]
    picture, fitness = np.asarray(image.get_array()), np.asarray(cells.centroids)[:, 0]
    wanted = scale_of([fitness]).mappable().to_rgba(fitness, bytes=True)[:, :3]
    for centroid, colour in zip(np.asarray(cells.centroids), wanted, strict=True):
        x, y = (centroid * picture.shape[1::-1]).astype(int)
        np.testing.assert_allclose(picture[-1 - y, x], colour, atol=1)


def random_archive(k, cells=None):
    task = box(k)
    cells = cells or memes.cells.grid(task, (3,) * k)
    return filled(task, cells, jax.random.uniform(jax.random.key(0), (20, k)))


@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
def test_a_picture_shows_each_elite_once(k):
    archive = random_archive(k)
    shown = np.asarray(plot.archive(archive).axes[0].images[0].get_array())
    at = layout(archive.cells)
    filled = (shown != PRINT.empty).any(axis=-1) & (at.tile >= 0)
    occupied = np.flatnonzero(np.asarray(archive.occupied))
    np.testing.assert_array_equal(np.unique(at.tile[filled]), occupied)
    assert filled.sum() == np.isin(at.tile, occupied).sum()


def test_an_archive_of_one_feature_is_drawn_as_steps():
    archive = random_archive(1)
    figure = plot.archive(archive)
    (axes,) = figure.axes  # there is no colour bar
    heights, edges, _ = axes.patches[0].get_data()
    np.testing.assert_array_equal(heights, np.where(archive.occupied, archive.fitness, np.nan))
    np.testing.assert_allclose(edges, np.linspace(0, 1, 4))
    assert axes.get_ylabel() == "fitness"


@pytest.mark.parametrize("kind", ["many features", "a tessellation"])
def test_parallel_axes_have_a_line_for_each_elite_and_a_name_for_each_feature(kind):
    k = {"many features": 7, "a tessellation": 3}[kind]
    task = box(k)
    cells = None if k == 7 else memes.cells.cvt(jax.random.key(0), task, 9, points=300)
    archive = random_archive(k, cells)
    axes = plot.archive(archive).axes[0]
    lines = axes.collections[0].get_segments()
    assert len(lines) == int(archive.occupied.sum())
    assert [label.get_text() for label in axes.get_xticklabels()] == list(task.feature_names)
    # The figure has one line per elite. The fittest elite has the last line. On a grid, this line lies
    # within the cell of the elite.
    middle = memes.cells.centres(archive.cells)[int(jnp.argmax(archive.fitness))]
    np.testing.assert_allclose(lines[-1][:, 1], middle, atol=0.4 / 3 if k == 7 else 1e-6)


@pytest.mark.parametrize("k", [2, 4, 6])
def test_axis_labels_name_the_outermost_feature_first(k):
    axes, names = plot.archive(random_archive(k)).axes[0], box(k).feature_names
    for label, first in ((axes.get_xlabel(), 0), (axes.get_ylabel(), 1)):
        outer, *inner = range(first, k, 2)[::-1]
        wanted = [f"{where}{names[i]}, 0 to 1" for where, i in zip(WHERE, inner, strict=False)]
        assert label.splitlines() == [names[outer], *wanted]
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert k == 2 or ticks == ["0", "0.33", "0.67", "1"]


WHERE = ("in each block: ", "in each of those: ")


@pytest.mark.parametrize("k", [3, 5])
def test_with_an_odd_number_of_features_blocks_of_the_last_one_have_titles(k):
    axes, names = plot.archive(random_archive(k)).axes[0], box(k).feature_names
    assert [text.get_text() for text in axes.texts] == [
        "0 \N{EN DASH} 0.33",
        "0.33 \N{EN DASH} 0.67",
        "0.67 \N{EN DASH} 1",
    ]
    across, up = axes.get_xlabel().splitlines(), axes.get_ylabel().splitlines()
    assert across[0] == f"blocks: {names[-1]}"
    for lines, first in ((across[1:], 0), (up, 1)):
        inner = range(first, k - 1, 2)[::-1]
        assert lines == [f"{where}{names[i]}, 0 to 1" for where, i in zip(WHERE, inner, strict=False)]
    assert not [*axes.get_xticks(), *axes.get_yticks()]


def test_a_corrected_archive_is_drawn_next_to_the_illusory_one_in_the_same_colours():
    task, cells = box(2), memes.cells.grid(box(2), (3, 3))
    x = jax.random.uniform(jax.random.key(0), (20, 2))
    illusory, corrected = filled(task, cells, x), filled(task, cells, x[:4] - 0.2)
    figure = plot.archive(illusory, corrected=corrected)
    scale = scale_of(map(fitness_of, (illusory, corrected)))
    for axes, archive in zip(figure.axes[:2], (illusory, corrected), strict=True):
        wanted = render(layout(cells), fitness_of(archive), scale)
        np.testing.assert_array_equal(axes.images[0].get_array(), wanted)
        assert f"{int(archive.occupied.sum())} of 9 cells" in axes.get_title()
    assert figure.axes[2].get_ylim() == pytest.approx((scale.low, scale.high))


def corrected_run(archive):
    """Return a run with an archive whose elites have fitness variances 0, 1, 4, ..."""
    cell = np.flatnonzero(archive.occupied)
    variance, k = np.arange(cell.size) ** 2.0, archive.feature.shape[1]
    correction = Correction(archive, cell, variance, np.zeros((cell.size, k)), 8)
    config = RunConfig(task="box", algorithm="me", seed=0)
    return memes.Run(None, config, Provenance(), None, {}, {}, archive, {}, correction)


@pytest.mark.parametrize("k", [1, 2])
def test_uncertainty_shows_the_deviation_of_each_elite(k):
    archive = random_archive(k)
    run = corrected_run(archive)
    axes, *bars = plot.uncertainty(run).axes
    std = np.full(archive.cells.count, np.nan)
    std[run.correction.elite_cell] = np.arange(len(run.correction.elite_cell))
    if k == 1:
        np.testing.assert_array_equal(axes.patches[0].get_data()[0], std)
        assert axes.get_ylabel() == "standard deviation of the fitness, 8 evaluations"
    else:
        wanted = render(layout(archive.cells), std, scale_of([std]))
        np.testing.assert_array_equal(axes.images[0].get_array(), wanted)
        assert bars[0].get_ylabel() == "standard deviation of the fitness, 8 evaluations"
    with pytest.raises(memes.UsageError, match="source must be a corrected run"):
        plot.uncertainty(run._replace(correction=None))


def test_distributions_count_the_elites_of_each_archive():
    one, two = random_archive(2), random_archive(1)
    sources = {"one": one, "two": corrected_run(two)}
    axes = plot.histogram(sources, bins=7).axes[0]
    edges = axes.patches[0].get_data().edges
    for patch, archive in zip(axes.patches, (one, two), strict=True):
        fitness = np.asarray(archive.fitness)[np.asarray(archive.occupied)]
        np.testing.assert_array_equal(patch.get_data().values, np.histogram(fitness, edges)[0])
        assert patch.get_data().values.sum() == fitness.size
    for line, archive in zip(plot.ecdf(sources).axes[0].lines, (one, two), strict=True):
        fitness = np.sort(np.asarray(archive.fitness)[np.asarray(archive.occupied)])
        x, y = line.get_data()
        np.testing.assert_array_equal(np.asarray(x)[1:], fitness)
        np.testing.assert_allclose(np.asarray(y)[1:], np.arange(1, fitness.size + 1) / fitness.size)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]
    with pytest.raises(memes.UsageError, match="the archive of 'none' is empty"):
        plot.ecdf({"one": one, "none": empty(one.cells, 1)})
    with pytest.raises(memes.UsageError, match="at least one run or archive"):
        plot.histogram({})


def test_cells_of_three_features_are_drawn_in_3d():
    task = box(3)
    archive = random_archive(3, memes.cells.cvt(jax.random.key(0), task, 9, points=300))
    axes = plot.space(archive).axes[0]
    occupied = np.flatnonzero(archive.occupied)
    x, y, z = axes.collections[0]._offsets3d
    expected = memes.cells.centres(archive.cells)[occupied]
    np.testing.assert_allclose(np.stack([x, y, z], axis=1), expected)
    np.testing.assert_array_equal(axes.collections[0].get_array(), np.asarray(archive.fitness)[occupied])
    assert [axes.get_xlabel(), axes.get_zlabel()] == [task.feature_names[0], task.feature_names[2]]
    with pytest.raises(memes.UsageError, match="source must have three features, got 2"):
        plot.space(random_archive(2))


def test_an_archive_is_drawn_into_given_axes():
    archive = random_archive(2)
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot.archive(archive, ax=right) is figure
    assert not left.images
    np.testing.assert_array_equal(
        right.images[0].get_array(), plot.archive(archive).axes[0].images[0].get_array()
    )
    assert len(figure.axes) == 3  # including the colour bar
    with pytest.raises(memes.UsageError, match="ax can show only one archive"):
        plot.archive(archive, ax=left, corrected=archive)


def test_a_wall_with_two_corners_is_drawn():
    def drawn(*walls):
        figure = plot.paths({"a": [np.zeros((2, 2))]}, map=Map(walls=walls))
        figure.axes[0].set_xlim(-1, 2)
        figure.axes[0].set_ylim(-1, 2)
        return pixels(figure)

    assert (drawn(((1.0, 0.0), (1.0, 1.0))) != drawn()).any(axis=-1).sum() > 100


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run in a folder."""
    task = box(2)
    algorithm = memes.presets.me(task, memes.cells.grid(task, (40, 40)), batch=4)
    return memes.run(
        algorithm, generations=15, out=tmp_path_factory.mktemp("runs") / "a", progress=False
    )


def test_tick_labels_equal_their_values(run):
    """The coverage is only a few per cent, so its tick labels need decimals."""
    figure = plot.curves(run)
    FigureCanvasAgg(figure).draw()
    axis = figure.axes[1].yaxis
    assert 0 < run.metrics["coverage"][-1] < 0.05
    assert len(axis.get_majorticklocs()) > 3
    for place, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True):
        assert float(label.get_text().rstrip("%").replace("\N{MINUS SIGN}", "-")) == pytest.approx(
            100 * place
        )


def pixels(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())


def test_runs_archives_and_their_paths_give_the_same_figure(run):
    def picture(source):
        return np.asarray(plot.archive(source).axes[0].images[0].get_array())

    sources = [run.archive, run.folder, str(run.folder), run.folder / "archive.npz"]
    for source in sources:
        np.testing.assert_array_equal(picture(source), picture(run))
    np.testing.assert_array_equal(pixels(plot.archive(run.folder)), pixels(plot.archive(run)))
    np.testing.assert_array_equal(pixels(plot.curves(run.folder)), pixels(plot.curves(run)))


def test_notebooks_show_figures(run):
    assert plot.curves(run)._repr_png_().startswith(b"\x89PNG")


def test_save_figures_writes_the_figures_of_a_run_again(run):
    shown = set((run.folder / "figures").iterdir())
    assert {file.stem for file in shown} == {"archive", "curves"}
    assert set(save_figures(run)) == shown
    for file in shown:
        assert file.read_bytes().startswith(b"\x89PNG")
    assert save_figures(run._replace(folder=None)) == []


def test_a_run_without_elites_is_drawn(run, tmp_path):
    metrics = {name: np.zeros_like(values) for name, values in run.metrics.items()}
    metrics["max_fitness"] = np.full_like(run.metrics["max_fitness"], -np.inf)
    bare = run._replace(archive=empty(run.archive.cells, 2), metrics=metrics, folder=tmp_path)
    assert [file.stem for file in save_figures(bare)] == ["archive", "curves"]
    assert (pixels(plot.archive(bare)) != pixels(plot.archive(run))).any()


def test_figures_are_drawn_only_on_request(tmp_path):
    task = box(2)
    algorithm = memes.presets.me(task, memes.cells.grid(task, (3, 3)), batch=4)
    options = {"generations": 2, "out": tmp_path / "run", "progress": False}
    memes.run(algorithm, observers=[Figures(draw=False)], **options)
    assert (tmp_path / "run/summary.json").exists()
    assert not (tmp_path / "run/figures").exists()
    with pytest.raises(memes.UsageError, match="draw must be bool, got 'no'"):
        Figures(draw="no")


def test_names_of_features_are_not_rendered_as_formulas():
    task = replace(box(2), feature_names=("$x_2$ (m)", "speed"))
    algorithm = memes.presets.me(task, memes.cells.grid(task, (3, 3)), batch=4)
    run = memes.run(algorithm, generations=1, progress=False)
    for figure in (plot.archive(run), plot.positions(run)):
        assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == (r"\$x_2\$ (m)", "speed")
        assert pixels(figure).any()


def test_wrong_sources_give_error_messages(run):
    wrong = {
        "source must be Run or Archive or str or Path, got 3": lambda: plot.archive(3),
        "source must be Run or str or Path, got": lambda: plot.curves(run.archive),
        "source must be a run or its folder, got the archive '": lambda: plot.curves(
            run.folder / "archive.npz"
        ),
        "'nothing'": lambda: plot.archive("nothing"),
        "runs: there is no file or folder 'nothing'": lambda: plot.compare("nothing"),
        "unknown argument of archive 'maps': did you mean 'map'": lambda: plot.archive(run, maps=None),
    }
    for sentence, call in wrong.items():
        with pytest.raises(memes.UsageError) as refused:
            call()
        assert sentence in str(refused.value)


def test_plot_functions_are_public():
    program = "import memes; print(memes.plot.archive.__module__)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "memes.analysis.plot"
