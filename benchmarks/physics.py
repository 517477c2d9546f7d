"""Measure the control steps per second of each backend, and of MuJoCo C and MJX if installed.

A control step consists of five timesteps of the ant. All simulators use the solver settings of the
`fast` fidelity: 4 Newton iterations with 2 line-search steps each. "With policy" adds a separate network
with layers of 27, 64, 64 and 8 units for every ant.

    python benchmarks/physics.py                                 all backends that work on this machine
    python benchmarks/physics.py --sizes 256 2048 --json out.json
    python benchmarks/physics.py --registers ant.xml             registers of the CUDA kernel, from nvcc
    python benchmarks/physics.py --draw out.json other.json --figure physics.png  only a figure
"""

import dataclasses
import json
import math
import re
import subprocess
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import tyro
from timing import about, interleaved

from memes import physics

SUBSTEPS = 5
PEER_STEPS = 400_000  # maximum number of control steps per call of MuJoCo C or MJX, summed over robots


@dataclasses.dataclass
class Settings:
    """Settings of the measurements."""

    sizes: tuple[int, ...] = (256, 2048, 16384, 65536)
    backends: tuple[str, ...] = ()
    """Simulators to measure. By default, all backends that work on this machine, MuJoCo C and MJX."""
    policy_sizes: tuple[int, ...] = (2048, 16384)
    """Numbers of robots for which the speed is also measured with one policy per robot."""
    steps: int = 50
    """Number of control steps per call. With many robots, MuJoCo C and MJX run fewer steps."""
    fidelity: str = "fast"
    model: str = "ant"
    registers: tuple[Path, ...] = ()
    """MJCF files. If given, the script only prints their kernels' registers. Needs no GPU."""
    json: Path | None = None
    draw: tuple[Path, ...] = ()
    """Files written by `--json`. If files are given, the script only draws a figure of their results."""
    figure: Path = Path("physics.png")


def timed(function: Callable[[], object]) -> tuple[float, float]:
    """Return the time of the first call and the median time of three further calls, in seconds."""
    timing = interleaved({"": function})[""]
    return timing.first, timing.median


def start(model: mujoco.MjModel, n: int) -> jax.Array:
    noise = jax.random.uniform(jax.random.key(0), (n, model.nv), minval=-0.1, maxval=0.1)
    qpos = jnp.tile(jnp.asarray(model.qpos0, jnp.float32), (n, 1))
    return qpos.at[:, 7:].add(noise[:, 6:])


def ours(backend: str, model: mujoco.MjModel, n: int, s: Settings, policy: bool) -> tuple[float, float]:
    engine = physics.compile(model, substeps=SUBSTEPS, fidelity=s.fidelity, backend=backend)  # type: ignore[arg-type]
    state = engine.init(start(model, n))
    sizes = [model.nq - 2 + model.nv, 64, 64, model.nu]
    keys = jax.random.split(jax.random.key(1), 3)
    weights = [
        jax.random.normal(k, (n, a, b)) / np.sqrt(a)
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]
    noise = jax.random.uniform(jax.random.key(2), (s.steps, n, model.nu), minval=-1, maxval=1)

    def act(state, random):
        if not policy:
            return random
        x = jnp.concatenate([engine.qpos(state)[:, 2:], engine.qvel(state)], axis=1)
        for w in weights[:-1]:
            x = jax.nn.relu(jnp.einsum("ni,nio->no", x, w))
        return jnp.tanh(jnp.einsum("ni,nio->no", x, weights[-1]))

    def rollout(state):
        state, _ = jax.lax.scan(lambda s, u: (engine.step(s, act(s, u)), None), state, noise)
        return state

    compiled = jax.jit(rollout, compiler_options=engine.compiler_options)
    return timed(lambda: compiled(state))


