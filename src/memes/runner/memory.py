"""The memory that a generation needs, and what to do if there is less."""

from __future__ import annotations

from collections.abc import Callable
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
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return free()


def free() -> int | None:
    """Bytes of the machine's memory that this process may still take; None if there is no telling."""
    return min(filter(None, (_left_of_machine(), _left_of_group())), default=None)


def _left_of_machine(info: Path = Path("/proc/meminfo")) -> int | None:
    lines = info.read_text().splitlines() if info.exists() else []
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return 1024 * kilobytes[0] if kilobytes else None


def _left_of_group(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes left to a container or to a job of a cluster; None if it has no limit of its own."""
    try:
        limit, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
        return max(int(limit) - int(used), 1)
    except (OSError, ValueError):  # no such files, or no limit: 'max'
        return None


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
