"""Sources of kernels, with blanks."""

from __future__ import annotations

from typing import Any


def written(text: str, **parts: Any) -> str:
    """A source whose blanks, such as @NAME@, are filled in; lists are lines."""
    for name, part in parts.items():
        text = text.replace(f"@{name}@", "\n  ".join(part) if isinstance(part, list) else str(part))
    return text
