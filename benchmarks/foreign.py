"""Measure the timesteps per second of `memes.physics`, MuJoCo C and MJX on models from other packages.

By default, the script measures the CPU time of all threads. Other work on the machine affects this time
less than wall-clock time. On a GPU, `--wall` measures wall-clock time. The engines take turns and
simulate the same number of robots under random controls. For each engine, the script reports the speed
of the fastest repetition. MuJoCo C and MJX use the solver settings of the model. The controls are copied
to the device before the measurement.

    python benchmarks/foreign.py half_cheetah.xml walker.xml
    python benchmarks/foreign.py walker2d.xml --engines native-default mujoco-c mjx
    python benchmarks/foreign.py walker2d.xml --wall --robots 16384 --engines cuda-default cuda-fast mjx
"""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import tyro

from memes import physics

ENGINES = ("native-default", "native-fast", "mujoco-c", "mjx")


@dataclasses.dataclass
class Settings:
    """Settings of the measurement."""

    models: tyro.conf.Positional[tuple[Path, ...]]
    """MJCF files."""
    engines: tuple[str, ...] = ENGINES
    robots: int = 256
    steps: int = 50
    """Timesteps per robot and repetition."""
    turns: int = 5
    wall: bool = False
    """Measure wall-clock time instead of CPU time."""


def ours(model: mujoco.MjModel, backend: str, level: str, ctrl: np.ndarray) -> Callable[[], object]:
    engine = physics.compile(model, fidelity=level, backend=backend)  # type: ignore[arg-type]
    n = ctrl.shape[1]
    state = engine.init(np.tile(start(model).qpos, (n, 1)))
    rollout = jax.jit(lambda state, u: jax.lax.scan(lambda s, u: (engine.step(s, u), None), state, u)[0])
    controls = jnp.asarray(ctrl, jnp.float32)
    return lambda: jax.block_until_ready(rollout(state, controls))


def mujoco_c(model: mujoco.MjModel, ctrl: np.ndarray) -> Callable[[], object]:
    from mujoco import rollout

    n = ctrl.shape[1]
    first = np.zeros((n, mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
    first[:, 1 : 1 + model.nq] = start(model).qpos
    threads = [mujoco.MjData(model) for _ in os.sched_getaffinity(0)]
    controls = ctrl.swapaxes(0, 1).copy()
    return lambda: rollout.rollout(model, threads, first, controls)


def mjx(model: mujoco.MjModel, ctrl: np.ndarray) -> Callable[[], object]:
    from mujoco import mjx

    device = mjx.put_model(model)
    data = mjx.make_data(model).replace(qpos=jnp.asarray(start(model).qpos))
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (ctrl.shape[1], *x.shape)), data)

    def step(data: object, u: jax.Array) -> tuple[object, None]:
        return jax.vmap(lambda d, u: mjx.step(device, d.replace(ctrl=u)))(data, u), None

    rollout = jax.jit(lambda batch, u: jax.lax.scan(step, batch, u)[0].qpos)
    controls = jnp.asarray(ctrl, jnp.float32)
    return lambda: jax.block_until_ready(rollout(batch, controls))


def start(model: mujoco.MjModel) -> mujoco.MjData:
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    return data


def made(engine: str, model: mujoco.MjModel, ctrl: np.ndarray) -> Callable[[], object]:
    backend, _, level = engine.partition("-")
    if backend in ("native", "cuda", "xla"):
        return ours(model, backend, level, ctrl)
    return {"mujoco-c": mujoco_c, "mjx": mjx}[engine](model, ctrl)


def main(s: Settings) -> None:
    clock = time.perf_counter if s.wall else time.process_time
    print("| model | " + " | ".join(s.engines) + " |")
    print("|---" * (1 + len(s.engines)) + "|")
    for file in s.models:
        model = mujoco.MjModel.from_xml_path(str(file))
        low, high = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, [-1, 1]).T
        ctrl = np.random.default_rng(0).uniform(low, high, (s.steps, s.robots, model.nu))
        runs = {}
        for engine in s.engines:
            try:
                runs[engine] = made(engine, model, ctrl)
                runs[engine]()  # compile
            except ImportError as error:
                print(f"{engine}: {error}")
        best = dict.fromkeys(s.engines, float("inf"))
        for _ in range(s.turns):
            for engine, run in runs.items():
                begin = clock()
                run()
                best[engine] = min(best[engine], clock() - begin)
        cells = [f"{s.robots * s.steps / best[e] / 1e3:,.0f} k" if e in runs else "" for e in s.engines]
        print(f"| {file.stem} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings))
