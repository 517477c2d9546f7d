"""Tests of `--workers`, and of the executors for Ray and Dask. Each executor needs its package."""

import sys

import jax
import numpy as np
import pytest

import memes
import simulators
from memes import UsageError
from memes.errors import install

KEYS = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(5), 11)))
X = np.random.default_rng(0).uniform(0, 0.6, (11, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("word", "options", "sentence"),
    [
        ("rai", {}, "unknown kind of workers 'rai': did you mean 'ray', or a number of processes?"),
        (0, {}, "workers must be at least 1, got 0"),
        ("-2", {}, "workers must be at least 1, got -2"),
        (2, {"timeout": 0.0}, "simulator_timeout must be positive, got 0.0"),
        ("ray", {"timeout": 2.0}, "simulator_timeout is only for local processes; use the time"),
        ("dask", {}, "workers: Dask needs the address of its scheduler, as in dask:tcp://host:8786"),
        ("mpi:x", {}, "workers: mpi takes no address, got 'x'"),
        ("ray", {}, f"workers: 'ray' needs the extra ray: {install('ray')}"),
        ("dask:x", {}, f"workers: 'dask' needs the extra dask: {install('dask')}"),
        ("mpi", {}, f"workers: 'mpi' needs the extra mpi: {install('mpi')}"),
    ],
)
def test_wrong_workers_and_missing_packages_are_named(word, options, sentence, monkeypatch):
    for module in ("ray", "distributed", "mpi4py.futures"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as refused:
        memes.workers(word, **options)
    assert str(refused.value).startswith(sentence)


def check(executor):
    """Check that an executor returns correct results, also if evaluations fail or a worker is killed."""
    expected = np.float32(simulators.hills(KEYS, X)[0])
    for simulator in (simulators.hills, simulators.killed_once):
        task = memes.parallelize(simulators.task(simulator), executor, block=4)
        np.testing.assert_array_equal(task.evaluate(KEYS, X)[0], expected)
    task = memes.parallelize(simulators.task(simulators.misbehaving), executor, block=4)
    x = X.copy()
    x[[1, 9], -1] = 0.75, 0.95
    lost = np.isnan(task.evaluate(KEYS, x)[0])
    np.testing.assert_array_equal(lost, np.isin(np.arange(11), [1, 8, 9, 10]))


@pytest.fixture
def killed_once(tmp_path, monkeypatch):
    """Set the environment variable `KILLED_ONCE`, which `simulators.killed_once` reads."""
    monkeypatch.setenv("KILLED_ONCE", str(tmp_path / "killed"))
    return tmp_path / "killed"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # warnings of Ray
def test_ray(killed_once):
    pytest.importorskip("ray")
    with memes.workers("ray") as executor:
        check(executor)
    assert killed_once.exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask(killed_once):
    distributed = pytest.importorskip("distributed")
    import dask

    local = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    once = dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with (
        once,
        distributed.LocalCluster(**local) as cluster,
        memes.workers(f"dask:{cluster.scheduler_address}") as executor,
    ):
        assert str(executor) == "2 workers of Dask"
        check(executor)
    assert killed_once.exists()
