"""A custom robot, which consists of an MJCF model, a reward and features.

Run it from the shell with `memes run examples/custom_robot.py:runner --scale laptop --generations 100`.
To replay an elite, use `memes replay RUN --task examples/custom_robot.py:runner`. You can also run this
file as a Python program.
"""

from pathlib import Path

import jax
import jax.numpy as jnp

import memes
from memes import control
from memes.physics import RobotState
from memes.tasks import robot


def runner(
    *, steps: int = 100, hidden: tuple[int, ...] = (32, 32), start_noise: float = 0.05
) -> memes.Task:
    """Return the task. Each of the two features is the share of time in which a foot touches the ground.

    Args:
        steps: Number of control steps per episode (0.05 s each).
        hidden: Sizes of the policy's hidden layers.
        start_noise: Maximum deviation of the initial joint positions from the standing posture.
    """
    engine = memes.physics.compile(Path(__file__).with_name("runner.xml"), substeps=5)

    def reward(before: RobotState, action: jax.Array, after: RobotState) -> jax.Array:
        forward = engine.qpos(after)[:, 0] - engine.qpos(before)[:, 0]
        return forward - 0.01 * jnp.mean(action**2, axis=1)

    def fallen(state: RobotState) -> jax.Array:
        qpos = engine.qpos(state)  # columns: x, z and pitch of the torso, hips, knees
        return (qpos[:, 1] < 0.3) | (abs(qpos[:, 2]) > 0.8)

    environment = robot.robot(
        engine,
        steps=steps,
        reward=reward,
        ended=fallen,
        measure=lambda state: engine.contacts(state).astype(float),  # contacts of the feet
        joint_noise=start_noise,
    )
    return control.control_task(
        "runner",
        environment,
        control.mlp([environment.observation_size, *hidden, environment.action_size]),
        fitness=lambda outcome: outcome.total,
        feature=lambda outcome: outcome.mean,
        feature_low=(0.0, 0.0),
        feature_high=(1.0, 1.0),
        feature_names=("back foot on the ground (share)", "front foot on the ground (share)"),
        min_fitness=-0.05 * steps,  # the QD-score subtracts this value from each fitness
        uncertain=start_noise > 0,
    )


if __name__ == "__main__":
    algorithm = memes.presets.memes(runner(steps=50), lanes=8, samples=32)
    result = memes.run(algorithm, generations=20, seed=0, observers=[memes.Corrections(samples=64)])
    print(f"corrected coverage {result.corrected['coverage'][-1]:.1%}")
    print(f"coverage {result.metrics['coverage'][-1]:.1%}")
