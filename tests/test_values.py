"""Invalid values, and sizes that exceed the memory of any machine, give a one-line error message."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.commands.main import main
from memes.errors import at_least, positive

ARM = memes.tasks.arm(joints=4)
MAZE = memes.tasks.point_maze(steps=3, hidden=(4,))
SMALL = ["--scale", "laptop", "--joints", "4", "--lanes", "2", "--samples", "4", "--fifo-size", "9"]
HUGE = 10**12


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def preset(task=ARM, **options):
    options = {"lanes": 2, "samples": 4, "fifo_size": 9} | options
    return memes.presets.memes(task, memes.cells.grid(task, (5, 5)), **options)


def run(algorithm=None, **options):
    return memes.run(algorithm or preset(), **{"generations": 2, "progress": False} | options)


VALUES = {
    "min_fitness of task 'arm' must be a finite number, got nan": lambda: replace(
        ARM, min_fitness=np.nan
    ),
    "min_fitness of task 'arm' must be a finite number, got 1e+39": lambda: replace(
        ARM, min_fitness=1e39
    ),
    "min_fitness of task 'arm' must be float, got 'low'": lambda: replace(ARM, min_fitness="low"),
    "cost of task 'arm' must be at least 1, got -3": lambda: replace(ARM, cost=-3),
    "cost of task 'arm' must be int, got 2.5": lambda: replace(ARM, cost=2.5),
    "uncertain of task 'arm' must be bool, got 'no'": lambda: replace(ARM, uncertain="no"),
    "jit of task 'arm' must be bool, got None": lambda: replace(ARM, jit=None),
    "resolution of task 'arm' must be tuple[int, ...] or None": lambda: replace(
        ARM, resolution=(2.5, 2.5)
    ),
    "got [-1e+39, 1.0] for feature 0": lambda: replace(ARM, feature_low=(-1e39, 0.0)),
    "got [0.0, 1e+39] for feature 1": lambda: replace(ARM, feature_high=(1.0, 1e39)),
    "got [-3e+38, 3e+38] for feature 0": lambda: replace(
        ARM, feature_low=(-3e38, 0), feature_high=(3e38, 1)
    ),
    "sigma must be positive and finite in float32, got 1e+39": lambda: preset(sigma=1e39),
    "sigma must be positive and finite in float32, got 1e-50": lambda: preset(sigma=1e-50),
    "sigma must be positive and finite in float32, got 1e+40": lambda: preset(
        sigma=1e40, strategy="snes"
    ),
    "learning_rate must be positive and finite in float32": lambda: preset(learning_rate=1e39),
    "l2 must be at most": lambda: preset(l2=1e39),
    "iso must be at most": lambda: memes.presets.me(ARM, iso=1e39),
    "fitness must be at most": lambda: memes.noisy(ARM, fitness=float("inf")),
    "must lie in [0, 2^32), got 4294967296": lambda: run(seed=2**32),
}


@pytest.mark.parametrize(("sentence", "call"), VALUES.items(), ids=VALUES)
def test_an_invalid_value_gives_a_one_line_error(sentence, call):
    with pytest.raises(memes.UsageError) as refused:
        call()
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


SIZES = {
    "lanes": lambda: preset(lanes=2**40),
    "samples": lambda: preset(samples=2**62),
    "samples ": lambda: preset(samples=2**62, strategy="snes"),
    "fifo_size": lambda: preset(fifo_size=HUGE),
    "neighbours": lambda: preset(neighbours=HUGE),
    "rank": lambda: preset(noise="low-rank", rank=HUGE),
    "stale_budget": lambda: preset(stale_budget=HUGE),
    "reset_every": lambda: preset(reset_every=HUGE),
    "candidate_samples": lambda: preset(candidate_samples=HUGE),
    "joints": lambda: memes.tasks.arm(joints=10**10),
    "steps": lambda: memes.tasks.point_maze(steps=HUGE),
    "sizes": lambda: memes.tasks.point_maze(hidden=(HUGE,)),
    "dim of task 'point-maze'": lambda: memes.tasks.point_maze(hidden=(10**5, 10**5)),
    "dim of task 'arm'": lambda: replace(ARM, dim=HUGE),
    "cost of task 'arm'": lambda: replace(ARM, cost=HUGE),
    "n": lambda: memes.resampled(ARM, HUGE),
    "batch": lambda: memes.presets.me(ARM, batch=HUGE),
    "population_size": lambda: memes.presets.ns_es(ARM, population_size=HUGE),
    "replay_size": lambda: memes.presets.pga_me(MAZE, replay_size=HUGE),
    "num_critic_training_steps": lambda: memes.presets.pga_me(MAZE, num_critic_training_steps=HUGE),
    "centroids": lambda: memes.cells.cvt(jax.random.key(0), ARM, HUGE),
    "points": lambda: memes.cells.cvt(jax.random.key(0), ARM, 5, points=HUGE),
    "generations": lambda: run(generations=HUGE),
    "chunk": lambda: run(chunk=HUGE),
    "reevaluate_samples": lambda: memes.Corrections(samples=HUGE),
    "reevaluate_every_samples": lambda: memes.Corrections(every_samples=HUGE),
    "substeps": lambda: memes.tasks.ant(backend="xla") and memes.physics.compile("", substeps=HUGE),
}


@pytest.mark.parametrize(("name", "call"), SIZES.items(), ids=SIZES)
def test_a_size_that_exceeds_any_machine_gives_a_one_line_error(name, call):
    with pytest.raises(memes.UsageError) as refused:
        call()
    assert str(refused.value).startswith(f"{name.strip()} must be at most 100000000, got ")


def test_sizes_whose_product_is_too_large_are_refused():
    with pytest.raises(memes.UsageError, match=r"200000002000000 evaluations per generation"):
        preset(lanes=2_000_000, samples=100_000_000)
    with pytest.raises(memes.UsageError, match=r"evaluations per generation .* of 100000000 entries"):
        preset(memes.tasks.arm(joints=100_000_000), lanes=100_000, samples=1000)
    with pytest.raises(memes.UsageError, match=r"generations x candidates must be at most"):
        run(preset(explore="everything"), generations=90_000_000)


LINES = {
    "lanes": ["run", "arm", *SMALL, "--lanes", str(2**40)],
    "samples": ["run", "arm", *SMALL, "--samples", str(2**62)],
    "joints": ["run", "arm", *SMALL, "--joints", str(10**10)],
    "generations": ["run", "arm", *SMALL, "--generations", str(HUGE)],
    "reevaluate_samples": ["run", "noisy-arm", *SMALL, "--reevaluate-samples", str(HUGE)],
    "seeds": ["run", "arm", *SMALL, "--seeds", str(HUGE)],
    "centroids": ["run", "arm", *SMALL, "--centroids", str(HUGE)],
    "seeds ": ["reproduce", "main", "--seeds", str(HUGE)],
}


@pytest.mark.parametrize(("name", "words"), LINES.items(), ids=LINES)
def test_a_command_with_such_a_size_exits_with_2_and_writes_nothing(name, words, capsys):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"memes: {name.strip()} must be at most 100000000, got ")
    assert printed.err.count("\n") == 1
    assert list(Path().iterdir()) == []


@pytest.mark.usefixtures("traced_once", "no_figures")
def test_numbers_of_numpy_and_jax_are_accepted():
    algorithm = preset()
    wanted = run(algorithm, seed=3)
    for number in (np.int64, np.uint8, jnp.int32, jnp.asarray):
        found = run(algorithm, seed=number(3), generations=number(2), out=f"{number.__name__}")
        np.testing.assert_array_equal(found.metrics["qd_score"], wanted.metrics["qd_score"])
        assert memes.load_run(found.folder).config.seed == 3
    several = run(algorithm, seeds=[jnp.int32(3), np.int64(4)], seeds_per_batch=1)
    np.testing.assert_array_equal(several[0].metrics["qd_score"], wanted.metrics["qd_score"])


def test_at_least_and_positive():
    at_least(0, a=0, b=10**8, c=3e38, d=np.float32(3), e=jnp.int32(3))
    positive(a=1e-37, b=3e38, c=1)
    for wrong in (float("nan"), float("inf"), 1e39, 10**8 + 1, -1):
        with pytest.raises(memes.UsageError, match=r"^x must"):
            at_least(0, x=wrong)
    for wrong in (float("nan"), float("inf"), 0.0, -1.0, 1e-50, 1e39):
        with pytest.raises(memes.UsageError, match=r"^x must"):
            positive(x=wrong)


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("JAX_PLATFORMS", ["run", "arm", *SMALL, "--generations", "2"]),
        ("JAX_PLATFORMS", ["doctor"]),
        ("MUJOCO_GL", ["run", "ant", "--generations", "2"]),
    ],
)
def test_an_invalid_environment_variable_gives_a_one_line_error(variable, words):
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-m", "memes", *words],
        env=os.environ | {variable: "x", "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"memes: {variable}=x: ")
    assert done.stderr.count("\n") == 1
    assert list(Path().iterdir()) == []
