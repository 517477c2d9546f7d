"""The simulator of many copies of one MuJoCo model: `compile`, `Engine` and `RobotState`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax import Array

from memes.errors import UsageError, at_least, require
from memes.kernels.dispatch import fastest
from memes.physics import algebra as la
from memes.physics import dynamics
from memes.physics.algebra import Scalar, Value
from memes.physics.backends import Advance, array_operations, numpy_backend, xla_backend
from memes.physics.constraints import touch
from memes.physics.cuda_backend import WARP, cuda_backend
from memes.physics.model import Model, Point
from memes.physics.native import native_backend
from memes.physics.reading import load, read
from memes.physics.solver import Fidelity
from memes.physics.stacking import StackedModel, stacked, unstacked
from memes.physics.tree import Tree

FIDELITY = {"default": Fidelity(6, 2), "fast": Fidelity(4, 2)}
MIN_ITERATIONS = 4
BACKENDS = {
    "numpy": numpy_backend,
    "xla": xla_backend,
    "cuda": cuda_backend,
    "native": native_backend,
}


class RobotState(NamedTuple):
    """State of N robots.

    Use methods of the engine, such as `qpos` and `qvel`, to read the state. A robot whose state becomes
    non-finite keeps its last finite state, and is marked as failed.

    Attributes:
        rows: Positions, velocities and solver data in an internal order, [R, N].
        flags: 1 for robots that have failed and 0 for all others, [N].
    """

    rows: Array
    flags: Array

    @property
    def failed(self) -> Array:
        """Whether the state of each robot has become non-finite, bool[N]."""
        return self.flags > 0


@dataclass(frozen=True)
class Engine:
    """A simulator for one model. Its methods are pure and can be jitted, scanned and vmapped.

    Attributes:
        model: The compiled MuJoCo model.
        backend: Name of the backend: `numpy`, `xla`, `cuda` or `native`.
        substeps: Number of timesteps per call of `step`.
        copies: K, the number of isomorphic subtrees that are stacked and simulated as one.
        self_collision: The `self_collision` argument of `compile`. If False, contacts between moving
            geoms are ignored.
    """

    model: mujoco.MjModel
    backend: str
    substeps: int
    copies: int
    self_collision: bool
    _own: Model
    _tree: Tree
    _order: tuple[np.ndarray, np.ndarray]
    _advance: Advance

    @property
    def compiler_options(self) -> dict[str, str]:
        """Options of `jax.jit` that make rollouts faster. They are empty unless `xla` runs on CPUs.

        On CPUs, XLA's fusion would compute many values of a rollout repeatedly. This would make `xla`
        several times slower.
        """
        slow_fusion = self.backend == "xla" and jax.default_backend() == "cpu"
        return {"xla_disable_hlo_passes": "fusion"} if slow_fusion else {}

    @property
    def _xp(self) -> Any:
        return np if self.backend == "numpy" else jnp

    def init(self, qpos: Array, qvel: Array | None = None) -> RobotState:
        """Return a state with `qpos[N, nq]` and `qvel[N, nv]`. If `qvel` is None, robots are at rest."""
        xp = self._xp
        position = xp.asarray(qpos, self._dtype)
        require(
            position.ndim == 2 and position.shape[1] == self.model.nq,
            f"qpos must have shape (N, {self.model.nq}), got {tuple(position.shape)}",
        )
        n = position.shape[0]
        velocity = xp.zeros((n, self.model.nv)) if qvel is None else xp.asarray(qvel)
        require(
            velocity.shape == (n, self.model.nv),
            f"qvel must have shape ({n}, {self.model.nv}), got {tuple(velocity.shape)}",
        )
        order_q, order_v = self._order
        rows = [position.T[order_q], velocity.astype(self._dtype).T[order_v]]
        rows.append(xp.zeros((len(order_v), n), self._dtype))
        return RobotState(xp.concatenate(rows), xp.zeros(n, self._dtype))

    def step(self, state: RobotState, ctrl: Array) -> RobotState:
        """Advance all robots by `substeps` timesteps with constant `ctrl[N, nu]`."""
        xp = self._xp
        require(
            ctrl.shape == (state.rows.shape[1], self.model.nu),
            f"ctrl must have shape ({state.rows.shape[1]}, {self.model.nu}), got {tuple(ctrl.shape)}",
        )
        return RobotState(*self._advance(state.rows, state.flags, xp.asarray(ctrl, self._dtype)))

    def qpos(self, state: RobotState) -> Array:
        """Return the positions in MuJoCo's order, [N, nq]."""
        return self._unpack(state.rows, self._order[0], 0)

    def qvel(self, state: RobotState) -> Array:
        """Return the velocities in MuJoCo's order, [N, nv]."""
        return self._unpack(state.rows, self._order[1], len(self._order[0]))

    def body_positions(self, state: RobotState) -> Array:
        """Return the positions of the bodies' frames in the world, [N, nbody, 3]."""
        return self._places(state, self._own.bodies)

    def geom_positions(self, state: RobotState) -> Array:
        """Return the positions of the geoms in the world, [N, ngeom, 3]."""
        return self._places(state, self._own.geoms)

    def site_positions(self, state: RobotState) -> Array:
        """Return the positions of the sites in the world, [N, nsite, 3]."""
        return self._places(state, self._own.sites)

    @property
    def contact_names(self) -> tuple[str, ...]:
        """The names of the entries of `contacts`, such as 'moving geom on static geom'."""
        return tuple(dict.fromkeys(contact.name for contact in self._own.contacts))

    def contacts(self, state: RobotState) -> Array:
        """Return whether each pair of geoms touches, bool[N, pairs], in the order of `contact_names`."""
        xp = self._xp
        frames = self._frames(state)
        touching: dict[str, Any] = {}
        for contact in self._own.contacts:
            distance = touch(self._tree, frames, contact).distance
            near = la.less(distance, contact.margin)
            flag = near.data if isinstance(near, Value) else xp.full(state.rows.shape[1], near)
            touching[contact.name] = touching.get(contact.name, False) | flag
        flags = list(touching.values())
        found: Array = xp.stack(flags, axis=-1) if flags else xp.zeros((state.rows.shape[1], 0), bool)
        return found

    @property
    def _dtype(self) -> Any:
        return np.float64 if self.backend == "numpy" else np.float32

    def _unpack(self, rows: Array, order: np.ndarray, start: int) -> Array:
        # For each entry of qpos or qvel, `first` is the index of its first row.
        _, first = np.unique(order, return_index=True)
        # XLA fuses accesses to single rows. Indexing with an array would need a separate kernel.
        found: Array = self._xp.stack([rows[start + int(i)] for i in first]).T
        return found

    def _frames(self, state: RobotState) -> dynamics.Frames:
        of = array_operations(self._xp, 1, state.rows.shape[1])
        qpos: list[Scalar] = [Value(x, of) for x in self.qpos(state).T]
        return dynamics.kinematics(self._own, qpos)

    def _places(self, state: RobotState, points: tuple[Point, ...]) -> Array:
        xp, n = self._xp, state.rows.shape[1]
        frames = self._frames(state)
        placed = []
        for point in points:
            place = point.position
            if point.link >= 0:
                origin = frames.origin[self._tree.root_of[point.link]]
                turned = la.apply(frames.rotation[point.link], point.position)
                place = la.add(origin, la.add(frames.position[point.link], turned))
            data = [x.data if isinstance(x, Value) else x for x in place]
            placed.append(xp.stack([xp.broadcast_to(xp.asarray(x), (n,)) for x in data], axis=-1))
        found: Array = xp.stack(placed, axis=1) if placed else xp.zeros((n, 0, 3))
        return found


