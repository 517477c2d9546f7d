"""Each program in docs/coming_from.md runs, if the library that it uses is installed."""

import runpy
from pathlib import Path

import pytest

from memes import api

PROGRAMS = Path(__file__).parents[1] / "docs" / "coming_from"
LIBRARIES = {"from_pyribs": "ribs", "from_qdax": "qdax", "from_evosax": "evosax"}


@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_programs_run(name, monkeypatch, capsys):
    pytest.importorskip(LIBRARIES.get(name, "memes"))
    original = api.run
    monkeypatch.setattr(
        api, "run", lambda *about, **options: original(*about, **options | {"generations": 20})
    )
    runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")
    last = capsys.readouterr().out.splitlines()[-1]
    assert any(word in last for word in ("coverage", "best fitness"))


def test_every_program_is_shown():
    page = (PROGRAMS.parent / "coming_from.md").read_text()
    assert all(f"coming_from/{path.name}\n" in page for path in PROGRAMS.glob("*.py"))
