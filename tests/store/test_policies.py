"""Policies exported for use with NumPy."""

import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.commands.main import main
from memes.control.tree_policies import identity
from memes.store.policies import export_policy

MAZE = memes.tasks.point_maze(steps=4, hidden=(3,))
PAGE = Path(__file__).parents[2] / "docs/howto/archives.md"


def act_of(file):
    """Return the documented function that loads a policy from a file."""
    (snippet,) = re.findall(r"```python\n(import numpy as np\n.*?)```", PAGE.read_text(), re.DOTALL)
    names = {}
    exec(snippet.replace("runs/maze/export/policy.npz", str(file)).rpartition("print(")[0], names)
    return names["act"]


def with_controller(controller):
    return replace(MAZE, control=MAZE.control._replace(controller=controller), dim=controller.dim)


def make(key):
    a, b = jax.random.split(key)
    return {
        "1": {"b": jnp.ones(4), "w": jax.random.normal(a, (2, 4))},
        "2": {"b": jnp.ones(2), "w": jax.random.normal(b, (4, 2))},
    }


def apply(tree, seen):
    hidden = jnp.tanh(seen @ tree["1"]["w"] + tree["1"]["b"])
    return hidden @ tree["2"]["w"] + tree["2"]["b"]


CONTROLLERS = {
    "mlp": lambda: memes.control.mlp([2, 5, 3, 2]),
    "linear": lambda: memes.control.mlp([2, 2], output=identity),
    "tree": lambda: memes.control.tree_policy(make, apply, observation_size=2),
}


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_documented_numpy_code_acts_as_the_policy(name, tmp_path):
    controller = CONTROLLERS[name]()
    task = with_controller(controller)
    cells = memes.cells.grid(MAZE, (2, 2))
    x = 3 * jax.random.normal(jax.random.key(0), (4, controller.dim))
    corners = cells.low + jnp.array([[0, 0], [0, 1], [1, 0], [1, 1]]) * (cells.high - cells.low)
    archive, _ = memes.archive.add(
        memes.archive.empty(cells, controller.dim),
        x,
        memes.Evaluation(jnp.arange(4.0), corners),
        jnp.ones(4, bool),
        lane=jnp.zeros(4, int),
        generation=0,
    )
    file = export_policy(archive, 2, task, tmp_path)
    seen = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    np.testing.assert_allclose(act_of(file)(seen), controller.policy(x[2], seen), rtol=1e-5, atol=1e-5)
    with np.load(file) as saved:
        assert (int(saved["cell"]), float(saved["fitness"]), saved["feature"].shape) == (2, 2.0, (2,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "maze"
    words = "--algorithm me --batch 16 --generations 2 --steps 4 --hidden 3 --quiet --out"
    assert main(["run", "point-maze", *words.split(), str(folder)]) == 0
    return folder


def test_the_command_exports_the_fittest_or_the_named_elite(folder, capsys, tmp_path):
    run = memes.load_run(folder)
    fitness, elites = np.asarray(run.archive.fitness), np.flatnonzero(run.archive.occupied)
    other = int(elites[np.argmin(fitness[elites])])
    for words, cell in ([], int(fitness.argmax())), (["--cell", str(other)], other):
        assert main(["export", str(folder), "--to", "policy", *words]) == 0
        assert capsys.readouterr().out == f"{folder}/export/policy.npz\n"
        with np.load(folder / "export/policy.npz") as saved:
            assert int(saved["cell"]) == cell
            genotype = run.archive.genotypes[cell]
            np.testing.assert_array_equal(
                saved["weights_0"].ravel(), genotype[: saved["weights_0"].size]
            )
    (tmp_path / "policy.npz").write_text("mine")
    assert main(["export", str(folder), "--to", "policy", "--out", str(tmp_path)]) == 2
    assert "out must not contain 'policy.npz'" in capsys.readouterr().err
    assert main(["export", str(folder), "--to", "csv", "--cell", "1"]) == 2
    assert "cell is for --to policy, got --to csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (memes.tasks.arm(joints=2), "task 'arm' has no policy that is a perceptron in float32"),
        (
            with_controller(memes.control.mlp([2, 2], output=jnp.sin)),
            "activations of the policy must be relu, tanh, identity to be exported",
        ),
        (
            with_controller(memes.control.mlp([2, 2], weights="bfloat16")),
            "has no policy that is a perceptron in float32, .* export the genotypes with npz",
        ),
    ],
)
def test_policies_that_cannot_be_exported_are_refused(task, sentence, tmp_path):
    archive = memes.archive.empty(memes.cells.grid(MAZE, (2, 2)), task.dim)
    with pytest.raises(memes.UsageError, match=sentence):
        export_policy(archive, 0, task, tmp_path)
    assert not list(tmp_path.iterdir())
