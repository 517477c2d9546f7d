"""Runs and archives are displayed in notebooks."""

import re
from base64 import b64decode
from dataclasses import replace

import jax
import pytest

import memes
from memes.analysis import page
from memes.errors import install

CODE = [
    """
import memes

task = memes.tasks.arm(joints=4)
algorithm = memes.presets.me(task, memes.cells.grid(task, (5, 5)), batch=8)
run = memes.run(algorithm, generations=40, call_seconds=0.0)
""",
    "run",
    "run.archive",
    "run.archive.to_pandas(task.feature_names)",
    "run.plot('curves')",
]


@pytest.fixture(scope="module")
def run():
    task = memes.tasks.noisy_arm(joints=4)
    algorithm = memes.presets.me(task, memes.cells.grid(task, (3, 3)), batch=4)
    observers = [memes.Corrections(samples=4)]
    return memes.run(algorithm, generations=3, observers=observers, progress=False)


@pytest.mark.filterwarnings("ignore")  # warnings of Jupyter
def test_a_notebook_shows_progress_numbers_and_pictures(tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    for name in ("ipykernel", "pandas"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CODE])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    made, run, archive, table, curves = (cell.outputs for cell in notebook.cells)
    bars = [out for out in made if "<progress" in out.get("data", {}).get("text/html", "")]
    assert len(bars) == 1  # the progress bar is overwritten in place
    assert 'value="40" max="40"' in bars[0]["data"]["text/html"]
    assert "generation 40/40" in bars[0]["data"]["text/html"]
    for shown in (run, archive):
        assert "of 25 cells" in shown[0]["data"]["text/html"]
        assert "data:image/png;base64,iVBOR" in shown[0]["data"]["text/html"]
    assert "hand x" in table[0]["data"]["text/html"]
    assert b64decode(curves[0]["data"]["image/png"]).startswith(b"\x89PNG")


def test_a_run_shows_its_numbers_and_a_picture(run):
    html = run._repr_html_()
    found = dict(re.findall(r"<th[^>]*>([^<]*)</th><td[^>]*>([^<]*)</td>", html))
    assert (
        found["elites"]
        == f"{int(run.archive.occupied.sum())} of 9 cells ({run.metrics['coverage'][-1]:.1%})"
    )
    assert found["QD-score"] == f"{run.metrics['qd_score'][-1]:,.1f}"
    assert found["corrected QD-score"] == f"{run.corrected['qd_score'][-1]:,.1f}"
    assert found["generations"] == "3"
    assert b64decode(re.search("base64,([^']*)'", html)[1]).startswith(b"\x89PNG")


def test_text_of_a_run_is_escaped_in_html(run):
    config = replace(run.config, task="<b>'\"", algorithm="<script>$1")
    html = run._replace(config=config)._repr_html_()
    assert "<script" not in html
    assert "&lt;b&gt;&#x27;&quot;, &lt;script&gt;$1, seed 0" in html
    assert "'&gt;" not in page.html("'>", {"'>": "'>"}, b"")


def test_an_archive_is_shown_except_while_a_program_is_traced(run):
    assert "of 9 cells" in run.archive._repr_html_()
    shown = []
    jax.eval_shape(lambda archive: shown.append(archive._repr_html_()), run.archive)
    assert shown == [None]


def test_a_run_draws_its_figures(run):
    assert len(run.plot().axes) == 3  # two archives and a colour bar
    assert len(run.plot("curves").axes) == 6
    with pytest.raises(memes.UsageError, match="unknown figure 'curve': did you mean 'curves'"):
        run.plot("curve")


def test_elites_become_a_data_frame(run):
    pytest.importorskip("pandas", reason="pandas is not installed")
    table = run.archive.to_pandas(("x", "y"))
    assert [*table.columns] == ["fitness", "generation", "lane", "x", "y"]
    assert (table["fitness"].to_numpy() == run.archive.fitness[table.index.to_numpy()]).all()


def test_without_pandas_an_error_names_its_extra(run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    missing = re.escape(f"to_pandas needs the extra notebook: {install('notebook')}")
    with pytest.raises(memes.UsageError, match=missing):
        run.archive.to_pandas()
