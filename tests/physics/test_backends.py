"""The results of all backends agree up to float32 rounding. Robots do not affect each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from memes import physics
from memes.errors import UsageError
from memes.kernels.cuda import devices
from memes.kernels.cxx import compiler

SUBSTEPS, FAST = 5, physics.Fidelity(4, 2)
ANTS = 256  # equals `ROBOTS` in test_rollouts.py, so that a step is compiled only once
SIZES = {
    "ant": ANTS,
    "ant_trap": 64,
    "hexapod": 13,
    "hopper": 64,
    "unlike_legs": 23,
    "walls": 64,
    "shapes": 64,
}
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
native, cuda = (pytest.param(name, marks=needs_compiler) for name in ("native", "cuda"))


@pytest.fixture(scope="module")
def states(kit):
    """Initial states for all backends, by the name of the model. Many of these states are in contact."""
    return {name: kit.states(name, n, seed=5, speed=0.5, spread=0.2) for name, n in SIZES.items()}


@pytest.fixture(scope="module")
def engines(kit, fast_ants):
    """Return a function that creates an engine and its compiled step, once per model and backend."""
    made = {("ant", "xla"): (fast_ants.engine, fast_ants.step)}

    def find(name, backend):
        if (name, backend) not in made:
            engine = physics.compile(kit.load(name), substeps=SUBSTEPS, fidelity=FAST, backend=backend)
            made[name, backend] = engine, engine.step if backend == "numpy" else jax.jit(engine.step)
        return made[name, backend]

    return find


@pytest.fixture
def after(engines, states, emulated_cuda):
    """Return a function that computes one control step, and returns qpos and qvel [N, nq + nv]."""

    def find(name, backend):
        engine, step = engines(name, backend)
        given = states[name]
        state = step(engine.init(given.qpos, given.qvel), given.ctrl)
        assert not np.asarray(state.failed).any()
        return np.concatenate([engine.qpos(state), engine.qvel(state)], axis=1)

    return find


def assert_equal_to_rounding(a, b):
    """Check equality up to float32 rounding.

    The errors of one robot in 100 may be larger, because contacts are discontinuous.
    """
    error = np.abs(a - b).max(axis=1) / np.maximum(1.0, np.abs(b).max(axis=1))
    assert np.median(error) < 2e-6
    assert np.quantile(error, 0.99, method="lower") < 1e-5
    assert error.max() < 1e-3


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("ant", "xla"),
        ("walls", "xla"),
        # A warp simulates 5 robots with 6 legs, or 10 robots with 3 legs. The hopper has no legs.
        pytest.param("ant", "cuda", marks=needs_compiler),
        pytest.param("ant_trap", "cuda", marks=needs_compiler),
        pytest.param("hexapod", "cuda", marks=needs_compiler),
        pytest.param("unlike_legs", "cuda", marks=needs_compiler),
        pytest.param("hopper", "cuda", marks=needs_compiler),
        pytest.param("ant", "native", marks=needs_compiler),
        pytest.param("ant_trap", "native", marks=needs_compiler),
        pytest.param("hopper", "native", marks=needs_compiler),
        pytest.param("shapes", "cuda", marks=needs_compiler),  # 2 legs: 16 robots in a warp
        pytest.param("shapes", "native", marks=[needs_compiler, pytest.mark.long]),
        pytest.param("shapes", "xla", marks=pytest.mark.long),
        pytest.param("hexapod", "xla", marks=pytest.mark.long),
    ],
)
def test_float32_agrees_with_float64_up_to_rounding(kit, states, after, name, backend):
    assert kit.by_mujoco(kit.load(name), states[name]).contacts.sum() > len(states[name].qpos) // 4
    assert_equal_to_rounding(after(name, backend), after(name, "numpy"))


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param("hopper", "native", marks=needs_compiler),
        pytest.param("unlike_legs", "cuda", marks=needs_compiler),
        pytest.param("hopper", "xla", marks=pytest.mark.long),
    ],
)
def test_runge_kutta_in_float32_agrees_with_float64(kit, states, emulated_cuda, name, backend):
    found = []
    for each in (backend, "numpy"):
        engine = physics.compile(kit.load(name, "rk4"), substeps=2, fidelity=FAST, backend=each)
        given = states[name]
        state = engine.step(engine.init(given.qpos, given.qvel), given.ctrl)
        found.append(np.concatenate([engine.qpos(state), engine.qvel(state)], axis=1))
    assert_equal_to_rounding(*found)


@pytest.mark.parametrize("backend", [cuda, native])
def test_backends_agree_on_ants(after, backend):
    assert_equal_to_rounding(after("ant", backend), after("ant", "xla"))


def test_auto_selects_an_available_backend(kit):
    engine = physics.compile(kit.load("hopper"), substeps=SUBSTEPS, fidelity=FAST)
    assert engine.backend in ("xla", "cuda", "native")


@pytest.mark.parametrize("backend", ["numpy", "xla", cuda, native])
def test_only_the_robot_that_fails_is_frozen_and_flagged(engines, states, emulated_cuda, backend):
    engine, step = engines("ant", backend)
    given = states["ant"]
    start = engine.init(given.qpos, given.qvel)
    clean = step(start, given.ctrl)
    broken = given.ctrl.copy()
    broken[3], broken[100, 2] = np.nan, np.nan
    victims = np.zeros(ANTS, bool)
    victims[[3, 100]] = True

    hurt = step(start, broken)
    np.testing.assert_array_equal(hurt.failed, victims)
    np.testing.assert_array_equal(hurt.rows[:, victims], start.rows[:, victims])
    np.testing.assert_array_equal(hurt.rows[:, ~victims], clean.rows[:, ~victims])

    later = step(hurt, given.ctrl)  # failed robots stay failed with valid controls
    np.testing.assert_array_equal(later.failed, victims)
    np.testing.assert_array_equal(later.rows[:, victims], start.rows[:, victims])
    expected = step(clean, given.ctrl)
    np.testing.assert_array_equal(later.rows[:, ~victims], expected.rows[:, ~victims])


@pytest.mark.parametrize("backend", ["xla", cuda, native])
def test_a_robot_that_overflows_is_flagged(engines, states, emulated_cuda, backend):
    engine, step = engines("ant", backend)
    qvel = states["ant"].qvel.copy()
    qvel[7] = 1e30
    state = step(engine.init(states["ant"].qpos, qvel), states["ant"].ctrl)
    np.testing.assert_array_equal(np.flatnonzero(state.failed), [7])
    assert np.isfinite(state.rows).all()


@pytest.mark.parametrize("backend", ["numpy", "xla", native])
def test_permuted_robots_give_permuted_results(engines, states, backend):
    engine, step = engines("ant", backend)
    order = np.random.default_rng(0).permutation(ANTS)
    qpos, qvel, ctrl = states["ant"]
    result = step(engine.init(qpos, qvel), ctrl)
    permuted = step(engine.init(qpos[order], qvel[order]), ctrl[order])
    np.testing.assert_array_equal(permuted.rows, result.rows[:, order])


@pytest.mark.parametrize("backend", [cuda, native])
def test_a_robot_near_a_wall_does_not_depend_on_other_robots(kit, engines, emulated_cuda, backend):
    engine, step = engines("ant_trap", backend)
    qpos, qvel, ctrl = kit.states("ant_trap", 48, seed=6, speed=0.5, spread=0.2)
    qpos[::3, 0] = 0.0  # far from the walls
    touching = np.asarray(engine.contacts(engine.init(qpos, qvel)))
    at_walls = touching[:, [i for i, name in enumerate(engine.contact_names) if "wall" in name]].any(1)
    assert 8 < at_walls.sum() < 40

    def stepped(rows):
        return np.asarray(step(engine.init(qpos[rows], qvel[rows]), ctrl[rows]).rows)

    together = stepped(np.arange(48))
    order = np.random.default_rng(0).permutation(48)
    np.testing.assert_array_equal(stepped(order), together[:, order])
    for alone in (np.flatnonzero(at_walls), np.flatnonzero(~at_walls), np.arange(7), np.array([9])):
        np.testing.assert_array_equal(stepped(alone), together[:, alone])


@pytest.mark.parametrize("backend", [cuda, native])
def test_a_step_can_be_mapped_over_seeds(engines, states, emulated_cuda, backend):
    engine, step = engines("hexapod", backend)
    qpos, qvel, ctrl = (x[:12] for x in states["hexapod"])
    start = engine.init(qpos, qvel)
    expected = step(start, ctrl)
    parts = jax.tree.map(lambda x: jnp.stack(jnp.split(x, 4, axis=-1)), start)
    each = jax.jit(jax.vmap(engine.step))(parts, jnp.asarray(ctrl).reshape(4, 3, -1))
    np.testing.assert_array_equal(jnp.concatenate([*each.rows], axis=1), expected.rows)
    np.testing.assert_array_equal(each.flags.reshape(-1), expected.flags)


def test_cuda_needs_a_gpu(kit):
    if devices():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UsageError, match="backend 'cuda' needs an NVIDIA GPU"):
        physics.compile(kit.load("hopper"), backend="cuda")


def test_the_number_of_robots_does_not_change_a_row(engines, states):
    engine, step = engines("walls", "xla")
    qpos, qvel, ctrl = states["walls"]
    many = step(engine.init(qpos, qvel), ctrl)
    few = step(engine.init(qpos[:5], qvel[:5]), ctrl[:5])
    np.testing.assert_allclose(few.rows[:7], many.rows[:7, :5], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(few.failed, many.failed[:5])


def test_a_scan_agrees_with_a_loop(engines, states):
    engine, step = engines("walls", "xla")
    start = engine.init(states["walls"].qpos, states["walls"].qvel)
    ctrl = jnp.asarray(states["walls"].ctrl)

    @jax.jit
    def scanned(state):
        return jax.lax.scan(lambda s, _: (engine.step(s, ctrl), engine.qpos(s)), state, length=3)

    end, visited = scanned(start)
    looped, expected = start, []
    for _ in range(3):
        expected.append(engine.qpos(looped))
        looped = step(looped, ctrl)
    np.testing.assert_array_equal(visited[0], expected[0])
    # Rounding errors grow along a trajectory, in particular at contacts.
    assert np.median(np.abs(visited - np.array(expected))) < 1e-6
    assert np.median(np.abs(end.rows - looped.rows)) < 1e-5


def test_measurements_agree_with_the_reference(engines, states, fast_ants):
    engine, reference = fast_ants.engine, engines("ant", "numpy")[0]
    given = states["ant"]
    ours, theirs = engine.init(given.qpos, given.qvel), reference.init(given.qpos, given.qvel)
    for measure in ("qpos", "qvel", "body_positions", "geom_positions", "site_positions"):
        a, b = getattr(engine, measure)(ours), getattr(reference, measure)(theirs)
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_array_equal(engine.contacts(ours), reference.contacts(theirs))
    assert engine.contact_names == reference.contact_names


@needs_compiler
def test_native_code_needs_no_cache(kit, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    engine = physics.compile(kit.load("hopper"), substeps=1, fidelity=FAST, backend="native")
    state = engine.step(
        engine.init(jnp.asarray(engine.model.qpos0[None])), jnp.zeros((1, engine.model.nu))
    )
    assert not np.asarray(state.failed).any()
