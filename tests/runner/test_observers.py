"""Observers: which updates they receive, when they receive them, and how they can affect a run."""

import importlib.util
import itertools
import json
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import memes
from memes import Callbacks, Checkpoints, Corrections, Figures, LogFunction
from memes.api import USUAL, with_usual
from memes.runner.observers import Progress
from memes.store import checkpoint

pytestmark = pytest.mark.usefixtures("compiled_once", "no_figures")

EXAMPLE = Path(__file__).parents[2] / "examples/observer.py"
task = memes.tasks.arm(joints=4)
algorithm = memes.presets.me(task, memes.cells.grid(task, (3, 3)), batch=4)
OPTIONS = {"generations": 40, "seed": 3, "progress": False}


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("observer", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    return memes.run(algorithm, out=tmp_path_factory.mktemp("whole") / "run", **OPTIONS)


@dataclass(frozen=True)
class Notes:
    """An observer that records its calls and requests updates at fixed intervals."""

    every: int = 1000
    calls: list = field(default_factory=list)

    def watch(self, context):
        seed = context.config.seed

        def note(what):
            return lambda run: self.calls.append((seed, what, run.generations))

        def on_update(update):
            last = update.run.generations
            assert update.rows["generation"].tolist() == list(range(last - update.new + 1, last + 1))
            self.calls.append((seed, "update", last))

        return Callbacks(
            note("start"), lambda generation: generation % self.every == 0, on_update, note("end")
        )


def test_a_small_observer_stops_a_run(example, whole, tmp_path):
    """The run stops at the same generation, whatever the duration of device calls."""
    coverage = whole.metrics["coverage"]
    grown = np.flatnonzero(np.diff(coverage, prepend=0)) + 1  # the generations in which coverage grew
    quiet = next(g for g in range(10, 41, 10) if grown[grown <= g][-1] <= g - 5)
    for call_seconds in (0, 1e-3, 10):
        out = tmp_path / str(call_seconds)
        observers = [example.Stagnation(patience=5)]
        options = OPTIONS | {"call_seconds": call_seconds, "out": out, "observers": observers}
        stopped = memes.run(algorithm, **options)
        assert stopped.generations == quiet < 40
        read = memes.load_run(out)
        assert read.generations == read.outcome.generations_done == quiet
        assert read.stopped == "coverage has not grown for 5 generations"
        assert read.config.observers == {"Stagnation": {"patience": 5}}
        jax.tree.map(np.testing.assert_array_equal, read.archive, stopped.archive)


def test_a_run_that_was_stopped_can_be_resumed(example, whole, tmp_path):
    memes.run(algorithm, out=tmp_path, observers=[example.Stagnation(patience=5)], **OPTIONS)
    resumed = memes.resume(algorithm, tmp_path, progress=False)
    jax.tree.map(np.testing.assert_array_equal, resumed.state, whole.state)
    assert resumed.stopped is None
    assert (tmp_path / "archive.npz").read_bytes() == (whole.folder / "archive.npz").read_bytes()


def test_updates_cover_every_generation_once_and_end_at_requested_generations():
    notes = Notes(every=7)
    memes.run(algorithm, observers=[notes], **OPTIONS)
    whats = [what for _, what, _ in notes.calls]
    assert whats == ["start", *["update"] * (len(whats) - 2), "end"]
    seen = [generation for _, what, generation in notes.calls if what == "update"]
    assert seen == sorted(set(seen))
    assert {7, 14, 21, 28, 35, 40} <= set(seen)
    assert (notes.calls[0][2], notes.calls[-1][2]) == (0, 40)


def test_observers_of_a_resumed_run_start_where_it_stopped(tmp_path):
    memes.run(algorithm, out=tmp_path, **OPTIONS | {"generations": 10})
    notes = Notes(every=15)
    memes.resume(algorithm, tmp_path, generations=20, observers=[notes], progress=False)
    assert notes.calls[0] == (3, "start", 10)
    assert (3, "update", 15) in notes.calls
    assert notes.calls[-1] == (3, "end", 20)


def test_each_seed_of_a_batch_is_observed_separately():
    notes = Notes(every=5)
    memes.run(algorithm, seeds=[1, 2], generations=10, observers=[notes], progress=False)
    for seed in (1, 2):
        expected = {(seed, "start", 0), (seed, "update", 5), (seed, "update", 10), (seed, "end", 10)}
        assert expected <= set(notes.calls)


def test_an_observer_may_change_the_run():
    @dataclass(frozen=True)
    class Sign:
        def watch(self, context):
            def sign(run):
                settings = {**run.config.settings, "signed": run.generations}
                return run._replace(config=replace(run.config, settings=settings))

            return Callbacks(on_start=sign, on_update=lambda update: sign(update.run))

    assert memes.run(algorithm, observers=[Sign()], **OPTIONS).config.settings["signed"] == 40


def test_a_run_that_is_stopped_at_its_start_computes_one_generation(tmp_path):
    @dataclass(frozen=True)
    class Never:
        def watch(self, context):
            return Callbacks(on_start=lambda run: context.stop("no time"))

    for observers in ([Never()], [Never(), Never()]):
        run = memes.run(algorithm, observers=observers, **OPTIONS)
        assert (run.generations, run.stopped) == (1, "no time")
    memes.run(algorithm, out=tmp_path, **OPTIONS | {"generations": 10})
    run = memes.resume(algorithm, tmp_path, generations=20, observers=[Never()], progress=False)
    assert (run.generations, run.stopped) == (10, "no time")


def test_given_observers_replace_usual_observers_of_their_type():
    tracks = [LogFunction(print), LogFunction(len)]
    chosen = with_usual([Checkpoints(every=3), *tracks, Figures(draw=False)])
    assert [type(each) for each in chosen] == [*USUAL, LogFunction, LogFunction]
    assert Checkpoints(every=3) in chosen
    assert Figures(draw=False) in chosen
    assert Corrections() in chosen
    assert chosen[-2:] == tracks


def test_usual_observers_of_a_resumed_run_keep_its_settings():
    config = {"checkpoint_every": 7, "reevaluate_samples": 3, "figures_draw": False}
    chosen = with_usual([Corrections(samples=9)], config)
    assert {Checkpoints(every=7), Figures(draw=False), Corrections(samples=9)} <= set(chosen)


def test_new_settings_of_a_resumed_run_are_recorded(tmp_path):
    memes.run(algorithm, out=tmp_path, **OPTIONS | {"generations": 4})
    options = {"observers": [Checkpoints(every=3)], "progress": False}
    memes.resume(algorithm, tmp_path, generations=8, **options)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["checkpoint_every"], config["reevaluate_samples"]) == (3, 512)
    assert sorted(file.name for file in tmp_path.glob("checkpoints/*.npz")) == [
        "00000006.npz",
        "00000008.npz",
    ]


