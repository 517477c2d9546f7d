"""A player in the browser, for this machine only."""

from __future__ import annotations

import copy
import importlib.util
import time
from contextlib import suppress
from typing import Any

import numpy as np

from memes.errors import require

SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "4")


def check_browser() -> None:
    """Raise a `UsageError` unless the player is installed."""
    require(
        importlib.util.find_spec("mjviser") is not None,
        "a replay in the browser needs the package mjviser: 'pip install mjviser'; "
        "--video FILE.gif and --sheet FILE.png do without",
    )


def play(model: Any, states: np.ndarray, *, seconds: float, title: str, port: int) -> None:
    """Serve `states[n, nq]` of an `MjModel`, that many seconds apart, over and over, until Ctrl-C.

    The title stands above the controls of the page. The port is the one given, or the next free one.
    """
    check_browser()
    import mujoco
    from mjviser import ViserMujocoScene

    from memes.view.server import page

    model = copy.copy(model)  # the scene changes how things look
    data = mujoco.MjData(model)
    with page(title=title, port=port) as (server, url), suppress(KeyboardInterrupt):
        gui: Any = server.gui
        scene = ViserMujocoScene(server, model, num_envs=1)
        playing = gui.add_checkbox("play", initial_value=True)
        speed = gui.add_dropdown("speed", SPEEDS, initial_value="1")
        last = (len(states) - 1) * seconds
        clock = gui.add_slider("time (s)", min=0.0, max=last, step=seconds, initial_value=0.0)
        scene.create_scene_gui(camera_distance=1.5 * model.stat.extent, camera_azimuth=90)
        print(f"playing at {url} until Ctrl-C", flush=True)
        now, shown, before = 0.0, -1, time.perf_counter()
        while True:
            passed, before = time.perf_counter() - before, time.perf_counter()
            # A second's rest at the end; while it does not play, whoever moves the slider decides.
            played = (now + passed * float(speed.value)) % (last + 1.0)
            now = played if playing.value else clock.value
            step = min(round(now / seconds), len(states) - 1)
            if step != shown:
                shown = step
                data.qpos[:] = states[step]
                mujoco.mj_forward(model, data)
                scene.update_from_mjdata(data)
                if playing.value:
                    clock.value = step * seconds
            time.sleep(1 / 60)
