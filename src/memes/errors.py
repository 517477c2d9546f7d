"""The exceptions with a sentence for the user."""


class UsageError(ValueError):
    """A wrong argument. The message is one sentence that names it."""


class RunError(RuntimeError):
    """A run that cannot go on, through no fault of its arguments. The message is one sentence."""


def require(condition: bool, sentence: str) -> None:
    """Raise `UsageError(sentence)` unless `condition` holds."""
    if not condition:
        raise UsageError(sentence)


def in_a_line(error: Exception) -> str:
    """What an exception says: its first line, or what raised a traceback that it quotes."""
    lines = f"{type(error).__name__}: {error}".strip().splitlines()
    return lines[-1] if "Traceback (most recent call last)" in str(error) else lines[0]