@dataclass(frozen=True)
class Connected:
    """An observer whose field `to` can be neither copied nor written as JSON."""

    to: object = field(default_factory=threading.Lock)

    def watch(self, context):
        return Callbacks()


def test_settings_that_json_does_not_support_are_recorded_as_text(tmp_path):
    memes.run(algorithm, out=tmp_path, observers=[Connected()], **OPTIONS | {"generations": 1})
    recorded = json.loads((tmp_path / "config.json").read_text())["observers"]
    assert "lock" in recorded["Connected"]["to"]


def test_slow_checkpoints_take_at_most_a_tenth_of_the_time(tmp_path, monkeypatch):
    """Each checkpoint takes three simulated seconds. Each query of the clock takes one second."""
    begun, clock = [], itertools.count()
    ticking = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("memes.runner.observers.time", ticking)

    def save(run, before):
        begun.append(next(clock))
        next(clock)
        return checkpoint.Logged(run.generations, before.digest)

    monkeypatch.setattr(checkpoint, "save", save)
    memes.run(algorithm, out=tmp_path / "run", call_seconds=0, **OPTIONS | {"generations": 200})
    periodic = begun[:-1]  # the last checkpoint is written at the end of the run
    assert len(periodic) > 1
    assert np.diff(periodic).min() >= 30


def test_a_run_without_a_folder_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = memes.run(algorithm, **OPTIONS | {"progress": True})
    assert run.folder is None
    assert not list(tmp_path.iterdir())


def test_progress_can_be_given_as_an_observer(capsys):
    memes.run(algorithm, **OPTIONS | {"progress": True}, observers=[Progress()])
    assert capsys.readouterr().err.count("generation 40/40") == 1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: Checkpoints(every=-1), "checkpoint_every must be at least 0, got -1"),
        (lambda: Checkpoints(every="x"), "every must be int or None, got 'x'"),
        (lambda: Corrections(every=-1), "reevaluate_every must be at least 0"),
        (lambda: Corrections(samples=0), "reevaluate_samples must be at least 1, got 0"),
        (lambda: Corrections(every_samples=0), "reevaluate_every_samples must be at least 1, got 0"),
        (lambda: Corrections(statistic="mode"), "statistic must be one of median, mean, got 'mode'"),
        (lambda: Figures(draw="no"), "draw must be bool, got 'no'"),
    ],
)
def test_wrong_settings_are_named(wrong, sentence):
    with pytest.raises(memes.UsageError, match=sentence):
        wrong()
