"""Estimates of the memory that programs need, and of batch sizes that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

# Share of the free memory that may be used. The rest is for other programs and for buffers that are not
# counted.
SHARE = 0.9


def needed(compiled: Any) -> int | None:
    """Return the bytes that a compiled program needs, or None if XLA cannot analyse its memory."""
    analysis = getattr(compiled, "memory_analysis", lambda: None)()
    if analysis is None:
        return None
    parts = ("temp", "argument", "output")
    total = sum(getattr(analysis, f"{part}_size_in_bytes") for part in parts)
    return int(total - analysis.alias_size_in_bytes)


def available() -> int | None:
    """Return the free bytes on the device, or on the machine if the device uses main memory."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return free()


def free() -> int | None:
    """Return how many bytes of main memory this process may still allocate, or None if unknown."""
    return min(filter(None, (_left_of_machine(), left_of_groups())), default=None)


def _left_of_machine(info: Path = Path("/proc/meminfo")) -> int | None:
    lines = _text(info).splitlines()
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return 1024 * kilobytes[0] if kilobytes else None


def left_of_groups(root: Path = Path("/")) -> int | None:
    """Return how many bytes the control groups of this process may still use, or None if unlimited.

    Linux runs containers, cluster jobs and services in control groups, which may be nested. Each group
    may have a memory limit, in the files of cgroup version 1 or version 2.

    Args:
        root: The folder that contains `proc` and `sys`.
    """
    return min(filter(None, map(_left_of_group, _groups(root))), default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the groups that limit memory, from the innermost to the outermost."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        mounts = (
            ("", "unified") if not controllers else ("memory",) * ("memory" in controllers.split(","))
        )
        names = [name for name in path.split("/") if name not in ("", "..")]
        for mount in mounts:
            group = root / "sys/fs/cgroup" / mount
            yield from (group.joinpath(*names[:depth]) for depth in range(len(names), -1, -1))


# The first row describes cgroup version 2, and the second row describes version 1. A row contains the
# files with limits, the file with the used memory, and the entry for the reclaimable file cache. This
# cache is part of the used memory.
FILES = (
    (("memory.max", "memory.high"), "memory.current", "inactive_file"),
    (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
)
UNLIMITED = 2**60  # version 1 uses a larger number for "no limit"


def _left_of_group(group: Path) -> int | None:
    for names, use, idle in FILES:
        limits = [int(text) for text in (_text(group / name) for name in names) if text.isdecimal()]
        used = _text(group / use)
        if min(limits, default=UNLIMITED) < UNLIMITED and used.isdecimal():
            statistics = dict(line.split()[:2] for line in _text(group / "memory.stat").splitlines())
            return max(min(limits) - int(used) + int(statistics.get(idle, 0)), 1)
    return None


def _text(file: Path) -> str:
    """Read a file, or return "" if it cannot be read."""
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""


def smaller(rows: int, need: int, room: int) -> int:
    """Return the largest batch size below `rows` that is a power of two and fits into memory.

    Args:
        rows: Batch size that needs too much memory.
        need: Bytes that a batch of this size needs.
        room: Free bytes.
    """
    wanted = max(1, int(rows * SHARE * room / need))
    return int(1 << (min(wanted, rows - 1).bit_length() - 1)) if rows > 1 else 1


def fewer(rows: int, compiled: Any, what: str, say: Callable[[str], None]) -> int | None:
    """Return a smaller batch size if a program does not fit into memory, and print the required memory.

    Return None if the program fits, if the needed memory is unknown, or if the batch cannot be smaller.
    """
    room, need = available(), needed(compiled)
    if room is None or need is None:
        return None
    say(f"{what} needs {in_words(need)} of memory ({in_words(room)} are free)")
    return None if need <= SHARE * room or rows == 1 else smaller(rows, need, room)


def in_words(size: int) -> str:
    """Format a number of bytes."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**29 else f"{size / 2**20:.0f} MiB"
