"""Episodes as videos, and as sheets of frames, by MuJoCo's renderer without a window.

It only draws: positions come from elsewhere.
"""

from __future__ import annotations

import copy
import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from memes.errors import UsageError, require

SIZES = {".mp4": (640, 480), ".gif": (400, 304)}  # a GIF compresses little
PROBE = "import sys, importlib; importlib.import_module(sys.argv[1]).GLContext(8, 8).make_current()"


@cache
def library() -> str:
    """Find the OpenGL library that can draw without a window here: egl or osmesa on Linux.

    `MUJOCO_GL` decides, if it is set. Each is tried in a process of its own, since one that fails
    spoils the next.
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
    # Without the variable, importing MuJoCo leaves the choice to us.
    environment = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    # The current folder may be a run that somebody sent: no module of it is imported.
    command = [sys.executable, "-P", "-c", PROBE, f"mujoco.{name}"]
    try:
        done = subprocess.run(command, env=environment, cwd=os.sep, capture_output=True, timeout=60)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False


def frames(model: Any, states: np.ndarray, *, width: int, height: int) -> Iterator[np.ndarray]:
    """Draw an `MjModel` at each of the positions `states[n, nq]`: pictures uint8[height, width, 3].

    The view is the model's first camera, or else one that follows its first body.
    """
    name = library()  # before MuJoCo's own modules ask for it
    import mujoco

    model = copy.copy(model)
    model.vis.global_.offwidth, model.vis.global_.offheight = width, height
    data, option, camera = mujoco.MjData(model), mujoco.MjvOption(), mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    if model.ncam:
        camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 0
    elif model.nbody > 1:
        camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, 1
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
            mujoco.mj_forward(model, data)  # kinematics, cameras and lights
            mujoco.mjv_updateScene(model, data, option, None, camera, everything, scene)
            mujoco.mjr_render(area, scene, context)
            picture = np.empty((height, width, 3), np.uint8)
            mujoco.mjr_readPixels(picture, None, area, context)
            yield np.flipud(picture)  # OpenGL counts rows from below
    finally:
        context.free()
        window.free()


def check_video(file: Path) -> None:
    """Raise a `UsageError` unless such a file can be written."""
    require(
        file.suffix.lower() in SIZES, f"video must be a file ending in .mp4 or .gif, got '{file.name}'"
    )
    require(
        file.suffix.lower() != ".mp4" or _ffmpeg() is not None,
        "video: .mp4 needs the program ffmpeg, or the package that brings it: 'pip install "
        "imageio-ffmpeg'; .gif needs neither",
    )


def write_video(file: Path, model: Any, states: np.ndarray, *, seconds: float) -> None:
    """Write `states[n, nq]` of an `MjModel`, that many seconds apart, as an mp4 or a GIF."""
    check_video(file)
    width, height = SIZES[file.suffix.lower()]
    pictures = frames(model, states, width=width, height=height)
    if file.suffix.lower() == ".gif":
        from PIL import Image

        first, *others = [Image.fromarray(picture) for picture in pictures]
        duration = round(1000 * seconds)
        first.save(file, save_all=True, append_images=others, duration=duration, loop=0)
        return
    raw = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {1 / seconds}"
    options = f"-y -loglevel error {raw} -i - -pix_fmt yuv420p"
    command = [_ffmpeg() or "ffmpeg", *options.split(), str(file)]
    # An encoder that gives up closes its end; its exit code tells.
    with suppress(BrokenPipeError), subprocess.Popen(command, stdin=subprocess.PIPE) as encoder:
        assert encoder.stdin is not None
        for picture in pictures:
            encoder.stdin.write(picture.tobytes())
    require(encoder.returncode == 0, f"video: ffmpeg could not write '{file}'")


def _ffmpeg() -> str | None:
    """Find the program, or the one that a package brings."""
    found = shutil.which("ffmpeg")
    if found is None and importlib.util.find_spec("imageio_ffmpeg") is not None:
        from imageio_ffmpeg import get_ffmpeg_exe

        found = str(get_ffmpeg_exe())
    return found


def sheet_figure(model: Any, states: np.ndarray, *, seconds: float) -> Figure:
    """Draw a dozen of `states[n, nq]` of an `MjModel`, evenly from start to end, with their times."""
    shown = np.unique(np.linspace(0, len(states) - 1, 12).round().astype(int))
    rows = math.ceil(len(shown) / 4)
    tight = ConstrainedLayoutEngine(w_pad=0.01, h_pad=0.01, wspace=0, hspace=0)
    figure = Figure(figsize=(9.6, 1.8 * rows), layout=tight)
    axes = figure.subplots(rows, 4, squeeze=False).ravel()
    pictures = frames(model, states[shown], width=320, height=240)
    for ax, step, picture in zip(axes, shown, pictures, strict=False):
        ax.imshow(picture)
        ax.text(8, 24, f"{step * seconds:.2f} s", fontsize="small")
    for ax in axes:
        ax.set_axis_off()
    return figure
