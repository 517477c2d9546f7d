"""The tasks that come with the library."""

from __future__ import annotations

from collections.abc import Callable

from memes.task import Task
from memes.tasks.arm import arm as arm
from memes.tasks.arm import noisy_arm as noisy_arm

TASKS: dict[str, Callable[..., Task]] = {"arm": arm, "noisy-arm": noisy_arm}
