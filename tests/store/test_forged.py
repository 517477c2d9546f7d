"""Forged run folders: links, pipes, decompression bombs and invalid content.

Commands that read, plot, compare or resume such folders print a one-line error message. They write
nothing outside the folder, and need no more memory than the size of the folder justifies.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import memes
from folder_contents import contents
from memes import UsageError
from memes.commands.main import main
from memes.store import files, folder
from memes.store.summary import load_summary

OLD = Path(__file__).parents[1] / "data/run-0.1"
CONTENT = sorted(path.name for path in OLD.iterdir())
FOLDERS = ("checkpoints", "figures", "tensorboard", "export")
RESUME = ["--generations", "31", "--quiet"]
COMMANDS = {
    "plot": [],
    "export": ["--to", "csv"],
    "video": ["--out", "video.gif"],
    "compare": ["--out", "comparison"],
    "resume": RESUME,
    "reevaluate": ["--samples", "2", "--quiet"],
    "view": [],
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in a folder with a run, a valuable file and a folder with valuable files."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OLD, "run")
    Path("mine").mkdir()
    for name in ("mine/00000001.npz.tmp", "mine/archive.png", "valuable"):
        Path(name).write_text("valuable")
    monkeypatch.setattr("memes.view.browser.check_browser", lambda: pytest.fail("the run is shown"))


def refused(*arguments, capsys):
    """Check that a command exits with code 2 and a one-line error message. Return this message."""
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert code == 2, printed
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    return printed.err


def edit(name, **changed):
    file = Path("run", name)
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))


def forge(name, **arrays):
    with np.load(Path("run", name)) as data:
        np.savez(Path("run", name), **dict(data) | arrays)


@pytest.mark.parametrize("name", [*CONTENT, ".lock", *FOLDERS])
@pytest.mark.parametrize("command", COMMANDS)
def test_links_in_a_run_folder_are_refused_and_not_followed(name, command, capsys):
    place, folder = Path("run", name), name in FOLDERS
    if place.exists():
        shutil.move(place, "content")
    target = "mine" if folder else "content" if Path("content").exists() else "valuable"
    before = [path.read_bytes() for path in (*sorted(Path("mine").iterdir()), Path("valuable"))]
    place.symlink_to(Path(target).absolute())
    printed = refused(command, "run", *COMMANDS[command], capsys=capsys)
    assert f"'run/{name}' is a link" in printed
    after = [path.read_bytes() for path in (*sorted(Path("mine").iterdir()), Path("valuable"))]
    assert before == after


@pytest.mark.parametrize("name", ["config.json", "summary.json", "metrics.csv", "figures/archive.png"])
def test_links_at_the_names_of_written_files_are_not_followed(name):
    """Temporary files have random names, so that nobody can create links with these names in advance.

    If the output file is a link, a new file replaces the link.
    """
    place = Path("run", name)
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    Path("run", f"{name}.tmp").symlink_to(Path("valuable").absolute())
    place.symlink_to(Path("valuable").absolute())
    files.replace_file(place, lambda stream: stream.write(b"new"))
    assert Path("valuable").read_text() == "valuable"
    assert (place.read_bytes(), place.is_symlink()) == (b"new", False)


def test_a_lock_that_is_a_hard_link_keeps_its_content():
    Path("other").write_text("123\n")
    os.link("other", "run/.lock")
    with files.only_writer(Path("run")):
        pass
    assert Path("other").read_text() == "123\n"


HALF = "0123456789abcdef.tmp"


def test_only_temporary_files_of_killed_processes_are_removed():
    left = {
        f"run/.config.json.{HALF}", f"run/figures/.curves.png.{HALF}", f"run/export/.run.npz.{HALF}",
        f"run/checkpoints/.00000012.npz.{HALF}",
    }  # fmt: skip
    kept = {
        "run/.mine.tmp", "run/notes.tmp", f"run/.mine.npz.{HALF}", "run/figures/.x.0123.tmp",
        f"run/figures/.mine.png.{HALF}", f"run/figures/deeper/.curves.png.{HALF}",
        f"run/other/.config.json.{HALF}", f"run/seed-1/.archive.npz.{HALF}",
        f"run/seed-1/checkpoints/.00000012.npz.{HALF}", f"mine/.archive.png.{HALF}",
        f"mine/.00000001.npz.{HALF}",
    }  # fmt: skip
    for name in kept | left:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("half")
    with files.only_writer(Path("run")):
        assert {str(path) for path in Path().rglob("*.tmp")} - {"mine/00000001.npz.tmp"} == kept | left
        folder.remove_unfinished(Path("run"))
    assert {str(path) for path in Path().rglob("*.tmp")} - {"mine/00000001.npz.tmp"} == kept
    Path("run/config.json").unlink()  # without config.json, the other files do not belong to a run
    Path(f"run/.config.json.{HALF}").write_text("half")
    Path(f"run/.archive.npz.{HALF}").write_text("half")
    folder.remove_unfinished(Path("run"))
    assert not Path(f"run/.config.json.{HALF}").exists()
    assert Path(f"run/.archive.npz.{HALF}").exists()


@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_is_removed_through_a_link(name):
    Path("run", name).symlink_to(Path("mine").absolute())
    for file in (f".archive.png.{HALF}", "archive.png", "00000001.npz", f".00000001.npz.{HALF}"):
        Path("mine", file).write_text("valuable")
    before = sorted(Path("mine").iterdir())
    for remove in (folder.remove_unfinished, folder.remove_run):
        with pytest.raises(UsageError, match=f"'run/{name}' is a link"):
            remove(Path("run"))
    assert sorted(Path("mine").iterdir()) == before


def test_the_lock_of_another_program_is_not_changed(capsys):
    Path("run/.lock").write_text("pid: 12\n")
    assert "run/.lock' is not a lock file of memes" in refused("reevaluate", "run", capsys=capsys)
    assert Path("run/.lock").read_text() == "pid: 12\n"


@pytest.mark.parametrize("name", CONTENT)
def test_pipes_are_refused_without_waiting(name, capsys):
    Path("run", name).unlink()
    os.mkfifo(Path("run", name))
    readers = {"summary.json": ["compare"], "corrected.csv": ["plot"]}
    for command in readers.get(name, ["plot", "view"]):
        printed = refused(command, "run", *COMMANDS[command], capsys=capsys)
        assert f"'run/{name}' is not a regular file" in printed


def test_links_inside_folders_are_not_followed(capsys):
    Path("runs").mkdir()
    shutil.move("run", "runs/run")
    for name in ("again", "and-again"):
        Path("runs", name).symlink_to(Path("runs").absolute())
        Path("runs/run", name).symlink_to(Path("runs").absolute())
    os.mkfifo("runs/pipe.json")
    assert main(["compare", "runs", "--out", "comparison"]) == 0
    assert "Comparison of 1 runs" in Path("comparison/comparison.md").read_text()
    Path("links").mkdir()
    Path("links/run").symlink_to(Path("runs/run").absolute())
    assert "there is no run and no summary in 'links'" in refused("plot", "links", capsys=capsys)
    assert main(["plot", "links/run"]) == 0  # links in the command are followed


def test_seeds_are_neither_run_nor_resumed_through_links(capsys):
    """A folder with several seeds that comes from another person may contain links."""
    quick = ["run", "arm", "--scale", "laptop", "--algorithm", "me", "--batch", "4", "--joints", "3"]
    Path("runs").mkdir()
    for target in ("run", "mine"):  # a folder with a run, and one without
        Path("runs/seed-1").symlink_to(Path(target).absolute())
        before = contents(Path(target))
        words = [*quick, "--seeds", "2", "--out", "runs", "--overwrite"]
        assert "'runs/seed-1' is a link" in refused(*words, capsys=capsys)
        shutil.copytree("run", "runs/seed-0")
        config = json.loads(Path("run/config.json").read_text()) | {"seeds": [0, 1]}
        Path("runs/seed-0/config.json").write_text(json.dumps(config))
        assert "'runs/seed-1' is a link" in refused("resume", "runs", *RESUME, capsys=capsys)
        shutil.rmtree("runs/seed-0")
        Path("runs/seed-1").unlink()
        assert contents(Path(target)) == before


@pytest.fixture
def low_limits(monkeypatch):
    """Lower the limits of file sizes for tests."""
    monkeypatch.setattr(files, "MOST_ARRAYS", 2**20)
    monkeypatch.setattr(files, "MOST_JSON", 2**16)
    monkeypatch.setattr(files, "MOST_TABLE", 2**16)


@pytest.mark.parametrize("name", ["archive.npz", "lanes.npz", "corrected.npz"])
def test_a_decompression_bomb_is_refused(name, low_limits, capsys):
    with np.load(Path("run", name)) as data:
        np.savez_compressed(Path("run", name), **dict(data), bomb=np.zeros(2**21, np.int8))
    for command in ("plot", "view"):
        printed = refused(command, "run", capsys=capsys)
        assert f"'run/{name}' would need 2," in printed
        assert "the limit for its size is 1,048,576 bytes" in printed


def test_large_files_are_read_if_their_size_justifies_the_memory(low_limits):
    noise = np.random.default_rng(0).integers(0, 255, 2**21, np.uint8)
    np.savez_compressed("large.npz", noise=noise)
    np.testing.assert_array_equal(files.read_arrays(Path("large.npz"))["noise"], noise)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"grid_shape": [30_000, 20_000]}, "it must have 1 to 10,000,000 cells for its 2 features"),
        ({"grid_shape": [3_000, 3_000]}, "would need"),
        ({"grid_shape": [-6, -6]}, "it must have 1 to 10,000,000 cells"),
        ({"grid_shape": [6, 6, 6]}, "it must have 1 to 10,000,000 cells"),
        ({"grid_shape": "xy"}, "is damaged"),
        ({"centroids": np.zeros((4, 3))}, "it must have 1 to 10,000,000 cells"),
        ({"centroids": np.zeros((0, 2))}, "it must have 1 to 10,000,000 cells"),
        ({"cell": np.full(19, 36)}, "its elites are not in its cells"),
        ({"cell": np.arange(18)}, "its elites are not in its cells"),
        ({"generation": np.zeros(19)}, "its elites are not in its cells"),
        ({"fitness": np.zeros(3)}, "its elites are not in its cells"),
        ({"feature_low": [np.nan, 0.0]}, "its features have no valid bounds"),
        ({"genotypes": np.zeros(19)}, "is damaged"),
        ({"genotypes": np.zeros((19, 2**31, 0))}, "is damaged"),
    ],
)
def test_shapes_of_an_archive_are_checked_before_memory_is_allocated(arrays, sentence, low_limits):
    forge("archive.npz", **arrays)
    with pytest.raises(UsageError, match=sentence):
        memes.load_archive("run")


@pytest.mark.parametrize("name", ["config.json", "summary.json", "metrics.csv"])
def test_the_size_of_text_files_is_limited(name, low_limits):
    with Path("run", name).open("a") as file:
        file.write(" " * 2**16)
    load = load_summary if name == "summary.json" else memes.load_run
    with pytest.raises(UsageError, match=rf"'run/{name}' has .* bytes; at most 65,536 are read"):
        load("run")


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "7", "[]", '{"a": ' + "9" * 5000 + "}", '"\\ud800"', "{}", "\0"],
)
def test_invalid_json_gives_a_one_line_error(name, text, capsys):
    Path("run", name).write_text(text)
    command = "compare" if name == "summary.json" else "plot"
    assert f"'run/{name}'" in refused(command, "run", *COMMANDS[command], capsys=capsys)


WALL = [[0, 0], [1, 1]]
CONFIGS = [
    {"map": {"walls": 3, "start": [0, 0], "goal": None}},
    {"map": {"walls": [[]], "start": [0, 0], "goal": None}},
    {"map": {"walls": [[[0, 0, 0]]], "start": [0, 0], "goal": None}},
    {"map": {"walls": [WALL], "start": [0], "goal": None}},
    {"map": {"walls": [WALL], "start": [0, 1e300], "goal": None}},
    {"map": {"walls": [WALL], "start": [0, 0], "goal": "far"}},
    {"map": {"walls": [WALL], "start": [0, 0], "goal": None, "more": 1}},
    {"map": {"walls": [WALL]}},
    {"map": [1]},
    {"feature_names": "ab"},
    {"feature_names": ["x", 3]},
    {"feature_names": ["x", ""]},
    {"feature_names": ["x", "y" * 10**6]},
    {"task": None},
    {"task": ["arm"]},
    {"task": "a" * 10**6},
    {"algorithm": 3},
    {"seed": "0"},
    {"options": 7},
    {"chunk": "all"},
]


@pytest.mark.parametrize("changed", CONFIGS, ids=lambda changed: str(changed)[:60])
@pytest.mark.parametrize("command", ["plot", "export", "video", "resume", "reevaluate", "view"])
def test_entries_of_config_json_are_checked(changed, command, capsys):
    edit("config.json", **changed)
    printed = refused(command, "run", *COMMANDS[command], capsys=capsys)
    assert (
        next(iter(changed)) in printed or "goal" in printed or "walls" in printed or "start" in printed
    )
    assert "'run/config.json'" in printed


@pytest.mark.parametrize("command", ["plot", "export", "video", "reevaluate", "view"])
def test_the_number_of_feature_names_is_checked(command, capsys):
    edit("config.json", feature_names=["x"])
    printed = refused(command, "run", *COMMANDS[command], capsys=capsys)
    assert "feature_names in 'run/config.json' must be one name per feature" in printed


IMPOSSIBLE = [
    ({"generations": None}, r"generations in 'run/config.json' must be"),
    ({"generations": "many"}, r"generations in 'run/config.json' must be"),
    ({"generations": -1}, r"generations in 'run/config.json' must be"),
    ({"seeds_together": 10**8}, r"seeds_together in 'run/config.json' must be at most 1 for"),
    ({"seeds": [0, 1], "seeds_together": 3}, r"seeds_together in .* must be at most 2 for"),
    ({"seeds": 10**8, "seeds_together": 3}, r"'run/config.json'"),
    ({"shards": 10**7, "seeds_together": 3}, r"shards must be at most 4096, got 10000000"),
]


def test_a_run_does_not_continue_with_impossible_numbers():
    arm = memes.tasks.arm(joints=4)
    algorithm = memes.presets.me(arm, memes.cells.grid(arm, (5, 5)), batch=4)
    memes.run(algorithm, generations=1, out="new", observers=[memes.Figures(draw=False)], progress=False)
    for changed, sentence in IMPOSSIBLE:
        shutil.copy("new/config.json", "run/config.json")
        edit("config.json", **{"generations": 2} | changed)
        with pytest.raises(UsageError, match=sentence):
            memes.resume(algorithm, "run")


READ = ["metrics.csv", "lanes.npz", "corrected.csv"]


@pytest.mark.parametrize(
    ("command", "name"),
    [(command, name) for command in ("plot", "reevaluate", "view") for name in READ][:-1],
)
def test_missing_columns_are_reported(name, command, capsys):
    file = Path("run", name)
    if file.suffix == ".csv":
        file.write_text("other\n1\n")
    else:
        np.savez(file, format_version=1, other=np.zeros(3))
    assert f"'run/{name}' is damaged or has the wrong format: it has no" in refused(
        command, "run", *COMMANDS[command], capsys=capsys
    )


@pytest.mark.parametrize(
    "changed",
    [{"kind": np.zeros((30, 4, 1))}, {"reset": np.zeros((29, 4))}, {"generation": np.zeros((30, 1))}],
    ids=str,
)
@pytest.mark.parametrize("command", ["plot", "reevaluate", "view"])
def test_lanes_of_wrong_shapes_are_refused(changed, command, capsys):
    forge("lanes.npz", **changed)
    printed = refused(command, "run", *COMMANDS[command], capsys=capsys)
    assert "lanes.npz' is damaged or has the wrong format: its arrays differ in their" in printed


def test_rows_of_wrong_lengths_are_reported():
    with Path("run/metrics.csv").open("a") as file:
        file.write("1,2\n")
    with pytest.raises(UsageError, match=r"line 32 has 2 fields, not 28"):
        memes.load_run("run")


SUMMARIES = [
    {"curves": {"generation": 3}},
    {"curves": {"generation": [1]}},
    {"corrections": {"generation": 3}},
    {"corrections": {"generation": [3]}},
    {"corrections": 7},
    {"lifespans": {"exploit": 3}},
    {"lifespans": {"exploit": {"all": {}}}},
    {"lifespans": {"exploit": {"all": {"count": None, "mean": 1, "median": 1}}}},
    {"longest_lives": {"exploit": 3}},
    {"steps": {"exploit": [1]}},
    {"low": [0.0]},
    {"low": [2.0, 2.0]},
    {"low": ["a", "b"]},
    {"heat": [1, 2]},
    {"heat": [[], []]},
    {"heat": "warm"},
    {"seed": 10**40},
    {"generations": -1},
    {"generations": "many"},
    {"task": None},
    {"label": 3},
    {"options": []},
    {"about": None},
    {"about": {"compile_seconds": "long"}},
    {"about": {"map": {"walls": 3}}},
    {"about": {"feature_names": ["x"]}},
]


@pytest.mark.parametrize("changed", SUMMARIES, ids=str)
def test_entries_of_summary_json_are_checked(changed, capsys):
    edit("summary.json", **changed)
    printed = refused("compare", "run", "--out", "comparison", capsys=capsys)
    assert "'run/summary.json'" in printed
    assert not Path("comparison").exists()


def test_links_to_themselves_are_refused_or_skipped(capsys):
    Path("loop").symlink_to("loop")
    Path("run/self").symlink_to(Path("run").absolute())
    for words in (["plot", "loop"], ["compare", "loop"], ["export", "loop", "--to", "csv"]):
        assert "'loop'" in refused(*words, capsys=capsys)
    for out in ("loop", "loop/below"):
        assert main(["run", "arm", "--joints", "3", "--generations", "1", "--quiet", "--out", out]) in (
            1,
            2,
        )
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["plot", "run"]) == 0
    assert main(["plot", "."]) == 0  # the command finds the run only once


@pytest.mark.parametrize("name", ["feature", "feature_low", "fitness", "genotypes"])
def test_complex_numbers_are_refused(name, capsys):
    with np.load("run/archive.npz") as data:
        complex_one = data[name].astype(complex)
    forge("archive.npz", **{name: complex_one})
    for command in ("plot", "reevaluate", "export"):
        printed = refused(command, "run", *COMMANDS[command], capsys=capsys)
        assert f"its {name} has entries of type complex" in printed
