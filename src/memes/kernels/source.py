"""Placeholders in the sources of kernels."""

from __future__ import annotations

from typing import Any


def written(text: str, **parts: Any) -> str:
    """Replace the placeholders in a source, such as @NAME@. A list is written as several lines."""
    for name, part in parts.items():
        text = text.replace(f"@{name}@", "\n  ".join(part) if isinstance(part, list) else str(part))
    return text
