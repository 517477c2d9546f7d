"""Several worker processes evaluate simulators in Python."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np
import pytest

import memes
import simulators
from memes import RunError, UsageError
from memes.errors import place_of
from memes.runner.simulators import surviving
from signals import interruptible

KEYS = jax.random.split(jax.random.key(5), 11)
X = np.random.default_rng(0).uniform(0, 0.6, (11, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def two():
    with memes.workers(2, timeout=8) as executor:
        yield executor


def archive_of(task):
    cells = memes.cells.grid(simulators.hilly, (10, 10))
    algorithm = memes.presets.memes(task, cells, lanes=2, samples=8, fifo_size=32)
    return memes.run(algorithm, generations=3, seed=1, progress=False).archive


def test_results_depend_on_neither_workers_nor_their_kind(two):
    spawn = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with spawn, ThreadPoolExecutor(3) as threads:
        alone = archive_of(simulators.hilly)
        found = [
            archive_of(memes.parallelize(simulators.hilly, each, block=4))
            for each in (two, spawn, threads)
        ]
    for archive in found:
        for one, other in zip(*map(jax.tree.leaves, (alone, archive)), strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_workers_start_no_backend(two):
    fitness, _ = memes.parallelize(simulators.task(simulators.started_backend), two).evaluate(KEYS, X)
    np.testing.assert_array_equal(fitness, 0)


def test_seeds_equal_random_bits_of_jax():
    seeds, words = memes.seeds_from_keys(KEYS), np.asarray(jax.random.key_data(KEYS))
    np.testing.assert_array_equal(seeds, memes.seeds_from_keys(words))
    assert memes.seeds_from_keys(words[3]) == seeds[3]
    np.testing.assert_array_equal(seeds, np.asarray(jax.vmap(jax.random.bits)(KEYS), np.int64))


def test_tasks_that_cannot_be_parallelized_are_refused(two):
    with pytest.raises(UsageError, match="task 'arm' is compiled by JAX"):
        memes.parallelize(memes.tasks.arm(joints=4), two)
    with pytest.raises(UsageError, match="workers must be at most 10,000, got 1000000"):
        memes.workers(1_000_000)
    for nonsense in (None, "key", 3, [1.5], np.zeros((2, 1), np.uint32), object()):
        with pytest.raises(UsageError, match="keys must be JAX keys"):
            memes.seeds_from_keys(nonsense)
    with pytest.raises(UsageError, match="block must be at least 1, got 0"):
        memes.parallelize(simulators.hilly, two, block=0)
    local = simulators.task(lambda keys, x: simulators.hills(keys, x))
    with pytest.raises(UsageError, match="must be defined at the top level of a module"):
        memes.parallelize(local, two).evaluate(KEYS, X)
    with pytest.raises(UsageError, match=r"must return fitness of shape \(11,\), got \(4,\)"):
        memes.parallelize(simulators.task(simulators.transposed), two).evaluate(KEYS, X)


def test_exceptions_of_workers_contain_their_source_line(two):
    task = memes.parallelize(simulators.task(simulators.wrong), two)
    with pytest.raises(ZeroDivisionError) as raised:
        task.evaluate(KEYS, X)
    assert re.fullmatch(r".*simulators.py, line \d+", place_of(raised.value))


@pytest.mark.long
def test_workers_that_raise_hang_or_are_killed_lose_only_their_rows(two):
    """A failing evaluation does not affect other evaluations, not even evaluations in the same block."""
    x = np.repeat(X[:1], 16, axis=0)
    x[[1, 9, 13], -1] = 0.75, 0.95, 0.85
    keys, printed = jax.random.split(jax.random.key(1), 16), []
    task = surviving(
        memes.parallelize(simulators.task(simulators.misbehaving), two, block=4), printed.append, rows=4
    )
    before = two.replaced
    fitness, feature = task.evaluate(keys, x)
    lost = np.isin(np.arange(16), [1, 9, 13])
    np.testing.assert_array_equal(np.isnan(fitness), lost)
    np.testing.assert_array_equal(feature[~lost], x[~lost, :2])
    # Two evaluations hang or are killed. For each of them, three workers are replaced: two while its
    # block is evaluated, and one while it is evaluated alone.
    assert two.replaced - before == 6
    assert len(printed) == 1
    assert "task 'hills' raised" in printed[0]
    with pytest.raises(
        RunError, match="a worker was killed by SIGKILL for every genotype of a generation"
    ):
        task.evaluate(keys[:4], np.full_like(x[:4], 0.95))
    assert str(two).startswith("2 workers, ")


def test_workers_that_hang_in_the_first_check_lose_only_their_rows(monkeypatch):
    """If all evaluations of the first check fail, the check tries other genotypes."""
    monkeypatch.setenv("ENDS", "hang")
    with memes.workers(2, timeout=0.5) as executor:
        task = memes.parallelize(simulators.task(simulators.ending_often), executor, block=4)
        memes.presets.me(task, batch=4)


@pytest.mark.parametrize(
    ("end", "printed"),
    [
        ("kill", "raised WorkerDied: a worker was killed by SIGSEGV for every genotype that was tried"),
        ("interrupt", "KeyboardInterrupt"),
    ],
)
def test_workers_that_always_end_in_the_first_check_give_an_error(end, printed, monkeypatch):
    monkeypatch.setenv("ENDS", end)
    with memes.workers(2) as executor:
        task = memes.parallelize(simulators.task(simulators.ending_always), executor, block=4)
        with pytest.raises(RuntimeError, match=printed) as error:
            memes.presets.me(task, batch=4)
    assert isinstance(error.value, RunError) or place_of(error.value)


@pytest.mark.parametrize("kind", ["own", "pool"])
def test_a_block_whose_worker_is_lost_is_tried_again(two, kind, tmp_path, monkeypatch):
    """A broken pool is replaced if the user passes a function that creates a new pool."""
    spawn = partial(ProcessPoolExecutor, 2, mp_context=get_context("spawn"))
    monkeypatch.setenv("KILLED_ONCE", str(tmp_path / "killed"))
    task = simulators.task(simulators.killed_once)
    with memes.workers(2) if kind == "own" else spawn() as executor:
        given = executor if kind == "own" else lambda: executor if not executor._broken else spawn()
        task = memes.parallelize(task, given, block=3)
        fitness, _ = task.evaluate(KEYS, X)
        np.testing.assert_array_equal(fitness, np.float32(simulators.hills(KEYS, X)[0]))
        task.evaluate.executors.now.shutdown()


def alive(pid):
    """Return the process id of a running process's parent, or None if the process has ended."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(parent)


