"""Devices and processes: where a run is computed does not change what it computes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import memes
import placements
from memes.shards import ONE, Shards, all_here

pytestmark = pytest.mark.usefixtures("compiled_once", "no_figures")
TESTS = Path(__file__).parents[1]


def environment(**changes):
    """The environment of a process that compiles as this one does."""
    path = os.pathsep.join([str(Path(memes.__file__).parents[1]), str(TESTS)])
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    cache = {"JAX_COMPILATION_CACHE_DIR": jax.config.values["jax_compilation_cache_dir"]}
    return os.environ | quick | cache | changes


def on_eight_devices(argument):
    """All that `placements` prints."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, str(TESTS / "placements.py"), str(argument)],
        env=environment(XLA_FLAGS=flags),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found(tmp_path_factory, compiled_once):
    return on_eight_devices(tmp_path_factory.mktemp("placed"))


@pytest.mark.parametrize("name", [*placements.QUICK, "seeds"])
def test_the_same_shards_are_the_same_bytes_on_any_number_of_devices(found, name):
    assert len(found[name]) >= 2
    assert len(set(found[name].values())) == 1, found[name]


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(placements.RUNS) - set(placements.QUICK)))
def test_so_they_are_where_more_is_compiled(name):
    (bytes_of,) = on_eight_devices(name).values()
    assert len(bytes_of) == 2
    assert len(set(bytes_of.values())) == 1, bytes_of


def test_results_depend_on_the_number_of_shards(found):
    lanes = placements.RUNS["lanes"]()
    alone = memes.run(lanes, generations=5, progress=False)
    assert alone.config["shards"] == 1
    assert placements.digest(alone) not in found["lanes"].values()


def test_refusals_name_the_argument(found):
    assert found["refused"]["devices"] == "devices must be at most the 8 that JAX has here, got 9"
    assert found["refused"]["shards"] == "shards must be a multiple of devices, 4, got 6"


def test_a_task_on_the_host_has_one_device():
    task = memes.Task("host", 2, (0,), (1,), lambda key, n: np.zeros((n, 2)), host, jit=False)
    with pytest.raises(memes.UsageError, match="shards must be 1 for task 'host', which runs on the"):
        memes.run(memes.presets.me(task, batch=2), generations=1, shards=2, progress=False)


def host(keys, x):
    return np.zeros(len(x)), np.zeros((len(x), 1))


def test_rows_are_fetched_by_their_place_among_all():
    x = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    place = np.array([11, 0, 4])
    np.testing.assert_array_equal(all_here(4).fetch(x, place), x.reshape(12, 2)[place])
    np.testing.assert_array_equal(ONE.fetch(x[0], np.array([2, 99])), x[0][[2, 2]])


def test_each_shard_is_computed_from_its_own_rows():
    shards = Shards(3, 3)
    x = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(shards.each(lambda row: row.sum(), x), x.sum(axis=1))
    np.testing.assert_array_equal(shards.gather(shards.mine(x.reshape(6))), x.reshape(6))


# ------------------------------------------------------------------------------------------ processes

OPTIONS = "--joints 4 --resolution 6 6 --lanes 4 --samples 8 --fifo-size 32 --checkpoint-every 20"


def test_a_process_that_dies_ends_the_others_and_the_run_goes_on_without_it(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        coordinator = f"127.0.0.1:{server.getsockname()[1]}"
    words = f"run arm {OPTIONS} --generations 1000000 --call-seconds 0.1 --out {tmp_path / 'run'}"

    def start(index):
        joined = f"--coordinator {coordinator} --processes 2 --process {index}"
        return subprocess.Popen(
            [sys.executable, "-m", "memes", *words.split(), *joined.split()],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    processes = [start(index) for index in range(2)]
    try:
        deadline = time.monotonic() + 200
        while not list((tmp_path / "run/checkpoints").glob("*.npz")):
            assert processes[0].poll() is None, processes[0].communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        processes[1].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        said, _ = processes[0].communicate(timeout=60)
        assert time.monotonic() - killed < 30
    finally:
        for process in processes:
            process.kill()
    assert processes[0].returncode == 1
    assert "memes: process 1 of this run ended or cannot be reached; 'memes resume'" in said
    assert "generation" not in processes[1].communicate()[0]  # it was silent

    newest = max(int(file.stem) for file in (tmp_path / "run/checkpoints").glob("*.npz"))
    task = memes.tasks.arm(joints=4)
    cells = memes.cells.grid(task, (6, 6))
    algorithm = memes.presets.memes(task, cells, lanes=4, samples=8, fifo_size=32)
    resumed = memes.resume(algorithm, tmp_path / "run", generations=newest + 5, progress=False)
    whole = memes.run(algorithm, generations=newest + 5, shards=2, progress=False)
    assert placements.digest(resumed) == placements.digest(whole)
