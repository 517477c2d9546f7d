"""Functions that write scalars to TensorBoard event files without the TensorBoard package.

A file is a sequence of records. Each record has the length of a message, a checksum of the length, the
message, and a checksum of the message. The message is an `Event` in the format of Protocol Buffers, with
either the file version or the value of a scalar.

The writer of the package tensorboardX is not used, because:

- it needs protobuf, which is not a dependency,
- it writes in a separate thread, so a killed run loses events,
- it follows links, whereas `files.open_regular` raises an error for links.
"""

from __future__ import annotations

import os
import secrets
import struct
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from memes.store.files import open_regular

WORD = 0xFFFFFFFF


def new_events(folder: Path) -> Path:
    """Start an event file in a folder, which is made if it does not exist."""
    folder.mkdir(exist_ok=True)
    file = folder / f"events.out.tfevents.{int(time.time()):010d}.{os.getpid()}.{secrets.token_hex(4)}"
    with open_regular(file, "xb") as stream:
        stream.write(_record(_event(time.time(), 0, _bytes(3, b"brain.Event:2"))))
    return file


def append_scalars(file: Path, rows: list[tuple[float, int, Mapping[str, float]]]) -> None:
    """Append scalars to an event file.

    Each row contains the time in seconds since 1970, the step, and the values by name.
    """
    with open_regular(file, "ab") as stream:
        for seconds, step, values in rows:
            for name, value in values.items():
                scalar = _bytes(1, name.encode()) + _tag(2, 5) + struct.pack("<f", value)
                stream.write(_record(_event(seconds, step, _bytes(5, _bytes(1, scalar)))))


def _event(seconds: float, step: int, content: bytes) -> bytes:
    return _tag(1, 1) + struct.pack("<d", seconds) + _tag(2, 0) + _varint(step) + content


def _tag(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _bytes(field: int, content: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _record(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    return length + _checksum(length) + message + _checksum(message)


def _checksum(data: bytes) -> bytes:
    """Return the masked CRC-32C checksum of data, which the format of the records requires."""
    crc = WORD
    for byte in data:
        crc = _table()[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= WORD
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & WORD)


@cache
def _table() -> tuple[int, ...]:
    def entry(value: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        return value

    return tuple(map(entry, range(256)))
