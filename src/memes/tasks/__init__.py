"""The tasks of this library."""

from __future__ import annotations

from collections.abc import Callable

from memes.task import Task
from memes.tasks import robot as robot
from memes.tasks.ant import ant as ant
from memes.tasks.ant import ant_trap as ant_trap
from memes.tasks.arm import arm as arm
from memes.tasks.arm import noisy_arm as noisy_arm
from memes.tasks.gymnasium import gymnasium as gymnasium
from memes.tasks.hexapod import hexapod as hexapod
from memes.tasks.locomotion import locomotion as locomotion
from memes.tasks.point_maze import point_maze as point_maze
from memes.tasks.stepped import brax as brax
from memes.tasks.stepped import playground as playground
from memes.tasks.stepped import stepped as stepped

TASKS: dict[str, Callable[..., Task]] = {
    "arm": arm,
    "noisy-arm": noisy_arm,
    "point-maze": point_maze,
    "hexapod": hexapod,
    "ant": ant,
    "ant-trap": ant_trap,
}
# Families of tasks. The name of a task is `family:environment`, such as `gymnasium:CartPole-v1`.
FAMILIES: dict[str, Callable[..., Task]] = {
    "gymnasium": gymnasium,
    "brax": brax,
    "playground": playground,
    "robot": locomotion,
}
