"""Drawings of an elite as a moving robot, as lines, or as a picture."""

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

SECONDS = 0.02  # display time between two points of a path


class Drawing(NamedTuple):
    """The result of one evaluation of an elite, with the data that is needed to draw the elite.

    Attributes:
        fitness: Fitness of this evaluation.
        feature: Feature of this evaluation, [k].
        episode: States of the robot; None for tasks without a robot.
        seconds: Time between two states, or between two points of the path.
        lines: Static lines, [n, 3] each.
        path: Path of a moving point, [T, 3]; None if there is none.
        picture: Figure drawn by the task, uint8[H, W, 3]; None if there is none.
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
        """The number of time steps to show."""
        states = self.path if self.episode is None else self.episode.qpos
        return 1 if states is None else len(states)

    @property
    def own(self) -> int:
        """The index of the line that shows the elite: its path, or the first line if it has no path."""
        return 0 if self.path is None else len(self.lines) - 1


Draw = Callable[[Array, int], Drawing]


def drawer(task: Task) -> Draw:
    """Return a function `(x[d], seed) -> Drawing` for a task. Its first call compiles it."""
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
    """Call `draw` of a task, and convert the result to fields of `Drawing`.

    Raises:
        UsageError: If the result is neither a figure nor lines.
    """
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
    """Return a line as points [n, 3]. A line [n, 2] becomes an upright line that faces the viewer."""
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
