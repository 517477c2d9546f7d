"""Episodes as videos, and as sheets of frames."""

from __future__ import annotations

import importlib.util
import math
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from memes.errors import require
from memes.view.offscreen import frames

SIZES = {".mp4": (640, 480), ".gif": (400, 304)}  # a GIF compresses little


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


def sheet_figure(
    model: Any, states: np.ndarray, *, seconds: float, count: int = 12, columns: int = 4
) -> Figure:
    """Draw a dozen of `states[n, nq]`, evenly over the episode from start to end, with their times.

    Args:
        model: The `MjModel`.
        states: Positions, `seconds` apart.
        seconds: Time between two of them.
        count: How many are shown, if there are as many.
        columns: How many side by side.
    """
    shown = np.unique(np.linspace(0, len(states) - 1, count).round().astype(int))
    rows = math.ceil(len(shown) / columns)
    tight = ConstrainedLayoutEngine(w_pad=0.01, h_pad=0.01, wspace=0, hspace=0)
    figure = Figure(figsize=(2.4 * columns, 1.8 * rows), layout=tight)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    pictures = frames(model, states[shown], width=320, height=240)
    for ax, step, picture in zip(axes, shown, pictures, strict=False):
        ax.imshow(picture)
        ax.text(8, 24, f"{step * seconds:.2f} s", fontsize="small")
    for ax in axes:
        ax.set_axis_off()
    return figure
