"""The memory that a generation needs, and what to do if there is less."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

# Of what is free: other programs, and what compilers do not count, need some too.
SHARE = 0.9


def needed(compiled: Any) -> int | None:
    """Bytes that a compiled program needs at once, by its own analysis; None if there is none."""
    analysis = getattr(compiled, "memory_analysis", lambda: None)()
    if analysis is None:
        return None
    parts = ("temp", "argument", "output")
    total = sum(getattr(analysis, f"{part}_size_in_bytes") for part in parts)
    return int(total - analysis.alias_size_in_bytes)


def available() -> int | None:
    """Bytes that are free on the device, or on the machine if the device has no memory of its own."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return free()


def free() -> int | None:
    """Bytes of the machine's memory that this process may still take; None if there is no telling."""
    return min(filter(None, (_left_of_machine(), left_of_groups())), default=None)


def _left_of_machine(info: Path = Path("/proc/meminfo")) -> int | None:
    lines = _text(info).splitlines()
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return 1024 * kilobytes[0] if kilobytes else None


def left_of_groups(root: Path = Path("/")) -> int | None:
    """Bytes left to the control groups of this process; None if they have no limit.

    A container, a job of a cluster and a service are such groups, one within the other. Each may have a
    limit, in files of version 1 or of version 2 of the kernel's interface.

    Args:
        root: The folder that holds `proc` and `sys`.
    """
    return min(filter(None, map(_left_of_group, _groups(root))), default=None)


def _groups(root: Path) -> Iterator[Path]:
    """The folders of the groups that count memory, from the inmost one up."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        mounts = (
            ("", "unified") if not controllers else ("memory",) * ("memory" in controllers.split(","))
        )
        names = [name for name in path.split("/") if name not in ("", "..")]
        for mount in mounts:
            group = root / "sys/fs/cgroup" / mount
            yield from (group.joinpath(*names[:depth]) for depth in range(len(names), -1, -1))


# The files of version 2 and of version 1: limits, use, and what of it is files that can be read again.
FILES = (
    (("memory.max", "memory.high"), "memory.current", "inactive_file"),
    (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
)
UNLIMITED = 2**60  # version 1 has a number for it


def _left_of_group(group: Path) -> int | None:
    for names, use, idle in FILES:
        limits = [int(text) for text in (_text(group / name) for name in names) if text.isdecimal()]
        used = _text(group / use)
        if min(limits, default=UNLIMITED) < UNLIMITED and used.isdecimal():
            statistics = dict(line.split()[:2] for line in _text(group / "memory.stat").splitlines())
            return max(min(limits) - int(used) + int(statistics.get(idle, 0)), 1)
    return None


def _text(file: Path) -> str:
    """Read a file; nothing, if it cannot be read."""
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""


def smaller(rows: int, need: int, room: int) -> int:
    """How many rows to evaluate at a time, when so many need too much: the next power of two below."""
    wanted = max(1, int(rows * SHARE * room / need))
    return int(1 << (min(wanted, rows - 1).bit_length() - 1)) if rows > 1 else 1


def fewer(rows: int, compiled: Any, what: str, say: Callable[[str], None]) -> int | None:
    """How many rows at a time a program should evaluate instead of so many; None if it fits into memory.

    None, too, where nothing can be known or done about it. What it needs is said.
    """
    room, need = available(), needed(compiled)
    if room is None or need is None:
        return None
    say(f"{what} needs {in_words(need)} of the {in_words(room)} that are free")
    return None if need <= SHARE * room or rows == 1 else smaller(rows, need, room)


def in_words(size: int) -> str:
    """A number of bytes."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**29 else f"{size / 2**20:.0f} MiB"
