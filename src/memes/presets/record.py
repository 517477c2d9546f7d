"""The record of a preset: its name and its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from memes.algorithm import Algorithm
from memes.parameters import flat, recordable


def recorded(build: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Make a preset of a function: it is `flat`, and its algorithm carries its name and its options."""
    function = flat(build)
    signature = inspect.signature(function)

    @wraps(function)
    def build_and_record(*arguments: Any, **keywords: Any) -> Algorithm:
        algorithm = function(*arguments, **keywords)
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        options = {k: recordable(v) for k, v in bound.arguments.items() if k not in ("task", "cells")}
        return algorithm._replace(name=build.__name__.replace("_", "-"), options=options)

    return build_and_record
