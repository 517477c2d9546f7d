"""Video frames of an elite, with the same drawing as on the browser page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from memes.task import Task
from memes.view.cameras import Camera, between
from memes.view.drawings import Drawing
from memes.view.pictures import frames
from memes.view.recordings import robot_of

SIDE = 256  # width and height of a picture in pixels
STILL, OWN, DOT = "#8A8F9C", "#1F6FB2", "#D9541E"


def elite_frames(drawing: Drawing, task: Task, *, rate: float, camera: Camera) -> Iterator[np.ndarray]:
    """Yield video frames uint8[H, W, 3] of an elite's drawing, with `rate` frames per second."""
    if drawing.episode is not None:
        model = robot_of(task).model
        states = between(model, drawing.episode.qpos, drawing.seconds, rate)
        yield from frames(model, states, width=SIDE, height=SIDE, camera=camera)
    elif drawing.picture is not None:
        yield drawing.picture
    elif drawing.lines:
        yield from _lines(drawing, rate)


def _lines(drawing: Drawing, rate: float) -> Iterator[np.ndarray]:
    """Yield video frames of a drawing, as seen along the y axis. A dot follows the drawing's path."""
    figure = Figure(figsize=(2.56, 2.56), dpi=SIDE / 2.56)
    axes = figure.add_axes((0.03, 0.03, 0.94, 0.94), aspect="equal")
    axes.set_axis_off()
    for i, line in enumerate(drawing.lines):
        own = i == drawing.own
        axes.plot(*line[:, [0, 2]].T, color=OWN if own else STILL, linewidth=2.5 if own else 1.2)
    (dot,) = axes.plot([], [], "o", color=DOT, markersize=7)
    canvas: Any = FigureCanvasAgg(figure)
    path = np.zeros((0, 3)) if drawing.path is None else drawing.path
    every = np.arange(0, max(1, len(path)), max(1.0, 1 / (rate * drawing.seconds)) if len(path) else 1)
    for step in every.astype(int):
        dot.set_data(*path[step : step + 1, [0, 2]].T)
        canvas.draw()
        yield np.asarray(canvas.buffer_rgba())[..., :3].copy()
