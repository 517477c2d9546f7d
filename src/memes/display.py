"""Access to the plotting functions for the lower layers of the package.

The plotting functions are in a higher layer, so the package sets `plots` when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

plots: Callable[[], Any]  # returns the module `memes.plot`
