"""A command stopped by a signal exits with the code of this signal. Its run can be resumed."""

import os
import signal

import pytest

from memes.commands.main import main
from memes.runner import corrections, observers, scheduling

pytestmark = pytest.mark.usefixtures("traced_once")
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
WORDS = (
    "--algorithm", "me", "--joints", "4", "--batch", "4", "--resolution", "3", "3", "--generations", "2",
    "--no-figures-draw", "--quiet",
)  # fmt: skip


@pytest.fixture
def sent_after(monkeypatch):
    """Return a function that sends a signal after the n-th call of a module's function."""

    def send(which, module, name, n):
        original, seen = getattr(module, name), []

        def function(*arguments):
            found = original(*arguments)
            seen.append(found)
            if len(seen) == n:
                os.kill(os.getpid(), which)
            return found

        monkeypatch.setattr(module, name, function)

    monkeypatch.setattr(scheduling, "MOST", 1)  # one generation per device call
    return send


@pytest.mark.parametrize(("which", "code"), SIGNALS)
def test_a_signal_between_seeds(tmp_path, sent_after, which, code):
    """The signal arrives in the last generation of the first seed, so only this seed is complete."""
    out = str(tmp_path / "runs")
    sent_after(which, observers.folders, "append_metrics", 2)
    assert main(["run", "arm", *WORDS, "--seeds", "3", "--seeds-per-batch", "1", "--out", out]) == code
    sent_after(which, observers.folders, "append_metrics", 2)
    assert main(["resume", out, "--quiet"]) == code
    assert main(["resume", out, "--quiet"]) == 0
    assert len(list(tmp_path.glob("runs/*/summary.json"))) == 3


@pytest.mark.parametrize(("which", "code"), SIGNALS)
def test_a_signal_during_a_correction(tmp_path, sent_after, which, code):
    out = str(tmp_path / "run")
    sent_after(which, corrections, "estimates", 1)
    assert main(["run", "noisy-arm", *WORDS, "--out", out]) == code
    assert main(["resume", out, "--quiet"]) == 0
    assert (tmp_path / "run/corrected.npz").exists()


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_end_of_the_only_run(tmp_path, sent_after, which):
    """The signal arrives in the last generation of the only run, so the command succeeds."""
    sent_after(which, observers.folders, "append_metrics", 2)
    assert main(["run", "arm", *WORDS, "--out", str(tmp_path / "run")]) == 0
