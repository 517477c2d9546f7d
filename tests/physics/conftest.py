"""Models, random states of these models, and reference results of MuJoCo."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import mujoco
import numpy as np
import pytest

import emulation
from memes import physics
from memes.physics import algebra as la
from memes.physics import step as stepping
from memes.physics.algebra import Value
from memes.physics.backends import array_operations
from memes.physics.cuda_backend import cuda_backend
from memes.physics.engine import BACKENDS
from memes.physics.reading import read
from memes.physics.solver import UNROLLED
from memes.physics.stacking import unstacked
from memes.physics.step import Phase


@pytest.fixture(scope="module")
def optimised():
    return True


ROOT = Path(__file__).parents[2]
OURS = Path(__file__).parent / "models"
TASKS = ROOT / "src" / "memes" / "tasks" / "models"
EXACT = physics.Fidelity(30, 8)

# Ranges of random entries of qpos, as (slice, low, high). Some of the resulting states are in contact.
HEIGHTS = {
    "ant": (slice(2, 3), [0.2], [0.8]),
    "ant_trap": (slice(0, 3), [10.6, -2.4, 0.2], [11.4, 2.4, 0.8]),  # inside the trap, near its corners
    "hexapod": (slice(2, 3), [0.05], [0.3]),
    "hopper": (slice(1, 2), [0.3], [1.5]),
    "walls": (slice(0, 3), [-0.9, -0.7, 0.1], [1.6, 1.1, 0.9]),
    "unlike_legs": (slice(2, 3), [0.2], [0.8]),
    "shapes": (slice(2, 3), [0.05], [0.6]),
}


class States(NamedTuple):
    """The states of N robots: qpos[N, nq], qvel[N, nv] and ctrl[N, nu]."""

    qpos: np.ndarray
    qvel: np.ndarray
    ctrl: np.ndarray


class Reference(NamedTuple):
    """The results of one MuJoCo step from N states.

    The fields `qpos` and `qvel` describe the state after the step. All other fields describe the state
    before the step: acceleration, positions, touching pairs of geoms, and whether contacts and limits
    are active.
    """

    qpos: np.ndarray
    qvel: np.ndarray
    acceleration: np.ndarray
    bodies: np.ndarray
    geoms: np.ndarray
    sites: np.ndarray
    touching: list[set[frozenset[str]]]
    contacts: np.ndarray
    limits: np.ndarray


def load(name, integrator=None):
    directory = TASKS if name in ("ant", "ant_trap", "hexapod") else OURS
    return exact(mujoco.MjModel.from_xml_path(str(directory / f"{name}.xml")), integrator)


def exact(model, integrator=None):
    """Make MuJoCo's solver run until it converges, and set the integrator if one is given."""
    if integrator is not None:
        model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator.upper()}")
    model.opt.iterations, model.opt.tolerance = 200, 0
    model.opt.ls_iterations, model.opt.ls_tolerance = 100, 1e-10
    return model


def random_states(model, n, seed=0, heights=None, speed=1.0, spread=0.4):
    """Return states around the model's initial position.

    Some velocities and controls exceed their ranges.
    """
    rng = np.random.default_rng(seed)
    qpos = np.tile(model.qpos0, (n, 1))
    if heights is not None:
        where, low, high = heights
        qpos[:, where] = rng.uniform(low, high, (n, len(low)))
    for row in qpos:
        mujoco.mj_integratePos(model, row, spread * rng.normal(size=model.nv), 1.0)
    return States(qpos, speed * rng.normal(size=(n, model.nv)), rng.uniform(-1.5, 1.5, (n, model.nu)))


def by_mujoco(model, states, steps=1):
    data = mujoco.MjData(model)
    limit = int(mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT)
    found = []
    for qpos, qvel, ctrl in zip(*states, strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = qpos, qvel, ctrl
        mujoco.mj_forward(model, data)
        pairs = {
            frozenset(model.geom(g).name or f"#{g}" for g in contact.geom) for contact in data.contact
        }
        limits = bool((data.efc_type == limit).any())
        before = [data.qacc, data.xpos, data.geom_xpos, data.site_xpos]
        before = [x.copy() for x in before] + [pairs, data.ncon > 0, limits]
        for _ in range(steps):
            mujoco.mj_step(model, data)
        found.append([data.qpos.copy(), data.qvel.copy(), *before])
    columns = [list(column) for column in zip(*found, strict=True)]
    return Reference(*(c if isinstance(c[0], set) else np.array(c) for c in columns))


def acceleration(model, states, fidelity=EXACT):
    """Compute the acceleration without stacking subtrees, in MuJoCo's coordinates and in float64."""
    plain = unstacked(read(model))
    n = len(states.qpos)
    of = array_operations(np, 1, n)

    def values(columns):
        return [Value(x, of) for x in columns.T]

    phase = Phase(values(states.qpos), values(states.qvel), values(np.zeros((n, model.nv))))
    controls = [slot[0] for slot in plain.layout.controls]  # in the order of the joints
    ctrl = values(states.ctrl[:, controls])
    now = stepping.forward(plain.model, plain.tree, phase, ctrl, fidelity, UNROLLED)
    turned = stepping.rotate_free(plain.model, phase, now.acceleration, la.apply_transposed)
    return np.stack([np.broadcast_to(getattr(x, "data", x), (n,)) for x in turned], axis=-1)


def after_step(engine, states):
    """Return the engine's qpos and qvel after one step, as one array [N, nq + nv]."""
    state = engine.step(engine.init(states.qpos, states.qvel), states.ctrl)
    assert not np.asarray(state.failed).any()
    return np.concatenate([engine.qpos(state), engine.qvel(state)], axis=1)


@pytest.fixture(scope="session")
def kit():
    """The helpers of this file.

    `kit.states(name, n)` and `kit.load(name)` accept a name of a library model or a test model.
    """

    def states(name, n, seed=0, **options):
        return random_states(load(name), n, seed, HEIGHTS.get(name), **options)

    return SimpleNamespace(
        load=load,
        exact=exact,
        states=states,
        random_states=random_states,
        by_mujoco=by_mujoco,
        acceleration=acceleration,
        after_step=after_step,
        fidelity=EXACT,
    )


@pytest.fixture(scope="session")
def fast_ants():
    """A physics engine for the Ant, and its compiled functions `step` and `seen`.

    The engine has the `xla` backend, five substeps and the `fast` fidelity. `step` is compiled once for
    each N. `seen` returns qpos and the contacts of a state.
    """
    engine = physics.compile(load("ant"), substeps=5, fidelity="fast", backend="xla")
    seen = jax.jit(lambda state: (engine.qpos(state), engine.contacts(state)))
    return SimpleNamespace(engine=engine, step=jax.jit(engine.step), seen=seen)


@pytest.fixture
def emulated_cuda(monkeypatch):
    """Run the `cuda` backend in an emulator on the CPU."""
    monkeypatch.setitem(BACKENDS, "cuda", partial(cuda_backend, launch=emulation.launch))
