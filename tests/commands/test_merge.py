import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.archive import empty
from memes.cells import Grid
from memes.commands.main import main

OLD = Path(__file__).parents[1] / "data/run-0.1"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def save(name, seed, shape=(4, 4), dim=2):
    """Save an archive of random elites, and return it."""
    rng, cells = np.random.default_rng(seed), Grid(jnp.zeros(2), jnp.ones(2), shape)
    archive, _ = empty(cells, dim).add(rng.normal(size=(9, dim)), rng.normal(size=9), rng.random((9, 2)))
    memes.save_archive(name, archive)
    return archive


def test_files_are_merged_into_the_cells_of_the_first(capsys):
    archives = [save("a.npz", 0), save("b.npz", 1, shape=(7, 3)), save("c.npz", 2)]
    assert main(["merge", "a.npz", "b.npz", "c.npz", "--out", "all.npz"]) == 0
    merged = memes.load_archive("all.npz")
    expected = archives[0].merge(archives[1]).merge(archives[2])
    for name in ("genotypes", "fitness", "feature", "generation", "lane"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(expected, name))
    lines = capsys.readouterr().out.splitlines()
    counts = [len(archives[0]), len(archives[0].merge(archives[1])), len(expected)]
    new = [counts[0], *np.diff(counts)]
    for line, name, archive, more in zip(lines, "abc", archives, new, strict=False):
        assert line == f"{name}.npz: {len(archive)} elites, {more} of them in new cells"
    assert lines[3:] == [f"all.npz: {len(expected)} elites in 16 cells"]


def test_runs_of_one_task_are_merged_as_found_or_corrected():
    shutil.copytree(OLD, "one")
    shutil.copytree(OLD, "two")
    for options, file in (([], "archive.npz"), (["--corrected"], "corrected.npz")):
        out = f"merged-{file}"
        assert main(["merge", "one", "two", "--out", out, *options]) == 0
        np.testing.assert_array_equal(
            memes.load_archive(out).fitness, memes.load_archive(OLD / file).fitness
        )


def test_archives_that_cannot_be_merged_give_an_error_message(capsys):
    save("a.npz", 0)
    save("wide.npz", 1, dim=3)
    shutil.copytree(OLD, "one")
    shutil.copytree(OLD, "two")
    config = json.loads(Path("two/config.json").read_text())
    Path("two/config.json").write_text(json.dumps(config | {"task": "other", "task_name": "other"}))
    Path("taken.npz").write_text("mine")
    Path("one/lanes.npz").unlink()
    Path("one/checkpoints").mkdir()
    for sentence, words in {
        "RUN: 'wide.npz' does not fit 'a.npz': other must have genotypes of 2 entries, got 3": [
            *("a.npz", "wide.npz", "--out", "new.npz")
        ],
        "'two' is a run of other": ["one", "two", "--out", "new.npz"],
        "out: 'taken.npz' exists; choose another file": ["a.npz", "--out", "taken.npz"],
        "out must be a file that ends with .npz, got 'new'": ["a.npz", "--out", "new"],
        "out: there is no folder 'nowhere'": ["a.npz", "--out", "nowhere/new.npz"],
        "out must not be a file of a run, but 'one/lanes.npz' belongs to": [
            *("a.npz", "--out", "one/lanes.npz")
        ],
        "'one/checkpoints/00000099.npz' belongs to": [
            *("a.npz", "--out", "one/checkpoints/00000099.npz")
        ],
        "RUN: there is no file or folder 'b.npz'": ["b.npz", "--out", "new.npz"],
        "there is no file 'bare/corrected.npz'": ["bare", "--corrected", "--out", "new.npz"],
    }.items():
        if words[0] == "bare":
            shutil.copytree("one", "bare")
            Path("bare/corrected.npz").unlink()
        assert main(["merge", *words]) == 2
        printed = capsys.readouterr().err
        assert sentence in printed
        assert printed.count("\n") == 1
    assert not Path("new.npz").exists()
    assert Path("taken.npz").read_text() == "mine"
