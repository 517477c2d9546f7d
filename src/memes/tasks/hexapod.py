"""The hexapod task: a six-legged robot that walks along circular arcs to positions around its start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Key

from memes.control import Episodes, control_task
from memes.task import Task, uniform
from memes.tasks.robot import Backend, Fidelity, engine_of, robot
from memes.validation import checked

if TYPE_CHECKING:
    from memes.physics import RobotState

SUBSTEPS = 5  # Number of simulation steps (0.01 s each) per control step.
PERIOD = 25  # Number of control steps per period of the gait.
LEGS = 6


@checked
def hexapod(*, steps: int = 250, fidelity: Fidelity = "fast", backend: Backend = "auto") -> Task:
    """Six-legged robot that walks to every place around its start.

    Args:
        steps: Number of control steps per episode (0.05 s each).
        fidelity: Accuracy of the contact solver.
        backend: Implementation of the simulator. `auto` selects the fastest available one.
    """
    engine = engine_of("hexapod", substeps=SUBSTEPS, fidelity=fidelity, backend=backend)

    def pose(state: RobotState) -> Array:
        qpos = engine.qpos(state)
        return jnp.stack([qpos[:, 0], qpos[:, 1], yaw(qpos[:, 3:7])], axis=1)

    environment = robot(
        engine,
        steps=steps,
        reward=lambda before, action, after: jnp.zeros(action.shape[0]),
        measure=pose,
        raw_controls=True,  # actions are joint angles
    )
    return control_task(
        "hexapod",
        environment,
        Sinusoids(),
        fitness=lambda outcome: -arc_error(outcome),
        feature=lambda outcome: outcome.last[:, :2],
        feature_low=(-2.0, -2.0),
        feature_high=(2.0, 2.0),
        min_fitness=-math.pi,
        feature_names=("final x (m)", "final y (m)"),
    )


@dataclass(frozen=True)
class Sinusoids:
    """Controller for open-loop gaits, with an amplitude and a phase per hip and per knee.

    A genotype contains the amplitude and phase of each hip, followed by the amplitude and phase of each
    knee. The angle of a leg's third joint is minus the angle of the knee, which keeps the foot upright.
    Genotypes are clipped to [-1, 1], because a robot with longer strides would leave the map.
    """

    dim: ClassVar[int] = 2 * LEGS * 2
    policy: ClassVar[None] = None
    blocks: ClassVar[None] = None
    in_factors: ClassVar[None] = None
    network: ClassVar[None] = None
    trees: ClassVar[None] = None

    def init(self, key: Key[Array, ""], n: int) -> Float[Array, "n d"]:
        """Draw genotypes from U[-1, 1]."""
        return uniform(self.dim, -1.0, 1.0)(key, n)

    def parameters(self, x: Float[Array, "n d"]) -> Float[Array, "n 2 legs 2"]:
        """Return the amplitude and the phase of each joint."""
        return jnp.clip(x, -1.0, 1.0).reshape(-1, 2, LEGS, 2)

    def act(
        self, parameters: Float[Array, "n 2 legs 2"], observation: Float[Array, "n o"], t: ArrayLike
    ) -> Float[Array, "n a"]:
        """Return the angles of all joints."""
        amplitude, phase = parameters[..., 0], parameters[..., 1]
        wave = amplitude * jnp.sin(2 * math.pi * t / PERIOD + math.pi * phase)
        hip, knee = math.pi / 8 * wave[:, 0], math.pi / 4 * wave[:, 1]
        return jnp.stack([hip, knee, -knee], axis=-1).reshape(-1, 3 * LEGS)


def yaw(quaternion: Array) -> Array:
    """Return the heading [n], which is the rotation of `quaternion[n, 4]` about the vertical axis."""
    w, x, y, z = (quaternion[:, i] for i in range(4))
    return jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def arc_error(episodes: Episodes) -> Array:
    """Return the angle [n] in [0, pi] between the final heading and the tangent at the end of the arc.

    The arc connects the start with the final position. It begins along the initial heading, which is the
    x axis. At its end, the angle of the tangent is twice the angle of the chord.
    """
    x, y, heading = (episodes.last[:, i] for i in range(3))
    difference = heading - 2 * jnp.arctan2(y, x)
    return jnp.abs(jnp.arctan2(jnp.sin(difference), jnp.cos(difference)))
