"""Files of archives with custom cells."""

import sys
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes import UsageError
from memes.archive import empty
from memes.store import checkpoint

TASK = memes.tasks.arm(joints=3)
pytestmark = pytest.mark.usefixtures("no_figures")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rings:
    """Rings around a point, with a title."""

    low: jax.Array
    high: jax.Array
    radius: jax.Array
    middle: tuple[float, float] = field(metadata={"static": True})
    title: str = field(default="rings", metadata={"static": True})

    @property
    def count(self):
        return len(self.radius) + 1

    def index(self, feature):
        apart = jnp.linalg.norm(jnp.asarray(feature) - jnp.array(self.middle), axis=-1)
        return jnp.sum(apart[..., None] > self.radius, axis=-1).astype(jnp.int32)


RINGS = Rings(jnp.zeros(2), jnp.ones(2), jnp.array([0.1, 0.2, 0.3]), (0.5, 0.5))


class Inner:
    """A class that contains a class of cells."""

    @jax.tree_util.register_dataclass
    @dataclass(frozen=True)
    class Halves:
        """Two cells."""

        low: jax.Array
        high: jax.Array
        count: int = field(default=2, metadata={"static": True})

        def index(self, feature):
            return (jnp.asarray(feature)[..., 0] > 0.5).astype(jnp.int32)


def filled(cells):
    rng = np.random.default_rng(0)
    return empty(cells, 2).add(rng.normal(size=(9, 2)), rng.normal(size=9), rng.random((9, 2)))[0]


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize(
    "cells", [RINGS, Inner.Halves(jnp.zeros(2), jnp.ones(2))], ids=["rings", "halves"]
)
def test_a_saved_archive_is_read(cells, tmp_path):
    archive = filled(cells)
    memes.save_archive(tmp_path / "a.npz", archive)
    assert_same(memes.load_archive(tmp_path / "a.npz"), archive)


def test_runs_are_saved_resumed_and_followed(tmp_path):
    algorithm = memes.presets.me(TASK, RINGS, batch=16)
    setting = {"progress": False, "observers": [memes.Checkpoints(every=2)]}
    whole = memes.run(algorithm, generations=4, out=tmp_path / "whole", **setting)
    assert len(whole.archive) > 1
    assert_same(memes.load_run(tmp_path / "whole").archive, whole.archive)
    elites = checkpoint.load_elites(checkpoint.newest(tmp_path / "whole"))
    assert_same(elites, whole.archive)
    memes.run(algorithm, generations=2, out=tmp_path / "part", **setting)
    assert_same(
        memes.resume(algorithm, tmp_path / "part", generations=4, **setting).archive, whole.archive
    )


NAMES = {
    "a module that is not imported": "antigravity:Rings",
    "no class of that name": f"{__name__}:Circles",
    "a class that starts a process": "subprocess:Popen",
    "a function": "os:system",
    "a dataclass that is no cells": "memes.task:Task",
    "a name that is computed on access": "memes:Grid",
    "an attribute of an attribute": f"{__name__}:RINGS.index",
    "no name": "",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_class_names_in_files_are_not_imported_or_called(name, tmp_path):
    file = tmp_path / "a.npz"
    memes.save_archive(file, filled(RINGS))
    with np.load(file) as arrays:
        changed = dict(arrays) | {"cells_class": np.array(name)}
    np.savez(file, **changed)
    modules = set(sys.modules)
    with pytest.raises(UsageError, match=f"has cells of the class {name}.*, which this program has not"):
        memes.load_archive(file)
    assert set(sys.modules) == modules


def test_fields_that_are_missing_or_wrong_are_refused(tmp_path):
    file = tmp_path / "a.npz"
    memes.save_archive(file, filled(RINGS))
    with np.load(file) as arrays:
        found = dict(arrays)
    for changed in (
        {name: array for name, array in found.items() if name != "cells/radius"},
        found | {"cells/low": np.zeros(3)},
        found | {"cells/radius": np.zeros(0)},  # there is only one cell for several elites
    ):
        np.savez(file, **changed)
        with pytest.raises(UsageError, match="damaged"):
            memes.load_archive(file)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tagged(Inner.Halves):
    """Custom cells with a field that cannot be stored in an array."""

    tag: object = field(default=None, metadata={"static": True})


def test_cells_that_cannot_be_saved_are_refused_before_the_run(tmp_path):
    cells = Tagged(jnp.zeros(2), jnp.ones(2), tag=print)
    algorithm = memes.presets.me(TASK, cells, batch=4)
    with pytest.raises(UsageError, match=r"the class Tagged can be saved only if .* but tag is"):
        memes.run(algorithm, generations=1, out=tmp_path / "run", progress=False)
    assert len(memes.run(algorithm, generations=1, progress=False).archive) > 0

    class Unregistered(Inner.Halves):
        pass

    with pytest.raises(UsageError, match="cells of the class Unregistered must have low, high"):
        memes.presets.me(TASK, Unregistered(jnp.zeros(2), jnp.ones(2)), batch=4)
    with pytest.raises(UsageError, match="cells of the class Rings must have low, high"):
        memes.presets.me(TASK, replace(RINGS, radius=[1.0]), batch=4)
