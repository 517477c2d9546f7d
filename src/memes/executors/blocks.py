"""Evaluation of a block of genotypes in a worker, without JAX."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from memes.errors import PLACE, UsageError, in_a_line, place_of

# A part of a batch: the number of its genotypes, and the result of their evaluation. The result is None
# if the evaluation failed.
Part = tuple[int, Any]


def by_halves(
    evaluate: Callable[[Any, Any], Any], keys: Any, x: Any
) -> tuple[list[Part], BaseException | None]:
    """Evaluate a batch of genotypes. After an exception, evaluate each half of the batch separately.

    Returns:
        The results of consecutive parts of the batch, and the last exception (None if no exception was
        raised).
    """
    try:
        result = evaluate(keys, x)
        if result is None:
            raise UsageError("evaluate must return fitness and feature, got None")
        return [(len(x), result)], None
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


def in_worker(
    evaluate: Callable[[Any, Any], Any], keys: Any, x: Any
) -> tuple[list[Part], BaseException | None]:
    """Evaluate genotypes as `by_halves` does, but convert the exception so that it can be pickled."""
    parts, failure = by_halves(evaluate, keys, x)
    return parts, failure and sendable(failure)


def sendable(error: BaseException) -> BaseException:
    """Return an exception that can be pickled and restored.

    If the given exception cannot be pickled, return a `RuntimeError` with the same message. The
    traceback is lost, but the returned exception contains the location of the error in the user's code.
    """
    place = place_of(error)
    try:
        setattr(error, PLACE, place)
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(in_a_line(error))
        setattr(error, PLACE, place)
    return error
