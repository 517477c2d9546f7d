"""Videos and contact sheets of episodes, rendered by MuJoCo without a window.

This module only draws. Other modules compute the positions of the bodies.
"""

from __future__ import annotations

import copy
import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke

from memes.errors import UsageError
from memes.view.cameras import Camera, add_light, between, camera_of, darken_ground
from memes.view.video_formats import write_frames

# Width and height of videos in pixels. GIF videos have the lowest resolution, because GIF files are
# large for a given resolution.
SIZES = {".mp4": (960, 540), ".gif": (480, 270), ".webp": (720, 404)}
SAMPLES = 4  # Several samples are drawn per pixel, for smooth edges.
PROBE = "import sys, importlib; importlib.import_module(sys.argv[1]).GLContext(8, 8).make_current()"


@cache
def library() -> str:
    """Return the name of an OpenGL library that can draw without a window, such as egl on Linux.

    The environment variable `MUJOCO_GL` overrides the choice. Each library is tried in a separate
    process, because a failing library can cause the next one to fail.
    """
    choices = {"darwin": ("cgl",), "win32": ("glfw",)}.get(sys.platform, ("egl", "osmesa"))
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    for name in (wanted,) if wanted else choices:
        if _works(name):
            return name
    if wanted:
        raise UsageError(f"MUJOCO_GL={wanted} cannot draw pictures here; unset or change it")
    raise UsageError(
        f"pictures cannot be drawn here: neither {' nor '.join(choices)} works; "
        "install one (on Debian and Ubuntu: apt install libegl1 libgl1-mesa-dri, or libosmesa6)"
    )


def _works(name: str) -> bool:
    # Remove these variables, so that importing MuJoCo does not select a library.
    environment = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    # `-P` prevents imports from the current folder, which may be a run folder from an untrusted source.
    command = [sys.executable, "-P", "-c", PROBE, f"mujoco.{name}"]
    try:
        done = subprocess.run(command, env=environment, cwd=os.sep, capture_output=True, timeout=60)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False


def frames(
    model: Any, states: np.ndarray, *, width: int, height: int, camera: Camera = "auto"
) -> Iterator[np.ndarray]:
    """Yield pictures uint8[height, width, 3] of an `MjModel` at the positions `states[n, nq]`."""
    name = library()  # Call this before MuJoCo is imported, because the import reads `MUJOCO_GL`.
    import mujoco

    model = copy.copy(model)
    model.vis.global_.offwidth, model.vis.global_.offheight = width, height
    model.vis.quality.offsamples = SAMPLES
    darken_ground(model)
    data, option = mujoco.MjData(model), mujoco.MjvOption()
    seen_from = camera_of(model, states, camera, width / height)
    window = importlib.import_module(f"mujoco.{name}").GLContext(width, height)
    window.make_current()
    context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
    try:
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)
        scene = mujoco.MjvScene(model, maxgeom=model.ngeom + 100)
        area = mujoco.MjrRect(0, 0, width, height)
        everything = mujoco.mjtCatBit.mjCAT_ALL
        for qpos in states:
            data.qpos[:] = qpos
            mujoco.mj_forward(model, data)  # update kinematics, cameras and lights
            mujoco.mjv_updateScene(model, data, option, None, seen_from, everything, scene)
            add_light(model, data, scene)
            mujoco.mjr_render(area, scene, context)
            picture = np.empty((height, width, 3), np.uint8)
            mujoco.mjr_readPixels(picture, None, area, context)
            yield np.flipud(picture)  # OpenGL counts rows from below
    finally:
        context.free()
        window.free()


def write_video(
    file: Path,
    model: Any,
    states: np.ndarray,
    *,
    seconds: float,
    size: tuple[int, int] | None = None,
    camera: Camera = "auto",
    rate: float | None = None,
) -> None:
    """Write a video of an `MjModel` at real speed.

    Args:
        file: File to write.
        model: The model.
        states: Positions, [n, nq].
        seconds: Time between two positions.
        size: Width and height in pixels. The default is the entry of `SIZES` for the file format.
        camera: Name of a camera. `camera_of` describes the cameras.
        rate: Frames per second. By default, each position is one frame.
    """
    width, height = size or SIZES[file.suffix.lower()]
    shown = between(model, states, seconds, rate)
    pictures = frames(model, shown, width=width, height=height, camera=camera)
    write_frames(file, pictures, rate=rate or 1 / seconds)


def sheet_figure(model: Any, states: np.ndarray, *, seconds: float, camera: Camera = "auto") -> Figure:
    """Draw an `MjModel` at twelve positions from `states[n, nq]`, evenly spaced in time.

    `seconds` is the time between two successive positions. Each picture is labelled with its time.
    """
    shown = np.unique(np.linspace(0, len(states) - 1, 12).round().astype(int))
    rows = math.ceil(len(shown) / 4)
    tight = ConstrainedLayoutEngine(w_pad=0.01, h_pad=0.01, wspace=0, hspace=0)
    figure = Figure(figsize=(9.6, 1.8 * rows), layout=tight)
    axes = figure.subplots(rows, 4, squeeze=False).ravel()
    pictures = frames(model, states[shown], width=480, height=360, camera=camera)
    for ax, step, picture in zip(axes, shown, pictures, strict=False):
        ax.imshow(picture)
        label = ax.text(12, 36, f"{step * seconds:.2f} s", fontsize="small")
        label.set_path_effects([withStroke(linewidth=2, foreground="white")])  # the sky may be black
    for ax in axes:
        ax.set_axis_off()
    return figure
