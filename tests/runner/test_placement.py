"""Results do not depend on the devices and processes that compute them."""

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
from memes.runner import multihost

pytestmark = pytest.mark.usefixtures("compiled_once", "no_figures")
TESTS = Path(__file__).parents[1]
WITH_SHAPES_CHECKED = """
import sys, shapes
shapes.check()  # before memes is imported
import placements
placements.report(sys.argv[1])
"""


def environment(**changes):
    """Return environment variables that give a new process the compilation settings of this process."""
    path = os.pathsep.join([str(Path(memes.__file__).parents[1]), str(TESTS)])
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    cache = {"JAX_COMPILATION_CACHE_DIR": jax.config.values["jax_compilation_cache_dir"]}
    return os.environ | quick | cache | changes


def on_eight_devices(argument):
    """Return everything that `placements` prints."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-c", WITH_SHAPES_CHECKED, str(argument)],
        env=environment(XLA_FLAGS=flags),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found(tmp_path_factory, compiled_once):
    return on_eight_devices(tmp_path_factory.mktemp("placed"))


@pytest.mark.parametrize("name", [*placements.QUICK, "seeds", "resumed"])
def test_results_of_equal_shards_are_bitwise_equal_on_any_number_of_devices(found, name):
    assert len(found[name]) >= 2
    assert len(set(found[name].values())) == 1, found[name]


@pytest.mark.long
def test_without_isolation_results_depend_on_the_number_of_devices():
    """If this test fails, XLA no longer fuses across shards, so `sharding.isolated` can be deleted."""
    found = on_eight_devices(placements.WITHOUT_ISOLATION)
    assert found["1"] != found["8"]


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(placements.RUNS) - set(placements.QUICK)))
def test_results_of_slow_cases_are_bitwise_equal_on_any_number_of_devices(name):
    (bytes_of,) = on_eight_devices(name).values()
    assert len(bytes_of) == 2
    assert len(set(bytes_of.values())) == 1, bytes_of


@pytest.mark.long
def test_results_of_every_preset_are_bitwise_equal_on_any_number_of_devices():
    found = on_eight_devices("presets")
    assert set(found) == set(memes.PRESETS)
    for name, bytes_of in found.items():
        assert len(bytes_of) == 2, name
        assert len(set(bytes_of.values())) == 1, (name, bytes_of)


@pytest.mark.long
def test_results_on_three_five_six_and_seven_devices_equal_those_on_one():
    found = on_eight_devices(placements.ODD_NUMBERS)
    assert set(found) == {"3", "5", "6", "7"}
    for devices, (one, many) in found.items():
        assert one == many, devices


def test_results_depend_on_the_number_of_shards(found):
    lanes = placements.RUNS["lanes"]()
    alone = memes.run(lanes, generations=5, progress=False)
    assert alone.config.shards == 1
    assert placements.digest(alone) not in found["resumed"].values()


def test_wrong_numbers_of_devices_and_shards_are_named(found):
    assert found["refused"]["devices"].startswith("devices must be at most 8, the number that JAX has")
    assert found["refused"]["shards"] == "shards must be a multiple of devices, 4, got 6"


def test_a_host_task_cannot_be_sharded():
    task = memes.Task("host", 2, (0,), (1,), lambda key, n: np.zeros((n, 2)), host, jit=False)
    with pytest.raises(memes.UsageError, match="shards must be 1 for task 'host', which runs on the"):
        memes.run(memes.presets.me(task, batch=2), generations=1, shards=2, progress=False)


def host(keys, x):
    return np.zeros(len(x)), np.zeros((len(x), 1))


# ------------------------------------------------------------------------------------------ processes

OPTIONS = "--joints 4 --resolution 6 6 --lanes 4 --samples 8 --fifo-size 32 --checkpoint-every 20"


def start(words, count):
    """Start a command in several processes, with the options that connect these processes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        joined = f"--coordinator 127.0.0.1:{server.getsockname()[1]} --processes {count} --process"
    return [process(f"{words} {joined} {index}") for index in range(count)]


def launch(words, count):
    """Start a command in several processes, with the environment variables that Slurm sets."""
    tasks = {"SLURM_STEP_NUM_TASKS": count, "SLURM_NTASKS": count, "SLURM_JOB_ID": os.getpid()}
    about = {**tasks, "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_NODES": 1}
    return [process(words, **about, SLURM_PROCID=i, SLURM_LOCALID=i) for i in range(count)]


