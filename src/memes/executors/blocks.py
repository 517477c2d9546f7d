"""Rows of a block, evaluated in a worker: nothing here needs JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memes.errors import UsageError

# How many rows, and what `evaluate` returned for them; None if it raised for a single one.
Part = tuple[int, Any]


def by_halves(
    evaluate: Callable[[Any, Any], Any], keys: Any, x: Any
) -> tuple[list[Part], BaseException | None]:
    """Evaluate rows; where that raises, each half of them by itself, down to single rows.

    Returns:
        What was found for the rows, in order, and the last exception, if there was one.
    """
    try:
        return [(len(x), evaluate(keys, x))], None
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        failure: BaseException = error
    n = len(x)
    if n == 1:
        return [(1, None)], failure
    parts: list[Part] = []
    for half in (slice(n // 2), slice(n // 2, n)):
        found, later = by_halves(evaluate, keys[half], x[half])
        parts, failure = [*parts, *found], later or failure
    return parts, failure
