import io

import pytest
from rich.console import Console

from memes.runner.progress import ProgressPoint, Reporter, duration


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("memes.runner.progress.time.perf_counter", lambda: now[0])
    return now


@pytest.fixture
def shown():
    text = io.StringIO()
    return text, Reporter(show=True, console=Console(file=text, width=200))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"), (0.44, "0.4 s"), (9.94, "9.9 s"), (9.96, "10 s"), (42.4, "42 s"),
        (59.4, "59 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (1059, "17 min 39 s"),
        (3599.4, "59 min 59 s"), (3599.6, "1 h 00 min"), (3900, "1 h 05 min"), (3959, "1 h 05 min"),
        (100 * 3600, "100 h 00 min"), (float("nan"), "nan s"),
    ],
)  # fmt: skip
def test_durations_are_in_minutes_and_hours(seconds, words):
    assert duration(seconds) == words


def test_the_speed_of_a_resumed_run_excludes_earlier_generations(shown):
    text, report = shown
    report.begin(400, {7: ProgressPoint(100, 0.0, 0.0, 1000, seconds=50.0)})
    report.update(7, ProgressPoint(200, 1.0, 0.5, 3000, seconds=60.0))
    assert "200 evaluations/s  ETA 20 s" in text.getvalue()


def test_the_speed_excludes_time_outside_generations(clock, shown):
    text, report = shown
    report.begin(400, {7: ProgressPoint(0, 0.0, 0.0, 0)})
    clock[0] += 1000.0
    report.update(7, ProgressPoint(100, 1.0, 0.5, 3000, seconds=10.0))
    assert "300 evaluations/s  ETA 30 s" in text.getvalue()


def test_progress_of_a_batch_is_shown_when_all_seeds_have_reached_it(shown):
    text, report = shown
    report.begin(10, {1: ProgressPoint(0, 0.0, 0.0, 0), 2: ProgressPoint(0, 0.0, 0.0, 0)})
    report.update(1, ProgressPoint(4, 1.0, 0.5, 100, seconds=1.0))
    assert not text.getvalue()
    report.update(2, ProgressPoint(4, 2.0, 0.25, 100, seconds=1.0))
    assert "generation 4/10  QD-score 1.5  coverage 37.5%  100 evaluations/s" in text.getvalue()


def test_progress_does_not_wait_for_a_seed_that_was_stopped(shown):
    text, report = shown
    report.begin(10, {1: ProgressPoint(0, 0.0, 0.0, 0), 2: ProgressPoint(0, 0.0, 0.0, 0)})
    report.end(1)
    report.update(2, ProgressPoint(10, 2.0, 0.25, 100))
    assert "generation 10/10" in text.getvalue()


def test_lines_are_sparse_and_the_last_generation_has_one(clock, shown):
    text, report = shown
    report.begin(100, {1: ProgressPoint(0, 0.0, 0.0, 0)})
    for generation in range(1, 101):
        clock[0] += 0.1
        report.update(1, ProgressPoint(generation, 0.0, 0.0, generation))
    lines = text.getvalue().splitlines()
    assert len(lines) == 6
    assert lines[-1].startswith("generation 100/100")


def test_a_silent_reporter_prints_nothing(shown):
    text = io.StringIO()
    report = Reporter(show=False, console=Console(file=text))
    report.begin(1, {1: ProgressPoint(0, 0.0, 0.0, 0)})
    report.say("something")
    report.update(1, ProgressPoint(1, 0.0, 0.0, 1))
    assert not text.getvalue()


def test_a_terminal_has_a_bar_and_messages_are_not_markup():
    text = io.StringIO()
    with Reporter(show=True, console=Console(file=text, width=120, force_terminal=True)) as report:
        report.begin(4, {1: ProgressPoint(0, 0.0, 0.0, 0)})
        report.say("joint [/0] got stuck")
        report.update(1, ProgressPoint(4, 2.0, 0.25, 100))
        with report.counting("elites", 3) as show:
            show(3)
    assert "joint [/0] got stuck" in text.getvalue()
    assert "4/4" in text.getvalue()
