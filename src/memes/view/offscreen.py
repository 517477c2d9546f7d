"""MuJoCo's renderer without a window. It only draws: positions come from elsewhere."""

from __future__ import annotations

import copy
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from memes.errors import UsageError

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
    data, option = mujoco.MjData(model), mujoco.MjvOption()
    camera = _camera(model)
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


def _camera(model: Any) -> Any:
    import mujoco

    camera = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    if model.ncam:
        camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 0
    elif model.nbody > 1:
        camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, 1
    return camera
