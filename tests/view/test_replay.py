import dataclasses
import inspect
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.analysis import plot
from memes.archive import add, empty
from memes.commands.main import main
from memes.commands.replay import replay
from memes.options.from_run import task_from_run
from memes.task import Map
from memes.tasks.robot import footprints
from memes.view import elites, pictures
from memes.view.recordings import episodes


@pytest.fixture(scope="module")
def ant(ant_run):
    run = memes.load_run(ant_run)
    return run, task_from_run(run)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def changed(folder, **changes):
    """Return a copy of a run folder with changes in config.json."""
    shutil.copytree(folder, "copy")
    file = Path("copy/config.json")
    config = json.loads(file.read_text())
    options = config["options"] | changes.pop("options", {})
    file.write_text(json.dumps(config | {"options": options} | changes))
    return "copy"


def archive_with(cells, features, fitness=None):
    n = len(features)
    fitness = jnp.arange(n, dtype=float) if fitness is None else jnp.asarray(fitness)
    evaluation = memes.Evaluation(fitness, jnp.asarray(features))
    offered, lane = jnp.ones(n, bool), jnp.zeros(n, int)
    return add(empty(cells, 3), jnp.ones((n, 3)), evaluation, offered, lane=lane, generation=0)[0]


def box(k=2):
    return memes.Task(
        name="box",
        dim=3,
        feature_low=(0.0,) * k,
        feature_high=(1.0,) * k,
        init=memes.uniform(3, 0.0, 1.0),
        evaluate=lambda keys, x: (x[:, 0], x[:, :k]),
    )


# ------------------------------------------------------------------------------------------ elites


def test_a_cell_is_given_by_its_index_or_its_coordinates():
    archive = archive_with(memes.cells.grid(box(), (3, 4)), [(0.5, 0.1), (0.9, 0.9)])
    assert elites.at_cell(archive, [4]) == elites.at_cell(archive, (1, 0)) == 4
    assert elites.at_cell(archive, (2, 3)) == 11
    assert elites.name(archive.cells, 4) == "4 (1 0)"
    assert elites.fittest(archive) == 11


def test_near_feature_measures_distances_in_units_of_the_bounds():
    task = dataclasses.replace(box(), feature_high=(100.0, 1.0))
    archive = archive_with(memes.cells.grid(task, (10, 10)), [(42.0, 0.15), (10.0, 0.9)])
    assert elites.near_feature(archive, (12.0, 0.2)) == elites.at_cell(archive, (4, 1))


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ((0,), "cell 0 (0 0) is empty; the nearest occupied cell is 4 (1 0)"),
        ((2, 2), "cell 10 (2 2) is empty; the nearest occupied cell is 11 (2 3)"),
        ((12,), "cell must lie in 0 ... 11, got 12"),
        ((-1,), "cell must lie in 0 ... 11, got -1"),
        ((1, 4), "cell must lie in 0 ... 2 x 0 ... 3, got '1 4'"),
        ((1, 2, 3), "cell must be an index, or 2 coordinates on the grid, got '1 2 3'"),
    ],
)
def test_a_cell_that_cannot_be_replayed_gives_an_error_message(cell, sentence):
    archive = archive_with(memes.cells.grid(box(), (3, 4)), [(0.5, 0.1), (0.9, 0.9)])
    with pytest.raises(memes.UsageError) as error:
        elites.at_cell(archive, cell)
    assert str(error.value) == sentence


def test_cells_of_a_tessellation_have_an_index_only():
    cells = memes.cells.cvt(jax.random.key(0), box(), 5, points=100)
    archive = archive_with(cells, cells.centroids[:1])
    assert elites.at_cell(archive, [0]) == 0
    assert elites.name(cells, 0) == "0"
    with pytest.raises(memes.UsageError, match="cell 3 is empty; the nearest occupied cell is 0"):
        elites.at_cell(archive, [3])
    with pytest.raises(memes.UsageError, match="cell must be an index, got '1 2'"):
        elites.at_cell(archive, [1, 2])


def test_an_empty_archive_cannot_be_replayed():
    archive = empty(memes.cells.grid(box(), (3, 4)), 3)
    for choose in (elites.fittest, lambda a: elites.at_cell(a, [1]), elites.elites):
        with pytest.raises(memes.UsageError, match="archive of this run is empty"):
            choose(archive)


