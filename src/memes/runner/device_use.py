"""The observer that counts processes on the same device, because sharing a device slows down runs."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, ClassVar

import jax

from memes.kernels.cache import folder
from memes.runner.observers import Callbacks, RunContext, Update
from memes.store.folder import Run

EVERY = 5.0  # seconds between counts


@dataclass(frozen=True)
class DeviceUse:
    """Record the maximum number of processes that ran on this device at once (`processes_on_device`).

    Each process locks a file in the user's cache folder, so processes of other users are not counted.
    """

    prefix: ClassVar[str] = "device_use"

    def watch(self, context: RunContext) -> Callbacks:
        """Return the callbacks of a run."""
        place, stack = place_of(jax.devices()[0]), ExitStack()
        if place is None:
            return Callbacks()
        context.closing(stack.close)
        most, looked = context.header.provenance.processes_on_device or 1, 0.0

        def look() -> None:
            nonlocal most, looked
            most, looked = max(most, count(place)), time.monotonic()

        def on_start(run: Run) -> None:
            stack.enter_context(announced(place))
            look()

        def on_update(update: Update) -> None:
            if time.monotonic() - looked >= EVERY:
                look()

        def on_end(run: Run) -> Run:
            look()
            return run._replace(provenance=replace(run.provenance, processes_on_device=most))

        return Callbacks(on_start=on_start, on_update=on_update, on_end=on_end)


def place_of(device: Any) -> Path | None:
    """Return the folder in which processes register their use of a device.

    Return None if there is no cache folder.
    """
    devices = folder("devices")
    number = getattr(device, "local_hardware_id", None) or 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    name = visible[number] if number < len(visible) and visible[number] else str(number)
    words = f"{socket.gethostname()} {device.platform} {device.device_kind} {name}"
    return devices and devices / re.sub(r"[^\w.-]+", "-", words)


# Maps the path of a lock file to the number of runs that use the file, and to the open file.
_announced: dict[Path, list[Any]] = {}


@contextmanager
def announced(place: Path) -> Iterator[None]:
    """Register this process so that `count` counts it once, even if it computes several runs."""
    file = place / str(os.getpid())
    held = _announced.setdefault(file, [0, None])
    held[0] += 1
    if held[0] == 1:
        for _ in range(3):  # another process may remove the file before it is locked
            held[1] = _locked(file)
            if held[1] and os.fstat(held[1].fileno()).st_nlink:
                break
    try:
        yield
    finally:
        held[0] -= 1
        if not held[0] and held[1]:
            file.unlink(missing_ok=True)
            held[1].close()


def count(place: Path) -> int:
    """Count the registered processes, and remove the files that killed processes have left."""
    found = 0
    files = place.iterdir() if place.is_dir() else ()
    for file in [each for each in files if each.name.isdecimal()]:
        if file.name == str(os.getpid()):
            found += 1
            continue
        held = _locked(file)
        if held is None:
            found += 1
        else:
            file.unlink(missing_ok=True)
            held.close()
    return max(found, 1)


def _locked(file: Path) -> IO[str] | None:
    """Lock a file, or return None if another process has locked it or locks are not supported."""
    try:
        import fcntl

        file.parent.mkdir(parents=True, exist_ok=True)
        opened = file.open("a")
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        opened.close()
        return None
    return opened