def mujoco_c(model: mujoco.MjModel, n: int, s: Settings) -> tuple[float, float]:
    from mujoco import rollout

    model.opt.iterations, model.opt.ls_iterations = physics.engine.FIDELITY[s.fidelity]
    control = np.random.default_rng(0).uniform(-1, 1, (n, s.steps * SUBSTEPS, model.nu))
    first = np.zeros((n, mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
    first[:, 1 : 1 + model.nq] = start(model, n)
    threads = [mujoco.MjData(model) for _ in range(len(__import__("os").sched_getaffinity(0)))]
    return timed(lambda: rollout.rollout(model, threads, first, control))


def mjx(model: mujoco.MjModel, n: int, s: Settings) -> tuple[float, float]:
    from mujoco import mjx

    model.opt.iterations, model.opt.ls_iterations = physics.engine.FIDELITY[s.fidelity]
    device = mjx.put_model(model)
    data = mjx.make_data(model)
    batch = jax.vmap(lambda q: data.replace(qpos=q))(start(model, n))
    noise = jax.random.uniform(jax.random.key(2), (s.steps, n, model.nu), minval=-1, maxval=1)

    def control(data, ctrl):
        data = data.replace(ctrl=ctrl)
        return jax.lax.fori_loop(0, SUBSTEPS, lambda _, d: mjx.step(device, d), data)

    @jax.jit
    def rollout(batch):
        return jax.lax.scan(lambda d, u: (jax.vmap(control)(d, u), None), batch, noise)[0].qpos

    return timed(lambda: rollout(batch))


def print_registers(file: Path, fidelity: str) -> None:
    """Print the sizes of a model's kernels, and how many registers its CUDA kernel uses and spills."""
    from memes.physics.cuda_backend import step_kernel
    from memes.physics.native import native_source
    from memes.physics.stacking import stacked, unstacked

    own = physics.read(physics.load(file), self_collision=False)
    level = physics.engine.FIDELITY[fidelity]
    kernel = step_kernel(stacked(own), level, SUBSTEPS).source
    lines = kernel.count("\n"), native_source(unstacked(own), level, SUBSTEPS).count("\n")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cu"
        source.write_text(kernel)
        command = ["nvcc", "-arch=sm_90", "-Xptxas", "-v", "-cubin", "-o", "/dev/null", str(source)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = re.findall(r"Used (\d+) registers", output)[0]
    stores, loads = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", output)[0]
    sizes = f"{lines[0]:,} lines of CUDA, {lines[1]:,} of C++"
    print(f"{file.stem}: {registers} registers, spills {stores} / {loads} bytes, {sizes}", flush=True)


def draw(files: tuple[Path, ...], figure: Path) -> None:
    """Plot the speed of each simulator against the number of robots, on logarithmic axes."""
    from matplotlib.figure import Figure

    others = {"mujoco-c": "MuJoCo C", "mjx": "MJX"}
    speeds: dict[str, dict[int, float]] = {}
    for file in files:
        measured = json.loads(file.read_text())
        device = measured["device"].replace("cpu", "CPU")
        for row in measured["rows"]:
            on_host = row["backend"] == "mujoco-c" and device != "CPU"
            simulator = others.get(row["backend"], f"memes.physics, {row['backend']}")
            name = f"{simulator} ({'host of ' if on_host else ''}{device})"
            speeds.setdefault(name, {})[row["robots"]] = row["steps_per_second"]
    picture = Figure(figsize=(8, 4.2), layout="constrained")
    axes = picture.subplots()
    colours = ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#E69F00", "#CC79A7", "#000000", "#999999")
    names = sorted(speeds, key=lambda name: -max(speeds[name].values()))
    for name, colour, marker in zip(names, colours, "os^Dvp<>", strict=False):
        robots, speed = zip(*sorted(speeds[name].items()), strict=True)
        axes.plot(robots, speed, marker=marker, color=colour, label=name)
    axes.set(xscale="log", yscale="log", xlabel="number of robots", ylabel="control steps per second")
    sizes = sorted({size for found in speeds.values() for size in found})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.3)
    picture.legend(loc="outside right center", frameon=False)
    picture.savefig(figure, dpi=150)


def main(s: Settings) -> None:
    for file in s.registers:
        print_registers(file, s.fidelity)
    if s.registers:
        return
    if s.draw:
        draw(s.draw, s.figure)
        return
    gpu = jax.default_backend() == "gpu"
    path = resources.files("memes.tasks") / "models" / f"{s.model}.xml"
    cases = s.backends or (*(("cuda",) if gpu else ("native",)), "xla", "mujoco-c", "mjx")
    rows = []
    report = {**about("jax", "mujoco", "numpy"), "model": s.model, "fidelity": s.fidelity}
    report |= {"steps": s.steps, "rows": rows}
    print(f"{report['device']}, {report['versions']}, {s.model}, {s.fidelity}")
    print(f"{'backend':12}{'robots':>8}{'steps/s':>14}{'with policy':>14}{'compile':>10}")
    for case in cases:
        for n in s.sizes:
            model = mujoco.MjModel.from_xml_path(str(path))
            if case == "mjx" and not gpu and n > 256:
                continue  # this combination does not finish
            steps, with_policy = s.steps, None
            try:
                if case in ("mujoco-c", "mjx"):
                    steps = max(5, min(s.steps, PEER_STEPS // n))
                    few = dataclasses.replace(s, steps=steps)
                    first, seconds = {"mujoco-c": mujoco_c, "mjx": mjx}[case](model, n, few)
                else:
                    first, seconds = ours(case, model, n, s, policy=False)
                    if n in s.policy_sizes:
                        with_policy = n * steps / ours(case, model, n, s, policy=True)[1]
            except ImportError as error:
                print(f"{case:12} not installed: {error}")
                break
            row = {
                "backend": case,
                "robots": n,
                "steps_per_second": n * steps / seconds,
                "with_policy": with_policy,
                "compile_seconds": first - seconds,
            }
            rows.append(row)
            print(
                f"{case:12}{n:8}{row['steps_per_second']:14,.0f}{with_policy or math.nan:14,.0f}"
                f"{row['compile_seconds']:9.1f}s",
                flush=True,
            )
            if s.json:  # save after each row, so that interruptions lose no results
                s.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(tyro.cli(Settings))
