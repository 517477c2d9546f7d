"""Error messages name a missing extra if and only if it is needed."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import memes
from memes.commands import doctor
from memes.commands.main import main
from memes.errors import install
from memes.reproduce import sweep
from memes.reproduce.experiments import TASKS

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# Extras for developers of the library, and the old name of an extra.
NOT_FOR_USERS = {"test", "docs", "dev", "replay"}


@pytest.fixture
def no_mujoco(monkeypatch):
    """Simulate an installation without MuJoCo."""
    for name in [name for name in sys.modules if name.split(".")[0] == "mujoco"]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("memes.physics")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(vars(memes), "physics", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco", None)


def test_robots_name_the_extra_that_installs_their_simulator(no_mujoco, capsys, tmp_path):
    for task in ("ant", "ant-trap", "hexapod"):
        assert main(["run", task, "--out", str(tmp_path / "run")]) == 2
        error = capsys.readouterr().err
        assert f"simulating a robot needs the extra robots: {install('robots')}" in error
        assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
    with pytest.raises(memes.UsageError, match=re.escape(install("robots"))):
        _ = memes.physics


def test_the_doctor_succeeds_without_robots(no_mujoco):
    assert [*doctor.self_check()] == ["evolution on the arm"]
    assert f"extra 'robots': missing mujoco: {install('robots')}" in doctor.report()


def test_experiments_skip_robots_without_their_simulator(no_mujoco, tmp_path):
    messages = []
    items = sweep.plan(["main"], TASKS, "laptop", labels=["memes"])
    todo = sweep._missing(items, [], tmp_path, messages.append)
    assert [item.task for item in todo] == ["arm"]
    assert f"ant memes is skipped: it needs {install('robots')}" in messages


def test_the_doctor_lists_every_extra():
    assert set(doctor.EXTRAS) == set(EXTRAS) - NOT_FOR_USERS


def test_the_table_of_extras_lists_the_packages_of_each_extra():
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| (.*) \|$", (ROOT / "docs/howto/install.md").read_text(), re.MULTILINE
    )
    packages = {
        extra: {re.match(r"[\w-]+(\[\w+\])?", word)[0] for word in EXTRAS[extra]} for extra, _ in rows
    }
    assert {extra: set(re.findall(r"[\w-]+(?:\[\w+\])?", cell)) for extra, cell in rows} == packages
    assert set(packages) == set(EXTRAS) - NOT_FOR_USERS
