"""The command `memes doctor`, which shows the hardware and the installation, and tests the library."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from memes.errors import RunError, install
from memes.version import __version__

# Modules that each extra installs.
EXTRAS = {
    "robots": ("mujoco",),
    "cuda": ("jax_cuda12_plugin",),
    "view": ("viser", "trimesh", "imageio_ffmpeg"),
    "evosax": ("evosax",),
    "gymnasium": ("gymnasium", "mujoco", "imageio"),
    "brax": ("brax",),
    "playground": ("mujoco_playground",),
    "ray": ("ray",),
    "dask": ("distributed",),
    "mpi": ("mpi4py",),
    "notebook": ("ipykernel", "pandas"),
    "parquet": ("pyarrow",),
    "track": ("wandb",),
}
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "mujoco", "rich", "matplotlib")


def doctor() -> None:
    """Show versions, devices, memory and missing packages, and test the library in about ten seconds."""
    for line in report():
        print(line)
    failed = []
    for name, check in self_check().items():
        try:
            print(f"{name}: {check()}")
        except Exception as error:  # any exception is a failed check
            failed.append(name)
            print(f"{name}: FAILED: {type(error).__name__}: {error}")
    if failed:
        raise RunError(f"the self-check failed: {', '.join(failed)}")


def report() -> Iterator[str]:
    """Yield the lines that describe this machine."""
    import jax

    from memes.kernels.cxx import compiler
    from memes.runner import memory
    from memes.task import PRECISION

    yield f"memes {__version__}, Python {platform.python_version()}, {platform.platform()}"
    yield ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    free = memory.free()
    share = f", {memory.in_words(free)} of it free for this process" if free else ""
    yield f"{os.cpu_count()} cores, {_memory_of_machine()}{share}"
    for device in jax.devices():
        limit = (device.memory_stats() or {}).get("bytes_limit")
        usable = f", {memory.in_words(limit)} usable" if limit else ""
        yield f"device {device.id}: {device.device_kind}{usable}"
    if jax.default_backend() == "cpu" and shutil.which("nvidia-smi"):
        yield f"there is an NVIDIA GPU that JAX does not use: {install('cuda')}"
    config = jax.config.values
    wide, cache = config.get("jax_enable_x64"), config.get("jax_compilation_cache_dir")
    yield f"matrix products in precision '{PRECISION}', 64-bit floats {'on' if wide else 'off'}"
    if cache and config.get("jax_enable_compilation_cache"):
        yield f"compiled programs are cached in {cache}"
    else:
        yield "compiled programs are not cached; set JAX_COMPILATION_CACHE_DIR to a folder for them"
    yield f"C++ compiler for physics on CPUs: {compiler() or 'none, so physics is ten times slower'}"
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        lack = f"missing {', '.join(missing)}: {install(extra)}"
        yield f"extra '{extra}': {lack if missing else 'installed'}"


def self_check() -> dict[str, Callable[[], str]]:
    """Return the checks that the installed packages allow, as a dict from names to functions.

    Each check returns a description of its result, or raises an exception.
    """
    checks = {"physics against MuJoCo": _check_physics, "accuracy of physics": _check_fidelity}
    robots = checks if find_spec("mujoco") else {}
    return {"evolution on the arm": _check_arm, **robots}


def _check_arm() -> str:
    import memes

    task = memes.tasks.arm(joints=20)
    algorithm = memes.presets.memes(task, lanes=4, samples=32, fifo_size=1000)
    start = time.perf_counter()
    result = memes.run(algorithm, generations=100, progress=False)
    coverage = result.metrics["coverage"][-1]
    assert 0.02 < coverage < 1, f"coverage {coverage:.1%} after 100 generations"
    return f"coverage {coverage:.1%} after 100 generations, {time.perf_counter() - start:.1f} s"


def _check_physics() -> str:
    from importlib import resources

    import jax
    import jax.numpy as jnp
    import mujoco
    import numpy as np

    from memes import physics

    start = time.perf_counter()
    file = str(resources.files("memes.tasks") / "models" / "ant.xml")
    engine = physics.compile(file)
    rng = np.random.default_rng(0)
    control = rng.uniform(-1, 1, (4, engine.model.nu)).astype(np.float32)
    qpos = np.tile(engine.model.key_qpos[0], (4, 1)).astype(np.float32)
    state = jax.jit(engine.step)(engine.init(jnp.asarray(qpos)), control)
    worst = 0.0
    for i in range(4):
        data = mujoco.MjData(engine.model)
        data.qpos[:], data.ctrl[:] = qpos[i], control[i]
        mujoco.mj_step(engine.model, data)
        worst = max(worst, float(np.abs(np.asarray(engine.qvel(state))[i] - data.qvel).max()))
    assert worst < 1e-3, f"velocities differ by {worst:.1e} after a step"
    seconds = time.perf_counter() - start
    return f"backend {engine.backend}, velocities within {worst:.0e} of MuJoCo's, {seconds:.1f} s"


def _check_fidelity() -> str:
    """Compare each fidelity level of the simulator with a converged solver, for the ant in float64.

    The result states the largest relative error of the velocities after one time step.
    """
    from importlib import resources

    import numpy as np

    from memes import physics

    file = str(resources.files("memes.tasks") / "models" / "ant.xml")
    levels = {"default": "default", "fast": "fast", "exact": physics.Fidelity(30, 8)}
    engines: dict[str, Any] = {
        name: physics.compile(file, fidelity=level, backend="numpy")  # type: ignore[arg-type]
        for name, level in levels.items()
    }
    exact = engines.pop("exact")
    rng, size = np.random.default_rng(0), exact.model.nq + exact.model.nv
    state = exact.init(np.tile(exact.model.key_qpos[0], (32, 1)))
    warm, worst = dict.fromkeys(engines, state.rows[size:]), dict.fromkeys(engines, 0.0)
    for control in np.repeat(rng.uniform(-1, 1, (12, 32, exact.model.nu)), 5, axis=0):
        after = exact.step(state, control)
        for name, engine in engines.items():
            rows = np.concatenate([state.rows[:size], warm[name]])
            found = engine.step(state._replace(rows=rows), control)
            warm[name] = found.rows[size:]
            error = np.abs(engine.qvel(found) - exact.qvel(after)).max(axis=1)
            scale = np.maximum(1.0, np.abs(exact.qvel(after)).max(axis=1))
            worst[name] = max(worst[name], float((error / scale).max()))
        state = after
    assert worst["default"] < 1e-2, f"velocities differ by {worst['default']:.1e} after a timestep"
    listed = ", ".join(f"{error:.0e} at '{name}'" for name, error in worst.items())
    return f"largest relative error of a timestep of the ant: {listed}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _memory_of_machine() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return "memory unknown"
    return f"{total / 2**30:.1f} GiB of memory"
