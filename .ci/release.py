"""Check the files that `python -m build` has written to a folder.

The wheel must contain only the package. The source distribution must contain all files of the checkout
except results/. All version numbers must agree. The description of the package must not contain links to
files of the checkout.
"""

import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).parents[1]
LISTED = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]


def main(folder: Path) -> None:
    """Check the wheel and the source distribution in a folder."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    listed = subprocess.run(LISTED, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    checkout = {name for name in listed.splitlines() if (ROOT / name).exists()}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = message_from_bytes(archive.read(next(n for n in names if n.endswith("/METADATA"))))
    with tarfile.open(source) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}

    package = {name.removeprefix("src/") for name in checkout if name.startswith("src/memes/")}
    package.add("memes/commit.txt")
    check_files(wheel.name, {name for name in names if ".dist-info/" not in name}, package)
    wanted = {name for name in checkout if not name.startswith("results/")}
    check_files(source.name, held - {"PKG-INFO"}, wanted | {"src/memes/commit.txt"})
    check_versions(about["Version"])
    check_description(about)
    print(f"{wheel.name}: {len(package)} files of memes")
    print(f"{source.name}: {len(held)} files, {source.stat().st_size / 1e6:.1f} MB")


def check_files(name: str, held: set[str], wanted: set[str]) -> None:
    """Check that an archive contains exactly the expected files."""
    check(held >= wanted, f"{name} lacks the files {sorted(wanted - held)}")
    check(held <= wanted, f"{name} contains unexpected files: {sorted(held - wanted)}")


def check_versions(built: str) -> None:
    """Check that the built version, CITATION.cff and CHANGELOG.md agree with `memes.version`.

    For a version in development, CHANGELOG.md must have the heading "Unreleased".
    """
    version = runpy.run_path(str(ROOT / "src/memes/version.py"))["__version__"]
    check(built == version, f"version {built} was built, but src/memes/version.py has {version}")
    heading = "Unreleased" if ".dev" in version else version
    for file, line in {"CITATION.cff": f"version: {version}", "CHANGELOG.md": f"## {heading}"}.items():
        found = re.search(rf"^{re.escape(line)}\b", (ROOT / file).read_text(), re.MULTILINE)
        check(found is not None, f"{file} has no line '{line}'")


def check_description(about: Message) -> None:
    """Check that the package description contains no pictures and no links to files of the checkout."""
    prose = re.sub(r"^```.*?^```", "", str(about.get_payload()), flags=re.MULTILINE | re.DOTALL)
    astray = re.findall(r"!\[.*|\]\((?!https?:)[^)]*\)|<img.*", prose)
    check(not astray, f"the description contains pictures or links to files: {astray}")
    check(len(prose) > 1000, "the description is too short")


def check(condition: bool, sentence: str) -> None:
    """Exit with an error message if the condition is false."""
    if not condition:
        sys.exit(sentence)


main(Path(sys.argv[1]))
