"""Exports of runs to formats of other programs."""

import csv
import shutil

import numpy as np
import pytest

import memes
from memes.commands.main import main
from memes.errors import install
from memes.store.formats import export_run, tables


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A corrected run with feature names that need escaping."""
    task = memes.tasks.noisy_arm(joints=4)
    task = memes.Task(**{**vars(task), "feature_names": ("=fitness(1)", "fitness")})
    algorithm = memes.presets.me(task, memes.cells.grid(task, (3, 3)), batch=8)
    return memes.run(
        algorithm,
        generations=6,
        out=tmp_path_factory.mktemp("runs") / "run",
        observers=[memes.Corrections(every=3, samples=4), memes.Figures(draw=False)],
        progress=False,
    )


def test_a_table_of_elites_has_a_row_per_elite_and_the_feature_names(run):
    table = run.archive.columns(("x (m)", "fitness"))
    assert [*table] == ["cell", "fitness", "generation", "lane", "x (m)", "fitness [2]"]
    cell = table["cell"]
    assert cell.tolist() == np.flatnonzero(run.archive.occupied).tolist()
    np.testing.assert_array_equal(table["fitness [2]"], np.asarray(run.archive.feature)[cell, 1])
    assert [*run.archive.columns()][-2:] == ["feature 1", "feature 2"]
    with pytest.raises(memes.UsageError, match="feature_names must be 2 names, got 1"):
        run.archive.columns(["x"])


@pytest.fixture(scope="module")
def expected(run):
    found = tables(memes.load_run(run.folder))
    assert [*found] == ["metrics", "archive", "corrections", "corrected_archive"]
    assert len(found["corrections"]["generation"]) == 2
    return found


def test_csv_files_have_all_tables_and_no_formulas(run, expected, tmp_path):
    for file in export_run(run, "csv", tmp_path / "export"):
        with file.open() as stream:
            head, *rows = csv.reader(stream)
        table = expected[file.stem]
        assert head == [f"'{name}" if name.startswith("=") else name for name in table]
        columns = [[float(field or "nan") for field in column] for column in zip(*rows, strict=True)]
        np.testing.assert_allclose(columns, [*table.values()], rtol=1e-6)
    assert {file.stem for file in (tmp_path / "export").iterdir()} == expected.keys()


def test_an_npz_file_has_all_tables_and_genotypes(run, expected, tmp_path):
    (file,) = export_run(run, "npz", tmp_path / "export")
    with np.load(file) as found:
        for name, table in expected.items():
            for head, column in table.items():
                np.testing.assert_allclose(found[f"{name}/{head}"], column, rtol=1e-6)
        cell = expected["archive"]["cell"]
        np.testing.assert_array_equal(
            found["archive/genotypes"], np.asarray(run.archive.genotypes)[cell]
        )


def test_parquet_files_have_all_tables_and_genotypes(run, expected, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    for file in export_run(run, "parquet", tmp_path / "export"):
        found = parquet.read_table(file)
        for head, column in expected[file.stem].items():
            np.testing.assert_allclose(found[head].to_numpy(), column, rtol=1e-6)
        if "archive" in file.stem:
            assert np.stack(found["genotype"].to_numpy()).shape == (len(found), 4)


def test_event_files_have_the_metrics(run, tmp_path):
    (file,) = export_run(run, "tensorboard", tmp_path / "export")
    content = file.read_bytes()
    assert content.count(b"\x0a\x08qd_score") == 6
    assert content.count(b"corrected/qd_score\x15") == 2


def test_the_command_prints_the_written_file(run, capsys):
    assert main(["export", str(run.folder), "--to", "npz"]) == 0
    assert capsys.readouterr().out == f"{run.folder}/export/run.npz\n"


def test_a_missing_package_is_named(run, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert main(["export", str(run.folder), "--to", "parquet"]) == 2
    assert f"parquet needs the extra parquet: {install('parquet')}" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["file", "link", "no/folder"])
def test_an_export_needs_a_folder_and_follows_no_link(out, run, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("valuable")
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    assert main(["export", str(run.folder), "--to", "csv", "--out", out]) == 2
    assert f"'{out.partition('/')[0]}'" in capsys.readouterr().err
    assert not list((tmp_path / "mine").iterdir())


def test_an_export_to_another_folder_replaces_no_file(run, capsys, tmp_path):
    (tmp_path / "archive.csv").write_text("mine")
    words = ["export", str(run.folder), "--to", "csv"]
    assert main([*words, "--out", str(tmp_path)]) == 2
    assert f"'{tmp_path}' contains 'archive.csv'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["archive.csv"]
    assert main([*words, "--out", str(run.folder)]) == 2  # The folder already has a metrics.csv.
    for _ in range(2):  # The second export replaces the files of the first export.
        assert main(words) == 0


HEAD = "generation,evaluations,seconds,qd_score,coverage,max_fitness\n"


@pytest.mark.parametrize("to", ["csv", "npz", "tensorboard"])
@pytest.mark.parametrize(
    "rows", ["", "nan,1,1,1,1,1\n", "1,1,1,1,1,1\n1,1,1,1,1,1\n", "1e30,1,1,1,1,1\n"]
)
def test_unusual_metrics_are_exported_or_refused(to, rows, run, tmp_path, capsys):
    shutil.copytree(run.folder, tmp_path / "run")
    (tmp_path / "run/metrics.csv").write_text(HEAD + rows)
    code = main(["export", str(tmp_path / "run"), "--to", to])
    printed = capsys.readouterr().err
    assert (code, "must be increasing whole numbers" in printed) == ((2, True) if rows else (0, False))
    assert printed.count("\n") == bool(rows)
