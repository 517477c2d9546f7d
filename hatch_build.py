"""The description of the package: README.md, without what only a checkout can show."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

ELSEWHERE = (
    "\nPictures and results are in the repository, the documents in the source distribution too.\n"
)


class Description(MetadataHookInterface):
    """Hands it to the build."""

    def update(self, metadata: dict) -> None:
        """Set the field `readme`."""
        text = description(Path(self.root, "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def description(readme: str) -> str:
    """Return a README without pictures and their captions, and with names of files in place of links."""
    fenced = re.split(r"(^```.*?^```\n)", readme, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _prose(part) for part in fenced) + ELSEWHERE


def _prose(text: str) -> str:
    picture, caption = r"^(?:!\[|<(?:p|img|picture)\b).*?\n\n", r"(?:\*[^*].*?\*\n\n)?"
    text = re.sub(picture + caption, "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(\()?\[([^\]]+)\]\((?!https?:)([^)#]*)[^)]*\)", _named, text)


def _named(link: re.Match) -> str:
    opened, words, file = link.groups("")
    if file in ("", words):
        return opened + words
    return f"({words}: {file}" if opened else f"{words} ({file})"
