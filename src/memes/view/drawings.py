"""An elite as something to look at: a robot that moves, lines, or a picture."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure

from memes.errors import UsageError, require
from memes.task import Task, evaluate
from memes.view.recordings import Recording, engine_of, player, seconds_per_step

SECONDS = 0.02  # between two places of a path, as it is shown


class Drawing(NamedTuple):
    """An elite, evaluated once.

    Attributes:
        fitness: That of this evaluation.
        feature: Its feature, [k].
        episode: The states of its robot; None without one.
        seconds: The time between two states, or between two places of the path.
        lines: What stands still, [n, 3] each.
        path: What moves over them, [T, 3].
        picture: A figure of the task's own, uint8[H, W, 3].
    """

    fitness: float
    feature: np.ndarray
    episode: Recording | None = None
    seconds: float = 0.0
    lines: tuple[np.ndarray, ...] = ()
    path: np.ndarray | None = None
    picture: np.ndarray | None = None

    @property
    def steps(self) -> int:
        """How many moments there are to show."""
        states = self.path if self.episode is None else self.episode.qpos
        return 1 if states is None else len(states)

    @property
    def own(self) -> int:
        """The number of the line that is the elite itself: its way, or else the first."""
        return 0 if self.path is None else len(self.lines) - 1


Draw = Callable[[Array, int], Drawing]


def drawer(task: Task) -> Draw:
    """Return `(x[d], seed) -> Drawing` of elites of the task, compiled at its first call."""
    if engine_of(task) is not None:
        play, seconds = player(task), seconds_per_step(task)

        def robot(x: Array, seed: int) -> Drawing:
            (episode,) = play(x, seed)
            return Drawing(episode.fitness, episode.feature, episode, seconds)

        return robot
    if task.control is not None and task.map is not None:
        play = player(task)
        room = _box(task.feature_low, task.feature_high)
        walls = [np.array([*wall, wall[0]], float) for wall in task.map.walls]

        def path(x: Array, seed: int) -> Drawing:
            (episode,) = play(x, seed)
            still = tuple(map(upright, (room, *walls, episode.qpos)))
            way = upright(episode.qpos)
            return Drawing(episode.fitness, episode.feature, None, SECONDS, still, way)

        return path

    judge = (
        jax.jit(lambda key, x: evaluate(task, key, x)) if task.jit else lambda k, x: evaluate(task, k, x)
    )

    def still(x: Array, seed: int) -> Drawing:
        found = judge(jax.random.split(jax.random.key(seed), 1), jnp.asarray(x)[None])
        drawing = Drawing(float(found.fitness[0]), np.asarray(found.feature[0]))
        return drawing if task.draw is None else drawing._replace(**drawn(task, x))

    return still


def drawn(task: Task, x: Array) -> dict[str, Any]:
    """Call the `draw` of a task, and check what it returns."""
    assert task.draw is not None
    found = task.draw(np.asarray(x))
    if isinstance(found, Figure):
        return {"picture": _pixels(found)}
    try:
        lines = tuple(map(upright, found))
    except (TypeError, ValueError) as error:
        wanted = "a figure, or lines of points [n, 2] or [n, 3]"
        raise UsageError(f"draw of task '{task.name}' must return {wanted}: {error}") from error
    require(bool(lines), f"draw of task '{task.name}' returns no line")
    return {"lines": lines}


def upright(line: Any) -> np.ndarray:
    """Turn a line [n, 2] of a plane into one in space that stands before the viewer, [n, 3]."""
    points = np.asarray(line, float)
    if points.ndim != 2 or points.shape[1] not in (2, 3) or not np.isfinite(points).all():
        raise ValueError(f"got points of shape {points.shape}")
    if points.shape[1] == 3:
        return points
    return np.column_stack([points[:, 0], np.zeros(len(points)), points[:, 1]])


def _box(low: Any, high: Any) -> np.ndarray:
    (x, y), (to_x, to_y) = low, high
    return np.array([(x, y), (to_x, y), (to_x, to_y), (x, to_y), (x, y)], float)


def _pixels(figure: Figure) -> np.ndarray:
    from PIL import Image

    file = io.BytesIO()
    figure.savefig(file, format="png")
    return np.asarray(Image.open(file).convert("RGB"))
