"""The one exception that users cause."""


class UsageError(ValueError):
    """A wrong argument. The message is one sentence that names it."""


def require(condition: bool, sentence: str) -> None:
    """Raise `UsageError(sentence)` unless `condition` holds."""
    if not condition:
        raise UsageError(sentence)
