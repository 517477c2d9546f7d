"""Sources of kernels, which contain placeholders."""

from __future__ import annotations

from typing import Any


def written(text: str, **parts: Any) -> str:
    """Fill in the placeholders of a source, such as @NAME@; lists become lines."""
    for name, part in parts.items():
        text = text.replace(f"@{name}@", "\n  ".join(part) if isinstance(part, list) else str(part))
    return text
