"""Build hooks that remove pictures from the README, and store the source commit in the package."""

import re
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

REMARK = (
    "\nPictures and results are in the repository. "
    "The source distribution contains the documents as well.\n"
)


class Description(MetadataHookInterface):
    """Metadata hook that sets the description of the package."""

    def update(self, metadata: dict) -> None:
        """Set the field `readme` to the README without pictures and relative links."""
        text = description(Path(self.root, "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class Commit(BuildHookInterface):
    """Build hook that adds the commit as `memes/commit.txt`, so that runs from a wheel can record it."""

    def initialize(self, version: str, build_data: dict) -> None:
        """Add `commit.txt`, unless the build is editable or does not come from a checkout."""
        if version == "editable" or not Path(self.root, ".git").exists():
            return
        command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        found = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True)
        file = Path(self.directory, "commit.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(found.stdout)
        place = "memes/commit.txt" if self.target_name == "wheel" else "src/memes/commit.txt"
        build_data["force_include"][str(file)] = place

    def finalize(self, version: str, build_data: dict, artifact_path: str) -> None:
        """Remove the temporary `commit.txt`."""
        Path(self.directory, "commit.txt").unlink(missing_ok=True)


def description(readme: str) -> str:
    """Remove pictures and their captions from a README, and replace relative links with file names."""
    fenced = re.split(r"(^```.*?^```\n)", readme, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _prose(part) for part in fenced) + REMARK


def _prose(text: str) -> str:
    picture, caption = r"^(?:!\[|<(?:p|img|picture)\b).*?\n\n", r"(?:\*[^*].*?\*\n\n)?"
    text = re.sub(picture + caption, "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(\()?\[([^\]]+)\]\((?!https?:)([^)#]*)[^)]*\)", _named, text)


def _named(link: re.Match) -> str:
    opened, words, file = link.groups("")
    if file in ("", words):
        return opened + words
    return f"({words}: {file}" if opened else f"{words} ({file})"
