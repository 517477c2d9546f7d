"""How results are drawn, for the layers that keep results.

The layers that draw come after them, so the package sets this when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

plots: Callable[[], Any]  # returns the module `memes.plot`