def children(pid):
    every = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [each for each in every if alive(each) == pid]


def test_ctrl_c_leaves_no_process_behind(tmp_path):
    """Ctrl-C is sent twice to the whole process group, as in a terminal.

    The first Ctrl-C does not end the run, because the workers hang.
    """
    words = [
        "run",
        f"{simulators.__file__}:stuck",
        "--workers",
        "2",
        "--algorithm",
        "me",
        "--batch",
        "64",
    ]
    run = subprocess.Popen(
        interruptible("-m", "memes", *words, "--out", tmp_path / "run", "--generations", "2"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    printed = ""
    while "compiled in" not in printed:
        line = run.stderr.readline()
        assert line, printed
        printed += line
    deadline = time.monotonic() + 60
    while len(below := children(run.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)  # wait until the workers and a helper process have started
    time.sleep(0.5)
    os.killpg(run.pid, signal.SIGINT)
    while "Ctrl-C again" not in printed:  # otherwise two signals may count as one
        line = run.stderr.readline()
        assert line, printed
        printed += line
    os.killpg(run.pid, signal.SIGINT)
    printed += run.communicate(timeout=60)[1]
    assert run.returncode == 130, printed
    assert "Traceback" not in printed
    assert len(below) >= 3
    time.sleep(0.5)
    assert not [pid for pid in below if alive(pid)]


def test_a_simulator_that_returns_nothing_is_refused(two):
    task = memes.parallelize(simulators.task(simulators.silent), two)
    with pytest.raises(memes.UsageError, match="evaluate must return fitness and feature, got None"):
        task.evaluate(KEYS, X)
