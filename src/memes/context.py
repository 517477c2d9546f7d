"""What the parts of an algorithm may look at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from jax import Array

from memes.archive import Archive
from memes.history import Past
from memes.task import Task

if TYPE_CHECKING:
    from memes.control import Transition


class Kind(IntEnum):
    """What a candidate was made for."""

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
    generation: Array
    archive: Archive
    past: Past
    before: Archive | None = None
    transitions: Transition | None = None
