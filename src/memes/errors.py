"""The exceptions with a sentence for the user."""


class UsageError(ValueError):
    """A wrong argument. The message is one sentence that names it."""


class RunError(RuntimeError):
    """A run that cannot go on, through no fault of its arguments. The message is one sentence."""


def require(condition: bool, sentence: str) -> None:
    """Raise `UsageError(sentence)` unless `condition` holds."""
    if not condition:
        raise UsageError(sentence)
