"""Provide the lower layers of the package with the plotting functions.

This module cannot import the plotting functions, which are in a higher layer. Instead, `memes.__init__`
sets `plots`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

plots: Callable[[], Any]  # returns the module `memes.plot`
