"""Measure the error of one simulator step at each level of fidelity. MuJoCo C is the reference.

MuJoCo C simulates a few robots under random controls. From each state on these trajectories, the script
computes one timestep at every level of fidelity, in float64. The solver starts from the solution of the
previous step at the same level. The reference is a step of MuJoCo C with a converged solver. The error
of a step is the largest difference from the reference velocities, divided by the larger of 1 and the
largest reference velocity.

    python benchmarks/accuracy.py                                the robots of the library
    python benchmarks/accuracy.py --models walker.xml ant.xml    other models
"""

import dataclasses
from importlib import resources
from pathlib import Path

import mujoco
import numpy as np
import tyro

from memes import physics

LEVELS = {"default": "default", "fast": "fast", "30 x 8": physics.Fidelity(30, 8)}
HELD = 5  # number of timesteps with the same control


@dataclasses.dataclass
class Settings:
    """Settings of the comparison."""

    models: tuple[Path, ...] = ()
    """MJCF files. By default, the robots of the library."""
    robots: int = 8
    steps: int = 200
    """Timesteps per robot."""
    self_collision: bool = True


def visited(model: mujoco.MjModel, s: Settings) -> tuple[list[np.ndarray], ...]:
    """Simulate robots with MuJoCo C, and return four arrays [steps, robots, ...].

    The first three arrays contain qpos, qvel and the controls before each step. The fourth array
    contains qvel after a step with a converged solver. The simulation itself uses the solver settings of
    the model.
    """
    rng = np.random.default_rng(0)
    low, high = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, [-1, 1]).T
    usual = model.opt.iterations, model.opt.tolerance, model.opt.ls_iterations, model.opt.ls_tolerance
    found: list[list[np.ndarray]] = [[], [], [], []]
    robots = [mujoco.MjData(model) for _ in range(s.robots)]
    other = mujoco.MjData(model)
    for data in robots:
        if model.nkey:
            mujoco.mj_resetDataKeyframe(model, data, 0)
        data.qvel += 0.1 * rng.normal(size=model.nv)
    for step in range(s.steps):
        if step % HELD == 0:
            ctrl = rng.uniform(low, high, (s.robots, model.nu))
        rows: list[list[np.ndarray]] = [[], [], [], []]
        for data, u in zip(robots, ctrl, strict=True):
            data.ctrl[:] = u
            other.qpos[:], other.qvel[:], other.ctrl[:] = data.qpos, data.qvel, u
            other.qacc_warmstart[:] = data.qacc_warmstart
            before = data.qpos.copy(), data.qvel.copy(), u.copy()
            _solver(model, (500, 0.0, 200, 1e-12))
            mujoco.mj_step(model, other)
            _solver(model, usual)
            mujoco.mj_step(model, data)
            for row, value in zip(rows, (*before, other.qvel.copy()), strict=True):
                row.append(value)
        for column, row in zip(found, rows, strict=True):
            column.append(np.array(row))
    return tuple(found)


def _solver(model: mujoco.MjModel, settings: tuple[float, ...]) -> None:
    opt = model.opt
    opt.iterations, opt.tolerance = int(settings[0]), settings[1]
    opt.ls_iterations, opt.ls_tolerance = int(settings[2]), settings[3]


def errors(model: mujoco.MjModel, fidelity: object, visits: tuple, s: Settings) -> np.ndarray:
    """Return the error of each step, [steps, robots]."""
    engine = physics.compile(model, fidelity=fidelity, backend="numpy", self_collision=s.self_collision)  # type: ignore[arg-type]
    found, warm = [], None
    for qpos, qvel, ctrl, expected in zip(*visits, strict=True):
        state = engine.init(qpos, qvel)
        if warm is not None:
            rows = np.concatenate([state.rows[: model.nq + model.nv], warm])
            state = state._replace(rows=rows)
        state = engine.step(state, ctrl)
        warm = state.rows[model.nq + model.nv :]
        size = np.maximum(1.0, np.abs(expected).max(axis=1))
        found.append(np.abs(engine.qvel(state) - expected).max(axis=1) / size)
    return np.array(found)


def main(s: Settings) -> None:
    own = resources.files("memes.tasks") / "models"
    files = s.models or tuple(Path(str(own / f"{name}.xml")) for name in ("ant", "hexapod"))
    print("| model | level | median | steps above 1e-3 | steps above 1e-2 | largest |")
    print("|---|---|---|---|---|---|")
    for file in files:
        model = mujoco.MjModel.from_xml_path(str(file))
        # Lift the ground a little. Otherwise, rounding would determine whether geoms at rest touch it.
        ground = model.geom_bodyid == 0
        model.geom_pos[ground, 2] += 1e-3
        model.geom_sameframe[ground] = 0
        visits = visited(model, s)
        for name, fidelity in LEVELS.items():
            found = errors(model, fidelity, visits, s)
            shares = " | ".join(f"{np.mean(found > bound):.2%}" for bound in (1e-3, 1e-2))
            row = f"{file.parent.name}/{file.stem} | {name} | {np.median(found):.0e} | {shares}"
            print(f"| {row} | {found.max():.0e} |", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings))
