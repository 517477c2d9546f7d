"""Names that come from anybody, written so that they are read and not obeyed."""

from __future__ import annotations

HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
MARKDOWN = str.maketrans(HTML | {c: f"\\{c}" for c in "\\`|[]{}*"})


def printable(text: str) -> str:
    """Write characters that a terminal would obey, or that do not show, as their escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def markdown(text: str) -> str:
    """Write text that is neither HTML, nor a link, nor the end of a cell in a table of Markdown."""
    return text.translate(MARKDOWN)


def spreadsheet(text: str) -> str:
    """Write the head of a column that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def mathtext(text: str) -> str:
    """Write text for a figure of matplotlib that holds no formula."""
    return text.replace("$", r"\$")
