"""Placeholders in the sources of kernels."""

from __future__ import annotations

from typing import Any


def written(text: str, **parts: Any) -> str:
    """Replace the placeholders of a source, such as @NAME@; a list becomes several lines."""
    for name, part in parts.items():
        text = text.replace(f"@{name}@", "\n  ".join(part) if isinstance(part, list) else str(part))
    return text