# ---------------------------------------------------------------------------------------- episodes


def test_the_states_of_an_episode_agree_with_the_simulator(ant):
    run, task = ant
    x = run.archive.genotypes[elites.fittest(run.archive)]
    environment, controller = task.control.environment, task.control.controller
    (episode,) = episodes(task, x, seed=3)

    key = jax.random.fold_in(jax.random.key(3), 0)
    state = environment.reset(key[None])
    states = [environment.engine.qpos(state)[0]]
    parameters = controller.parameters(x[None])
    for t in range(environment.steps):
        action = controller.act(parameters, environment.observe(state), jnp.asarray(t))
        state = environment.step(state, action)
        states.append(environment.engine.qpos(state)[0])
        if environment.ended(state)[0]:
            break
    assert episode.qpos.shape == (len(states), environment.engine.model.nq)
    np.testing.assert_allclose(episode.qpos, np.stack(states), atol=1e-4)


def test_the_score_of_an_episode_agrees_with_the_task(ant):
    run, task = ant
    x = run.archive.genotypes[elites.fittest(run.archive)]
    (episode,) = episodes(task, x, seed=3)
    key = jax.random.fold_in(jax.random.key(3), 0)
    fitness, feature, *_ = jax.jit(task.evaluate)(key[None], x[None])
    assert episode.fitness == pytest.approx(float(fitness[0]), rel=1e-3)
    np.testing.assert_allclose(episode.feature, feature[0], atol=0.051)  # one contact may differ


def test_draws_have_different_starts_that_do_not_depend_on_their_number(ant):
    run, task = ant
    x = run.archive.genotypes[elites.fittest(run.archive)]
    (alone,) = episodes(task, x, seed=5)
    first, second = episodes(task, x, seed=5, draws=2)
    np.testing.assert_allclose(alone.qpos[0], first.qpos[0])
    assert not np.allclose(first.qpos[0], second.qpos[0])
    assert not np.allclose(first.qpos[0], episodes(task, x, seed=6)[0].qpos[0])


def test_a_replay_stops_at_the_end_of_the_episode(ant):
    _, task = ant

    def over(state):
        return task.control.environment.engine.qpos(state)[:, 2] > -1  # always true

    environment = dataclasses.replace(task.control.environment, ended=over)
    control = task.control._replace(environment=environment)
    short = dataclasses.replace(task, control=control)
    (episode,) = episodes(short, jnp.zeros(task.dim))
    assert len(episode.qpos) == 2


# ----------------------------------------------------------------------------------- rebuilt tasks


def test_a_task_is_rebuilt_with_its_options_on_a_backend_of_this_machine(ant_run):
    options = {"steps": 7, "hidden": [64, 64], "uncertain": False, "backend": "cuda"}
    task = task_from_run(memes.load_run(changed(ant_run, options=options)))
    assert task.control.environment.steps == 7
    assert not task.uncertain
    assert task.control.environment.engine.backend in ("native", "xla")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"options": {"hidden": [3]}}, "has genotypes of 6472 entries and 4 features, but task 'ant'"),
        ({"options": {"steps": "many"}}, "steps of the run in 'copy' must be int, got 'many'"),
        ({"options": {"fidelity": "none"}}, "fidelity of the run in 'copy' must be"),
        ({"task": "my-ant"}, "has a task 'my-ant' that was made in Python"),
        ({"task": "noisy-arm"}, "does not record joints"),
        ({"task": "mine.py:task"}, "if you trust it, name it with --task mine.py:task"),
    ],
)
def test_a_run_whose_task_cannot_be_rebuilt_gives_an_error_message(ant_run, changes, sentence):
    Path("mine.py").write_text("from pathlib import Path\nPath('executed').touch()\ntask = 3\n")
    with pytest.raises(memes.UsageError) as error:
        task_from_run(memes.load_run(changed(ant_run, **changes)))
    assert sentence in str(error.value)
    assert not Path("executed").exists()


