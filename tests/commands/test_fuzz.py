"""Commands handle arbitrary content of run folders, TOML files and command lines.

`benchmarks/fuzz.py` runs the same checks with more operations.
"""

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memes.commands.main import COMMANDS

SPEC = importlib.util.spec_from_file_location("fuzz", Path(__file__).parents[2] / "benchmarks/fuzz.py")
fuzz = importlib.util.module_from_spec(SPEC)
sys.modules["fuzz"] = fuzz  # dataclasses look up their module there
SPEC.loader.exec_module(fuzz)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def originals(scratch):
    return fuzz.templates(scratch)


@pytest.mark.parametrize("examples", [10, pytest.param(30, marks=pytest.mark.long)])
def test_commands_end_without_traceback_for_any_input(examples, originals, scratch):
    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(draw=st.randoms(use_true_random=True))
    def ends_without_failure(draw):
        words, _, wrong = fuzz.operate(draw, originals, scratch)
        assert not wrong, words

    ends_without_failure()


def test_all_commands_are_drawn():
    drawn = {fuzz.command(fuzz.random.Random(i))[0] for i in range(400)}
    assert drawn == {"read", *COMMANDS}


def test_tracebacks_and_writes_outside_are_detected(originals, scratch, monkeypatch):
    def write_outside(words):
        Path("../outside/valuable").write_text("gone")

    for broken, failure in (
        (lambda words: 1 / 0, "ZeroDivisionError"),
        (write_outside, "wrote outside"),
    ):
        monkeypatch.setattr(fuzz, "memes_command", broken)
        monkeypatch.setattr(fuzz, "KINDS", ("plot",))
        assert failure in fuzz.operate(fuzz.random.Random(0), originals, scratch)[2]