def process(words, **variables):
    return subprocess.Popen(
        [sys.executable, "-m", "memes", *words.split()],
        env=environment(**{name: str(value) for name, value in variables.items()}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_checkpoint(processes, folder):
    deadline = time.monotonic() + 200
    while not list((folder / "checkpoints").glob("*.npz")):
        assert processes[0].poll() is None, processes[0].communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def small():
    task = memes.tasks.arm(joints=4)
    return memes.presets.memes(task, memes.cells.grid(task, (6, 6)), lanes=4, samples=8, fifo_size=32)


def test_a_process_that_dies_ends_the_others_and_the_run_can_be_resumed(tmp_path):
    words = f"run arm {OPTIONS} --generations 1000000 --call-seconds 0.1 --out {tmp_path / 'run'}"
    processes = start(words, 2)
    try:
        wait_for_checkpoint(processes, tmp_path / "run")
        processes[1].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        printed, _ = processes[0].communicate(timeout=60)
        assert time.monotonic() - killed < 30
    finally:
        for process in processes:
            process.kill()
    assert processes[0].returncode == 1
    assert "memes: process 1 of this run ended or cannot be reached; 'memes resume'" in printed
    assert "generation" not in processes[1].communicate()[0]  # only the first process prints progress

    newest = max(int(file.stem) for file in (tmp_path / "run/checkpoints").glob("*.npz"))
    resumed = memes.resume(small(), tmp_path / "run", generations=newest + 5, progress=False)
    whole = memes.run(small(), generations=newest + 5, shards=2, progress=False)
    assert placements.digest(resumed) == placements.digest(whole)


def test_workers_of_mpi_are_not_joined(monkeypatch):
    """`mpirun` starts all workers together, but only the first worker runs `memes`."""
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "3")
    monkeypatch.setitem(sys.modules, "mpi4py.futures", None)
    monkeypatch.setattr(jax.distributed, "initialize", None)
    assert memes.join_processes().count == 1


@pytest.mark.long
def test_processes_stop_together_and_can_be_resumed_with_another_number(tmp_path):
    """Two processes receive SIGTERM, as from Slurm.

    Three processes resume the run. The run has two shards, so one process waits.
    """
    folder = tmp_path / "run"
    words = f"run arm {OPTIONS} --generations 1000000 --call-seconds 0.1 --no-figures-draw"
    processes = start(f"{words} --out {folder}", 2)
    try:
        wait_for_checkpoint(processes, folder)
        for process in processes:
            process.terminate()
        printed = [process.communicate(timeout=60)[0] for process in processes]
        assert [process.returncode for process in processes] == [143, 0], printed
        assert "(SIGTERM); 'memes resume" in printed[0]
        assert "memes" not in printed[1]
        more = memes.load_run(folder).generations + 5
        processes = launch(f"resume {folder} --generations {more}", 3)
        printed = [process.communicate(timeout=200)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0, 0], printed
    assert "2 x cpu (of 3: the others are idle)" in printed[0]
    whole = memes.run(small(), generations=more, shards=2, progress=False).archive
    for one, other in zip(*map(jax.tree.leaves, (memes.load_run(folder).archive, whole)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_invalid_connection_causes_no_delay():
    """One connection sends nothing, one sends an invalid request, and one sends a part of the token."""
    server = socket.create_server(("127.0.0.1", 0))
    place, token = server.getsockname(), "0123456789abcdef" * 2
    strangers = [socket.create_connection(place) for _ in range(3)]
    strangers[1].sendall(b"GET / HTTP/1.1\r\n" * 10)
    strangers[2].sendall(token[:20].encode())
    members = [socket.create_connection(place) for _ in range(2)]
    for i, member in enumerate(members, 1):
        member.sendall(f"{token} {i:8}".encode())
    began = time.monotonic()
    found = dict(multihost.welcomed(server, token, 2))
    assert time.monotonic() - began < 5
    assert sorted(found) == [1, 2]
    for each in (*strangers, *members, *found.values()):
        each.close()


def test_processes_that_do_not_join_give_an_error_message(monkeypatch):
    monkeypatch.setattr(multihost, "PATIENCE", 0.3)
    server = socket.create_server(("127.0.0.1", 0))
    with pytest.raises(memes.RunError, match="only 0 of 1 processes have connected"):
        list(multihost.welcomed(server, "token", 1))
