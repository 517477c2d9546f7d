"""Functions that write pictures as a video in the formats .mp4, .gif and .webp."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from memes.errors import install, require
from memes.store.folder import check_not_of_run

FORMATS = (".mp4", ".gif", ".webp")
RATES = (0.1, 240.0)  # minimum and maximum frame rate, in frames per second
SIDES = (16, 4096)  # minimum and maximum width and height in pixels


def check_file(option: str, file: Path, *endings: str) -> None:
    """Raise a `UsageError` that names `option` if the file has an invalid name or is not writable."""
    *others, last = endings
    named = f"{', '.join(others)} or {last}" if others else last
    good = file.suffix.lower() in endings
    require(good, f"{option} must be a file ending in {named}, got '{file.name}'")
    require(not file.is_symlink(), f"{option}: '{file}' is a link, which memes does not follow")
    require(file.parent.is_dir(), f"cannot write '{file}': there is no folder '{file.parent}'")
    check_not_of_run(file, option)


def check_video(option: str, file: Path) -> None:
    """Raise a `UsageError` that names `option` if the video cannot be written."""
    check_file(option, file, *FORMATS)
    require(
        file.suffix.lower() != ".mp4" or _ffmpeg() is not None,
        f"{option}: .mp4 needs the program ffmpeg, or the extra view: {install('view')}; "
        ".gif and .webp need neither",
    )


def check_size(size: tuple[int, int], rate: float | None = None) -> None:
    """Raise a `UsageError` if the size or the frame rate is outside its range."""
    least, most = SIDES
    good = len(size) == 2 and all(least <= side <= most and side % 2 == 0 for side in size)
    shown = " ".join(map(str, size))
    require(good, f"size must be two even numbers from {least} to {most}, got '{shown}'")
    slowest, fastest = RATES
    require(
        rate is None or slowest <= rate <= fastest,
        f"rate must lie in {slowest:g} ... {fastest:g} pictures per second, got {rate}",
    )


def write_frames(file: Path, pictures: Iterable[np.ndarray], *, rate: float) -> None:
    """Write pictures uint8[height, width, 3] as a video with `rate` frames per second.

    The ending of the file name selects the format.
    """
    if file.suffix.lower() == ".mp4":
        _encode(file, pictures, rate)
        return
    from PIL import Image

    first, *others = [Image.fromarray(picture) for picture in pictures]
    timed: dict[str, Any] = {
        "save_all": True,
        "append_images": others,
        "duration": round(1000 / rate),
        "loop": 0,
    }
    more: dict[str, Any] = {"quality": 80, "method": 4} if file.suffix.lower() == ".webp" else {}
    first.save(file, **timed, **more)


def _encode(file: Path, pictures: Iterable[np.ndarray], rate: float) -> None:
    first, *_ = head = list(itertools.islice(pictures := iter(pictures), 1))
    height, width = first.shape[:2]
    raw = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {rate}"
    options = f"-y -loglevel error {raw} -i - -pix_fmt yuv420p"
    # Use an absolute path, because ffmpeg would treat `-x.mp4` as an option and `pipe:1.mp4` as an
    # address.
    command = [_ffmpeg() or "ffmpeg", *options.split(), str(file.absolute())]
    # If the encoder fails, it closes its input. The resulting error is ignored, because the exit
    # code is checked below.
    with suppress(BrokenPipeError), subprocess.Popen(command, stdin=subprocess.PIPE) as encoder:
        assert encoder.stdin is not None
        for picture in itertools.chain(head, pictures):
            encoder.stdin.write(np.ascontiguousarray(picture).tobytes())
    require(encoder.returncode == 0, f"ffmpeg could not write '{file}'")


def _ffmpeg() -> str | None:
    """Return the path of ffmpeg on the system or in an installed package, or None if it is missing."""
    found = shutil.which("ffmpeg")
    if found is None and importlib.util.find_spec("imageio_ffmpeg") is not None:
        from imageio_ffmpeg import get_ffmpeg_exe

        found = str(get_ffmpeg_exe())
    return found
