"""Escaping of untrusted text, so that terminals, pages and tables do not interpret it."""

from __future__ import annotations

HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
MARKDOWN = str.maketrans(HTML | {c: f"\\{c}" for c in "\\`|[]{}*"})


def printable(text: str) -> str:
    """Escape control characters and invisible characters, so that terminals can print text safely."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def markdown(text: str) -> str:
    """Escape text so that Markdown does not interpret it as HTML, as a link or as a table."""
    return text.translate(MARKDOWN)


def spreadsheet(text: str) -> str:
    """Escape a column header so that spreadsheets do not interpret it as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def mathtext(text: str) -> str:
    """Escape text so that matplotlib does not interpret it as a formula."""
    return text.replace("$", r"\$")
