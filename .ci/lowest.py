"""Print the lowest allowed version of each dependency, as constraints for `pip install -c`.

The arguments are the names of extras whose dependencies are included.
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
for requirement in [
    *project["dependencies"],
    *(each for extra in sys.argv[1:] for each in extras[extra]),
]:
    lower = re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", requirement)
    if lower:
        print(f"{lower[1]}=={lower[2]}")
