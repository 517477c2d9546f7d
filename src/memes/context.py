"""The context of a generation: all that the parts of an algorithm may look at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from jax import Array
from jaxtyping import Int

from memes.archive import Archive
from memes.history import Past
from memes.rollouts import Transition
from memes.task import Task


class Kind(IntEnum):
    """The purpose that a candidate was made for."""

    EXPLOIT = 0
    EXPLORE = 1
    VARIATION = 2


@dataclass(frozen=True)
class Context:
    """The common ground of one generation: the task, and the archive and history as they now stand.

    In a `tell` both hold this generation's rows already; `before` is the archive without them, and
    `transitions` are those of all rows, where the emitter asked for them.
    """

    task: Task
    generation: Int[Array, ""]
    archive: Archive
    past: Past
    before: Archive | None = None
    transitions: Transition | None = None