def test_a_custom_task_must_be_given_again(ant_run, ant):
    Path("mine.py").write_text(
        "import memes\ndef make(*, steps: int = 3):\n    return memes.tasks.ant(steps=steps)\n"
    )
    run = memes.load_run(changed(ant_run, task="mine.py:make"))
    assert task_from_run(run, "mine.py:make").control.environment.steps == 20  # an option of the run


# ---------------------------------------------------------------------------------------- pictures


@pytest.fixture
def renderer():
    try:
        return pictures.library()
    except memes.UsageError as error:
        pytest.skip(str(error))


def test_a_sheet_shows_the_robot_at_twelve_times(renderer, ant):
    run, task = ant
    (episode,) = episodes(task, run.archive.genotypes[elites.fittest(run.archive)])
    model = task.control.environment.engine.model
    figure = pictures.sheet_figure(model, episode.qpos, seconds=0.05)
    shown = [ax.images[0].get_array() for ax in figure.axes if ax.images]
    assert len(shown) == 12
    assert min(picture.std() for picture in shown) > 10
    assert (shown[0] != shown[-1]).any()
    assert [ax.texts[0].get_text() for ax in figure.axes][:: len(shown) - 1] == ["0.00 s", "1.00 s"]


def test_frames_show_the_given_states(renderer, ant):
    _, task = ant
    model = task.control.environment.engine.model
    states = np.tile(model.qpos0, (2, 1))
    states[1, 2] += 0.5  # the camera rises with the robot, so the floor is farther away
    first, second, again = pictures.frames(model, states[[0, 1, 0]], width=64, height=48)
    assert first.shape == (48, 64, 3)
    assert (first == again).all()
    assert (first != second).mean() > 0.05