def compile(
    model: mujoco.MjModel | str | Path,
    *,
    substeps: int = 1,
    fidelity: Literal["default", "fast"] | Fidelity = "default",
    backend: Literal["auto", "numpy", "xla", "cuda", "native"] = "auto",
    self_collision: bool = True,
) -> Engine:
    """Compile a simulator for a model.

    Args:
        model: A compiled model, a path to an MJCF file, or an XML string.
        substeps: Number of timesteps of the model per call of `step`.
        fidelity: Accuracy of the contact solver. `default` uses 6 Newton iterations with 2 line-search
            steps each. `fast` uses 4 iterations with 2 steps each. A custom `Fidelity` must have at
            least 4 iterations.
        backend: `numpy` (float64, for reference), `xla` (any device), `cuda` (NVIDIA GPUs, with a C++
            compiler and NVRTC) or `native` (CPUs with a C++ compiler). `auto` selects the fastest
            available one.
        self_collision: Contacts between moving geoms are not supported. If True, a model with such
            contacts raises an error. If False, they are ignored, and legs pass through each other.

    Raises:
        UsageError: If an argument is invalid, or if the model uses unsupported features. The error
            message lists all unsupported features.
    """
    at_least(1, substeps=substeps)
    chosen = FIDELITY.get(fidelity) if isinstance(fidelity, str) else fidelity
    require(
        chosen is not None, f"fidelity must be {' or '.join(FIDELITY)} or a Fidelity, got '{fidelity}'"
    )
    assert chosen is not None
    require(
        chosen.iterations >= MIN_ITERATIONS,
        f"fidelity must have at least {MIN_ITERATIONS} iterations, because contacts are wrong with "
        f"fewer iterations; got {chosen.iterations}",
    )
    require(
        backend == "auto" or backend in BACKENDS,
        f"backend must be auto or one of {', '.join(BACKENDS)}, got '{backend}'",
    )
    native = load(model)
    own = read(native, self_collision=self_collision)
    plain, together = unstacked(own), stacked(own)

    def with_backend(name: str) -> Engine:
        folded: StackedModel = plain if name == "native" else together
        layout = folded.layout
        order = tuple(
            np.array([i for slot in slots for i in slot], int) for slots in (layout.qpos, layout.dofs)
        )
        return Engine(
            model=native,
            backend=name,
            substeps=substeps,
            copies=folded.tree.copies,
            self_collision=self_collision,
            _own=plain.model,
            _tree=plain.tree,
            _order=order,  # type: ignore[arg-type]
            _advance=BACKENDS[name](folded, chosen, substeps),
        )

    if backend != "auto":
        return with_backend(backend)
    try:
        best = fastest("memes.physics", cuda=together.tree.copies <= WARP)
        return with_backend("native" if best == "cpp" else best)
    except UsageError as error:  # there is no working compiler
        warnings.warn(
            f"memes.physics runs in plain XLA, which is several times slower: {error}", stacklevel=2
        )
        return with_backend("xla")
