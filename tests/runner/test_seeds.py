import jax
import numpy as np
import pytest

import memes
from memes.runner import memory

task = memes.tasks.arm(joints=4)
cells = memes.cells.grid(task, (10, 10))
algorithm = memes.presets.memes(task, cells, lanes=4, samples=8, stale_budget=2, fifo_size=64)
SEEDS = (0, 3, 5)


@pytest.fixture(scope="module")
def single():
    """A run of each seed by itself."""
    return memes.run_seeds(algorithm, seeds=SEEDS, generations=12, together=1, progress=False)


def assert_agree(results, expected):
    """Whatever is recorded of two lists of runs is equal up to rounding, times aside."""
    for result, other in zip(results, expected, strict=True):
        assert set(result.metrics) == set(other.metrics)
        for name in set(other.metrics) - {"seconds"}:
            np.testing.assert_allclose(result.metrics[name], other.metrics[name], rtol=1e-5)
        for name in other.lanes:
            np.testing.assert_allclose(result.lanes[name], other.lanes[name], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(result.archive.fitness, other.archive.fitness, rtol=1e-5)
        np.testing.assert_allclose(result.archive.genotypes, other.archive.genotypes, atol=1e-5)


def test_seeds_one_after_the_other_are_the_runs_themselves_and_compile_once(single):
    alone = memes.run(algorithm, generations=12, seed=SEEDS[1], progress=False)
    jax.tree.map(np.testing.assert_array_equal, single[1].state, alone.state)
    jax.tree.map(np.testing.assert_array_equal, single[1].lanes, alone.lanes)
    assert [result.config["seed"] for result in single] == list(SEEDS)
    compiled = [result.config["compile_seconds"] for result in single]
    assert max(compiled[1:]) < compiled[0] / 10


def test_seeds_together_are_the_runs_themselves_up_to_rounding(single, monkeypatch, capsys, tmp_path):
    """Memory is said to have room for two of the three seeds: the second batch is half empty."""
    needs = iter([1000, 10])
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr(memory, "most", lambda programs: next(needs))
    results = memes.run_seeds(algorithm, seeds=SEEDS, generations=12, out=tmp_path)
    said = capsys.readouterr().err
    assert "3 seeds of memes together" in said
    assert "2 seeds of memes together" in said
    assert_agree(results, single)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["seed-0", "seed-3", "seed-5"]
    for seed, result in zip(SEEDS, results, strict=True):
        saved = memes.load_run(tmp_path / f"seed-{seed}")
        jax.tree.map(np.testing.assert_array_equal, saved.archive, result.archive)
        assert saved.config["seed"] == seed
        assert saved.config["seeds_together"] == (1 if seed == 5 else 2)
        assert saved.config["generations_done"] == 12


def test_a_simulator_on_the_host_runs_no_seeds_together():
    host = memes.Task(
        **{
            **vars(task),
            "evaluate": lambda keys, x: (np.zeros(len(x)), np.full((len(x), 2), 0.5)),
            "jit": False,
        }
    )
    chosen = memes.presets.me(host, cells, batch=4)
    with pytest.raises(memes.UsageError, match="together must be 1"):
        memes.run_seeds(chosen, seeds=[1, 2], generations=2, together=2, progress=False)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"seeds": []}, "seeds must name at least one"),
        ({"seeds": [1, 1]}, "seeds must differ"),
        ({"seeds": [-1]}, "seed must lie in"),
        ({"together": 0}, "together must be at least 1"),
        ({"generations": 0}, "generations must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(wrong, sentence):
    with pytest.raises(memes.UsageError, match=sentence):
        memes.run_seeds(algorithm, **{"seeds": [0], "generations": 2, **wrong}, progress=False)