def test_without_a_renderer_an_error_message_names_a_remedy(ant_run, capsys, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(pictures, "_works", lambda name: False)
    pictures.library.cache_clear()
    assert main(["replay", str(ant_run), "--sheet", "sheet.png"]) == 2
    printed = capsys.readouterr().err
    assert "pictures cannot be drawn here" in printed
    assert printed.count("\n") == 1
    monkeypatch.setenv("MUJOCO_GL", "glx")
    assert main(["replay", str(ant_run), "--video", "video.gif"]) == 2
    assert "MUJOCO_GL=glx cannot draw pictures here" in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_the_search_for_a_renderer_runs_no_code_of_the_current_folder(monkeypatch):
    """A run folder from another person may contain modules with the names of imported modules."""
    for name in ("mujoco", "importlib", "OpenGL", "sitecustomize"):
        Path(f"{name}.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for path in (None, "", ".", f":{Path(memes.__file__).parents[1]}"):
        if path is not None:
            monkeypatch.setenv("PYTHONPATH", path)
        pictures._works("egl")
        assert not Path("executed").exists()


def test_egl_is_tried_first_then_osmesa(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    for works in (["egl", "osmesa"], ["osmesa"]):
        monkeypatch.setattr(pictures, "_works", lambda name, works=works: name in works)
        pictures.library.cache_clear()
        assert pictures.library() == works[0]
    pictures.library.cache_clear()


# ------------------------------------------------------------------------------------- the command


def test_replay_writes_the_requested_files_and_prints_the_episode(renderer, ant_run, ant, capsys):
    run, task = ant
    cell = elites.fittest(run.archive)
    files = {"sheet": "sheet.png", "video": "video.gif", "paths": "paths.png"}
    words = [word for option, file in files.items() for word in (f"--{option}", file)]
    assert main(["replay", str(ant_run), "--best", *words, "--draws", "3"]) == 0
    printed = capsys.readouterr().out
    assert f"ant, cell {elites.name(run.archive.cells, cell)}" in printed
    table = {line[:38].strip(): line[38:].split() for line in printed.splitlines()}
    assert table[""] == ["stored", "this", "episode"]
    assert table["fitness"][0] == f"{run.archive.fitness[cell]:.4g}"
    for name, value in zip(task.feature_names, run.archive.feature[cell], strict=True):
        assert table[name][0] == f"{value:.4g}"
    assert "final x of 3 episodes: mean" in printed
    for file in files.values():
        assert Path(file).stat().st_size > 1000
        assert file in printed
    from PIL import Image

    with Image.open("video.gif") as video:
        assert video.n_frames == 21


@pytest.mark.parametrize("choice", [["--random"], ["--feature", "0.5", "0.5", "0.5", "0.5"], ["--cell"]])
def test_the_chosen_elite_is_shown_in_the_browser(choice, ant_run, ant, monkeypatch):
    run, _ = ant
    if choice == ["--cell"]:
        choice = ["--cell", str(elites.elites(run.archive)[0])]
    shown = []
    monkeypatch.setattr("memes.commands.replay.browse", lambda *what, **how: shown.append((what, how)))
    assert main(["replay", str(ant_run), *choice, "--port", "9000", "--seed", "3"]) == 0
    (((folders, rebuild), how),) = shown
    assert folders == [ant_run]
    assert rebuild(run).name == "ant"
    assert how["chosen"] in elites.elites(run.archive)
    assert (how["port"], how["seed"]) == (9000, 3)


def test_an_invalid_port_gives_an_error_message(ant_run, capsys):
    pytest.importorskip("viser", reason="the extra 'view' is not installed")
    assert main(["replay", str(ant_run), "--port", "99999"]) == 2
    printed = capsys.readouterr()
    assert "port must lie in 1 ... 65535, got 99999" in printed.err


WRONG = {
    "RUN is missing": [],
    "RUN is missing: memes replay": ["--best"],
    "'nothing' does not contain a run": ["nothing", "--paths", "paths.png"],
    "video must be a file ending in .mp4, .gif or .webp, got 'a.avi'": ["RUN", "--video", "a.avi"],
    "size must be two even numbers from 16 to 4096, got '640 481'": [
        "RUN",
        "--video",
        "video.gif",
        "--size",
        "640",
        "481",
    ],
    "rate must lie in 0.1 ... 240 pictures per second, got 0.0": [
        "RUN",
        "--video",
        "video.gif",
        "--rate",
        "0",
    ],
    "sheet must be a file ending in .png, got 'sheet.jpg'": ["RUN", "--sheet", "sheet.jpg"],
    "there is no folder 'nowhere'": ["RUN", "--paths", "nowhere/paths.png"],
    "exclude each other": ["RUN", "--best", "--cell", "3", "--paths", "paths.png"],
    "cell must lie in 0 ... 1295": ["RUN", "--cell", "5000", "--paths", "paths.png"],
    "is empty; the nearest occupied cell is": ["RUN", "--cell", "0", "--paths", "paths.png"],
    "feature must have 4 entries": ["RUN", "--feature", "0.5", "--paths", "paths.png"],
    "draws must be at least 1, got 0": ["RUN", "--draws", "0", "--paths", "paths.png"],
    "seed must lie in": ["RUN", "--seed", "-1", "--paths", "paths.png"],
    "unknown task 'antt': did you mean 'ant'": ["RUN", "--task", "antt", "--paths", "paths.png"],
    "but task 'arm' has": ["RUN", "--task", "arm", "--paths", "paths.png"],
    "task 'arm' has no robot to replay": ["ARM", "--sheet", "sheet.png"],
    "needs the extra view": ["RUN"],
    "needs the program ffmpeg": ["RUN", "--video", "video.mp4"],
    "unknown option '--vidoe': did you mean '--video'?": ["RUN", "--vidoe", "video.mp4"],
    "--cell must be INT [INT ...]": ["RUN", "--cell", "first"],
}


@pytest.fixture(scope="module")
def arm_run(ant_run, tmp_path_factory):
    folder = shutil.copytree(ant_run, tmp_path_factory.mktemp("runs") / "arm")
    archive = archive_with(memes.cells.grid(box(), (3, 4)), [(0.5, 0.1)])
    memes.save_archive(folder / "archive.npz", archive)
    config = {"format_version": 1, "task": "arm", "algorithm": "me", "seed": 0, "options": {"joints": 3}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(("sentence", "arguments"), WRONG.items(), ids=WRONG)
def test_wrong_use_gives_an_error_and_exit_code_2_and_writes_nothing(
    sentence, arguments, ant_run, arm_run, capsys, monkeypatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    folders = {"RUN": str(ant_run), "ARM": str(arm_run)}
    try:
        code = main(["replay", *(folders.get(word, word) for word in arguments)])
    except SystemExit as stopped:
        code = stopped.code
    printed = capsys.readouterr()
    assert code == 2
    assert sentence in printed.err
    assert printed.out == ""
    assert not list(Path().iterdir())


def test_help_explains_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["replay", "--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    for name in inspect.signature(replay).parameters:
        assert name == "run" or f"--{name} " in printed


# -------------------------------------------------------------------------------------------- maps


def test_walls_are_fixed_upright_boxes():
    import mujoco

    model = mujoco.MjModel.from_xml_string("""
      <mujoco><worldbody>
        <geom type="box" pos="4 1 0" size="1 0.5 2" euler="0 0 90"/>
        <geom type="box" pos="9 9 0" size="1 1 1" euler="30 0 0"/>
        <geom type="plane" size="1 1 1"/>
        <body pos="2 0 0"><geom type="box" size="0.5 0.25 1"/></body>
        <body><freejoint/><geom type="box" size="1 1 1"/></body>
      </worldbody></mujoco>""")
    turned, fixed = (sorted(outline) for outline in footprints(model))
    np.testing.assert_allclose(turned, [(3.5, 0), (3.5, 2), (4.5, 0), (4.5, 2)], atol=1e-6)
    np.testing.assert_allclose(fixed, [(1.5, -0.25), (1.5, 0.25), (2.5, -0.25), (2.5, 0.25)], atol=1e-6)


@pytest.mark.long
def test_the_positions_figure_of_the_trap_shows_its_walls(quick, capsys):
    assert main(["run", "ant-trap", *quick, "--out", "run", "--quiet"]) == 0
    assert Path("run/figures/positions.png").exists()
    walls = json.loads(Path("run/config.json").read_text())["map"]["walls"]
    assert len(walls) == 3
    assert max(x for wall in walls for x, _ in wall) == 12.5
    capsys.readouterr()
    assert main(["plot", "run"]) == 0
    assert capsys.readouterr().out.split()[-1] == "run/figures/positions.png"


@pytest.mark.parametrize("features", [[(0.1, 0.1), (0.6, 0.2), (0.9, 0.9)], np.zeros((0, 2))])
def test_positions_counts_elites_beyond_the_goal(features, tmp_path):
    archive = archive_with(memes.cells.grid(box(), (5, 5)), features)
    figure = plot.positions(archive, map=Map(goal=0.5))
    figure.savefig(tmp_path / "positions.png")
    beyond = sum(x > 0.5 for x, _ in features)
    assert figure.axes[0].get_title() == f"{len(features)} elites, {beyond} of them beyond x = 0.5"


def test_paths_have_a_colour_for_each_label():
    paths = {"one": [np.zeros((3, 2)), np.ones((5, 2))], "two": [np.ones((2, 2))]}
    axes = plot.paths(paths).axes[0]
    colours = [line.get_color() for line in axes.lines if len(line.get_xdata()) > 1]
    assert colours[0] == colours[1] != colours[2]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]


def test_robots_without_lights_and_cameras_are_lit_and_completely_visible(renderer):
    import mujoco

    for size in (0.1, 3.0):
        model = mujoco.MjModel.from_xml_string(
            f"""<mujoco><visual><headlight active="0"/></visual><worldbody>
            <body pos="{50 * size} 0 {size}"><freejoint/><geom type="box" size="{size} {size} {size}"/>
            </body></worldbody></mujoco>"""
        )
        (picture,) = pictures.frames(model, model.qpos0[None], width=120, height=90)
        shown = picture.max(axis=2) > 30
        assert 0.05 < shown.mean() < 0.6
        assert not shown[[0, -1]].any()
        assert not shown[:, [0, -1]].any()


def test_a_robot_and_a_ground_without_colours_differ_in_brightness(renderer):
    import mujoco

    model = mujoco.MjModel.from_xml_string(
        """<mujoco><worldbody><geom type="plane" size="0 0 1"/>
        <body pos="0 0 0.3"><freejoint/><geom type="box" size="0.3 0.3 0.3"/></body>
        </worldbody></mujoco>"""
    )
    (picture,) = pictures.frames(model, model.qpos0[None], width=120, height=90)
    brightness = picture.mean(axis=2)
    assert brightness[45, 60] > 1.3 * brightness[88, 5] > 0
