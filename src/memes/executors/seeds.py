"""Functions that convert JAX keys to integer seeds with NumPy, so that workers need no JAX backend."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int, UInt32

from memes.errors import require
from memes.validation import short


def seeds_from_keys(keys: Any) -> Int[np.ndarray, "*n"]:
    """Draw an integer seed in [0, 2^32) from each key, for simulators that do not use JAX.

    Args:
        keys: JAX keys [n], or integers [n, w]. Workers receive such integers instead of JAX keys.

    Returns:
        The seeds [n].
    """
    try:
        words = key_words(keys)
        good = words.ndim >= 1 and words.shape[-1] >= 2 and words.dtype.kind in "iu"
    except (TypeError, ValueError, AttributeError):
        good = False
    require(good, f"keys must be JAX keys, or arrays of the integers in them, got {short(keys)}")
    rows = words.reshape(-1, words.shape[-1])
    first, second = threefry(rows[:, :2], rows[:, 2:4] if rows.shape[1] >= 4 else np.zeros_like(rows))
    seeds: np.ndarray = (first ^ second).astype(np.int64)
    return seeds.reshape(words.shape[:-1])


def key_words(keys: Any) -> UInt32[np.ndarray, "*n w"]:
    """Convert JAX keys to integers. NumPy arrays of such integers are returned unchanged."""
    if isinstance(keys, np.ndarray):
        return keys
    import jax

    return np.asarray(jax.random.key_data(keys))


def threefry(
    key: UInt32[np.ndarray, "n 2"], count: UInt32[np.ndarray, "n 2"]
) -> tuple[UInt32[np.ndarray, " n"], UInt32[np.ndarray, " n"]]:
    """Encrypt two counters with Threefry-2x32 (Salmon et al., 2011), as JAX does."""
    keys = key[:, 0], key[:, 1], key[:, 0] ^ key[:, 1] ^ np.uint32(0x1BD11BDA)
    x, y = count[:, 0] + keys[0], count[:, 1] + keys[1]
    for i in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x = x + y
            y = x ^ ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn)))
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x, y
