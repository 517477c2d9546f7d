"""Placeholders in the sources of kernels."""

from __future__ import annotations

from typing import Any


def written(text: str, **parts: Any) -> str:
    """Replace placeholders such as @NAME@ in source code. The items of a list become separate lines."""
    for name, part in parts.items():
        text = text.replace(f"@{name}@", "\n  ".join(part) if isinstance(part, list) else str(part))
    return text
